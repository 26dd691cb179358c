//! JSON state machine: the position in an unfinished document, character by character, and the repair at each fault.

use smallvec::SmallVec;

use super::TextSink;
use json::before_backslash;

/// Maximum nesting depth. The parsers of SDKs give up at 128 levels or later.
const MAX_DEPTH: usize = 120;

/// Position in a document whose value is an object.
#[derive(Clone, Debug)]
pub(super) struct ArgumentsPosition {
    at: At,
    /// Open containers: true for an object, false for an array.
    open: SmallVec<[bool; 16]>,
}

/// Expected element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    FirstKey,
    Key,
    Colon,
    Value,
    Element,
    String { key: bool },
    Escape { key: bool },
    Hex { key: bool, left: u8 },
    Word { word: Word, read: u8 },
    Number(Digits),
    After,
    Done,
}

/// Literals of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    True,
    False,
    Null,
}

impl Word {
    const fn text(self) -> &'static str {
        match self {
            Word::True => "true",
            Word::False => "false",
            Word::Null => "null",
        }
    }

    /// Returns the rest of the literal after `read` letters.
    fn rest(self, read: u8) -> &'static str {
        self.text().get(usize::from(read)..).unwrap_or_default()
    }
}

/// State of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    E,
    ESign,
    Exponent,
}

/// Action for a character.
#[derive(Clone, Copy)]
pub(super) enum PlaceStep {
    Pass,
    /// Output it only if another element follows.
    Comma,
    /// Output it, and the comma before it.
    Begin,
    /// Output it without the comma before it.
    End,
    /// Drop white space outside of the document.
    Drop,
    /// Drop text behind the document.
    Surplus,
    /// Insert a patch before the character, then read it again.
    Insert(Patch),
    /// The number ends before the character; read it again.
    Close,
    /// Output a backslash before the character.
    Escape,
    Fault,
}

/// Repair that is inserted before a character.
#[derive(Clone, Copy)]
pub(super) enum Patch {
    /// Second backslash: the one before was meant literally.
    Backslash,
    /// Missing hexadecimal digits.
    Zeros(u8),
}

impl Patch {
    /// Returns the patch as it is written inside a JSON string.
    pub(super) fn text(self) -> &'static str {
        match self {
            Patch::Backslash => "\\\\",
            Patch::Zeros(count) => zeros(count),
        }
    }
}

impl ArgumentsPosition {
    /// Returns the position before the document.
    pub(super) fn new() -> Self {
        ArgumentsPosition { at: At::Start, open: SmallVec::new() }
    }

    /// Returns the position behind the document.
    pub(super) fn end() -> Self {
        ArgumentsPosition { at: At::Done, ..ArgumentsPosition::new() }
    }

    /// Returns whether only white space was read.
    pub(super) fn is_start(&self) -> bool {
        self.at == At::Start
    }

    /// Returns whether the document is complete.
    pub(super) fn is_end(&self) -> bool {
        self.at == At::Done
    }

    /// Returns whether the position is in the outermost object, before its first member.
    pub(super) fn is_empty_object(&self) -> bool {
        self.at == At::FirstKey && self.open.len() == 1
    }

    /// Closes the innermost open container. Returns whether it is an object, and whether it was the last. `None` if no
    /// container is open.
    pub(super) fn pop(&mut self) -> Option<(bool, bool)> {
        let object = self.open.pop()?;
        Some((object, self.open.is_empty()))
    }

    /// Skips text and valid escapes in a string, and the end of the string. Returns the number of bytes. `text` is itself
    /// the inside of a JSON string.
    #[inline(always)]
    pub(super) fn run(&mut self, text: &[u8]) -> usize {
        let At::String { key } = self.at else { return 0 };
        let mut run = 0;
        loop {
            // In an escaped string, every character with a meaning has a backslash before it.
            run += before_backslash(text.get(run..).unwrap_or_default());
            run += match text.get(run..) {
                // The usual escapes, without a change of state: those of source code are a few bytes apart.
                Some([b'\\', b'\\', b'n' | b't' | b'r' | b'b' | b'f' | b'/', ..]) => 3,
                Some([b'\\', b'\\', b'\\', b'"' | b'\\', ..]) => 4,
                Some([b'\\', b'"', ..]) => {
                    self.at = if key { At::Colon } else { At::After };
                    return run + 2;
                }
                Some([b'\\', b'\\', ..]) => {
                    self.at = At::Escape { key };
                    return run + 2;
                }
                _ => return run,
            };
        }
    }

