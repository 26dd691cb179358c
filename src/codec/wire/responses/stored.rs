//! Stored conversations (`store`, `previous_response_id`): reads the options of a request, joins a conversation with
//! a request or a response, and lists its items.
//!
//! A conversation is stored as text: the elements of a JSON array without its brackets. All operations cut and join
//! that text; no tree is built.

use std::borrow::Cow;
use std::ops::Range;

use bytes::BytesMut;

use crate::wire::codec::make_id;
use crate::wire::watch::{elements, members, named_members};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind, Writer};

/// Storage options of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRequest<'a> {
    /// Id of the response that the request continues.
    pub previous: Option<Cow<'a, str>>,
    /// Whether the response is stored; true unless the request sets `store` to false.
    pub store: bool,
}

/// Reads the storage options of a request. A malformed body yields no options; the request decoder reports the error.
pub fn parse_storage(body: &str) -> StorageRequest<'_> {
    let mut storage = StorageRequest { previous: None, store: true };
    let read = members(&mut Cursor::new(body), |key, json| {
        match &*key.decode() {
            "previous_response_id" => storage.previous = json.raw()?.as_str().map(JsonStr::decode),
            "store" => storage.store = json.raw()?.as_bool() != Some(false),
            _ => json.skip()?,
        }
        Ok(())
    });
    match read {
        Ok(()) => storage,
        Err(_) => StorageRequest { previous: None, store: false },
    }
}

/// Conversation without the response: the stored items and those of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Elements of a JSON array, without its brackets.
    pub items: String,
    /// Byte range of the value of `input` in the request body; `None` if the body has no `input`.
    input: Option<Range<usize>>,
}

impl Conversation {
    /// Appends the input of a request to the stored conversation `before`.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the body is not valid JSON, or if its input is neither a string, an array nor null.
    pub fn new(body: &str, before: &str) -> Result<Self, JsonError> {
        let mut own = None;
        members(&mut Cursor::new(body), |key, json| {
            if !key.is("input") {
                return json.skip();
            }
            let value = json.raw()?;
            let end = json.offset();
            own = Some((value, end - value.text().len()..end));
            Ok(())
        })?;
        let length = own.as_ref().map_or(0, |(value, _)| value.text().len());
        // Allocated at its full size: the text stays in memory until the response ends.
        let mut items = String::with_capacity(before.len() + length + 64);
        items.push_str(before);
        if let Some((value, _)) = &own {
            let mut push = |text: &str| {
                if !items.is_empty() && !text.is_empty() {
                    items.push(',');
                }
                items.push_str(text);
            };
            match Cursor::new(value.text()).kind()? {
                ValueKind::String => {
                    push(r#"{"type":"message","role":"user","content":"#);
                    items.push_str(value.text());
                    items.push('}');
                }
                ValueKind::Array => push(inside(*value)),
                ValueKind::Null => {}
                _ => return Err(JsonError { at: 0, what: "expected a string or an array of items" }),
            }
        }
        Ok(Conversation { items, input: own.map(|(_, range)| range) })
    }

    /// Returns the request body with the whole conversation as its `input`.
    pub fn request(&self, body: &str) -> String {
        let mut out = String::with_capacity(body.len() + self.items.len() + 16);
        match &self.input {
            Some(range) => {
                out.push_str(body.get(..range.start).unwrap_or_default());
                out.push('[');
                out.push_str(&self.items);
                out.push(']');
                out.push_str(body.get(range.end..).unwrap_or_default());
            }
            None => {
                // Insert `input` as the first member, with a comma only if other members follow.
                out.push_str("{\"input\":[");
                out.push_str(&self.items);
                out.push(']');
                let rest = body.trim_start().strip_prefix('{').unwrap_or_default();
                if !rest.trim_start().starts_with('}') {
                    out.push(',');
                }
                out.push_str(rest);
            }
        }
        out
    }
}

/// Returns the conversation with the output of `response` appended: the text that the next request continues from.
///
/// # Errors
/// Returns [`JsonError`] if the response is not valid JSON.
pub fn with_answer(items: &str, response: &str) -> Result<String, JsonError> {
    let mut output = "";
    members(&mut Cursor::new(response), |key, json| {
        let value = json.raw()?;
        if key.is("output") && value.text().starts_with('[') {
            output = inside(value);
        }
        Ok(())
    })?;
    let comma = if items.is_empty() || output.is_empty() { "" } else { "," };
    Ok([items, comma, output].concat())
}

fn inside(array: RawJson<'_>) -> &str {
    let text = array.text();
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or_default().trim_ascii()
}

/// Page of an item list: the query parameters of "list input items".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPage {
    /// Maximum number of items.
    pub limit: usize,
    /// Cursor: list only items after the one with this id.
    pub after: Option<String>,
    /// Whether the newest item comes first.
    pub descending: bool,
}

