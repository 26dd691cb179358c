//! Conversations that are kept by their response's id: what a request says about them, how one goes on, and how one is
//! shown. All of it is text that is cut and joined; nothing is built of it.
//!
//! A conversation is written as the elements of an array without its brackets.

use std::borrow::Cow;
use std::ops::Range;

use bytes::BytesMut;

use crate::json::{Cursor, JsonError, JsonStr, Kind, RawJson, Writer};
use crate::wire::codec::make_id;
use crate::wire::watch::{elements, members};

/// What a request says about responses that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The response that it goes on from.
    pub previous: Option<Cow<'a, str>>,
    /// Whether its answer is to be kept. It is unless the request says otherwise.
    pub keep: bool,
}

/// Reads what a request wishes. What is malformed wishes nothing; the request's decoder tells what is wrong.
pub fn wish(body: &str) -> Wish<'_> {
    let mut wish = Wish { previous: None, keep: true };
    let read = members(&mut Cursor::new(body), |key, json| {
        match key.escaped() {
            "previous_response_id" => wish.previous = json.raw()?.as_str().map(JsonStr::decode),
            "store" => wish.keep = json.raw()?.as_bool() != Some(false),
            _ => json.skip()?,
        }
        Ok(())
    });
    match read {
        Ok(()) => wish,
        Err(_) => Wish { previous: None, keep: false },
    }
}

/// A conversation up to the answer: what was before, and the request's own items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The items.
    pub items: String,
    /// Where the request's own input stands in its body.
    input: Option<Range<usize>>,
}

impl Conversation {
    /// Puts the input of a request behind the conversation `before` it.
    ///
    /// # Errors
    /// The body is not an object, or its input neither a string nor an array.
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
        // It is held until the answer has come to its end.
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
                Kind::String => {
                    push(r#"{"type":"message","role":"user","content":"#);
                    items.push_str(value.text());
                    items.push('}');
                }
                Kind::Array => push(inside(*value)),
                Kind::Null => {}
                _ => return Err(JsonError { at: 0, what: "expected a string or an array of items" }),
            }
        }
        Ok(Conversation { items, input: own.map(|(_, range)| range) })
    }

    /// The request with the whole conversation as its input.
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

/// A conversation with its answer: what the next request goes on from.
///
/// # Errors
/// The response is not an object.
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

/// The part of a conversation that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most so many items.
    pub limit: usize,
    /// Begin behind the item with this id.
    pub after: Option<String>,
    /// The newest first.
    pub descending: bool,
}

impl Default for Page {
    /// What holds where a client says nothing (OpenAI API, "List input items").
    fn default() -> Self {
        Page { limit: 20, after: None, descending: true }
    }
}

/// One item, with the id that it has or is given here.
struct Listed<'a> {
    id: Cow<'a, str>,
    raw: RawJson<'a>,
}

/// Writes the list of a conversation's items. Items that clients sent without an id are given one. False, and nothing is
/// written, where there is no item with the id to begin behind.
///
/// # Errors
/// The conversation is not one.
pub fn list(items: &str, response: &str, page: &Page, out: &mut BytesMut) -> Result<bool, JsonError> {
    let text = format!("[{items}]");
    let mut listed = Vec::new();
    elements(&mut Cursor::new(&text), |json| {
        let raw = json.raw()?;
        let known = members_of(raw, ["id"])?[0].and_then(RawJson::as_str);
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

/// Writes that a response was removed.
pub fn removed(id: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("id").string(id).key("object").string("response");
    json.key("deleted").boolean(true).end_object();
}

/// What the id of an item begins with.
fn prefix(raw: RawJson<'_>) -> Result<&'static str, JsonError> {
    let kind = members_of(raw, ["type"])?[0].and_then(RawJson::as_str);
    Ok(match kind.map_or("", JsonStr::escaped) {
        "function_call" => "fc_",
        "function_call_output" => "fco_",
        "custom_tool_call" => "ctc_",
        "custom_tool_call_output" => "ctco_",
        "reasoning" => "rs_",
        _ => "msg_",
    })
}

/// Writes an item in full: the short forms that clients may use are written out.
fn put_item(item: &Listed<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let raw = item.raw;
    let [kind, role, content, status] = members_of(raw, ["type", "role", "content", "status"])?;
    let kind = kind.and_then(RawJson::as_str).map_or("", JsonStr::escaped);
    let mut json = Writer::new(out);
    json.begin_object().key("id").string(&item.id);
    if raw.as_str().is_some() || kind.starts_with("input_") {
        // A text, or a part, that stands where an item should.
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

/// The members of these names; null counts as absent, and what is no object has none.
fn members_of<'a, const N: usize>(
    value: RawJson<'a>,
    names: [&str; N],
) -> Result<[Option<RawJson<'a>>; N], JsonError> {
    let mut found = [None; N];
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        for (name, slot) in names.iter().zip(&mut found) {
            if key.is(name) && !value.is_null() {
                *slot = Some(value);
            }
        }
        Ok(())
    })?;
    Ok(found)
}
