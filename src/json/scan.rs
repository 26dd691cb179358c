//! Push scanner: validates a document strictly while it arrives and records the positions of the outermost object's
//! members.
//!
//! A request body arrives in pieces and may have 60 MB of base64. The scanner reads each piece once, while it is in the
//! CPU cache, and stores no text. At the end the router knows that the document is valid JSON and an object, that no
//! member of the object is duplicated, and the offsets of `model` and other members.

use std::ops::Range;

use smallvec::SmallVec;

use super::array_tail::{ArrayTail, ArrayTails};
use super::cursor::ValueKind;
use super::members::{Member, Name, doubled};
use super::run::{escaped_run, plain_run};
use super::scan_error::{MOST_MEMBERS, ScanError, ScanErrorKind};
use super::scan_state::{State, Word};
use super::surrogates::Halves;
use super::utf8::Utf8;
use super::wanted_members::{MemberNames, WantedMembers};
use super::wanted_words::{CutString, ValueLook};

/// Maximum nesting depth. Recursive readers behind the gateway have limits of this order.
const MAX_DEPTH: usize = 512;

/// Scanner of one document that arrives in pieces.
///
/// ```
/// use model_gateway_json::Scanner;
/// let mut scan = Scanner::new(&["model"]);
/// scan.push(br#"{"a":{"model":1},"mo"#)?;
/// scan.push(br#"del":"x"}"#)?;
/// let members = scan.finish()?;
/// let model = members.iter().find(|m| m.wanted == Some(0)).unwrap();
/// assert_eq!(model.value, 25..28);
/// # Ok::<(), model_gateway_json::ScanError>(())
/// ```
pub struct Scanner {
    wanted: MemberNames,
    /// Set of the lengths of strings that are looked at: those of the wanted words, or all while `look` is set. Bit n for
    /// length n.
    lengths: u64,
    /// Look at the value that follows. `None` if it is not wanted.
    look: Option<ValueLook>,
    /// Set of the words found: bit n for word n.
    seen: u32,
    state: State,
    /// Container stack, one bit a level: 1 for an object, 0 for an array.
    stack: SmallVec<[u64; 1]>,
    depth: usize,
    /// Number of bytes in all pieces before the current one.
    offset: usize,
    /// Digits of the current `\u` escape.
    hex: u32,
    halves: Halves,
    utf8: Utf8,
    /// Whether the current string is a member name.
    in_name: bool,
    name: Name,
    name_at: Range<usize>,
    member_hash: u64,
    member_wanted: Option<u8>,
    member_folded: Option<u8>,
    value_start: usize,
    value_kind: ValueKind,
    members: SmallVec<[Member; 12]>,
    /// `None` if no array tails are wanted. Boxed, because the scanner is moved.
    tails: Option<Box<ArrayTails>>,
    /// End of the last piece, if it is within a string.
    cut: CutString,
    failed: Option<ScanError>,
}

