//! Arguments of calls as every client understands them: those that are encoded twice or stand behind an empty object
//! become the object, and those that mean "none" become nothing.
//!
//! Arguments that mean "none": `null`, an empty text, an empty list. Some models and servers write them where a
//! tool takes no arguments. Clients would run the tool with `null`, or fail; a call without fragments has an empty object.

use smallvec::SmallVec;

use crate::canonical::{BlockKind, Delta, Event, ToolKind};
use crate::wire::encoded_twice::{Beginning, MAX_HELD, OuterEncoding, beginning, without_blanks};
use json::JsonStr;

/// Texts of arguments that mean "none", as the inside of a JSON string.
const VOID: [&str; 3] = ["null", r#"\"\""#, "[]"];

/// Filter of the events of a response: holds the beginning of a call's arguments back until it is known what it is.
#[derive(Debug, Default)]
pub(super) struct VoidArguments {
    /// Calls without arguments so far, and those whose arguments are encoded twice.
    fresh: SmallVec<[FreshCall; 1]>,
}

/// Call whose arguments are not known to be as usual.
#[derive(Debug)]
struct FreshCall {
    /// Index of its block.
    index: u32,
    /// Text that is held back.
    held: String,
    /// Outer encoding of arguments that are encoded twice.
    outer: Option<OuterEncoding>,
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
                self.fresh.push(FreshCall { index, held: String::new(), outer: None });
            }
            Event::Delta { index, delta: Delta::Object(_) } => {
                self.take(index);
            }
            Event::Delta { index, delta: Delta::Arguments(text) } => {
                let Some(call) = self.fresh.iter_mut().find(|call| call.index == index) else {
                    return sink(event);
                };
                if let Some(outer) = &mut call.outer {
                    let mut out = String::new();
                    outer.push(text.escaped(), &mut out);
                    return write(index, &out, sink);
                }
                if call.held.is_empty() && is_usual(text.escaped()) {
                    self.take(index);
                    return sink(event);
                }
                call.held.push_str(text.escaped());
                match beginning(&call.held) {
                    Beginning::EncodedTwice(at) => {
                        let held = std::mem::take(&mut call.held);
                        let (outer, mut out) = (call.outer.insert(OuterEncoding::default()), String::new());
                        outer.push(held.get(at..).unwrap_or_default(), &mut out);
                        return write(index, &out, sink);
                    }
                    Beginning::BehindEmptyObject(at) => {
                        let held = self.take(index).unwrap_or_default();
                        return write(index, held.get(at..).unwrap_or_default(), sink);
                    }
                    _ if call.held.len() > MAX_HELD || is_usual(&call.held) => {
                        let held = self.take(index).unwrap_or_default();
                        return write(index, &held, sink);
                    }
                    _ => return,
                }
            }
            Event::BlockStop { index } => {
                // What began like a word for "none" and is another one.
                let held = self.take(index).unwrap_or_default();
                if may_be_void(&held) != Some(true) {
                    write(index, &held, sink);
                }
            }
            _ => {}
        }
        sink(event);
    }

    /// Ends the filtering of a call. Returns the text that was held back.
    fn take(&mut self, index: u32) -> Option<String> {
        let at = self.fresh.iter().position(|call| call.index == index)?;
        Some(self.fresh.swap_remove(at).held)
    }
}

fn write(index: u32, text: &str, sink: &mut impl FnMut(&Event<'_>)) {
    if !text.is_empty() {
        sink(&Event::Delta { index, delta: Delta::Arguments(JsonStr::from_escaped(text)) });
    }
}

/// Returns whether arguments that begin so are as usual: they mean something, and are encoded once.
fn is_usual(text: &str) -> bool {
    may_be_void(text).is_none() && beginning(text) == Beginning::Usual
}

/// Returns whether a text means "none": `Some(true)`; `Some(false)` if it is only the beginning of such a text; `None` if
/// it is neither.
fn may_be_void(text: &str) -> Option<bool> {
    let rest = without_blanks(text);
    if rest.is_empty() {
        return Some(true);
    }
    let word = VOID.iter().find(|word| rest.starts_with(**word));
    let Some(word) = word else { return VOID.iter().any(|word| word.starts_with(rest)).then_some(false) };
    without_blanks(rest.get(word.len()..).unwrap_or_default()).is_empty().then_some(true)
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
            &["{}"],
            &["{}", "x"],
            &[r#"\""#, "a"],
            &[r#"\" "#],
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
