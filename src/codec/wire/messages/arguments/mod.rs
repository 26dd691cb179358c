//! Repair of tool call arguments for clients of this format: from streamed text to the text of one JSON object.
//!
//! The official SDKs parse the arguments after every fragment, and raise an exception if they are not the beginning of
//! a JSON document. Models behind other formats write line ends into strings, invalid escapes, extra commas, or no JSON
//! at all. Therefore the text is checked while it passes. Faults that can be repaired in place are repaired. At any
//! other fault the output stops, and the remaining text goes into a member `_raw` when the call ends. The tool always
//! receives an object, and can detect that the arguments were invalid.
//!
//! Events and blocks do not belong here; this module only converts text.

mod place;

use bytes::{BufMut, BytesMut};

use self::place::{ArgumentsPosition, PlaceStep, meaning};
use json::{Cursor, JsonStr, push_escaped};

/// Destination of repaired text.
pub(super) trait TextSink {
    /// Appends text unchanged.
    fn put(&mut self, text: &[u8]);
    /// Appends text with one more level of escapes.
    fn put_escaped(&mut self, text: &str);
}

impl TextSink for BytesMut {
    fn put(&mut self, text: &[u8]) {
        self.put_slice(text);
    }

    fn put_escaped(&mut self, text: &str) {
        push_escaped(self, text);
    }
}

impl TextSink for Vec<u8> {
    fn put(&mut self, text: &[u8]) {
        self.extend_from_slice(text);
    }

    fn put_escaped(&mut self, text: &str) {
        push_escaped(self, text);
    }
}

/// Discards the text, for a check without output.
impl TextSink for () {
    fn put(&mut self, _text: &[u8]) {}

    fn put_escaped(&mut self, _text: &str) {}
}

/// Repair state of one call's arguments. All text is the inside of a JSON string, still escaped.
#[derive(Clone, Debug)]
pub(super) struct ArgumentsRepair {
    place: ArgumentsPosition,
    /// Whether a comma was read whose next element has not begun.
    comma: bool,
    /// That comma and the white space behind it, if they arrived in an earlier fragment.
    gap: String,
    mode: Mode,
    /// Text that could not be output.
    held: String,
    /// Whether anything was changed.
    mended: bool,
    /// Name of the member that holds text that is not an object.
    member: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Text is output.
    Passing,
    /// The text does not begin like an object. Nothing was output.
    Holding,
    /// The text began like an object. The fault and everything behind it is held.
    Broken,
}

impl ArgumentsRepair {
    /// Creates the state for a function call, whose text should be an object.
    pub(super) fn new() -> Self {
        ArgumentsRepair {
            place: ArgumentsPosition::new(),
            comma: false,
            gap: String::new(),
            mode: Mode::Passing,
            held: String::new(),
            mended: false,
            member: "_raw",
        }
    }

    /// Creates the state for a custom tool call, whose free text becomes one member of an object.
    pub(super) fn free() -> Self {
        ArgumentsRepair { mode: Mode::Holding, member: "input", ..ArgumentsRepair::new() }
    }

    /// Returns whether the object is complete. Further text is dropped.
    pub(super) fn is_complete(&self) -> bool {
        self.mode == Mode::Passing && self.place.is_end()
    }

    /// Returns whether the text ends inside an object that was valid so far.
    pub(super) fn is_cut(&self) -> bool {
        self.mode == Mode::Passing && !self.place.is_end() && !self.place.is_start()
    }

