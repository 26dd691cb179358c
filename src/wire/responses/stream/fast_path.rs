//! The frames that come by the hundred: deltas, which differ from the one before in a text and a number alone.

use super::parse::Frame;
use super::slot::Reasoning;
use crate::json::{FrameTemplate, TemplateParts};

/// The last delta: its shape, and what it said besides its text.
#[derive(Debug, Default)]
pub(super) struct Usual {
    mould: FrameTemplate,
    what: What,
    output: Option<u64>,
    content: Option<u64>,
    summary: Option<u64>,
}

/// What a delta adds to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum What {
    #[default]
    Text,
    Refusal,
    Input,
    Reasoning(Reasoning),
}

impl What {
    /// Of the event with this name.
    pub(super) fn of(name: &str) -> Option<What> {
        Some(match name {
            "response.output_text.delta" => What::Text,
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => What::Input,
            "response.reasoning_summary_text.delta" => What::Reasoning(Reasoning::Summary),
            "response.reasoning_text.delta" => What::Reasoning(Reasoning::Content),
            "response.refusal.delta" => What::Refusal,
            _ => return None,
        })
    }
}

impl Usual {
    /// Reads a frame that is like the last delta.
    #[inline]
    pub(super) fn read<'a>(&self, data: &'a str) -> Option<Frame<'a>> {
        let cast = self.mould.fit(data)?;
        let &Usual { output, content, summary, .. } = self;
        Some(Frame { output, content, summary, delta: cast.text(), ..Frame::default() })
    }

    /// What the last delta added to.
    #[inline]
    pub(super) fn what(&self) -> What {
        self.what
    }

    /// Keeps the shape of a delta that has been read.
    pub(super) fn keep(&mut self, what: What, frame: &Frame<'_>, data: &str) {
        let &Frame { output, content, summary, delta, padding, number, .. } = frame;
        // Without a place it belongs to the last item, whichever that is then.
        if frame.logprobs.is_some() || output.is_none() {
            return self.mould.clear();
        }
        (self.what, self.output, self.content, self.summary) = (what, output, content, summary);
        self.mould.take(data, &TemplateParts { text: delta, padding, numbers: number });
    }
}
