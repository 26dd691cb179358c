//! A call's arguments on their way to a client of this format: text in, the text of one JSON object out.
//!
//! The official SDKs parse what has arrived after every fragment, and raise when it is not the beginning of a JSON
//! document. Models behind other formats write line ends into strings, wrong escapes, commas too many, or no JSON at
//! all. So the text is followed while it passes. What can be mended in passing is mended; at anything else the passing
//! stops, and the rest goes into a member of its own, `_raw`, when the call ends: the tool gets an object in any case,
//! and can see that something was wrong with it.

use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;

use crate::json::{Cursor, JsonStr, push_escaped};

/// Deeper nesting is not followed: the parsers of SDKs give up at 128 levels or later.
const MAX_DEPTH: usize = 120;

/// Where text goes that may pass.
pub(super) trait Sink {
    /// Text as it is.
    fn put(&mut self, text: &[u8]);
    /// Text that is escaped once more.
    fn put_escaped(&mut self, text: &str);
}

impl Sink for BytesMut {
    fn put(&mut self, text: &[u8]) {
        self.put_slice(text);
    }

    fn put_escaped(&mut self, text: &str) {
        push_escaped(self, text);
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, text: &[u8]) {
        self.extend_from_slice(text);
    }

    fn put_escaped(&mut self, text: &str) {
        push_escaped(self, text);
    }
}

/// Nowhere, for a look.
impl Sink for () {
    fn put(&mut self, _text: &[u8]) {}

    fn put_escaped(&mut self, _text: &str) {}
}

/// Follows one call's arguments. Text is the inside of a JSON string throughout: still escaped.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    at: At,
    /// The containers that are open: true for an object.
    open: SmallVec<[bool; 16]>,
    /// A comma was met, and waits for what it separates.
    comma: bool,
    /// That comma and the white space behind it, if they came in an earlier fragment.
    gap: String,
    mode: Mode,
    /// What could not be passed on.
    held: String,
    /// Something was changed.
    mended: bool,
    /// The member that holds what is no object.
    member: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The text passes.
    Passing,
    /// It does not even begin like an object: nothing has passed.
    Holding,
    /// It began like one; what went wrong, and all behind it, is held.
    Broken,
}

/// What stands next.
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
    Word(&'static str),
    Number(Digits),
    After,
    Done,
}

/// How far a number has come.
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

