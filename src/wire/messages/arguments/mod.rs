//! A call's arguments on their way to a client of this format: text in, the text of one JSON object out.
//!
//! The official SDKs parse what has arrived after every fragment, and raise when it is not the beginning of a JSON
//! document. Models behind other formats write line ends into strings, wrong escapes, commas too many, or no JSON at
//! all. So the text is followed while it passes. What can be mended in passing is mended; at anything else the passing
//! stops, and the rest goes into a member of its own, `_raw`, when the call ends: the tool gets an object in any case,
//! and can see that something was wrong with it.
//!
//! Here must not live what an event or a block is: text goes in, text comes out.

mod place;

use bytes::{BufMut, BytesMut};

use self::place::{Place, Step, meaning};
use crate::json::{Cursor, JsonStr, push_escaped};

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
    place: Place,
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

impl Arguments {
    /// Of a call of a function: the text should be that of an object.
    pub(super) fn new() -> Self {
        Arguments {
            place: Place::new(),
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
        self.mode == Mode::Passing && self.place.is_end()
    }

    /// The text ended in the middle of an object that was sound so far.
    pub(super) fn is_cut(&self) -> bool {
        self.mode == Mode::Passing && !self.place.is_end() && !self.place.is_start()
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
            let run = self.place.run(rest);
            if run > 0 {
                at += run;
                continue;
            }
            let (character, length) = meaning(rest);
            match self.place.step(character) {
                Step::Pass => at += length,
                Step::Comma => {
                    (self.comma, comma_at) = (true, Some(at));
                    at += length;
                }
                Step::Begin => {
                    if std::mem::take(&mut self.comma) && comma_at.take().is_none() {
                        out.put(self.gap.as_bytes());
                        self.gap.clear();
                    }
                    at += length;
                }
                Step::End => {
                    // A comma before a bracket separates nothing, and is gone.
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
                step @ (Step::Drop | Step::Surplus) => {
                    self.mended |= matches!(step, Step::Surplus);
                    out.put(slice(from, at).as_bytes());
                    at += length;
                    from = at;
                }
                Step::Close => {}
                Step::Insert(patch) => {
                    self.mended = true;
                    out.put(slice(from, at).as_bytes());
                    out.put(patch.text().as_bytes());
                    from = at;
                }
                Step::Escape => {
                    self.mended = true;
                    out.put(slice(from, at).as_bytes());
                    out.put(b"\\");
                    from = at;
                    at += length;
                }
                Step::Fault => {
                    out.put(slice(from, comma_at.unwrap_or(at)).as_bytes());
                    self.mode = if self.place.is_start() { Mode::Holding } else { Mode::Broken };
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
        let empty = self.place.is_empty_object();
        self.place.finish_value(out);
        while let Some((object, last)) = self.place.pop() {
            if last && !(cut && self.mode == Mode::Passing) {
                out.put(if empty { b"\\\"" } else { b",\\\"" });
                self.put_held("_raw", out);
            }
            out.put(if object { b"}" } else { b"]" });
        }
        (self.place, self.mode) = (Place::end(), Mode::Passing);
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
        (self.place, self.mode) = (Place::end(), Mode::Passing);
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