    /// Completes the value that is being read with the shortest valid text.
    pub(super) fn finish_value(&self, out: &mut impl TextSink) {
        let key = match self.at {
            At::String { key } => key,
            At::Escape { key } => {
                out.put(b"\\\\");
                key
            }
            At::Hex { key, left } => {
                out.put(zeros(left).as_bytes());
                key
            }
            At::Colon => return out.put(b":null"),
            At::Value => return out.put(b"null"),
            At::Word { word, read } => return out.put(word.rest(read).as_bytes()),
            At::Number(Digits::Minus | Digits::Point | Digits::E | Digits::ESign) => {
                return out.put(b"0");
            }
            _ => return,
        };
        out.put(if key { b"\\\":null" } else { b"\\\"" });
    }

    /// Processes the next character. `None` stands for an invalid escape.
    #[inline(always)]
    pub(super) fn step(&mut self, character: Option<u8>) -> PlaceStep {
        let Some(character) = character else { return PlaceStep::Fault };
        match self.at {
            At::String { key } => self.in_string(key, character),
            At::Escape { key } => self.in_escape(key, character),
            At::Hex { key, left } => self.in_hex(key, left, character),
            At::Word { word, read } => self.in_word(word, read, character),
            At::Number(digits) => self.in_number(digits, character),
            // White space or another document; the call has its arguments already.
            At::Done => {
                if is_space(character) {
                    PlaceStep::Drop
                } else {
                    PlaceStep::Surplus
                }
            }
            At::Start => match character {
                b'{' => self.enter(true),
                _ if is_space(character) => PlaceStep::Drop,
                _ => PlaceStep::Fault,
            },
            _ if is_space(character) => PlaceStep::Pass,
            At::FirstKey | At::Key => match character {
                b'"' => self.begin(At::String { key: true }),
                b'}' => self.leave(true),
                _ => PlaceStep::Fault,
            },
            At::Colon if character == b':' => {
                self.at = At::Value;
                PlaceStep::Pass
            }
            At::Colon => PlaceStep::Fault,
            // An empty array, or a trailing comma, which `PlaceStep::End` drops.
            At::Element if character == b']' => self.leave(false),
            At::Value | At::Element => match character {
                b'{' => self.enter(true),
                b'[' => self.enter(false),
                b'"' => self.begin(At::String { key: false }),
                b't' => self.begin(At::Word { word: Word::True, read: 1 }),
                b'f' => self.begin(At::Word { word: Word::False, read: 1 }),
                b'n' => self.begin(At::Word { word: Word::Null, read: 1 }),
                b'-' => self.begin(At::Number(Digits::Minus)),
                b'0' => self.begin(At::Number(Digits::Zero)),
                b'1'..=b'9' => self.begin(At::Number(Digits::Whole)),
                _ => PlaceStep::Fault,
            },
            At::After => match (character, self.open.last()) {
                (b',', Some(&object)) => {
                    self.at = if object { At::Key } else { At::Element };
                    PlaceStep::Comma
                }
                (b'}', Some(true)) => self.leave(true),
                (b']', Some(false)) => self.leave(false),
                _ => PlaceStep::Fault,
            },
        }
    }

    /// Starts a value or a name.
    #[inline]
    fn begin(&mut self, at: At) -> PlaceStep {
        self.at = at;
        PlaceStep::Begin
    }

    #[inline]
    fn enter(&mut self, object: bool) -> PlaceStep {
        // Deeper text is held and ends up in `_raw`.
        if self.open.len() == MAX_DEPTH {
            return PlaceStep::Fault;
        }
        self.open.push(object);
        self.begin(if object { At::FirstKey } else { At::Element })
    }

    #[inline]
    fn leave(&mut self, object: bool) -> PlaceStep {
        if self.open.last() != Some(&object) {
            return PlaceStep::Fault;
        }
        self.open.pop();
        self.at = if self.open.is_empty() { At::Done } else { At::After };
        PlaceStep::End
    }

    fn in_string(&mut self, key: bool, character: u8) -> PlaceStep {
        match character {
            b'"' => self.at = if key { At::Colon } else { At::After },
            b'\\' => self.at = At::Escape { key },
            // JSON does not allow a raw line end in a string; escape it.
            0..0x20 => return PlaceStep::Escape,
            _ => {}
        }
        PlaceStep::Pass
    }