impl Default for ItemPage {
    /// The API's defaults (<https://platform.openai.com/docs/api-reference/responses>, "List input items").
    fn default() -> Self {
        ItemPage { limit: 20, after: None, descending: true }
    }
}

/// Item of a list, with its own id or a derived one.
struct Listed<'a> {
    id: Cow<'a, str>,
    raw: RawJson<'a>,
}

/// Writes one page of a conversation's items. Items without an id get one that is derived from the id of the response
/// and their position. Returns false, and writes nothing, if no item has the id `page.after`.
///
/// # Errors
/// Returns [`JsonError`] if the conversation is not valid JSON.
pub fn list(items: &str, response: &str, page: &ItemPage, out: &mut BytesMut) -> Result<bool, JsonError> {
    let text = format!("[{items}]");
    let mut listed = Vec::new();
    elements(&mut Cursor::new(&text), |json| {
        let raw = json.raw()?;
        let known = named_members(raw, ["id"])?[0].and_then(RawJson::as_str);
        let id = match known.filter(|id| !id.is_empty()) {
            Some(id) => id.decode(),
            None => make_id(prefix(raw)?, response, listed.len() as u64).into(),
        };
        listed.push(Listed { id, raw });
        Ok(())
    })?;
    if page.descending {
        listed.reverse();
    }
    let start = match &page.after {
        None => 0,
        Some(after) => match listed.iter().position(|item| item.id == *after) {
            Some(at) => at + 1,
            None => return Ok(false),
        },
    };
    let rest = listed.get(start..).unwrap_or_default();
    let shown = rest.get(..page.limit.min(rest.len())).unwrap_or_default();
    let mut data = Vec::new();
    for (number, item) in shown.iter().enumerate() {
        if number > 0 {
            data.push(b',');
        }
        put_item(item, &mut data)?;
    }
    let mut json = Writer::new(out);
    json.begin_object().key("object").string("list");
    json.key("data").raw(RawJson::from_text(&format!("[{}]", String::from_utf8_lossy(&data))));
    crate::wire::error::nullable(&mut json, "first_id", shown.first().map(|item| &*item.id));
    crate::wire::error::nullable(&mut json, "last_id", shown.last().map(|item| &*item.id));
    json.key("has_more").boolean(shown.len() < rest.len()).end_object();
    Ok(true)
}

/// Writes the body that confirms the deletion of a response.
pub fn removed(id: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("id").string(id).key("object").string("response");
    json.key("deleted").boolean(true).end_object();
}

/// Returns the prefix of the ids of this type of item.
fn prefix(raw: RawJson<'_>) -> Result<&'static str, JsonError> {
    let kind = named_members(raw, ["type"])?[0].and_then(RawJson::as_str);
    Ok(match kind.map_or("", JsonStr::escaped) {
        "function_call" => "fc_",
        "function_call_output" => "fco_",
        "custom_tool_call" => "ctc_",
        "custom_tool_call_output" => "ctco_",
        "reasoning" => "rs_",
        _ => "msg_",
    })
}

/// Writes an item, with the short forms that clients may send (text instead of parts, no `type`) expanded.
fn put_item(item: &Listed<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let raw = item.raw;
    let [kind, role, content, status] = named_members(raw, ["type", "role", "content", "status"])?;
    let kind = kind.and_then(RawJson::as_str).map_or("", JsonStr::escaped);
    let mut json = Writer::new(out);
    json.begin_object().key("id").string(&item.id);
    if raw.as_str().is_some() || kind.starts_with("input_") {
        // A string or a message part in place of an item.
        json.key("type").string("message").key("status").string("completed").key("role").string("user");
        json.key("content").begin_array();
        match raw.as_str() {
            Some(text) => put_text(text, false, &mut json),
            None => {
                json.raw(raw);
            }
        }
        json.end_array().end_object();
        return Ok(());
    }
    let message = role.is_some() && matches!(kind, "" | "message");
    if message {
        json.key("type").string("message");
        json.key("status").raw(status.unwrap_or(RawJson::from_text("\"completed\"")));
    }
    let mut rest = Cursor::new(raw.text());
    members(&mut rest, |key, value| {
        let value = value.raw()?;
        match key.escaped() {
            "id" => {}
            "type" | "status" if message => {}
            "content" if message && content.and_then(RawJson::as_str).is_some() => {
                let ours = role.and_then(RawJson::as_str).is_some_and(|role| role.is("assistant"));
                json.key("content").begin_array();
                put_text(value.as_str().unwrap_or_default(), ours, &mut json);
                json.end_array();
            }
            _ => {
                json.paste_key(key).raw(value);
            }
        }
        Ok(())
    })?;
    json.end_object();
    Ok(())
}

fn put_text(text: JsonStr<'_>, output: bool, json: &mut Writer<'_, Vec<u8>>) {
    json.begin_object().key("type").string(if output { "output_text" } else { "input_text" });
    json.key("text").paste(text);
    if output {
        json.key("annotations").begin_array().end_array();
    }
    json.end_object();
}
