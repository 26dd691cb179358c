//! Server-sent events, framed as the WHATWG HTML standard (section 9.2.6) says and as providers send them: any of the
//! three line ends, comments, no space after the colon, several data lines.

/// Event splitter: finds the blank lines that end events.
#[derive(Clone, Debug)]
pub struct SseSplitter {
    /// Whether the current line is empty so far.
    line_empty: bool,
    /// Whether the last byte of the previous piece was a carriage return, already counted as a line end. A line feed
    /// right after it belongs to the same line end.
    swallow_line_feed: bool,
    /// Whether that line end also ended an event.
    event_ended: bool,
}

impl Default for SseSplitter {
    fn default() -> Self {
        SseSplitter { line_empty: true, swallow_line_feed: false, event_ended: false }
    }
}

impl SseSplitter {
    /// Returns the end of the next event: see [`Splitter::next_boundary`](super::Splitter::next_boundary).
    #[inline]
    pub fn next_boundary(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        if self.swallow_line_feed && at < piece.len() {
            self.swallow_line_feed = false;
            // The `\n` of a `\r\n` that was split between two pieces.
            if piece.get(at) == Some(&b'\n') {
                at += 1;
                // The event has been forwarded already. Forward its last byte at once, because some clients wait for
                // it.
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
                    // The piece ends with `\r`: a `\n` may follow in the next piece. Do not wait for it, or the event
                    // would be late.
                    None => {
                        self.swallow_line_feed = true;
                        self.event_ended = blank;
                    }
                }
            }
            if blank {
                return Some(at);
            }
            // Fast path: most events end with two line feeds, which are found without another search.
            if piece.get(at) == Some(&b'\n') {
                return Some(at + 1);
            }
        }
    }
}

/// Server-sent event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Value of the `event:` field.
    pub name: Option<&'a [u8]>,
    /// Values of the `data:` lines, joined by a line feed; `None` if there are none (a comment, a blank line).
    pub data: Option<&'a [u8]>,
}

impl<'a> SseEvent<'a> {
    /// Parses one frame as delimited by the splitter. `scratch` is used only for an event with several data lines.
    #[inline]
    pub fn parse(frame: &'a [u8], scratch: &'a mut Vec<u8>) -> SseEvent<'a> {
        SseEvent::parse_lines(frame, scratch, b'\n')
    }

    /// Parses one frame whose data is JSON: several data lines are joined by spaces, so that values of the data can be
    /// copied into a single line of another stream.
    #[inline]
    pub fn parse_json(frame: &'a [u8], scratch: &'a mut Vec<u8>) -> SseEvent<'a> {
        SseEvent::parse_lines(frame, scratch, b' ')
    }

    #[inline]
    fn parse_lines(frame: &'a [u8], scratch: &'a mut Vec<u8>, between: u8) -> SseEvent<'a> {
        let mut event = SseEvent::default();
        let mut lines = Lines { rest: frame.get(text_start(frame)..).unwrap_or_default() };
        while let Some(line) = lines.next() {
            if let Some(value) = field(line, b"data") {
                if event.data.is_some() {
                    // Second data line: parse again and join.
                    return SseEvent::parse_joined(frame, scratch, between);
                }
                event.data = Some(value);
            } else if let Some(value) = field(line, b"event") {
                event.name = Some(value);
            }
        }
        event
    }

    #[cold]
    fn parse_joined(frame: &'a [u8], scratch: &'a mut Vec<u8>, between: u8) -> SseEvent<'a> {
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
        SseEvent { name, data: Some(scratch) }
    }
}

/// Returns the offset of the first line of a frame: behind a byte order mark, and behind the line feed of the previous
/// blank line if that line feed arrived in a later piece.
#[inline]
pub fn text_start(frame: &[u8]) -> usize {
    match frame.first() {
        Some(b'\r' | b'\n' | 0xef) => marked_start(frame),
        _ => 0,
    }
}

/// Slow path of [`text_start`], for the few frames that do not start with their first line.
#[cold]
fn marked_start(frame: &[u8]) -> usize {
    let ends = frame.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let marked = frame.get(ends..).is_some_and(|text| text.starts_with(b"\xef\xbb\xbf"));
    if marked { ends + 3 } else { ends }
}

/// Returns the value of a line with this field name, without the colon and at most one space; `None` for another field.
#[inline]
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.split_first() {
        // A line without a colon is a field with an empty value (WHATWG HTML, section 9.2.6).
        None => Some(rest),
        Some((b':', value)) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        // A longer name, such as `database`.
        Some(_) => None,
    }
}

struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    /// Returns the next line that is not empty.
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
