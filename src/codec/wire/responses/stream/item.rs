//! Item of an output that is being written. Its content is stored here once, and copied into every event that repeats
//! it.

use super::super::text::as_text;
use crate::canonical::answer::CitationOwned;
use json::{JsonStr, Sink, Writer};

/// Type of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Function,
    Custom,
    Image,
    /// Item of this format that arrived as a whole.
    Whole,
}

impl Kind {
    /// Returns the prefix of the item's id.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Kind::Message | Kind::Whole => "msg_",
            Kind::Reasoning => "rs_",
            Kind::Function => "fc_",
            Kind::Custom => "ctc_",
            Kind::Image => "ig_",
        }
    }
}

/// Type of a part of a message or of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
    Summary,
}

impl PartKind {
    /// Returns the value of the part's `type` member.
    pub(super) fn name(self) -> &'static str {
        match self {
            PartKind::Text => "output_text",
            PartKind::Refusal => "refusal",
            PartKind::Summary => "summary_text",
        }
    }

    /// Returns the name of the member with the part's text.
    pub(super) fn member(self) -> &'static str {
        match self {
            PartKind::Text | PartKind::Summary => "text",
            PartKind::Refusal => "refusal",
        }
    }

    /// Returns the prefix of the types of the events for the part's text.
    pub(super) fn event(self) -> &'static str {
        match self {
            PartKind::Text => "response.output_text",
            PartKind::Refusal => "response.refusal",
            PartKind::Summary => "response.reasoning_summary_text",
        }
    }

    /// Returns the prefix of the types of the events for the part itself.
    pub(super) fn part_event(self) -> &'static str {
        match self {
            PartKind::Text | PartKind::Refusal => "response.content_part",
            PartKind::Summary => "response.reasoning_summary_part",
        }
    }

    /// Returns the name of the member with the part's index.
    pub(super) fn index(self) -> &'static str {
        match self {
            PartKind::Text | PartKind::Refusal => "content_index",
            PartKind::Summary => "summary_index",
        }
    }

    /// Returns the part without text, for the event that announces it.
    pub(super) fn empty(self) -> &'static str {
        match self {
            PartKind::Text => r#"{"type":"output_text","text":"","annotations":[],"logprobs":[]}"#,
            PartKind::Refusal => r#"{"type":"refusal","refusal":""}"#,
            PartKind::Summary => r#"{"type":"summary_text","text":""}"#,
        }
    }
}

/// Part that is being filled.
#[derive(Debug)]
pub(super) struct OpenPart {
    pub kind: PartKind,
    /// Byte offset of the part in the item's body.
    pub from: usize,
    /// Byte offset of the part's text in the item's body.
    pub text: usize,
    /// Citations of the text.
    pub citations: Vec<CitationOwned>,
    /// Log probabilities: elements of an array, joined with commas.
    pub logprobs: Vec<u8>,
}

/// Item of an output.
#[derive(Debug)]
pub(super) struct OutputItem {
    pub kind: Kind,
    pub id: String,
    /// The item's `output_index`.
    pub output: u32,
    pub status: &'static str,
    /// Content: the parts of a message or of reasoning as elements of an array; the arguments or the input of a call;
    /// an image in base64; or a whole item.
    pub body: Vec<u8>,
    /// Name of the tool that is called.
    pub name: String,
    /// Further members as JSON text, each preceded by a comma.
    pub members: Vec<u8>,
    /// Provider signature of reasoning, in its `gw1.` envelope.
    pub signature: Vec<u8>,
    pub part: Option<OpenPart>,
    pub parts: u32,
    /// Text of a delta event between its sequence number and its text.
    pub prefix: Vec<u8>,
    pub done: bool,
}

impl OutputItem {
    pub(super) fn new(kind: Kind, id: String, output: u32) -> Self {
        OutputItem {
            kind,
            id,
            output,
            status: "in_progress",
            body: Vec::new(),
            name: String::new(),
            members: Vec::new(),
            signature: Vec::new(),
            part: None,
            parts: 0,
            prefix: Vec::new(),
            done: false,
        }
    }

