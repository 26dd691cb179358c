//! Output frames of one piece: a range of the piece while nothing changes, a copy from the first change on.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use framing::sse::text_start;
use json::EscapedString;

/// Output of one piece: a slice of the input while nothing changes, a copy from then on.
pub(super) struct OutputSlices<'b> {
    changed: &'b mut BytesMut,
    copying: bool,
    from: usize,
    to: usize,
}

impl<'b> OutputSlices<'b> {
    /// Creates the output of a piece. `changed` must be empty; it receives the copies.
    pub(super) fn new(changed: &'b mut BytesMut) -> Self {
        OutputSlices { changed, copying: false, from: 0, to: 0 }
    }

    /// Passes a frame unchanged. `joined` is whether the frame is outside the piece, because it began in an earlier
    /// one.
    #[inline]
    pub(super) fn forward(&mut self, source: &Bytes, range: Range<usize>, joined: bool) {
        if joined || self.copying {
            self.copying = true;
            self.changed.extend_from_slice(source.get(range.clone()).unwrap_or_default());
            if joined {
                return;
            }
        // Nothing has passed yet: the slice starts at this frame. Frames are contiguous, so only its end moves later.
        } else if self.from == self.to {
            self.from = range.start;
        }
        self.to = range.end;
    }

    /// Copies the part of the piece that has passed so far, and switches to copying.
    fn start_copying(&mut self, source: &Bytes, joined: bool) {
        // The slice can no longer represent the output: copy the frames that passed so far.
        if !self.copying {
            self.copying = true;
            if !joined {
                self.changed.extend_from_slice(source.get(self.from..self.to).unwrap_or_default());
            }
        }
    }

    /// Drops a frame.
    pub(super) fn drop(&mut self, source: &Bytes, joined: bool) {
        self.start_copying(source, joined);
    }

    /// Passes a frame with another model name at the range `at` of its data.
    pub(super) fn rename(
        &mut self,
        source: &Bytes,
        range: Range<usize>,
        joined: bool,
        data: &str,
        at: Range<usize>,
        model: &EscapedString,
    ) {
        self.edit(source, range, joined, (data, at), |out| push_quoted(out, model));
    }

    /// Passes a frame with one range of its data replaced by the output of `put`.
    pub(super) fn edit(
        &mut self,
        source: &Bytes,
        range: Range<usize>,
        joined: bool,
        (data, at): (&str, Range<usize>),
        put: impl Fn(&mut BytesMut),
    ) {
        let frame = source.get(range).unwrap_or_default();
        self.start_copying(source, joined);
        // Offset of the data in the frame. Data that was joined from several lines is not inside the frame.
        let offset = (data.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        if offset <= frame.len() && offset + data.len() <= frame.len() {
            self.changed.extend_from_slice(frame.get(..offset + at.start).unwrap_or_default());
            put(self.changed);
            self.changed.extend_from_slice(frame.get(offset + at.end..).unwrap_or_default());
        } else {
            self.edit_lines(frame, data, at, put);
        }
    }

    /// Slow path for data from several lines: rewrites all of them at the position of the first; other lines stay.
    #[cold]
    fn edit_lines(&mut self, frame: &[u8], data: &str, at: Range<usize>, put: impl Fn(&mut BytesMut)) {
        let mut renamed = BytesMut::with_capacity(data.len());
        renamed.extend_from_slice(data.as_bytes().get(..at.start).unwrap_or_default());
        put(&mut renamed);
        renamed.extend_from_slice(data.as_bytes().get(at.end..).unwrap_or_default());
        let mut written = false;
        let (before, mut rest) = frame.split_at(text_start(frame));
        self.changed.extend_from_slice(before);
        while !rest.is_empty() {
            let length = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let end = if rest.get(length..length + 2) == Some(b"\r\n") { length + 2 } else { length + 1 };
            let (line, after) = rest.split_at(end.min(rest.len()));
            rest = after;
            let is_data =
                line.strip_prefix(b"data").is_some_and(|tail| matches!(tail, [b':' | b'\r' | b'\n', ..]));
            if !is_data {
                self.changed.extend_from_slice(line);
            } else if !written {
                written = true;
                for text in renamed.as_ref().split(|&byte| byte == b'\n') {
                    self.changed.extend_from_slice(b"data: ");
                    self.changed.extend_from_slice(text);
                    self.changed.extend_from_slice(b"\n");
                }
            }
        }
    }

    /// Returns the output of the piece.
    #[inline]
    pub(super) fn finish(self, piece: &Bytes) -> Bytes {
        if self.copying { self.changed.split().freeze() } else { piece.slice(self.from..self.to) }
    }
}

/// Writes an escaped text with its quotes.
pub(super) fn push_quoted(out: &mut BytesMut, text: &EscapedString) {
    out.extend_from_slice(b"\"");
    out.extend_from_slice(text.as_json_str().escaped().as_bytes());
    out.extend_from_slice(b"\"");
}
