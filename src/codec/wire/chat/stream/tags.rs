//! Parser of reasoning tags in message text: `<think>...</think>` before the answer.
//!
//! Servers of open models leave the tags in the text unless a reasoning parser is configured (vLLM
//! `--reasoning-parser`, llama.cpp `--reasoning-format`, Ollama `think`). The pieces of a stream may cut a tag
//! anywhere, and its characters may be escaped: servers written in Go send `\u003cthink\u003e`.

use memchr::memchr2;

const OPENING: &[u8] = b"<think>";
const CLOSING: &[u8] = b"</think>";

/// Parser state of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Only white space so far.
    #[default]
    Before,
    /// The opening tag was read, and only white space after it.
    Opened,
    /// Inside the reasoning.
    Inside,
    /// The closing tag was read, and only white space after it.
    Behind,
}

/// Splitter of message text into reasoning and answer.
#[derive(Debug, Default)]
pub(super) struct Tags {
    place: Place,
    /// Text that may be the beginning of a tag, as it was received.
    held: String,
}

enum Found<'t> {
    /// The tag, and the text behind it.
    Whole(&'t str),
    /// The text ends inside the tag.
    Part,
    No,
}

impl Tags {
    /// Splits a piece of text (the inside of a JSON string) and passes each part to `put`, with true for reasoning.
    /// Returns false once no more tags can follow: they are only recognized before the answer.
    pub(super) fn split(&mut self, text: &str, mut put: impl FnMut(bool, &str)) -> bool {
        let mut joined = std::mem::take(&mut self.held);
        let mut rest = text;
        if !joined.is_empty() {
            // A tag may be cut by a piece: continue with what was held back.
            joined.push_str(text);
            rest = &joined;
        }
        loop {
            match self.place {
                Place::Before => match find(behind_space(rest), OPENING) {
                    Found::Whole(after) => (rest, self.place) = (after, Place::Opened),
                    Found::Part => {
                        self.held.push_str(rest);
                        return true;
                    }
                    Found::No => {
                        put(false, rest);
                        return false;
                    }
                },
                Place::Opened => {
                    rest = behind_space(rest);
                    if rest.is_empty() {
                        return true;
                    }
                    self.place = Place::Inside;
                }
                Place::Inside => {
                    let Some(after) = self.inside(rest, &mut put) else { return true };
                    (rest, self.place) = (after, Place::Behind);
                }
                Place::Behind => {
                    rest = behind_space(rest);
                    if !rest.is_empty() {
                        put(false, rest);
                    }
                    return rest.is_empty();
                }
            }
        }
    }

    /// Returns the text that was held back, and whether it is reasoning. For the end of the text.
    pub(super) fn into_rest(self) -> (bool, String) {
        (self.place != Place::Before, self.held)
    }

    /// Passes reasoning to `put` up to the closing tag. Returns the text behind the tag, `None` if the tag is not
    /// complete yet.
    fn inside<'t>(&mut self, text: &'t str, put: &mut impl FnMut(bool, &str)) -> Option<&'t str> {
        let mut at = 0;
        let end = loop {
            let candidate = text.get(at..).and_then(|rest| memchr2(b'<', b'\\', rest.as_bytes()));
            let Some(offset) = candidate else { break (text.len(), None) };
            at += offset;
            let rest = text.get(at..).unwrap_or_default();
            match find(rest, CLOSING) {
                // Advance by a whole character, so that an escape is not read from its middle.
                Found::No => at += unit(rest).map_or(1, |(_, length)| length),
                Found::Part => {
                    self.held.push_str(rest);
                    break (at, None);
                }
                Found::Whole(after) => break (at, Some(after)),
            }
        };
        let (at, after) = end;
        match text.get(..at) {
            Some(reasoning) if !reasoning.is_empty() => put(true, reasoning),
            _ => {}
        }
        after
    }
}

