//! Fast path for the frequent chunks: one choice, one delta, one text.

use super::calls::Fragment;
use super::parsed_choice::ChoiceMembers;
use crate::wire::watch::elements;
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Target of the text in a frequent chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FastPath {
    pub(super) choice: u32,
    pub(super) what: DeltaKind,
}

/// Part of a choice to which text is appended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum DeltaKind {
    /// Message text.
    #[default]
    Content,
    /// Reasoning, under either of its names.
    Reasoning,
    /// Input of the call in this position.
    Input(Fragment<'static>),
}

impl FastPath {
    /// Returns the target and the text of a choice that only appends one text. `None` if it contains anything else,
    /// such as a finish reason or the start of a call.
    pub(super) fn of<'a>(said: &ChoiceMembers<'a>) -> Result<Option<(FastPath, JsonStr<'a>)>, JsonError> {
        let Some(words) = &said.delta else { return Ok(None) };
        let others = [
            said.message,
            said.logprobs,
            words.details,
            words.refusal,
            words.legacy,
            words.images,
            words.audio,
            words.annotations,
            words.extra,
        ];
        // Some providers never omit a member and send it empty; ignore those.
        let says = |value: &RawJson<'a>| !matches!(value.text(), "\"\"" | "[]");
        if others.iter().flatten().any(says) || !said.finish.is_empty() {
            return Ok(None);
        }
        let [content, reasoning, other, calls] =
            [words.content, words.reasoning_content, words.reasoning, words.calls]
                .map(|value| value.filter(says));
        // Exactly one member, because the template has a single slot for text.
        let found = match (content, reasoning, other, calls) {
            (Some(content), None, None, None) => content.as_str().map(|text| (DeltaKind::Content, text)),
            (None, Some(text), None, None) | (None, None, Some(text), None) => {
                text.as_str().map(|text| (DeltaKind::Reasoning, text))
            }
            (None, None, None, Some(calls)) => only_input(calls)?,
            _ => None,
        };
        Ok(found.map(|(what, text)| (FastPath { choice: said.index, what }, text)))
    }
}

/// Returns the only fragment of a list of calls, with its input. `None` if there are several, or if it has an id or a
/// name.
fn only_input(calls: RawJson<'_>) -> Result<Option<(DeltaKind, JsonStr<'_>)>, JsonError> {
    let (mut found, mut count) = (None, 0);
    elements(&mut Cursor::new(calls.text()), |json| {
        found = Fragment::read(json)?.only_input();
        count += 1;
        Ok(())
    })?;
    Ok(found.filter(|_| count == 1).map(|(fragment, text)| (DeltaKind::Input(fragment), text)))
}
