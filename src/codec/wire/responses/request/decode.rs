//! Decoder of a request of the responses format.

use super::items::{Items, ToolsOfItem};
use super::{Fault, options, tools};
use crate::canonical::request::Extra;
use crate::canonical::{Block, Index, IndexKey, Request, Role, Tool, Turn};
use crate::error::ApiError;
use json::{Cursor, JsonStr, RawJson};

/// Decodes a request body.
///
/// # Errors
/// Returns [`ApiError`] if the body is not JSON, if a member has the wrong type, or if a required member is missing.
pub fn decode(body: &str) -> Result<Request<'_>, ApiError> {
    decode_with(body, |_, _| {})
}

/// Same as [`decode`], and calls `member` for each member other than `input`, in their order.
///
/// # Errors
/// Returns [`ApiError`] as [`decode`] does.
pub fn decode_with<'a>(
    body: &'a str,
    member: impl FnMut(&'a str, RawJson<'a>),
) -> Result<Request<'a>, ApiError> {
    read(body, member).map_err(|fault| *fault.0)
}

fn read<'a>(body: &'a str, mut member: impl FnMut(&'a str, RawJson<'a>)) -> Result<Request<'a>, Fault> {
    let mut request = Request { show_thinking: Some(false), ..Request::default() };
    let mut items = Items::default();
    let mut instructions = None;
    let mut has_input = false;
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key.is("input") {
            has_input = json.kind()? != json::ValueKind::Null;
            items.read(&mut json, body)?;
            continue;
        }
        let value = json.raw()?;
        member(key.escaped(), value);
        match key.escaped() {
            _ if value.is_null() => {}
            "model" => {}
            "instructions" => instructions = Some(string(value, "instructions")?),
            "tools" => tools::read(value, tools::Group::default(), &mut request)?,
            "tool_choice" => tools::choice(value, &mut request)?,
            name => options::read(name, value, &mut request)?,
        }
    }
    json.end()?;
    options::settle_user(&mut request);
    let has_prompt = request.extra.iter().any(|extra| matches!(extra.name, "prompt" | "conversation"));
    if !has_input && request.previous.is_none() && !has_prompt {
        return Err(Fault::missing("input".to_owned()));
    }
    let adds_tools = !items.tools.is_empty();
    for ToolsOfItem { item, list, loaded } in items.tools {
        let from = request.tools.len();
        tools::read(list, tools::Group::default(), &mut request).map_err(|fault| fault.within(item))?;
        request.tools.iter_mut().skip(from).for_each(|tool| tool.loaded = loaded);
    }
    if adds_tools {
        keep_last_definitions(&mut request.tools);
    }
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        request.turns.push(Turn::new(Role::System, vec![Block::text(text)]));
    }
    request.turns.append(&mut items.turns);
    Ok(request)
}

/// Removes repeated definitions of a tool: the last one counts, in the place of the first. Items with tools stay in the
/// conversation when a client sends a newer list, and providers refuse two tools of one name.
fn keep_last_definitions(tools: &mut Vec<Tool<'_>>) {
    let mut known = Index::default();
    let mut kept: Vec<Tool<'_>> = Vec::with_capacity(tools.len());
    for tool in std::mem::take(tools) {
        let key = IndexKey::of((tool.name, tool.namespace));
        match known.first(key).and_then(|at| kept.get_mut(at)) {
            Some(earlier) => *earlier = Tool { loaded: earlier.loaded && tool.loaded, ..tool },
            None => {
                known.push(key);
                kept.push(tool);
            }
        }
    }
    *tools = kept;
}

pub(super) fn string<'a>(value: RawJson<'a>, path: &str) -> Result<JsonStr<'a>, Fault> {
    value.as_str().ok_or_else(|| Fault::at(path, "a string"))
}

/// Adds a member without a canonical field to the request's `extra`.
pub(super) fn store_extra<'a>(name: &'a str, value: RawJson<'a>, request: &mut Request<'a>) {
    request.extra.push(Extra { name, value });
}