    #[inline]
    fn in_escape(&mut self, key: bool, character: u8) -> PlaceStep {
        match character {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at = At::String { key },
            b'u' => self.at = At::Hex { key, left: 4 },
            // Not a valid escape: the backslash was meant literally.
            _ => {
                self.at = At::String { key };
                return PlaceStep::Insert(Patch::Backslash);
            }
        }
        PlaceStep::Pass
    }

    fn in_hex(&mut self, key: bool, left: u8, character: u8) -> PlaceStep {
        if !character.is_ascii_hexdigit() {
            self.at = At::String { key };
            return PlaceStep::Insert(Patch::Zeros(left));
        }
        self.at = if left > 1 { At::Hex { key, left: left - 1 } } else { At::String { key } };
        PlaceStep::Pass
    }

    fn in_word(&mut self, word: Word, read: u8, character: u8) -> PlaceStep {
        let rest = word.rest(read).as_bytes();
        if rest.first() != Some(&character) {
            return PlaceStep::Fault;
        }
        self.at = if rest.len() > 1 { At::Word { word, read: read + 1 } } else { At::After };
        PlaceStep::Pass
    }

    #[inline]
    fn in_number(&mut self, digits: Digits, character: u8) -> PlaceStep {
        use Digits as D;
        let next = match (digits, character) {
            (D::Minus, b'0') => D::Zero,
            (D::Minus, b'1'..=b'9') | (D::Whole, b'0'..=b'9') => D::Whole,
            (D::Zero | D::Whole, b'.') => D::Point,
            (D::Point | D::Fraction, b'0'..=b'9') => D::Fraction,
            (D::Zero | D::Whole | D::Fraction, b'e' | b'E') => D::E,
            (D::E, b'+' | b'-') => D::ESign,
            (D::E | D::ESign | D::Exponent, b'0'..=b'9') => D::Exponent,
            // A number has no end mark; the next character ends it and is then read again in the new state.
            (D::Zero | D::Whole | D::Fraction | D::Exponent, _) => {
                self.at = At::After;
                return PlaceStep::Close;
            }
            _ => return PlaceStep::Fault,
        };
        self.at = At::Number(next);
        PlaceStep::Pass
    }
}

fn zeros(count: u8) -> &'static str {
    "0000".get(..usize::from(count)).unwrap_or_default()
}

fn is_space(character: u8) -> bool {
    matches!(character, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the first character of an escaped text and its length in bytes as written. Every character beyond ASCII is
/// returned as 0x80. `None` for an invalid escape.
#[inline(always)]
pub(super) fn meaning(text: &[u8]) -> (Option<u8>, usize) {
    match *text {
        [b'\\', b'"', ..] => (Some(b'"'), 2),
        [byte, ..] if byte != b'\\' => (Some(byte.min(0x80)), 1),
        [b'\\', b'u', a, b, c, d, ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let code = [a, b, c, d].into_iter().try_fold(0, |code, byte| Some(code * 16 + digit(byte)?));
            (code.map(|code| u8::try_from(code).unwrap_or(0x80).min(0x80)), 6)
        }
        [b'\\', escape, ..] => {
            let character = match escape {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' => escape,
                _ => return (None, 2),
            };
            (Some(character), 2)
        }
        [_, ..] => (None, 1),
        [] => (None, 0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads text in a string, with runs or character by character. Returns the place of the first character that is not
    /// passed, and the state there.
    fn end_of(text: &[u8], has_runs: bool) -> (usize, At) {
        let mut place =
            ArgumentsPosition { at: At::String { key: false }, open: SmallVec::from_slice(&[true]) };
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let run = if has_runs { place.run(rest) } else { 0 };
            if run > 0 {
                at += run;
                continue;
            }
            let (character, length) = meaning(rest);
            if !matches!(place.step(character), PlaceStep::Pass) {
                break;
            }
            at += length;
        }
        (at, place.at)
    }

    proptest! {
        #[test]
        fn arguments_runs_end_where_single_steps_do(
            text in "([a-zé ]{0,40}|\\\\\\\\[nrtbfux/]|\\\\\\\\\\\\[\"\\\\]|\\\\[\"\\\\nt/]|\\\\u00[0-9a-f]{2}){0,12}",
        ) {
            for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
                let cut = &text.as_bytes()[..end];
                prop_assert_eq!(end_of(cut, true), end_of(cut, false));
            }
        }
    }
}
