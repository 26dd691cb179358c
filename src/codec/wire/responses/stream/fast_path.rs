//! Fast path for deltas: most frames differ from the frame before in their text and their sequence number only.

use super::parse::EventMembers;
use super::slot::Reasoning;
use json::{FrameTemplate, TemplateParts};

/// Template of the last delta, with the facts that all matching frames share.
#[derive(Debug, Default)]
pub(super) struct FastPath {
    mould: FrameTemplate,
    what: DeltaKind,
    output: Option<u64>,
    content: Option<u64>,
    summary: Option<u64>,
}

/// Kind of content that a delta adds to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum DeltaKind {
    #[default]
    Text,
    Refusal,
    Input,
    Reasoning(Reasoning),
}

impl DeltaKind {
    /// Returns the kind for an event type; `None` if it is not a delta.
    pub(super) fn of(name: &str) -> Option<DeltaKind> {
        Some(match name {
            "response.output_text.delta" => DeltaKind::Text,
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                DeltaKind::Input
            }
            "response.reasoning_summary_text.delta" => DeltaKind::Reasoning(Reasoning::Summary),
            "response.reasoning_text.delta" => DeltaKind::Reasoning(Reasoning::Content),
            "response.refusal.delta" => DeltaKind::Refusal,
            _ => return None,
        })
    }
}

impl FastPath {
    /// Reads a frame that matches the template. Returns `None` if it must be parsed.
    #[inline]
    pub(super) fn read<'a>(&self, data: &'a str) -> Option<EventMembers<'a>> {
        let cast = self.mould.fit(data)?;
        let &FastPath { output, content, summary, .. } = self;
        Some(EventMembers { output, content, summary, delta: cast.text(), ..EventMembers::default() })
    }

    /// Returns the kind of the last delta.
    #[inline]
    pub(super) fn what(&self) -> DeltaKind {
        self.what
    }

    /// Stores the template of a delta that was parsed.
    pub(super) fn store(&mut self, what: DeltaKind, frame: &EventMembers<'_>, data: &str) {
        let &EventMembers { output, content, summary, delta, padding, number, .. } = frame;
        // Without an `output_index` a delta belongs to the last item, which may be another one for the next frame.
        // The template has no slot for log probabilities.
        if frame.logprobs.is_some() || output.is_none() {
            return self.mould.clear();
        }
        (self.what, self.output, self.content, self.summary) = (what, output, content, summary);
        self.mould.take(data, &TemplateParts { text: delta, padding, numbers: number });
    }
}
