//! The chunks that come by the hundred: one choice, one delta, one text.

use super::calls::Fragment;
use super::parsed_choice::Said;
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::watch::elements;

/// What such a chunk adds to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usual {
    /// The choice's index.
    pub(super) choice: u32,
    pub(super) what: What,
}

/// What of a choice is added to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum What {
    /// Its text.
    #[default]
    Content,
    /// Its reasoning, under whichever name.
    Reasoning,
    /// The input of a call in this place.
    Input(Fragment<'static>),
}

impl Usual {
    /// Whether a choice says only one thing, and nothing that ends or begins anything; and its text.
    pub(super) fn of<'a>(said: &Said<'a>) -> Result<Option<(Usual, JsonStr<'a>)>, JsonError> {
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
        // Empty ones say nothing: there are providers that never leave a member out.
        let says = |value: &RawJson<'a>| !matches!(value.text(), "\"\"" | "[]");
        if others.iter().flatten().any(says) || !said.finish.is_empty() {
            return Ok(None);
        }
        let [content, reasoning, other, calls] =
            [words.content, words.reasoning_content, words.reasoning, words.calls]
                .map(|value| value.filter(says));
        let found = match (content, reasoning, other, calls) {
            (Some(content), None, None, None) => content.as_str().map(|text| (What::Content, text)),
            (None, Some(text), None, None) | (None, None, Some(text), None) => {
                text.as_str().map(|text| (What::Reasoning, text))
            }
            (None, None, None, Some(calls)) => only_input(calls)?,
            _ => None,
        };
        Ok(found.map(|(what, text)| (Usual { choice: said.index, what }, text)))
    }
}

/// The only fragment of a list of calls, if it has nothing but input.
fn only_input(calls: RawJson<'_>) -> Result<Option<(What, JsonStr<'_>)>, JsonError> {
    let (mut found, mut count) = (None, 0);
    elements(&mut Cursor::new(calls.text()), |json| {
        found = Fragment::read(json)?.only_input();
        count += 1;
        Ok(())
    })?;
    Ok(found.filter(|_| count == 1).map(|(fragment, text)| (What::Input(fragment), text)))
}