/// What is done with a character.
enum Step {
    Pass,
    /// It passes if something follows that it separates.
    Comma,
    /// It passes, and so does the comma before it.
    Begin,
    /// It passes, and the comma before it does not.
    End,
    Drop,
    /// Something is put before it, and it is looked at again.
    Insert(&'static str),
    /// Something is put before it, and it passes.
    InsertAndPass(&'static str),
    Fault,
}

impl Arguments {
    /// Of a call of a function: the text should be that of an object.
    pub(super) fn new() -> Self {
        Arguments {
            at: At::Start,
            open: SmallVec::new(),
            comma: false,
            gap: String::new(),
            mode: Mode::Passing,
            held: String::new(),
            mended: false,
            member: "_raw",
        }
    }

    /// Of a call with free text, which becomes one member of an object.
    pub(super) fn free() -> Self {
        Arguments { mode: Mode::Holding, member: "input", ..Arguments::new() }
    }

    /// The object is complete; more text is none of it.
    pub(super) fn is_complete(&self) -> bool {
        self.mode == Mode::Passing && self.at == At::Done
    }

    /// The text ended in the middle of an object that was sound so far.
    pub(super) fn is_cut(&self) -> bool {
        self.mode == Mode::Passing && !matches!(self.at, At::Start | At::Done)
    }

    /// Takes the next fragment and appends what may pass.
    pub(super) fn push(&mut self, fragment: &str, out: &mut impl Sink) {
        if self.mode != Mode::Passing {
            self.held.push_str(fragment);
            return;
        }
        let slice = |from: usize, to: usize| fragment.get(from..to).unwrap_or_default();
        let (mut from, mut at, mut comma_at) = (0, 0, None);
        while let Some(rest) = fragment.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
            if matches!(self.at, At::String { .. }) {
                // In the string of a string, every character that means something has a backslash before it.
                let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
                if run > 0 {
                    at += run;
                    continue;
                }
            }
            let (character, length) = meaning(rest);
            let step = self.step(character);
            match step {
                Step::Pass => at += length,
                Step::Comma => {
                    (self.comma, comma_at) = (true, Some(at));
                    at += length;
                }
                Step::Begin => {
                    if std::mem::take(&mut self.comma) && comma_at.take().is_none() {
                        out.put(std::mem::take(&mut self.gap).as_bytes());
                    }
                    at += length;
                }
                Step::End => {
                    if std::mem::take(&mut self.comma) {
                        self.mended = true;
                        self.gap.clear();
                        if let Some(comma) = comma_at.take() {
                            out.put(slice(from, comma).as_bytes());
                            from = at;
                        }
                    }
                    at += length;
                }
                Step::Drop => {
                    out.put(slice(from, at).as_bytes());
                    at += length;
                    from = at;
                }
                Step::Insert(text) | Step::InsertAndPass(text) => {
                    out.put(slice(from, at).as_bytes());
                    out.put(text.as_bytes());
                    from = at;
                    if matches!(step, Step::InsertAndPass(_)) {
                        at += length;
                    }
                }
                Step::Fault => {
                    out.put(slice(from, comma_at.unwrap_or(at)).as_bytes());
                    self.mode = if self.at == At::Start { Mode::Holding } else { Mode::Broken };
                    self.mended = true;
                    self.held.push_str(slice(at, fragment.len()));
                    return;
                }
            }
        }
        let end = if self.comma { comma_at.unwrap_or(from) } else { fragment.len() };
        out.put(slice(from, end).as_bytes());
        self.gap.push_str(slice(end, fragment.len()));
    }

    /// The call has ended: appends what makes an object of it. `cut` says that the end came before its time, and that
    /// the client is told so elsewhere.
    pub(super) fn close(&mut self, cut: bool, out: &mut impl Sink) {
        match self.mode {
            Mode::Passing if !self.is_cut() => return,
            Mode::Holding => return self.wrap(out),
            Mode::Passing | Mode::Broken => {}
        }
        let empty = self.at == At::FirstKey && self.open.len() == 1;
        self.finish_value(out);
        while let Some(object) = self.open.pop() {
            if self.open.is_empty() && !(cut && self.mode == Mode::Passing) {
                out.put(if empty { b"\\\"" } else { b",\\\"" });
                self.put_held("_raw", out);
            }
            out.put(if object { b"}" } else { b"]" });
        }
        (self.at, self.mode) = (At::Done, Mode::Passing);
    }

    /// `name":"<what is held>"`
    fn put_held(&self, name: &str, out: &mut impl Sink) {
        out.put(name.as_bytes());
        out.put(b"\\\":\\\"");
        // Escaped as it is, it is a string of the object; the object's text is escaped once more.
        out.put_escaped(&self.held);
        out.put(b"\\\"");
    }

    /// Nothing has passed: an object is made of what is held.
    fn wrap(&mut self, out: &mut impl Sink) {
        (self.at, self.mode) = (At::Done, Mode::Passing);
        if self.member == "_raw" {
            let text = JsonStr::from_escaped(&self.held).decode();
            if matches!(text.trim(), "" | "null") {
                return;
            }
            if let Some(object) = twice_encoded(text.trim()) {
                out.put(object.as_bytes());
                return;
            }
        }
        out.put(b"{\\\"");
        self.put_held(self.member, out);
        out.put(b"}");
    }

    /// Ends the value that is being read, in any way that is JSON.
    fn finish_value(&mut self, out: &mut impl Sink) {
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
            At::Word(rest) => return out.put(rest.as_bytes()),
            At::Number(Digits::Minus | Digits::Point | Digits::E | Digits::ESign) => {
                return out.put(b"0");
            }
            _ => return,
        };
        out.put(if key { b"\\\":null" } else { b"\\\"" });
    }

    #[inline]
    fn step(&mut self, character: Option<u8>) -> Step {
        let Some(character) = character else { return Step::Fault };
        match self.at {
            At::String { key } => self.in_string(key, character),
            At::Escape { key } => self.in_escape(key, character),
            At::Hex { key, left } => self.in_hex(key, left, character),
            At::Word(rest) => self.in_word(rest, character),
            At::Number(digits) => self.in_number(digits, character),
            // White space or another document: the call has its arguments.
            At::Done => {
                self.mended |= !is_space(character);
                Step::Drop
            }
            At::Start if is_space(character) => Step::Drop,
            _ if is_space(character) => Step::Pass,
            At::Start if character == b'{' => self.enter(true),
            At::Start => Step::Fault,
            At::FirstKey | At::Key => match character {
                b'"' => self.begin(At::String { key: true }),
                b'}' => self.leave(true),
                _ => Step::Fault,
            },
            At::Colon if character == b':' => {
                self.at = At::Value;
                Step::Pass
            }
            At::Colon => Step::Fault,
            At::Element if character == b']' => self.leave(false),
            At::Value | At::Element => match character {
                b'{' => self.enter(true),
                b'[' => self.enter(false),
                b'"' => self.begin(At::String { key: false }),
                b't' => self.begin(At::Word("rue")),
                b'f' => self.begin(At::Word("alse")),
                b'n' => self.begin(At::Word("ull")),
                b'-' => self.begin(At::Number(Digits::Minus)),
                b'0' => self.begin(At::Number(Digits::Zero)),
                b'1'..=b'9' => self.begin(At::Number(Digits::Whole)),
                _ => Step::Fault,
            },
            At::After => match (character, self.open.last()) {
                (b',', Some(&object)) => {
                    self.at = if object { At::Key } else { At::Element };
                    Step::Comma
                }
                (b'}', Some(true)) => self.leave(true),
                (b']', Some(false)) => self.leave(false),
                _ => Step::Fault,
            },
        }
    }

