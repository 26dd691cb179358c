//! Arguments of calls that mean "none": `null`, an empty text, an empty list. Some models and servers write them where a
//! tool takes no arguments. Clients would run the tool with `null`, or fail; a call without fragments has an empty object.

use smallvec::SmallVec;

use crate::canonical::{BlockKind, Delta, Event, ToolKind};
use crate::json::JsonStr;

/// Texts of arguments that mean "none", as the inside of a JSON string.
const VOID: [&str; 3] = ["null", r#"\"\""#, "[]"];

/// White space, as the inside of a JSON string.
const BLANKS: [&str; 4] = [" ", r"\n", r"\r", r"\t"];

/// Filter of the events of a response: holds the beginning of a call's arguments back while they may mean "none".
#[derive(Debug, Default)]
pub(super) struct VoidArguments {
    /// Calls without arguments so far, by the index of their block, with the text that is held back.
    fresh: SmallVec<[(u32, String); 1]>,
}

impl VoidArguments {
    /// Returns whether an event must pass the filter.
    #[inline]
    pub(super) fn is_concerned(&self, event: &Event<'_>) -> bool {
        !self.fresh.is_empty()
            || matches!(
                event,
                Event::BlockStart { kind: BlockKind::ToolUse { kind: ToolKind::Function, .. }, .. }
            )
    }

    /// Passes an event on, after the text that was held back before it.
    pub(super) fn event(&mut self, event: &Event<'_>, sink: &mut impl FnMut(&Event<'_>)) {
        match *event {
            Event::BlockStart {
                index, kind: BlockKind::ToolUse { kind: ToolKind::Function, .. }, ..
            } => {
                self.fresh.push((index, String::new()));
            }
            Event::Delta { index, delta: Delta::Object(_) } => {
                self.take(index);
            }
            Event::Delta { index, delta: Delta::Arguments(text) } => {
                let Some((_, held)) = self.fresh.iter_mut().find(|(fresh, _)| *fresh == index) else {
                    return sink(event);
                };
                if held.is_empty() && may_be_void(text.escaped()).is_none() {
                    self.take(index);
                    return sink(event);
                }
                held.push_str(text.escaped());
                if may_be_void(held).is_some() {
                    return;
                }
                self.release(index, sink);
                return;
            }
            Event::BlockStop { index } => {
                // What began like a word for "none" and is another one.
                if self.fresh.iter().any(|(fresh, held)| *fresh == index && may_be_void(held) == Some(false))
                {
                    self.release(index, sink);
                }
                self.take(index);
            }
            _ => {}
        }
        sink(event);
    }

    /// Ends the filtering of a call. Returns the text that was held back.
    fn take(&mut self, index: u32) -> Option<String> {
        let at = self.fresh.iter().position(|(fresh, _)| *fresh == index)?;
        Some(self.fresh.swap_remove(at).1)
    }

    fn release(&mut self, index: u32, sink: &mut impl FnMut(&Event<'_>)) {
        let text = self.take(index).unwrap_or_default();
        sink(&Event::Delta { index, delta: Delta::Arguments(JsonStr::from_escaped(&text)) });
    }
}

/// Returns whether a text means "none": `Some(true)`; `Some(false)` if it is only the beginning of such a text; `None` if
/// it is neither.
fn may_be_void(text: &str) -> Option<bool> {
    let blank = |text: &str| BLANKS.iter().find(|blank| text.starts_with(**blank)).map(|blank| blank.len());
    let mut rest = text;
    while let Some(length) = blank(rest) {
        rest = rest.get(length..).unwrap_or_default();
    }
    if rest.is_empty() {
        return Some(true);
    }
    let word = VOID.iter().find(|word| rest.starts_with(**word));
    let Some(word) = word else { return VOID.iter().any(|word| word.starts_with(rest)).then_some(false) };
    let mut behind = rest.get(word.len()..).unwrap_or_default();
    while let Some(length) = blank(behind) {
        behind = behind.get(length..).unwrap_or_default();
    }
    behind.is_empty().then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arguments that a call has in the end if they arrive in these pieces.
    fn passed(pieces: &[&str]) -> Vec<String> {
        let mut filter = VoidArguments::default();
        let mut out = Vec::new();
        let id = JsonStr::from_escaped("c");
        let kind =
            BlockKind::ToolUse { id, name: id, kind: ToolKind::Function, namespace: JsonStr::default() };
        let mut events = vec![Event::BlockStart { index: 0, choice: 0, kind }];
        events.extend(
            pieces.iter().map(|piece| Event::Delta {
                index: 0,
                delta: Delta::Arguments(JsonStr::from_escaped(piece)),
            }),
        );
        events.push(Event::BlockStop { index: 0 });
        for event in &events {
            assert!(
                matches!(event, Event::BlockStop { .. }) || filter.is_concerned(event) || !out.is_empty()
            );
            filter.event(event, &mut |event| {
                if let Event::Delta { delta: Delta::Arguments(text), .. } = event {
                    out.push(text.escaped().to_owned());
                }
            });
        }
        assert!(filter.fresh.is_empty());
        out
    }

    #[test]
    fn arguments_that_mean_none_are_dropped_however_they_arrive() {
        for word in ["null", "", " ", "[]", r#"\"\""#, r" null\n", r"\n\t[] "] {
            assert!(passed(&[word]).is_empty(), "{word}");
            let letters: Vec<String> = word.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            // An escape never arrives in two pieces: the decoders emit whole ones.
            if !word.contains('\\') {
                assert!(passed(&letters).is_empty(), "{word}");
            }
        }
    }

    #[test]
    fn arguments_of_any_other_text_pass_unchanged() {
        for pieces in [
            &[r#"{\"a\":1}"#][..],
            &["{", "}"],
            &[" ", "{", "}"],
            &["nul"],
            &["nu", "mber"],
            &["null", "ish"],
            &["[", "1]"],
            &["[]", "x"],
            &[r#"\"a\""#],
        ] {
            assert_eq!(passed(pieces).concat(), pieces.concat(), "{pieces:?}");
        }
    }
}