impl Scanner {
    /// Creates a scanner that reports which members of the outermost object have one of these names.
    pub fn new(wanted: &'static [&'static str]) -> Self {
        Scanner::with(MemberNames::List(wanted), 0)
    }

    /// Creates a scanner that reports members of the outermost object, and notes which words occur.
    pub fn seeking(sought: &'static WantedMembers) -> Self {
        let tails = sought.has_tails.then(Box::default);
        Scanner { tails, ..Scanner::with(MemberNames::Table(sought), sought.lengths) }
    }

    fn with(wanted: MemberNames, lengths: u64) -> Self {
        Scanner {
            wanted,
            lengths,
            look: None,
            seen: 0,
            state: State::Value,
            stack: SmallVec::new(),
            depth: 0,
            offset: 0,
            hex: 0,
            halves: Halves::default(),
            utf8: Utf8::default(),
            in_name: false,
            name: Name::new(),
            name_at: 0..0,
            member_hash: 0,
            member_wanted: None,
            member_folded: None,
            value_start: 0,
            value_kind: ValueKind::Null,
            members: SmallVec::new(),
            tails: None,
            cut: CutString::default(),
            failed: None,
        }
    }

    /// Scans the next piece of the document.
    ///
    /// # Errors
    /// Returns [`ScanError`] if the document is invalid; every further call returns the same error.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.scan(piece);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn scan(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        if let Err(at) = self.utf8.check(piece) {
            let broken = self.offset.saturating_add_signed(at);
            // The text before the broken character may have an earlier error. Report the first one, so that the error
            // does not depend on how the document was split into pieces.
            let before = usize::try_from(at + 1).unwrap_or(0);
            self.scan_text(piece.get(..before).unwrap_or_default())?;
            return self.syntax(broken, "not UTF-8");
        }
        self.scan_text(piece)
    }

    /// Scans a piece. The caller has validated its UTF-8; the state machine itself rejects non-ASCII bytes outside of
    /// strings only.
    fn scan_text(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            match (self.state, byte) {
                (State::String, _) => at = self.scan_string(piece, at)?,
                // Fast path for the common steps of a compact document; `step` handles the same states in general.
                (State::Colon, b':') => {
                    self.state = State::Value;
                    at += 1;
                }
                (State::After, b',') if self.depth > 0 => {
                    self.state = if self.in_object() { State::Name } else { State::Value };
                    at += 1;
                }
                (State::Name | State::ObjectStart, b'"') => {
                    self.begin_name(self.offset + at)?;
                    at += 1;
                }
                // A number has no terminator: `step` does not consume the byte that ends it, so that it is scanned
                // again.
                _ => at += usize::from(self.step(byte, self.offset + at)?),
            }
        }
        if self.state == State::String {
            self.cut.end_piece(piece, self.offset);
        }
        self.offset += piece.len();
        Ok(())
    }

    /// Scans the inside of a string. Returns the offset where scanning continues.
    fn scan_string(&mut self, piece: &[u8], at: usize) -> Result<usize, ScanError> {
        let rest = piece.get(at..).unwrap_or_default();
        let run = plain_run(rest);
        // Only names of the outermost object are matched and checked for duplicates.
        let naming = self.in_name && self.depth == 1;
        if naming {
            self.name.append(rest.get(..run).unwrap_or_default());
        }
        let end = at + run;
        match rest.get(run) {
            None => Ok(end),
            Some(b'"') => {
                // The length filter skips the word comparison for nearly every string. At offset 0 the string began in
                // an earlier piece.
                if at == 0 {
                    let is_whole = !self.cut.has_escape();
                    let joined = self.cut.join(rest.get(..run).unwrap_or_default());
                    self.note_words(joined.as_deref(), is_whole);
                } else if self.lengths >> (run & 63) & 1 == 1 {
                    let is_whole = self.look.is_some() && is_behind_quote(piece, at);
                    self.note_words(rest.get(..run), is_whole);
                }
                if self.in_name {
                    if naming {
                        self.name_at.end = self.offset + end;
                        (self.member_wanted, self.member_folded, self.member_hash) =
                            self.name.end(self.wanted);
                    }
                    self.in_name = false;
                    self.state = State::Colon;
                } else {
                    self.end_value(self.offset + end + 1);
                }
                Ok(end + 1)
            }
            Some(b'\\') => {
                if naming {
                    self.name.keep_backslash();
                } else {
                    // Text with one escape mostly has many (programs, JSON in JSON): check a block of them at once.
                    let note = |at, unit| self.halves.note(self.offset + at, unit);
                    let reached = escaped_run(piece, end, note);
                    if reached > end {
                        return Ok(reached);
                    }
                }
                self.state = State::Escape;
                Ok(end + 1)
            }
            Some(_) => self.syntax(self.offset + end, "a control character in a string"),
        }
    }

    /// Notes the words that equal a string, and looks at it if it is the whole of a wanted value. `text` is `None` for a
    /// string of several pieces that is too long for a word. Of a string with escapes this is the text behind the last one, so that
    /// a bit may be set wrongly; callers check the document itself.
    fn note_words(&mut self, text: Option<&[u8]>, is_whole: bool) {
        let MemberNames::Table(sought) = self.wanted else { return };
        if let Some(look) = self.look.take() {
            self.lengths = sought.lengths;
            // A name: the value that was wanted is no string.
            if !self.in_name {
                self.seen |= look(text.filter(|_| is_whole));
            }
        }
        let Some(text) = text else { return };
        self.seen |= sought.words_equal_to(text, self.in_name, self.depth);
        if self.in_name {
            self.look = sought.look_at(text, self.depth);
            if self.look.is_some() {
                self.lengths = u64::MAX;
            }
        }
    }

    /// Returns the set of words found: bit n for word n. A bit may be set for a word that is absent. It is always set
    /// for a word that is present and written without escapes.
    pub fn words_found(&self) -> u32 {
        self.seen
    }

    /// Returns whether a string has an escape of half a surrogate pair without the other half.
    pub(super) fn has_lone_surrogate(&self) -> bool {
        self.halves.has_lone()
    }

    /// Scans one byte outside of plain string text. Returns whether the byte is consumed.
    fn step(&mut self, byte: u8, at: usize) -> Result<bool, ScanError> {
        match self.state {
            State::Value | State::ArrayStart => match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {}
                b']' if self.state == State::ArrayStart => self.close(false, at)?,
                _ => self.begin_value(byte, at)?,
            },
            State::ObjectStart | State::Name => match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {}
                b'"' => self.begin_name(at)?,
                b'}' if self.state == State::ObjectStart => self.close(true, at)?,
                _ => return self.syntax(at, "expected a member's name"),
            },
            State::Colon => match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {}
                b':' => self.state = State::Value,
                _ => return self.syntax(at, "expected ':'"),
            },
            State::After => match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ if self.depth == 0 => return self.syntax(at, "something follows the document"),
                b',' => self.state = if self.in_object() { State::Name } else { State::Value },
                b'}' => self.close(true, at)?,
                b']' => self.close(false, at)?,
                _ => return self.syntax(at, "expected ',' or the end of the object or array"),
            },
            State::Escape => {
                self.keep_escaped(byte, at);
                self.state = match byte {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::String,
                    b'u' => State::Hex(4),
                    _ => return self.syntax(at, "an unknown escape in a string"),
                };
            }
            State::Hex(left) => {
                if !byte.is_ascii_hexdigit() {
                    return self.syntax(at, "a \\u escape needs four hexadecimal digits");
                }
                self.keep_escaped(byte, at);
                self.hex = self.hex << 4 | char::from(byte).to_digit(16).unwrap_or_default();
                self.state = if left == 1 { State::String } else { State::Hex(left - 1) };
                if left == 1 {
                    self.halves.note((at + 1).saturating_sub(6), self.hex & 0xffff);
                }
            }
            State::Word(word, seen) => {
                if word.text().get(usize::from(seen)) != Some(&byte) {
                    return self.syntax(at, "expected a value");
                }
                if usize::from(seen) + 1 == word.text().len() {
                    self.end_value(at + 1);
                } else {
                    self.state = State::Word(word, seen + 1);
                }
            }
            State::String => {}
            _ => return self.step_number(byte, at),
        }
        Ok(true)
    }

    fn step_number(&mut self, byte: u8, at: usize) -> Result<bool, ScanError> {
        self.state = match (self.state, byte) {
            (State::Minus, b'0') => State::Zero,
            (State::Minus, b'1'..=b'9') => State::Digits,
            (State::Zero | State::Digits, b'.') => State::Point,
            (State::Zero | State::Digits | State::Fraction, b'e' | b'E') => State::Exponent,
            (State::Digits, b'0'..=b'9') => State::Digits,
            (State::Point | State::Fraction, b'0'..=b'9') => State::Fraction,
            (State::Exponent, b'+' | b'-') => State::ExponentSign,
            (State::Exponent | State::ExponentSign | State::ExponentDigits, b'0'..=b'9') => {
                State::ExponentDigits
            }
            (State::Zero | State::Digits | State::Fraction | State::ExponentDigits, _) => {
                self.end_value(at);
                return Ok(false);
            }
            _ => return self.syntax(at, "a malformed number"),
        };
        Ok(true)
    }

    fn begin_value(&mut self, byte: u8, at: usize) -> Result<(), ScanError> {
        let (state, kind) = match byte {
            b'{' => (State::ObjectStart, ValueKind::Object),
            b'[' => (State::ArrayStart, ValueKind::Array),
            b'"' => (State::String, ValueKind::String),
            b't' => (State::Word(Word::True, 1), ValueKind::Bool),
            b'f' => (State::Word(Word::False, 1), ValueKind::Bool),
            b'n' => (State::Word(Word::Null, 1), ValueKind::Null),
            b'-' => (State::Minus, ValueKind::Number),
            b'0' => (State::Zero, ValueKind::Number),
            b'1'..=b'9' => (State::Digits, ValueKind::Number),
            _ => return self.syntax(at, "expected a value"),
        };
        if self.depth == 0 && kind != ValueKind::Object {
            return self.fail(at, ScanErrorKind::NotAnObject);
        }
        if self.depth == 1 {
            self.value_start = at;
            self.value_kind = kind;
        }
        self.state = state;
        if matches!(kind, ValueKind::Object | ValueKind::Array) {
            self.open(kind == ValueKind::Object, at)?;
        }
        Ok(())
    }

    fn open(&mut self, object: bool, at: usize) -> Result<(), ScanError> {
        // Recursive readers (the provider's, or ours) would overflow their stack on deeper documents.
        if self.depth == MAX_DEPTH {
            return self.syntax(at, "nested too deeply");
        }
        let (word, bit) = (self.depth / 64, 1u64 << (self.depth % 64));
        if self.stack.len() <= word {
            self.stack.push(0);
        }
        if let Some(bits) = self.stack.get_mut(word) {
            if object {
                *bits |= bit;
            } else {
                *bits &= !bit;
            }
        }
        if let Some(tails) = &mut self.tails {
            tails.open(self.depth, at);
        }
        self.depth += 1;
        Ok(())
    }

    fn in_object(&self) -> bool {
        let level = self.depth - 1;
        self.stack.get(level / 64).is_some_and(|bits| bits >> (level % 64) & 1 == 1)
    }

    fn close(&mut self, object: bool, at: usize) -> Result<(), ScanError> {
        if self.in_object() != object {
            return self.syntax(at, "the brackets do not match");
        }
        self.depth -= 1;
        if let Some(tails) = &mut self.tails {
            tails.close(self.depth, at + 1, object, self.member_wanted.is_some());
        }
        self.end_value(at + 1);
        Ok(())
    }

    /// Ends a value before offset `end` and, at depth 1, records its member.
    fn end_value(&mut self, end: usize) {
        self.state = State::After;
        if self.depth == 1 {
            self.members.push(Member {
                wanted: self.member_wanted,
                folded: self.member_folded,
                kind: self.value_kind,
                value: self.value_start..end,
                name: self.name_at.clone(),
                hash: self.member_hash,
            });
        }
    }

    fn begin_name(&mut self, at: usize) -> Result<(), ScanError> {
        self.in_name = true;
        self.state = State::String;
        if self.depth == 1 {
            if self.members.len() == MOST_MEMBERS {
                return self.fail(at, ScanErrorKind::TooManyMembers);
            }
            self.name_at = at + 1..at + 1;
            self.name.begin();
        }
        Ok(())
    }

    fn keep_escaped(&mut self, byte: u8, at: usize) {
        self.cut.end_escape(at + 1);
        if self.in_name && self.depth == 1 {
            self.name.append(&[byte]);
        }
    }

    /// Ends the document and returns the members of the outermost object, in order.
    ///
    /// # Errors
    /// Returns [`ScanError`] if the document is invalid or incomplete, or if a member is duplicated.
    pub fn finish(self) -> Result<SmallVec<[Member; 12]>, ScanError> {
        self.check_end()?;
        Ok(self.members)
    }

    /// Returns the members of the outermost object and the last elements of the wanted arrays, both in order. The caller
    /// has called [`check_end`](Self::check_end): a result would be moved once more, and the members are large.
    #[inline]
    pub(super) fn into_found(self) -> (SmallVec<[Member; 12]>, Vec<ArrayTail>) {
        (self.members, self.tails.map(|tails| tails.finish()).unwrap_or_default())
    }

    /// Checks that the document is complete.
    ///
    /// # Errors
    /// Returns [`ScanError`] as [`finish`](Self::finish) does.
    pub(super) fn check_end(&self) -> Result<(), ScanError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.state != State::After || self.depth > 0 || !self.utf8.is_complete() {
            let kind = if self.state == State::Value && self.depth == 0 {
                ScanErrorKind::Empty
            } else {
                ScanErrorKind::Syntax("the document ends too early")
            };
            return Err(ScanError { at: self.offset, kind });
        }
        // Readers disagree on which duplicate counts: the gateway could route by one `model` and the provider use the
        // other.
        match doubled(&self.members) {
            None => Ok(()),
            Some(member) => self.fail(member.name.start, ScanErrorKind::Duplicate(member.name.clone())),
        }
    }

    fn fail<T>(&self, at: usize, kind: ScanErrorKind) -> Result<T, ScanError> {
        Err(ScanError { at, kind })
    }

    fn syntax<T>(&self, at: usize, what: &'static str) -> Result<T, ScanError> {
        self.fail(at, ScanErrorKind::Syntax(what))
    }
}

/// Returns whether the text at an offset begins a string: the quote before it follows no backslash.
fn is_behind_quote(piece: &[u8], at: usize) -> bool {
    matches!(piece.get(at.saturating_sub(2)..at), Some([byte, b'"']) if *byte != b'\\')
}
