//! The frames that come by the hundred: one candidate, one part, one text. They differ from the one before in that text
//! and in figures of usage, which are left unread: only the last ones count.

use crate::json::{FrameTemplate, JsonStr, RawJson, TemplateParts};

/// The last such frame.
#[derive(Debug, Default)]
pub(super) struct Usual {
    mould: FrameTemplate,
    said: Said,
    /// Where its usage stands: so far behind the text, and so far before the end.
    usage_at: Option<(usize, usize)>,
    /// Usage that was not read yet.
    unread: String,
    is_unread: bool,
}

/// What such a frame says besides its text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) choice: u32,
    pub(super) thought: bool,
}

impl Usual {
    /// Reads a frame that is like the last one.
    #[inline]
    pub(super) fn read<'a>(&mut self, data: &'a str) -> Option<(Said, JsonStr<'a>)> {
        let cast = self.mould.fit(data)?;
        if let Some((from, behind)) = self.usage_at {
            let rest = cast.rest();
            let usage = rest.get(from..rest.len().checked_sub(behind)?)?;
            self.unread.clear();
            self.unread.push_str(usage);
            self.is_unread = true;
        }
        Some((self.said, cast.text()))
    }

    /// The usage that was not read yet.
    pub(super) fn take_usage(&mut self) -> Option<&str> {
        std::mem::take(&mut self.is_unread).then_some(&self.unread)
    }

    /// Keeps the shape of a frame that has been read, if it is a usual one.
    pub(super) fn keep(&mut self, text: Option<(Said, JsonStr<'_>)>, usage: Option<RawJson<'_>>, data: &str) {
        self.mould.clear();
        let Some((said, text)) = text else { return };
        let end = |part: &str| (part.as_ptr() as usize + part.len()).wrapping_sub(data.as_ptr() as usize);
        let (text_end, usage_end) = (end(text.escaped()), usage.map(|usage| end(usage.text())));
        self.usage_at = match (usage, usage_end) {
            (Some(usage), Some(usage_end)) => {
                let start = usage_end - usage.text().len();
                // Usage in front of the text is none of the usual.
                let (Some(from), Some(behind)) =
                    (start.checked_sub(text_end), data.len().checked_sub(usage_end))
                else {
                    return;
                };
                Some((from, behind))
            }
            _ => None,
        };
        self.said = said;
        self.mould.take(data, &TemplateParts { text, numbers: usage, ..TemplateParts::default() });
    }
}
