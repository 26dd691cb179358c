//! Compaction items, and the response object of `POST /v1/responses/compact`.
//!
//! An item `compaction` stands for the conversation before it; only its issuer can read its `encrypted_content`. A last
//! item `compaction_trigger` requests one instead of a message, as does the endpoint. Facts: OpenAI API, "Compact a
//! response", November 2026; the trigger was observed with Codex CLI 0.169.
//!
//! For providers without compaction the gateway makes the item out of a summary, and opens its own items again: they
//! become messages of the user. Here is what that means for the text of a body; keys and encryption do not belong here.

use std::ops::Range;

use bytes::{BufMut, BytesMut};

use super::shell::put_usage;
use crate::canonical::Answer;
use crate::canonical::answer::AnswerBlockKind;
use crate::error::{ApiError, ErrorKind};
use crate::wire::codec::{ReplyOptions, make_id};
use crate::wire::watch::named_members;
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind, Writer};

/// Name of the compaction item.
pub const ITEM: &str = "compaction";

/// Beginning of the message that replaces an opened item.
const HEADING: &str = "Summary of the conversation so far. It was compacted, and this summary stands for all that came \
                       before:";

/// Message that asks the model for the summary.
pub const INSTRUCTION: &str = "The conversation is about to be compacted: everything above will be replaced by your \
    next message, and the work continues from it alone. Write that message now. State, as far as it applies: what the \
    user wants, with all constraints and preferences, in the user's own terms; what has been done and with which \
    result, with exact names of files, functions, commands, identifiers and values; decisions and their reasons; \
    errors that occurred and how they were resolved; the present state, and what remains to be done, in order. Do not \
    call tools, do not ask anything, and do not continue the work: write the summary only.";

/// Compaction items of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CompactionItems {
    /// Items, in the order of the input.
    pub items: Vec<CompactionItem>,
    /// Byte range of the trigger, with the comma before it. `None` if the request has none.
    trigger: Option<Range<usize>>,
}

/// Compaction item of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct CompactionItem {
    /// Index in `input`.
    pub index: usize,
    /// The member `encrypted_content`, unescaped.
    pub encrypted: String,
    range: Range<usize>,
}

impl CompactionItems {
    /// Reads the items of a request body.
    ///
    /// # Errors
    /// Returns [`ApiError`] for an item without content, and for a trigger that is not the last item.
    pub fn read(body: &str) -> Result<Self, ApiError> {
        let mut found = CompactionItems::default();
        let mut fault = None;
        let mut trigger = None;
        let read = each_item(body, |index, item, range, before| {
            let [kind, encrypted] = named_members(item, ["type", "encrypted_content"])?;
            match kind.and_then(RawJson::as_str).map(JsonStr::escaped) {
                Some(ITEM) => match encrypted.and_then(RawJson::as_str).filter(|text| !text.is_empty()) {
                    Some(text) => {
                        let encrypted = text.decode().into_owned();
                        found.items.push(CompactionItem { index, encrypted, range });
                    }
                    None => _ = fault.get_or_insert_with(|| missing(index)),
                },
                Some("compaction_trigger") => _ = trigger.get_or_insert((index, before..range.end)),
                _ => {}
            }
            Ok(())
        });
        let count = read.map_err(|error| {
            let message = format!("The request body is not valid JSON: {error}.");
            ApiError::new(ErrorKind::InvalidJson, message)
        })?;
        if let Some((at, _)) = trigger.as_ref().filter(|(at, _)| at + 1 < count) {
            let message =
                format!("Invalid value for 'input[{at}]': 'compaction_trigger' must be the last item.");
            return Err(ApiError::new(ErrorKind::InvalidField, message).param(format!("input[{at}]")));
        }
        found.trigger = trigger.map(|(_, range)| range);
        fault.map_or(Ok(found), Err)
    }

    /// Returns whether the request asks for a compaction.
    pub fn is_triggered(&self) -> bool {
        self.trigger.is_some()
    }

    /// Returns the body with the opened items as messages of the user; `summaries` are their texts, in the order of
    /// `items`, `None` for an item that stays. With `removes_trigger`, the trigger is left out.
    pub fn rewritten(&self, body: &str, summaries: &[Option<String>], removes_trigger: bool) -> String {
        let texts: usize = summaries.iter().flatten().map(String::len).sum();
        let mut out = Vec::with_capacity(body.len() + texts + texts / 16 + 256);
        let mut at = 0;
        let mut copy_to = |out: &mut Vec<u8>, to: usize, next: usize| {
            out.extend_from_slice(body.as_bytes().get(at..to).unwrap_or_default());
            at = next;
        };
        for (item, summary) in self.items.iter().zip(summaries) {
            let Some(summary) = summary else { continue };
            copy_to(&mut out, item.range.start, item.range.end);
            put_summary(summary, &mut out);
        }
        if let Some(trigger) = self.trigger.as_ref().filter(|_| removes_trigger) {
            copy_to(&mut out, trigger.start, trigger.end);
        }
        copy_to(&mut out, body.len(), body.len());
        // Cannot fail: the pieces end at JSON tokens.
        String::from_utf8(out).unwrap_or_default()
    }
}

fn missing(index: usize) -> ApiError {
    let param = format!("input[{index}].encrypted_content");
    ApiError::new(ErrorKind::InvalidField, format!("Missing required parameter: '{param}'.")).param(param)
}

