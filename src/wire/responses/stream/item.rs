//! One item of an output while it is written: what has been said of it stands here once, and is pasted from here into
//! everything that repeats it.

use bytes::BufMut;

use super::super::text::as_text;
use crate::canonical::answer::CitationOwned;
use crate::json::{JsonStr, Writer};

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Function,
    Custom,
    Image,
    /// An item of this format that came as a whole.
    Whole,
}

impl Kind {
    /// What its id begins with.
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

/// What a part of a message or of reasoning is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
    Summary,
}

impl PartKind {
    /// The part's type.
    pub(super) fn name(self) -> &'static str {
        match self {
            PartKind::Text => "output_text",
            PartKind::Refusal => "refusal",
            PartKind::Summary => "summary_text",
        }
    }

    /// The member that has its text.
    pub(super) fn member(self) -> &'static str {
        match self {
            PartKind::Text | PartKind::Summary => "text",
            PartKind::Refusal => "refusal",
        }
    }

    /// What the events of its text begin with.
    pub(super) fn event(self) -> &'static str {
        match self {
            PartKind::Text => "response.output_text",
            PartKind::Refusal => "response.refusal",
            PartKind::Summary => "response.reasoning_summary_text",
        }
    }

    /// What the events of the part itself begin with.
    pub(super) fn part_event(self) -> &'static str {
        match self {
            PartKind::Text | PartKind::Refusal => "response.content_part",
            PartKind::Summary => "response.reasoning_summary_part",
        }
    }

    /// How its number is called.
    pub(super) fn index(self) -> &'static str {
        match self {
            PartKind::Text | PartKind::Refusal => "content_index",
            PartKind::Summary => "summary_index",
        }
    }

    /// The part without text, as it is announced.
    pub(super) fn empty(self) -> &'static str {
        match self {
            PartKind::Text => r#"{"type":"output_text","text":"","annotations":[],"logprobs":[]}"#,
            PartKind::Refusal => r#"{"type":"refusal","refusal":""}"#,
            PartKind::Summary => r#"{"type":"summary_text","text":""}"#,
        }
    }
}

/// A part that is being filled.
#[derive(Debug)]
pub(super) struct Part {
    pub kind: PartKind,
    /// Where it begins in the item's body.
    pub from: usize,
    /// Where its text begins there.
    pub text: usize,
    /// Where its text is cited from.
    pub citations: Vec<CitationOwned>,
    /// Log probabilities: elements, joined with commas.
    pub logprobs: Vec<u8>,
}

/// An item.
#[derive(Debug)]
pub(super) struct Item {
    pub kind: Kind,
    pub id: String,
    /// Its `output_index`.
    pub output: u32,
    pub status: &'static str,
    /// What it holds: the parts of a message or of reasoning as elements of an array; the arguments or the input of a
    /// call; an image in base64; all of a whole item.
    pub body: Vec<u8>,
    /// A call: its name and further members, ready to be pasted.
    pub name: String,
    pub members: Vec<u8>,
    /// Reasoning: what the provider wants to see again, in its envelope.
    pub seal: Vec<u8>,
    pub part: Option<Part>,
    pub parts: u32,
    /// What stands in a delta event between its number and its text.
    pub prefix: Vec<u8>,
    pub done: bool,
}

impl Item {
    pub(super) fn new(kind: Kind, id: String, output: u32) -> Self {
        Item {
            kind,
            id,
            output,
            status: "in_progress",
            body: Vec::new(),
            name: String::new(),
            members: Vec::new(),
            seal: Vec::new(),
            part: None,
            parts: 0,
            prefix: Vec::new(),
            done: false,
        }
    }

    /// Writes the item as far as it has come; an open part does not count.
    pub(super) fn write(&self, out: &mut impl BufMut) {
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
        if !self.seal.is_empty() {
            out.put_slice(b",\"encrypted_content\":\"");
            out.put_slice(&self.seal);
            out.put_u8(b'"');
        }
        out.put_u8(b'}');
    }

    /// `,"item_id":…,"output_index":…`
    pub(super) fn put_place(&self, out: &mut impl BufMut) {
        out.put_slice(b",\"item_id\":\"");
        out.put_slice(self.id.as_bytes());
        out.put_slice(b"\",\"output_index\":");
        out.put_slice(itoa::Buffer::new().format(self.output).as_bytes());
    }

    /// The place of the part that is open, or was the last.
    pub(super) fn put_part_place(&self, kind: PartKind, out: &mut impl BufMut) {
        self.put_place(out);
        out.put_slice(b",\"");
        out.put_slice(kind.index().as_bytes());
        out.put_slice(b"\":");
        out.put_slice(itoa::Buffer::new().format(self.parts.saturating_sub(1)).as_bytes());
    }

    /// Prepares what stands before the text of each delta.
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

    /// Opens a part.
    pub(super) fn begin_part(&mut self, kind: PartKind) {
        if self.parts > 0 {
            self.body.push(b',');
        }
        let from = self.body.len();
        let mut json = Writer::new(&mut self.body);
        json.begin_object().key("type").string(kind.name()).key(kind.member());
        self.body.push(b'"');
        let text = self.body.len();
        self.parts += 1;
        self.part = Some(Part { kind, from, text, citations: Vec::new(), logprobs: Vec::new() });
        self.prepare(Some(kind));
    }

    /// The text of a part so far.
    pub(super) fn text_of(&self, part: &Part) -> JsonStr<'_> {
        as_text(self.body.get(part.text..).unwrap_or_default())
    }
}