/// Returns whether a text begins with a tag.
fn find<'t>(text: &'t str, tag: &[u8]) -> Found<'t> {
    let mut rest = text;
    for wanted in tag {
        match unit(rest) {
            None => return Found::Part,
            Some((Some(byte), length)) if byte == *wanted => rest = rest.get(length..).unwrap_or_default(),
            Some(_) => return Found::No,
        }
    }
    Found::Whole(rest)
}

fn behind_space(text: &str) -> &str {
    let mut rest = text;
    while let Some((Some(b' ' | b'\n' | b'\r' | b'\t'), length)) = unit(rest) {
        rest = rest.get(length..).unwrap_or_default();
    }
    rest
}

/// Returns the first character of a text, if it is ASCII, and its length in bytes as written. Escapes are never cut,
/// because a piece is a whole JSON string. `None` at the end of the text.
fn unit(text: &str) -> Option<(Option<u8>, usize)> {
    let bytes = text.as_bytes();
    let first = *bytes.first()?;
    if first != b'\\' {
        let length = text.chars().next().map_or(1, char::len_utf8);
        return Some((Some(first).filter(u8::is_ascii), length));
    }
    Some(match bytes.get(1) {
        Some(b'u') => {
            let code = text.get(2..6).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            (code.filter(u8::is_ascii), 6)
        }
        Some(b'n') => (Some(b'\n'), 2),
        Some(b'r') => (Some(b'\r'), 2),
        Some(b't') => (Some(b'\t'), 2),
        Some(b'/') => (Some(b'/'), 2),
        _ => (None, 2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns reasoning and answer of a text that arrives in these pieces.
    fn read<'p>(pieces: impl IntoIterator<Item = &'p str>) -> (String, String) {
        let (mut thought, mut answer) = (String::new(), String::new());
        let mut tags = Some(Tags::default());
        for piece in pieces {
            let mut put = |inside: bool, text: &str| {
                assert!(!text.is_empty());
                if inside { thought.push_str(text) } else { answer.push_str(text) }
            };
            match &mut tags {
                Some(open) => {
                    if !open.split(piece, &mut put) {
                        tags = None;
                    }
                }
                None => put(false, piece),
            }
        }
        if let Some((inside, rest)) = tags.map(Tags::into_rest) {
            if inside { thought.push_str(&rest) } else { answer.push_str(&rest) }
        }
        (thought, answer)
    }

    #[test]
    fn think_tags_split_reasoning_from_text_at_every_split() {
        for (text, thought, answer) in [
            (r"<think>\nI add.\n</think>\n\nTwo.", r"I add.\n", "Two."),
            (r"\n <think>I < you \\u003c</th</think>Two <think>.", r"I < you \\u003c</th", "Two <think>."),
            (r"\u003cthink\u003eI add.\u003C\/think\u003e Two", "I add.", "Two"),
            (r"Two <think>no</think>", "", r"Two <think>no</think>"),
            (r" \n Two", "", r" \n Two"),
            ("<thinking>", "", "<thinking>"),
            ("<thi", "", "<thi"),
            ("<think>for ever", "for ever", ""),
            ("<think>for ever</thin", "for ever</thin", ""),
            ("<think></think>Zwei \u{e9}\u{1f600}", "", "Zwei \u{e9}\u{1f600}"),
            ("<think>\u{e9}\u{1f600}</think>", "\u{e9}\u{1f600}", ""),
            (r"<think>\ud83d\ude00</think>\ud83d\ude00", r"\ud83d\ude00", r"\ud83d\ude00"),
        ] {
            let expected = (thought.to_owned(), answer.to_owned());
            assert_eq!(read([text]), expected, "{text}");
            // Pieces end between characters, escaped ones included.
            let mut units = Vec::new();
            let mut rest = text;
            while let Some((_, length)) = unit(rest) {
                let (one, more) = rest.split_at(length);
                units.push(one);
                rest = more;
            }
            assert_eq!(read(units.iter().copied()), expected, "{text}");
            for cut in 0..units.len() {
                let (left, right) = units.split_at(cut);
                assert_eq!(
                    read([left.concat().as_str(), right.concat().as_str()]),
                    expected,
                    "{text} at {cut}"
                );
            }
        }
    }
}
