//! The frames of a piece on their way out: a range of the piece as long as nothing changes, a copy from then on.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::framing::sse::text_start;
use crate::json::EscapedString;

/// Output of one piece: a slice of the input while nothing changes, a copy from then on.
pub(super) struct OutputSlices<'b> {
    changed: &'b mut BytesMut,
    copying: bool,
    from: usize,
    to: usize,
}

impl<'b> OutputSlices<'b> {
    /// Begins with a piece; `changed` is empty and takes the copies.
    pub(super) fn new(changed: &'b mut BytesMut) -> Self {
        OutputSlices { changed, copying: false, from: 0, to: 0 }
    }

    /// The frame leaves as it is.
    #[inline]
    pub(super) fn pass(&mut self, source: &Bytes, range: Range<usize>, joined: bool) {
        if joined || self.copying {
            self.copying = true;
            self.changed.extend_from_slice(source.get(range.clone()).unwrap_or_default());
            if joined {
                return;
            }
        } else if self.from == self.to {
            self.from = range.start;
        }
        self.to = range.end;
    }

    /// What passed of the piece so far goes into the copy.
    fn start_copying(&mut self, source: &Bytes, joined: bool) {
        if !self.copying {
            self.copying = true;
            if !joined {
                self.changed.extend_from_slice(source.get(self.from..self.to).unwrap_or_default());
            }
        }
    }

    /// The frame does not leave.
    pub(super) fn drop(&mut self, source: &Bytes, joined: bool) {
        self.start_copying(source, joined);
    }

    /// The frame leaves with another name of the model in the place `at` of its data.
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

    /// The frame leaves with something else in a place of its data, which `put` writes.
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
        // Where the data stands in the frame; data that was joined from several lines stands nowhere.
        let offset = (data.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        if offset <= frame.len() && offset + data.len() <= frame.len() {
            self.changed.extend_from_slice(frame.get(..offset + at.start).unwrap_or_default());
            put(self.changed);
            self.changed.extend_from_slice(frame.get(offset + at.end..).unwrap_or_default());
        } else {
            self.edit_lines(frame, data, at, put);
        }
    }

    /// The lines of the data are written anew where the first of them stood; all other lines stay.
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

    /// What leaves of the piece.
    #[inline]
    pub(super) fn finish(self, piece: &Bytes) -> Bytes {
        if self.copying { self.changed.split().freeze() } else { piece.slice(self.from..self.to) }
    }
}

/// Writes a text that was escaped before, with its quotes.
pub(super) fn push_quoted(out: &mut BytesMut, text: &EscapedString) {
    out.extend_from_slice(b"\"");
    out.extend_from_slice(text.as_json_str().escaped().as_bytes());
    out.extend_from_slice(b"\"");
}
