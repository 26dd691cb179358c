//! Pending blocks of the stream encoder: tool calls, whose id may have to carry a provider signature that arrives
//! later, and media, which must be written in one chunk.

use bytes::BytesMut;

use crate::canonical::seal::SignedCallId;
use crate::canonical::{SealedSignature, ToolKind};
use crate::wire::chat::write::data_url;
use crate::wire::codec::{ReplyOptions, make_id};
use json::{JsonStr, Writer};

/// Tool call of the stream.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) choice: u32,
    /// Number of the call within its choice. Valid once its first chunk is written.
    pub(super) number: u32,
    pub(super) id: String,
    pub(super) filled: bool,
    name: String,
    kind: ToolKind,
    seal: String,
    pub(super) started: bool,
}

impl PendingCall {
    pub(super) fn new(choice: u32, id: JsonStr<'_>, name: JsonStr<'_>, kind: ToolKind) -> Self {
        PendingCall {
            choice,
            number: 0,
            id: id.escaped().to_owned(),
            filled: false,
            name: name.escaped().to_owned(),
            kind,
            seal: String::new(),
            started: false,
        }
    }

    /// Stores a provider signature until the first chunk is written; the id will carry it.
    pub(super) fn hold_signature(&mut self, seal: JsonStr<'_>) {
        seal.escaped().clone_into(&mut self.seal);
    }

    /// Marks the first chunk as written and appends the stored signature to the id, which is final from here on.
    #[cold]
    pub(super) fn start(&mut self, issuer: &str) {
        self.started = true;
        if self.seal.is_empty() {
            return;
        }
        let mut carrier = Vec::with_capacity(self.seal.len() * 4 / 3 + 32);
        SignedCallId::write(
            SealedSignature { issuer, text: JsonStr::from_escaped(&self.seal) },
            &mut carrier,
        );
        self.id.push_str(&String::from_utf8(carrier).unwrap_or_default());
    }

    /// Writes the first chunk of the call: id, kind and name.
    pub(super) fn write(&self, json: &mut Writer<'_, BytesMut>) {
        let (kind, input) = match self.kind {
            ToolKind::Function => ("function", "arguments"),
            ToolKind::Custom => ("custom", "input"),
        };
        json.key("tool_calls").begin_array().begin_object();
        json.key("index").number(self.number);
        json.key("id").paste(JsonStr::from_escaped(&self.id));
        json.key("type").string(kind);
        json.key(kind).begin_object();
        json.key("name").paste(JsonStr::from_escaped(&self.name));
        json.key(input).string("");
        json.end_object().end_object().end_array();
    }

    /// Returns the JSON text between the call's number and a part of its input.
    pub(super) fn before_input(&self) -> &'static [u8] {
        match self.kind {
            ToolKind::Function => br#","function":{"arguments":""#,
            ToolKind::Custom => br#","custom":{"input":""#,
        }
    }

    /// Returns the input of a call without arguments. `None` for custom tools, whose empty input is valid.
    pub(super) fn empty_input(&self) -> Option<JsonStr<'static>> {
        (self.kind == ToolKind::Function).then_some(JsonStr::from_escaped("{}"))
    }
}

/// Image or audio of the stream.
#[derive(Debug)]
pub(super) struct Media {
    pub(super) choice: u32,
    pub(super) number: u32,
    pub(super) data: String,
    pub(super) url: String,
    mime: String,
}

impl Media {
    pub(super) fn new(choice: u32, number: u32, mime: JsonStr<'_>) -> Self {
        Media { choice, number, data: String::new(), url: String::new(), mime: mime.escaped().to_owned() }
    }

    pub(super) fn write(&self, json: &mut Writer<'_, BytesMut>, reply: &ReplyOptions) {
        if self.mime.starts_with("audio/") && self.url.is_empty() {
            json.key("audio").begin_object();
            json.key("id").string(&make_id("audio_", &reply.seed, self.number.into()));
            json.key("data").paste(JsonStr::from_escaped(&self.data));
            json.end_object();
            return;
        }
        json.key("images").begin_array();
        image(json, &self.mime, &self.data, &self.url, Some(self.number));
        json.end_array();
    }
}

/// Writes an image in the form of OpenAI-compatible providers. `number` is its index in a stream, `None` in a whole
/// response.
pub(in crate::wire::chat) fn image(
    json: &mut Writer<'_, BytesMut>,
    mime: &str,
    data: &str,
    url: &str,
    number: Option<u32>,
) {
    json.begin_object();
    json.key("type").string("image_url");
    json.key("image_url").begin_object().key("url");
    if url.is_empty() {
        let mut text = Vec::with_capacity(data.len() + mime.len() + 16);
        data_url(&mut text, mime, data);
        let text = String::from_utf8(text).unwrap_or_default();
        json.paste(JsonStr::from_escaped(&text));
    } else {
        json.paste(JsonStr::from_escaped(url));
    }
    json.end_object();
    if let Some(number) = number {
        json.key("index").number(number);
    }
    json.end_object();
}
