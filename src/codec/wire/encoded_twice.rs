//! Arguments of calls that arrive in another form than the text of one object: encoded as JSON twice, or behind an empty
//! object. Relays and some models write them so.
//!
//! Text of arguments is the inside of a JSON string, still escaped. This module has the beginnings by which such
//! arguments are known, and takes the outer encoding off while the text arrives. Clients send such arguments back, so that
//! histories have them too.

use crate::wire::codec::is_object;
use json::{JsonStr, with_whole_characters};

/// White space, as the inside of a JSON string.
const BLANKS: [&str; 4] = [" ", r"\n", r"\r", r"\t"];

/// Longest beginning that is held back until it is known what it is, in bytes.
pub const MAX_HELD: usize = 64;

/// What the beginning of arguments is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It may become any of the others: nothing, white space, or a quote.
    Open,
    /// An empty object: all of the arguments, or in front of them.
    EmptyObject,
    /// An empty object and then another one, which begins at this byte.
    BehindEmptyObject(usize),
    /// An object that is encoded twice: the text from this byte on is the inside of the outer string.
    EncodedTwice(usize),
    /// Anything else.
    Usual,
}

/// Returns text without the white space at its beginning, as the inside of a JSON string.
pub fn without_blanks(mut text: &str) -> &str {
    while let Some(blank) = BLANKS.iter().find(|blank| text.starts_with(**blank)) {
        text = text.get(blank.len()..).unwrap_or_default();
    }
    text
}

/// Returns what the beginning of arguments is.
pub fn beginning(text: &str) -> Beginning {
    let rest = without_blanks(text);
    let at = |rest: &str| text.len() - rest.len();
    if let Some(behind) = rest.strip_prefix("{}") {
        let behind = without_blanks(behind);
        return match behind.as_bytes().first() {
            None => Beginning::EmptyObject,
            Some(b'{') => Beginning::BehindEmptyObject(at(behind)),
            Some(_) => Beginning::Usual,
        };
    }
    if let Some(inside) = rest.strip_prefix(r#"\""#) {
        return match inside.trim_start_matches(' ').as_bytes().first() {
            None => Beginning::Open,
            Some(b'{') => Beginning::EncodedTwice(at(inside)),
            Some(_) => Beginning::Usual,
        };
    }
    if rest.is_empty() { Beginning::Open } else { Beginning::Usual }
}

/// Returns whole arguments as the text of one object, if they are encoded twice or stand behind an empty object. `None` if
/// they are anything else.
pub fn corrected(text: &str) -> Option<String> {
    let mut out = String::new();
    match beginning(text) {
        Beginning::BehindEmptyObject(at) => out.push_str(text.get(at..)?),
        Beginning::EncodedTwice(at) => OuterEncoding::default().push(text.get(at..)?, &mut out),
        Beginning::Open | Beginning::EmptyObject | Beginning::Usual => return None,
    }
    is_object(&JsonStr::from_escaped(&out).decode()).then_some(out)
}

/// Same as [`corrected`], as plain text that can be written as a value.
pub fn object_in(text: &str) -> Option<String> {
    let object = corrected(text)?;
    let plain = JsonStr::from_escaped(&object).decode();
    Some(with_whole_characters(plain.trim()).into_owned())
}

/// Takes the outer encoding off arguments that are encoded twice, fragment by fragment. Holds an escape of the inner string
/// that is not complete.
#[derive(Clone, Debug, Default)]
pub struct OuterEncoding {
    /// Beginning of an escape, at most two escapes of a character outside of the BMP.
    held: String,
    /// Whether the outer string has ended. The text behind it is dropped.
    ended: bool,
}