/// Returns the error of an item that cannot be opened: 400 with OpenAI's code, and the item's path.
pub fn unreadable(kind: ErrorKind, index: usize, why: &str) -> ApiError {
    let param = format!("input[{index}].encrypted_content");
    let message = format!("The compaction item at '{param}' cannot be used: {why}");
    let mut error = ApiError::new(kind, message).param(param);
    error.code = Some("invalid_encrypted_content".into());
    error
}

fn put_summary(summary: &str, out: &mut Vec<u8>) {
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("message").key("role").string("user");
    json.key("content").begin_array().begin_object().key("type").string("input_text");
    json.key("text").string(&format!("{HEADING}\n\n{summary}"));
    json.end_object().end_array().end_object();
}

/// Calls `each` for every item of `input` that is an object: its index, its text, its byte range in the body, and the
/// offset at which the item before it ends. A body whose input is no array has no items. Returns their number, with
/// those that are no objects.
fn each_item<'b>(
    body: &'b str,
    mut each: impl FnMut(usize, RawJson<'b>, Range<usize>, usize) -> Result<(), JsonError>,
) -> Result<usize, JsonError> {
    let mut count = 0;
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if !key.is("input") || json.kind()? != ValueKind::Array {
            json.skip()?;
            continue;
        }
        json.begin_array()?;
        let mut before = json.offset();
        while json.next_element()? {
            let item = json.raw()?;
            let end = json.offset();
            if item.text().starts_with('{') {
                each(count, item, end - item.text().len()..end, before)?;
            }
            (count, before) = (count + 1, end);
        }
    }
    Ok(count)
}

/// Returns the messages of the user in a request body, as items joined with commas. Messages that opened items became
/// are left out: the new summary includes them.
///
/// # Errors
/// Returns [`JsonError`] if the body is not valid JSON.
pub fn user_messages(body: &str, seed: &str) -> Result<String, JsonError> {
    let mut out = Vec::new();
    let mut number = 0;
    let mut put = |content: &mut dyn FnMut(&mut Writer<'_, Vec<u8>>)| {
        if !out.is_empty() {
            out.push(b',');
        }
        number += 1;
        let mut json = Writer::new(&mut out);
        json.begin_object().key("id").string(&make_id("msg_", seed, number)).key("type").string("message");
        json.key("status").string("completed").key("role").string("user").key("content");
        content(&mut json);
        json.end_object();
    };
    let put_text = |text: JsonStr<'_>, json: &mut Writer<'_, Vec<u8>>| {
        json.begin_array().begin_object().key("type").string("input_text").key("text").paste(text);
        json.end_object().end_array();
    };
    let [input] = named_members(RawJson::from_text(body), ["input"])?;
    if let Some(text) = input.and_then(RawJson::as_str) {
        put(&mut |json| put_text(text, json));
    }
    each_item(body, |_, item, _, _| {
        let [kind, role, content] = named_members(item, ["type", "role", "content"])?;
        let is_message = kind.is_none_or(|kind| kind.as_str().is_some_and(|kind| kind.is("message")));
        let is_user = role.and_then(RawJson::as_str).is_some_and(|role| role.is("user"));
        let Some(content) = content.filter(|_| is_message && is_user) else { return Ok(()) };
        match content.as_str() {
            Some(text) => put(&mut |json| put_text(text, json)),
            None if is_summary(content) => {}
            None if content.text().starts_with('[') => put(&mut |json| _ = json.raw(content)),
            None => {}
        }
        Ok(())
    })?;
    Ok(String::from_utf8(out).unwrap_or_default())
}

/// Returns whether the content of a message is that of an opened item.
fn is_summary(content: RawJson<'_>) -> bool {
    let mut json = Cursor::new(content.text());
    let first = json
        .begin_array()
        .and_then(|()| json.next_element())
        .and_then(|any| any.then(|| json.raw()).transpose());
    let text =
        first.ok().flatten().and_then(|part| named_members(part, ["text"]).ok()).and_then(|[text]| text);
    text.and_then(RawJson::as_str).is_some_and(|text| text.escaped().starts_with(HEADING))
}

/// Writes a compaction item.
pub fn put_item(id: &str, encrypted: &str, out: &mut Vec<u8>) {
    let mut json = Writer::new(out);
    json.begin_object().key("id").string(id).key("type").string(ITEM);
    json.key("encrypted_content").string(encrypted).end_object();
}

/// Writes the compacted conversation: the response of `POST /v1/responses/compact`. `messages` are those of the user, as
/// items joined with commas.
pub(super) fn encode(answer: &Answer, messages: &str, reply: &ReplyOptions, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("id").string(&make_id("resp_", &reply.seed, 0));
    json.key("object").string("response.compaction");
    json.key("created_at").number(answer.created.unwrap_or(reply.created));
    out.put_slice(b",\"output\":[");
    out.put_slice(messages.as_bytes());
    let mut first = messages.is_empty();
    for block in &answer.blocks {
        if let AnswerBlockKind::Opaque { raw, .. } = &block.kind {
            if !std::mem::take(&mut first) {
                out.put_u8(b',');
            }
            out.put_slice(raw.as_bytes());
        }
    }
    out.put_slice(b"],\"usage\":");
    put_usage(&answer.usage, out);
    out.put_u8(b'}');
}