    /// Writes the item in its present state. No part may be open: the body then ends in an unterminated string.
    pub(super) fn write(&self, out: &mut impl Sink) {
        if self.kind == Kind::Whole {
            out.put_slice(&self.body);
            return;
        }
        out.put_slice(b"{\"id\":\"");
        out.put_slice(self.id.as_bytes());
        out.put_slice(match self.kind {
            Kind::Message | Kind::Whole => b"\",\"type\":\"message\",\"status\":\"",
            Kind::Reasoning => b"\",\"type\":\"reasoning\",\"status\":\"",
            Kind::Function => b"\",\"type\":\"function_call\",\"status\":\"",
            Kind::Custom => b"\",\"type\":\"custom_tool_call\",\"status\":\"",
            Kind::Image => b"\",\"type\":\"image_generation_call\",\"status\":\"",
        });
        out.put_slice(self.status.as_bytes());
        out.put_slice(match self.kind {
            Kind::Message | Kind::Whole => b"\",\"role\":\"assistant\",\"content\":[",
            Kind::Reasoning => b"\",\"summary\":[",
            Kind::Function => b"\",\"arguments\":\"",
            Kind::Custom => b"\",\"input\":\"",
            Kind::Image if self.body.is_empty() => b"\",\"result\":null",
            Kind::Image => b"\",\"result\":\"",
        });
        out.put_slice(&self.body);
        match self.kind {
            Kind::Message | Kind::Reasoning | Kind::Whole => out.put_u8(b']'),
            Kind::Image if self.body.is_empty() => {}
            Kind::Function | Kind::Custom | Kind::Image => out.put_u8(b'"'),
        }
        out.put_slice(&self.members);
        if !self.signature.is_empty() {
            out.put_slice(b",\"encrypted_content\":\"");
            out.put_slice(&self.signature);
            out.put_u8(b'"');
        }
        out.put_u8(b'}');
    }

    /// Writes `,"item_id":…,"output_index":…`.
    pub(super) fn put_place(&self, out: &mut impl Sink) {
        out.put_slice(b",\"item_id\":\"");
        out.put_slice(self.id.as_bytes());
        out.put_slice(b"\",\"output_index\":");
        out.put_slice(itoa::Buffer::new().format(self.output).as_bytes());
    }

    /// Writes the item id, the `output_index` and the index of the open or last part.
    pub(super) fn put_part_place(&self, kind: PartKind, out: &mut impl Sink) {
        self.put_place(out);
        out.put_slice(b",\"");
        out.put_slice(kind.index().as_bytes());
        out.put_slice(b"\":");
        out.put_slice(itoa::Buffer::new().format(self.parts.saturating_sub(1)).as_bytes());
    }

    /// Prepares the text that precedes the content of each delta, so that a delta is written by copying it.
    pub(super) fn prepare(&mut self, part: Option<PartKind>) {
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        match part {
            Some(kind) => self.put_part_place(kind, &mut prefix),
            None => self.put_place(&mut prefix),
        }
        prefix.put_slice(b",\"delta\":\"");
        self.prefix = prefix;
    }

    pub(super) fn begin_part(&mut self, kind: PartKind) {
        if self.parts > 0 {
            self.body.push(b',');
        }
        let from = self.body.len();
        let mut json = Writer::new(&mut self.body);
        json.begin_object().key("type").string(kind.name()).key(kind.member());
        self.body.push(b'"');
        // The string stays open: the encoder appends the deltas to `body` and closes the string at the end of the
        // part.
        let text = self.body.len();
        self.parts += 1;
        self.part = Some(OpenPart { kind, from, text, citations: Vec::new(), logprobs: Vec::new() });
        self.prepare(Some(kind));
    }

    /// Returns the text of a part so far.
    pub(super) fn text_of(&self, part: &OpenPart) -> JsonStr<'_> {
        as_text(self.body.get(part.text..).unwrap_or_default())
    }
}
