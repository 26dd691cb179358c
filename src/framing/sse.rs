//! Server-sent events, as the WHATWG HTML standard (section 9.2.6) frames them and as providers really send them:
//! with any of the three line ends, comments, no space behind the colon, several data lines.

/// Finds the blank lines that end events.
#[derive(Clone, Debug)]
pub struct SseSplitter {
    /// The current line has no byte yet.
    line_empty: bool,
    /// The last byte was a carriage return that has been counted as a line end: a line feed right behind it belongs
    /// to it.
    swallow_line_feed: bool,
    /// That line end also ended an event.
    event_ended: bool,
}

impl Default for SseSplitter {
    fn default() -> Self {
        SseSplitter { line_empty: true, swallow_line_feed: false, event_ended: false }
    }
}

impl SseSplitter {
    /// See [`Splitter::next_boundary`](super::Splitter::next_boundary).
    #[inline]
    pub fn next_boundary(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        if self.swallow_line_feed && at < piece.len() {
            self.swallow_line_feed = false;
            if piece.get(at) == Some(&b'\n') {
                at += 1;
                // The event has left already. Its last byte follows at once: clients exist that wait for it.
                if self.event_ended {
                    return Some(at);
                }
            }
        }
        loop {
            let rest = piece.get(at..).unwrap_or_default();
            let Some(length) = memchr::memchr2(b'\n', b'\r', rest) else {
                if !rest.is_empty() {
                    self.line_empty = false;
                }
                return None;
            };
            let blank = length == 0 && self.line_empty;
            let carriage_return = rest.get(length) == Some(&b'\r');
            at += length + 1;
            self.line_empty = true;
            if carriage_return {
                match piece.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => {
                        self.swallow_line_feed = true;
                        self.event_ended = blank;
                    }
                }
            }
            if blank {
                return Some(at);
            }
            // The usual end of an event, found without a search.
            if piece.get(at) == Some(&b'\n') {
                return Some(at + 1);
            }
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event:` field.
    pub name: Option<&'a [u8]>,
    /// The `data:` lines, joined by a line feed; nothing when there was none (a comment, a blank line).
    pub data: Option<&'a [u8]>,
}

impl<'a> Event<'a> {
    /// Reads one frame as the splitter cut it. `scratch` is used only for an event with several data lines.
    #[inline]
    pub fn parse(frame: &'a [u8], scratch: &'a mut Vec<u8>) -> Event<'a> {
        Event::parse_lines(frame, scratch, b'\n')
    }

    /// Reads one frame whose data is JSON: several data lines become one, joined by spaces. Values of such data can be
    /// pasted into a line of another stream.
    #[inline]
    pub fn parse_json(frame: &'a [u8], scratch: &'a mut Vec<u8>) -> Event<'a> {
        Event::parse_lines(frame, scratch, b' ')
    }

    #[inline]
    fn parse_lines(frame: &'a [u8], scratch: &'a mut Vec<u8>, between: u8) -> Event<'a> {
        let mut event = Event::default();
        let mut lines = Lines { rest: frame.get(text_start(frame)..).unwrap_or_default() };
        while let Some(line) = lines.next() {
            if let Some(value) = field(line, b"data") {
                if event.data.is_some() {
                    // The second data line: start over, joining.
                    return Event::parse_joined(frame, scratch, between);
                }
                event.data = Some(value);
            } else if let Some(value) = field(line, b"event") {
                event.name = Some(value);
            }
        }
        event
    }

    #[cold]
    fn parse_joined(frame: &'a [u8], scratch: &'a mut Vec<u8>, between: u8) -> Event<'a> {
        scratch.clear();
        let mut name = None;
        let mut lines = Lines { rest: frame.get(text_start(frame)..).unwrap_or_default() };
        while let Some(line) = lines.next() {
            if let Some(value) = field(line, b"data") {
                scratch.extend_from_slice(value);
                scratch.push(between);
            } else if let Some(value) = field(line, b"event") {
                name = Some(value);
            }
        }
        scratch.pop();
        Event { name, data: Some(scratch) }
    }
}

/// Where the first line of a frame begins: behind a byte order mark, and behind the line feed of the blank line before,
/// if that came in another piece.
#[inline]
pub fn text_start(frame: &[u8]) -> usize {
    match frame.first() {
        Some(b'\r' | b'\n' | 0xef) => marked_start(frame),
        _ => 0,
    }
}

/// [`text_start`] of the few frames that do not begin with their first line.
#[cold]
fn marked_start(frame: &[u8]) -> usize {
    let ends = frame.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let marked = frame.get(ends..).is_some_and(|text| text.starts_with(b"\xef\xbb\xbf"));
    if marked { ends + 3 } else { ends }
}

/// The value of a line if its field has this name: what stands behind the colon and at most one space.
#[inline]
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.split_first() {
        None => Some(rest),
        Some((b':', value)) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        Some(_) => None,
    }
}

struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    /// The next line that is not empty.
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while let Some(first) = self.rest.first() {
            if matches!(first, b'\n' | b'\r') {
                self.rest = self.rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', self.rest).unwrap_or(self.rest.len());
            let (line, after) = self.rest.split_at(end);
            self.rest = after.get(1..).unwrap_or_default();
            return Some(line);
        }
        None
    }
}
