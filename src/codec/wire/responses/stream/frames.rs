//! Frame writer: event name, sequence number and members.

use bytes::{BufMut, BytesMut};

use super::item::OutputItem;
use json::JsonStr;

/// Constant beginning of a delta frame, up to its sequence number.
macro_rules! head {
    ($name:literal) => {
        concat!("event: ", $name, "\ndata: {\"type\":\"", $name, "\",\"sequence_number\":").as_bytes()
    };
}

pub(super) const OUTPUT_TEXT: &[u8] = head!("response.output_text.delta");
pub(super) const REFUSAL: &[u8] = head!("response.refusal.delta");
pub(super) const SUMMARY_TEXT: &[u8] = head!("response.reasoning_summary_text.delta");
pub(super) const ARGUMENTS: &[u8] = head!("response.function_call_arguments.delta");
pub(super) const CUSTOM_INPUT: &[u8] = head!("response.custom_tool_call_input.delta");

/// Writer of numbered frames. A silent one writes nothing: it serves the encoder of a whole response.
#[derive(Debug, Default)]
pub(super) struct Frames {
    number: u64,
    silent: bool,
}

impl Frames {
    pub(super) fn silent() -> Self {
        Frames { number: 0, silent: true }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Writes a frame; `members` writes the text after the sequence number, beginning with a comma.
    pub(super) fn write(&mut self, name: &str, out: &mut BytesMut, members: impl FnOnce(&mut BytesMut)) {
        self.write2(name, "", out, members);
    }

    /// Writes a frame whose event name is given in two pieces.
    pub(super) fn write2(
        &mut self,
        name: &str,
        rest: &str,
        out: &mut BytesMut,
        members: impl FnOnce(&mut BytesMut),
    ) {
        if self.silent {
            return;
        }
        for (before, word) in
            [(&b"event: "[..], name), (b"", rest), (b"\ndata: {\"type\":\"", name), (b"", rest)]
        {
            out.put_slice(before);
            out.put_slice(word.as_bytes());
        }
        out.put_slice(b"\",\"sequence_number\":");
        self.put_number(out);
        members(out);
        out.put_slice(b"}\n\n");
    }

    /// Writes a delta frame. All of it is prepared except for the sequence number and the text.
    #[inline]
    pub(super) fn delta(
        &mut self,
        head: &[u8],
        item: &OutputItem,
        text: JsonStr<'_>,
        tail: &[u8],
        out: &mut BytesMut,
    ) {
        if self.silent {
            return;
        }
        let text = text.escaped().as_bytes();
        // One capacity check for all pieces. A `u64` has at most 20 digits.
        out.reserve(head.len() + 20 + item.prefix.len() + text.len() + tail.len());
        out.put_slice(head);
        self.put_number(out);
        out.put_slice(&item.prefix);
        out.put_slice(text);
        out.put_slice(tail);
    }

    #[inline]
    fn put_number(&mut self, out: &mut BytesMut) {
        out.put_slice(itoa::Buffer::new().format(self.number).as_bytes());
        self.number += 1;
    }
}

/// Writes `,"output_index":…,"item":…`.
pub(super) fn put_item(item: &OutputItem, out: &mut BytesMut) {
    out.put_slice(b",\"output_index\":");
    out.put_slice(itoa::Buffer::new().format(item.output).as_bytes());
    out.put_slice(b",\"item\":");
    item.write(out);
}