    /// A value or a name begins.
    fn begin(&mut self, at: At) -> Step {
        self.at = at;
        Step::Begin
    }

    fn enter(&mut self, object: bool) -> Step {
        if self.open.len() == MAX_DEPTH {
            return Step::Fault;
        }
        self.open.push(object);
        self.begin(if object { At::FirstKey } else { At::Element })
    }

    fn leave(&mut self, object: bool) -> Step {
        if self.open.last() != Some(&object) {
            return Step::Fault;
        }
        self.open.pop();
        self.at = if self.open.is_empty() { At::Done } else { At::After };
        Step::End
    }

    fn in_string(&mut self, key: bool, character: u8) -> Step {
        match character {
            b'"' => self.at = if key { At::Colon } else { At::After },
            b'\\' => self.at = At::Escape { key },
            // A line end as it is has no place in a string; `\n` has.
            0..0x20 => {
                self.mended = true;
                return Step::InsertAndPass("\\");
            }
            _ => {}
        }
        Step::Pass
    }

    fn in_escape(&mut self, key: bool, character: u8) -> Step {
        match character {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at = At::String { key },
            b'u' => self.at = At::Hex { key, left: 4 },
            // No escape: the backslash was meant as one.
            _ => {
                self.at = At::String { key };
                self.mended = true;
                return Step::Insert("\\\\");
            }
        }
        Step::Pass
    }

    fn in_hex(&mut self, key: bool, left: u8, character: u8) -> Step {
        if !character.is_ascii_hexdigit() {
            self.at = At::String { key };
            self.mended = true;
            return Step::Insert(zeros(left));
        }
        self.at = if left > 1 { At::Hex { key, left: left - 1 } } else { At::String { key } };
        Step::Pass
    }

    fn in_word(&mut self, rest: &'static str, character: u8) -> Step {
        match rest.as_bytes().split_first() {
            Some((next, _)) if *next == character => {
                let rest = rest.get(1..).unwrap_or_default();
                self.at = if rest.is_empty() { At::After } else { At::Word(rest) };
                Step::Pass
            }
            _ => Step::Fault,
        }
    }

    fn in_number(&mut self, digits: Digits, character: u8) -> Step {
        use Digits as D;
        let next = match (digits, character) {
            (D::Minus, b'0') => D::Zero,
            (D::Minus, b'1'..=b'9') | (D::Whole, b'0'..=b'9') => D::Whole,
            (D::Zero | D::Whole, b'.') => D::Point,
            (D::Point | D::Fraction, b'0'..=b'9') => D::Fraction,
            (D::Zero | D::Whole | D::Fraction, b'e' | b'E') => D::E,
            (D::E, b'+' | b'-') => D::ESign,
            (D::E | D::ESign | D::Exponent, b'0'..=b'9') => D::Exponent,
            (D::Zero | D::Whole | D::Fraction | D::Exponent, _) => {
                self.at = At::After;
                return Step::Insert("");
            }
            _ => return Step::Fault,
        };
        self.at = At::Number(next);
        Step::Pass
    }
}

/// The text of an object, if that is what the text is, to the letter.
pub(super) fn object_of<'a>(text: JsonStr<'a>) -> Option<std::borrow::Cow<'a, str>> {
    is_object(text.escaped()).then(|| text.decode())
}

fn is_object(escaped: &str) -> bool {
    let mut check = Arguments::new();
    check.push(escaped, &mut ());
    check.is_complete() && !check.mended
}

/// An object whose text was made a JSON string before it was made one again.
fn twice_encoded(text: &str) -> Option<String> {
    let mut json = Cursor::new(text);
    let inside = json.string().ok()?;
    json.end().ok()?;
    is_object(inside.escaped()).then(|| inside.escaped().to_owned())
}

fn zeros(count: u8) -> &'static str {
    "0000".get(..usize::from(count)).unwrap_or_default()
}

fn is_space(character: u8) -> bool {
    matches!(character, b' ' | b'\t' | b'\n' | b'\r')
}

/// The first character of text that is the inside of a JSON string, and how many bytes it takes there. 0x80 stands for
/// every character that is not ASCII; nothing for what is no escape.
fn meaning(text: &[u8]) -> (Option<u8>, usize) {
    match *text {
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
        [b'\\'] => (None, 1),
        [byte, ..] => (Some(byte.min(0x80)), 1),
        [] => (None, 0),
    }
}
