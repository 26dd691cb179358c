//! Writers of parts, for stream frames, whole responses and requests.

use super::signature;
use crate::canonical::{SealedSignature, ToolKind};
use crate::wire::codec::{ReplyOptions, bare_id, is_object, make_id};
use crate::wire::encoded_twice::object_in;
use json::{JsonStr, RawJson, Sink, Writer, with_whole_characters};

/// Members that only parts of this format have. An opaque block with one of these names is a part of this format.
const OWN: [&str; 10] = [
    "executableCode",
    "executable_code",
    "codeExecutionResult",
    "code_execution_result",
    "toolCall",
    "tool_call",
    "toolResponse",
    "tool_response",
    "functionResponse",
    "function_response",
];

/// Returns whether an opaque block is a part of this format.
pub(super) fn is_own(name: JsonStr<'_>) -> bool {
    OWN.contains(&name.escaped())
}

/// Writes a JSON value on one line: a line break between its tokens would end the data of the frame.
pub(super) fn paste(value: RawJson<'_>, json: &mut Writer<'_, impl Sink>) {
    let text = value.text();
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() {
        json.raw(value);
        return;
    }
    // Line breaks inside of strings are always escaped, so these are between tokens.
    let line = text.replace(['\n', '\r'], " ");
    json.raw(RawJson::from_text(&line));
}

/// Writes a call's arguments, given as text, as an object. Models sometimes write text that is not an object: it
/// becomes the member `_raw`, because a conversation must not fail for it.
pub(super) fn arguments(text: JsonStr<'_>, kind: ToolKind, json: &mut Writer<'_, impl Sink>) {
    if kind == ToolKind::Custom {
        json.begin_object().key("input").paste(text).end_object();
        return;
    }
    let plain = text.decode();
    let plain = plain.trim();
    if plain.is_empty() {
        json.begin_object().end_object();
    } else if is_object(plain) {
        paste(RawJson::from_text(&with_whole_characters(plain)), json);
    } else if let Some(object) = object_in(text.escaped()) {
        paste(RawJson::from_text(&object), json);
    } else {
        json.begin_object().key("_raw").paste(text).end_object();
    }
}

/// Complete call.
pub(super) struct CompleteCall<'a> {
    /// Call id; not written if empty.
    pub(super) id: JsonStr<'a>,
    /// Name of the tool.
    pub(super) name: JsonStr<'a>,
    /// Type of the tool.
    pub(super) kind: ToolKind,
    /// Arguments as text; ignored if `object` is set.
    pub(super) text: JsonStr<'a>,
    /// Arguments as an object.
    pub(super) object: Option<RawJson<'a>>,
}

/// Writes `{"functionCall":{...}`. The caller closes the part.
pub(super) fn begin_call(json: &mut Writer<'_, impl Sink>, call: &CompleteCall<'_>) {
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

/// Writes the provider signature of a part in a response, if it has one, and closes the part. `hidden` is whether the part
/// is hidden reasoning.
pub(super) fn end(json: &mut Writer<'_, impl Sink>, seal: &str, issuer: &str, hidden: bool) {
    if !seal.is_empty() {
        let mut text = Vec::new();
        signature::write(SealedSignature { issuer, text: JsonStr::from_escaped(seal) }, hidden, &mut text);
        let text = std::str::from_utf8(&text).unwrap_or_default();
        json.key("thoughtSignature").paste(JsonStr::from_escaped(text));
    }
    json.end_object();
}

/// Writes `"modelVersion":"...","responseId":"..."`.
pub(super) fn names(id: &str, reply: &ReplyOptions, json: &mut Writer<'_, impl Sink>) {
    json.key("modelVersion").paste(reply.model.as_json_str());
    json.key("responseId");
    if id.is_empty() {
        json.string(&make_id("", &reply.seed, 0));
    } else {
        json.string(&bare_id(id));
    }
}

/// Writes `{"text":"..."`, with `"thought":true` for a thought. The caller closes the part.
pub(super) fn begin_text(json: &mut Writer<'_, impl Sink>, text: JsonStr<'_>, thought: bool) {
    json.begin_object().key("text").paste(text);
    if thought {
        json.key("thought").boolean(true);
    }
}

/// Writes `{"inlineData":{...}`. The caller closes the part.
pub(super) fn begin_inline(
    json: &mut Writer<'_, impl Sink>,
    mime: JsonStr<'_>,
    data: JsonStr<'_>,
    name: JsonStr<'_>,
) {
    json.begin_object().key("inlineData").begin_object();
    json.key("mimeType").paste(mime);
    json.key("data").paste(data);
    end_file(json, name);
}

/// Writes `{"fileData":{...}`. The caller closes the part.
pub(super) fn begin_file(
    json: &mut Writer<'_, impl Sink>,
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

fn end_file(json: &mut Writer<'_, impl Sink>, name: JsonStr<'_>) {
    if !name.is_empty() {
        json.key("displayName").paste(name);
    }
    json.end_object();
}
