//! Fast path for frames with one candidate that has one text part. They differ from the frame before in the text and
//! in their usage, which is left unread: only the last usage counts.

use json::{FrameTemplate, JsonStr, RawJson, TemplateParts};

/// Template of the last such frame.
#[derive(Debug, Default)]
pub(super) struct FastPath {
    mould: FrameTemplate,
    facts: TemplateFacts,
    /// Position of the usage object: bytes from the end of the text to its start, and from its end to the end of the
    /// frame.
    usage_at: Option<(usize, usize)>,
    /// Text of the last usage that was not parsed. Valid while `is_unread` is set.
    unread: String,
    is_unread: bool,
}

/// Facts that all matching frames share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TemplateFacts {
    pub(super) choice: u32,
    pub(super) is_reasoning: bool,
}

impl FastPath {
    /// Reads a frame that matches the template, and stores its usage unparsed. Returns `None` if the frame must be
    /// parsed.
    #[inline]
    pub(super) fn read<'a>(&mut self, data: &'a str) -> Option<(TemplateFacts, JsonStr<'a>)> {
        let cast = self.mould.fit(data)?;
        if let Some((from, behind)) = self.usage_at {
            let rest = cast.rest();
            let usage = rest.get(from..rest.len().checked_sub(behind)?)?;
            self.unread.clear();
            self.unread.push_str(usage);
            self.is_unread = true;
        }
        Some((self.facts, cast.text()))
    }

    /// Takes the usage that was not parsed; `None` if there is none.
    pub(super) fn take_usage(&mut self) -> Option<&str> {
        std::mem::take(&mut self.is_unread).then_some(&self.unread)
    }

    /// Stores the template of a frame that was parsed; clears it if the frame has more than one text (`text` is
    /// `None`).
    pub(super) fn store(
        &mut self,
        text: Option<(TemplateFacts, JsonStr<'_>)>,
        usage: Option<RawJson<'_>>,
        data: &str,
    ) {
        self.mould.clear();
        let Some((said, text)) = text else { return };
        let end = |part: &str| (part.as_ptr() as usize + part.len()).wrapping_sub(data.as_ptr() as usize);
        let (text_end, usage_end) = (end(text.escaped()), usage.map(|usage| end(usage.text())));
        self.usage_at = match (usage, usage_end) {
            (Some(usage), Some(usage_end)) => {
                let start = usage_end - usage.text().len();
                // Usage before the text: do not build a template, since its position is stored relative to the end of
                // the text.
                let (Some(from), Some(behind)) =
                    (start.checked_sub(text_end), data.len().checked_sub(usage_end))
                else {
                    return;
                };
                Some((from, behind))
            }
            _ => None,
        };
        self.facts = said;
        self.mould.take(data, &TemplateParts { text, numbers: usage, ..TemplateParts::default() });
    }
}