impl OuterEncoding {
    /// Appends what is inside the outer string to `out`, as the inside of a JSON string.
    pub fn push(&mut self, fragment: &str, out: &mut String) {
        let mut characters = fragment.chars();
        while let Some(character) = characters.next() {
            if self.ended {
                return;
            }
            // One level of escapes is that of the fragment itself.
            let plain = match character {
                '\\' => match characters.next() {
                    Some(quoted @ ('"' | '\\' | '/')) => quoted,
                    Some('u') => {
                        let digits = characters.as_str().get(..4).unwrap_or_default();
                        characters = characters.as_str().get(digits.len()..).unwrap_or_default().chars();
                        match u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) {
                            Some(plain) if plain >= ' ' => plain,
                            _ => {
                                self.settle_all(out);
                                out.push_str(r"\u");
                                out.push_str(digits);
                                continue;
                            }
                        }
                    }
                    // A control character, which stands in no string: white space between the tokens.
                    Some(control) => {
                        self.settle_all(out);
                        out.push('\\');
                        out.push(control);
                        continue;
                    }
                    None => return,
                },
                plain => plain,
            };
            self.inner(plain, out);
        }
    }

    /// Handles a character of the outer string.
    fn inner(&mut self, plain: char, out: &mut String) {
        match (self.held.len(), plain) {
            (0, '"') => self.ended = true,
            (0, '\\') => self.held.push('\\'),
            (0, plain) => out.push(plain),
            (1, 'u') => self.held.push('u'),
            (1, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                out.push('\\');
                out.push(plain);
                self.held.clear();
            }
            // The first half of a character waits for the second, so that both leave in one fragment.
            (6, '\\') | (7, 'u') => self.held.push(plain),
            (2..6 | 8..12, digit) if digit.is_ascii_hexdigit() => {
                self.held.push(digit);
                if self.held.len() == 12 || (self.held.len() == 6 && !is_first_half(&self.held)) {
                    out.push_str(&self.held);
                    self.held.clear();
                }
            }
            // Half a character alone, or no escape of JSON, whose backslash is text.
            _ => {
                self.settle(out);
                self.inner(plain, out);
            }
        }
    }

    fn settle_all(&mut self, out: &mut String) {
        while !self.held.is_empty() {
            self.settle(out);
        }
    }

    /// Writes the first part of what is held: half a character, or the beginning of an escape that is none.
    fn settle(&mut self, out: &mut String) {
        if self.held.len() < 6 {
            push_text(&self.held, out);
            self.held.clear();
        } else {
            out.extend(self.held.drain(..6));
        }
    }
}

/// Appends plain text that begins with a backslash.
fn push_text(plain: &str, out: &mut String) {
    if let Some(rest) = plain.strip_prefix('\\') {
        out.push_str(r"\\");
        out.push_str(rest);
    }
}

fn is_first_half(escape: &str) -> bool {
    let code = escape.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    code.is_some_and(|code| (0xD800..0xDC00).contains(&code))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the inside of the JSON string of a text.
    fn escaped(text: &str) -> String {
        let quoted = json!(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    }

    fn objects() -> [Value; 5] {
        [
            json!({}),
            json!({"q": "x"}),
            json!({"a": "quotes \" and \\ and / and \n\t\u{1}", "b": {"c": [1, "{}"]}}),
            json!({"näme": "Grüße 😀 \u{2028}"}),
            json!({"code": "print(\"\\\"\\n\")"}),
        ]
    }

    #[test]
    fn arguments_that_are_encoded_twice_are_decoded_once_however_they_arrive() {
        for object in objects() {
            for ascii in [false, true] {
                let mut once = object.to_string();
                if ascii {
                    let mut units = [0; 2];
                    once = once
                        .chars()
                        .map(|c| match c.is_ascii() {
                            true => c.to_string(),
                            false => {
                                c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect()
                            }
                        })
                        .collect();
                }
                let twice: Vec<char> = json!(once).to_string().chars().collect();
                for size in 1..=twice.len() {
                    let (mut encoding, mut out, mut begun) =
                        (OuterEncoding::default(), String::new(), String::new());
                    let mut is_inside = false;
                    for piece in twice.chunks(size) {
                        let piece = escaped(&piece.iter().collect::<String>());
                        if is_inside {
                            encoding.push(&piece, &mut out);
                            continue;
                        }
                        begun.push_str(&piece);
                        match beginning(&begun) {
                            Beginning::EncodedTwice(at) => {
                                is_inside = true;
                                encoding.push(&begun[at..], &mut out);
                            }
                            found => assert_eq!(found, Beginning::Open, "{begun}"),
                        }
                    }
                    let text: String = serde_json::from_str(&format!("\"{out}\"")).unwrap();
                    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object, "{size}: {out}");
                }
            }
        }
    }

    #[test]
    fn whole_arguments_are_corrected_only_if_they_become_an_object() {
        for object in objects() {
            let text = object.to_string();
            for odd in [json!(text).to_string(), format!("{{}}{text}"), format!(" {{}} \n{text}")] {
                let out = corrected(&escaped(&odd)).unwrap();
                let decoded: String = serde_json::from_str(&format!("\"{out}\"")).unwrap();
                assert_eq!(serde_json::from_str::<Value>(&decoded).unwrap(), object, "{odd}");
            }
            assert_eq!(corrected(&escaped(&text)), None);
        }
        for text in ["", "{}", "null", "\"a\"", "\"{no\"", "{}x", "{}{no", "[]", "{\"q\":\"{}\"}"] {
            assert_eq!(corrected(&escaped(text)), None, "{text}");
        }
    }
}
