//! Parts, as they are written: the same in a stream's frames, in a whole answer and in a request.

use bytes::BytesMut;

use super::signature;
use crate::canonical::{Sealed, ToolKind};
use crate::json::{JsonStr, RawJson, Scanner, Writer};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};

/// The names of parts that only this format has; an opaque block of one of these is one of this format's own.
const OWN: [&str; 9] = [
    "executableCode",
    "executable_code",
    "codeExecutionResult",
    "code_execution_result",
    "toolCall",
    "tool_call",
    "toolResponse",
    "tool_response",
    "functionResponse",
];

/// Whether an opaque block is a part of this format.
pub(super) fn is_own(name: JsonStr<'_>) -> bool {
    OWN.contains(&name.escaped())
}

/// Pastes a value from elsewhere into one line: white space between its tokens may hold line breaks, which end a
/// frame's data.
pub(super) fn paste(value: RawJson<'_>, json: &mut Writer<'_, BytesMut>) {
    let text = value.text();
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() {
        json.raw(value);
        return;
    }
    // Inside strings they are always escaped, so that these stand between tokens.
    let line = text.replace(['\n', '\r'], " ");
    json.raw(RawJson::from_text(&line));
}

/// Writes a call's arguments, which are an object here, from the text of one. Text that is no object is kept, under a
/// name of its own: models write such text now and then, and it is no reason to refuse a conversation.
pub(super) fn arguments(text: JsonStr<'_>, kind: ToolKind, json: &mut Writer<'_, BytesMut>) {
    if kind == ToolKind::Custom {
        json.begin_object().key("input").paste(text).end_object();
        return;
    }
    let plain = text.decode();
    let plain = plain.trim();
    if plain.is_empty() {
        json.begin_object().end_object();
    } else if is_object(plain) {
        paste(RawJson::from_text(plain), json);
    } else {
        json.begin_object().key("_raw").paste(text).end_object();
    }
}

/// Whether a text is one JSON object, strictly.
pub(super) fn is_object(text: &str) -> bool {
    let mut scanner = Scanner::new(&[]);
    scanner.push(text.as_bytes()).is_ok() && scanner.finish().is_ok()
}

/// A call that is complete.
pub(super) struct Call<'a> {
    /// Its id; nothing is written where it is empty.
    pub(super) id: JsonStr<'a>,
    /// The tool's name.
    pub(super) name: JsonStr<'a>,
    /// What kind of tool.
    pub(super) kind: ToolKind,
    /// The arguments as text,
    pub(super) text: JsonStr<'a>,
    /// or as an object.
    pub(super) object: Option<RawJson<'a>>,
}

/// `{"functionCall":{...}}`, up to its end.
pub(super) fn begin_call(json: &mut Writer<'_, BytesMut>, call: &Call<'_>) {
    json.begin_object().key("functionCall").begin_object();
    if !call.id.is_empty() {
        json.key("id").paste(call.id);
    }
    json.key("name").paste(call.name);
    json.key("args");
    match call.object {
        Some(object) => paste(object, json),
        None => arguments(call.text, call.kind, json),
    }
    json.end_object();
}

/// The signature of a part in an answer, if it has one, and the part's end.
pub(super) fn end(json: &mut Writer<'_, BytesMut>, seal: &str, issuer: &str) {
    if !seal.is_empty() {
        let mut text = Vec::new();
        signature::write(Sealed { issuer, text: JsonStr::from_escaped(seal) }, &mut text);
        let text = std::str::from_utf8(&text).unwrap_or_default();
        json.key("thoughtSignature").paste(JsonStr::from_escaped(text));
    }
    json.end_object();
}

/// `"modelVersion":"...","responseId":"..."`
pub(super) fn names(id: &str, reply: &ReplyOptions, json: &mut Writer<'_, BytesMut>) {
    json.key("modelVersion").paste(reply.model.as_json_str());
    json.key("responseId");
    if id.is_empty() {
        json.string(&make_id("", &reply.seed, 0));
    } else {
        json.string(&bare_id(id));
    }
}

/// `{"text":"...","thought":true}`, up to its end, which is the caller's.
pub(super) fn begin_text(json: &mut Writer<'_, BytesMut>, text: JsonStr<'_>, thought: bool) {
    json.begin_object().key("text").paste(text);
    if thought {
        json.key("thought").boolean(true);
    }
}

/// `{"inlineData":{...}}`, up to its end.
pub(super) fn begin_inline(
    json: &mut Writer<'_, BytesMut>,
    mime: JsonStr<'_>,
    data: JsonStr<'_>,
    name: JsonStr<'_>,
) {
    json.begin_object().key("inlineData").begin_object();
    json.key("mimeType").paste(mime);
    json.key("data").paste(data);
    end_file(json, name);
}

/// `{"fileData":{...}}`, up to its end.
pub(super) fn begin_file(
    json: &mut Writer<'_, BytesMut>,
    mime: JsonStr<'_>,
    uri: JsonStr<'_>,
    name: JsonStr<'_>,
) {
    json.begin_object().key("fileData").begin_object();
    if !mime.is_empty() {
        json.key("mimeType").paste(mime);
    }
    json.key("fileUri").paste(uri);
    end_file(json, name);
}

fn end_file(json: &mut Writer<'_, BytesMut>, name: JsonStr<'_>) {
    if !name.is_empty() {
        json.key("displayName").paste(name);
    }
    json.end_object();
}