    /// Reads the next fragment and appends the text that can be output.
    pub(super) fn push(&mut self, fragment: &str, out: &mut impl TextSink) {
        if self.mode != Mode::Passing {
            self.held.push_str(fragment);
            return;
        }
        let slice = |from: usize, to: usize| fragment.get(from..to).unwrap_or_default();
        let (mut from, mut at, mut comma_at) = (0, 0, None);
        while let Some(rest) = fragment.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
            // Fast path: plain text in strings needs no state transitions.
            let run = self.place.run(rest);
            if run > 0 {
                at += run;
                continue;
            }
            let (character, length) = meaning(rest);
            match self.place.step(character) {
                PlaceStep::Pass => at += length,
                // Hold back a comma until the next element begins: it may turn out to be a trailing one.
                PlaceStep::Comma => {
                    (self.comma, comma_at) = (true, Some(at));
                    at += length;
                }
                PlaceStep::Begin => {
                    if std::mem::take(&mut self.comma) && comma_at.take().is_none() {
                        out.put(self.gap.as_bytes());
                        self.gap.clear();
                    }
                    at += length;
                }
                PlaceStep::End => {
                    // Drop a trailing comma before a closing bracket.
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
                step @ (PlaceStep::Drop | PlaceStep::Surplus) => {
                    self.mended |= matches!(step, PlaceStep::Surplus);
                    out.put(slice(from, at).as_bytes());
                    at += length;
                    from = at;
                }
                PlaceStep::Close => {}
                PlaceStep::Insert(patch) => {
                    self.mended = true;
                    out.put(slice(from, at).as_bytes());
                    out.put(patch.text().as_bytes());
                    from = at;
                }
                // A control character inside a string: escape it.
                PlaceStep::Escape => {
                    self.mended = true;
                    out.put(slice(from, at).as_bytes());
                    out.put(b"\\");
                    from = at;
                    at += length;
                }
                PlaceStep::Fault => {
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

    /// Ends the call and appends the text that completes the object. With `cut`, the response was cut off and the
    /// finish reason reports it, so no `_raw` member is added.
    pub(super) fn close(&mut self, cut: bool, out: &mut impl TextSink) {
        match self.mode {
            Mode::Passing if !self.is_cut() => return,
            // Nothing was output, so the object is made from the held text.
            Mode::Holding => return self.wrap(out),
            Mode::Passing | Mode::Broken => {}
        }
        // Complete the open value, then close all containers; `_raw` becomes the last member of the outermost object.
        let empty = self.place.is_empty_object();
        self.place.finish_value(out);
        while let Some((object, last)) = self.place.pop() {
            if last && !(cut && self.mode == Mode::Passing) {
                out.put(if empty { b"\\\"" } else { b",\\\"" });
                self.put_held("_raw", out);
            }
            out.put(if object { b"}" } else { b"]" });
        }
        (self.place, self.mode) = (ArgumentsPosition::end(), Mode::Passing);
    }

    /// Writes `name":"<held text>"`.
    fn put_held(&self, name: &str, out: &mut impl TextSink) {
        out.put(name.as_bytes());
        out.put(b"\\\":\\\"");
        // The held text is escaped once. In a string of the object it needs two levels.
        out.put_escaped(&self.held);
        out.put(b"\\\"");
    }

    /// Writes an object made of the held text, because nothing was output before.
    fn wrap(&mut self, out: &mut impl TextSink) {
        (self.place, self.mode) = (ArgumentsPosition::end(), Mode::Passing);
        if self.member == "_raw" {
            let text = JsonStr::from_escaped(&self.held).decode();
            // A call without arguments: SDKs take no text for an empty object.
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

/// Returns the decoded text if it is a valid JSON object without any repair. `None` otherwise.
pub(super) fn object_of<'a>(text: JsonStr<'a>) -> Option<std::borrow::Cow<'a, str>> {
    is_object(text.escaped()).then(|| text.decode())
}

fn is_object(escaped: &str) -> bool {
    let mut check = ArgumentsRepair::new();
    check.push(escaped, &mut ());
    check.is_complete() && !check.mended
}

/// Returns the text of an object that was encoded as a JSON string twice. `None` if the text is not such a string.
fn twice_encoded(text: &str) -> Option<String> {
    let mut json = Cursor::new(text);
    let inside = json.string().ok()?;
    json.end().ok()?;
    is_object(inside.escaped()).then(|| inside.escaped().to_owned())
}
