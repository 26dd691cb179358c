//! Helpers: hand-written requests, and the bodies that are encoded from them.

use serde_json::Value;

use super::dialect;
use crate::canonical::{Block, Dialect, Input, ProviderSignature, Request, Role, Tool, ToolKind, Turn};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::generate::request::encode;
use json::{JsonStr, RawJson, RopeBuilder};

pub(super) fn s(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

pub(super) fn raw(text: &str) -> RawJson<'_> {
    RawJson::from_text(text)
}

pub(super) fn text(text: &str) -> Block<'_> {
    Block::text(s(text))
}

pub(super) fn user(blocks: Vec<Block<'_>>) -> Turn<'_> {
    Turn::new(Role::User, blocks)
}

pub(super) fn model(blocks: Vec<Block<'_>>) -> Turn<'_> {
    Turn::new(Role::Assistant, blocks)
}

pub(super) fn call<'a>(id: &'a str, name: &'a str, input: Input<'a>) -> Block<'a> {
    Block::ToolUse {
        id: s(id),
        name: s(name),
        input,
        kind: ToolKind::Function,
        namespace: s(""),
        signature: None,
        cache: None,
    }
}

pub(super) fn result<'a>(id: &'a str, name: &'a str, content: Vec<Block<'a>>) -> Block<'a> {
    Block::ToolResult {
        id: s(id),
        name: s(name),
        content,
        object: None,
        error: false,
        kind: ToolKind::Function,
        cache: None,
    }
}

pub(super) fn tool<'a>(name: &'a str, schema: Option<&'a str>) -> Tool<'a> {
    Tool { schema: schema.map(raw), ..Tool::new(s(name), ToolKind::Function) }
}

pub(super) fn of(turns: Vec<Turn<'_>>) -> Request<'_> {
    Request { turns, ..Request::default() }
}

pub(super) fn hi() -> Request<'static> {
    of(vec![user(vec![text("Hi")])])
}

pub(super) fn signed(seal: &str) -> Option<ProviderSignature<'_>> {
    Some(ProviderSignature { issuer: Some("google".into()), text: seal.into() })
}

/// Encodes a request of a chat client. Returns the body, the losses and the reason of a refusal.
pub(super) fn write_for(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
) -> (Value, Vec<String>, Option<String>) {
    let mut notes = LossNotes::new(Format::Chat, Format::Generate);
    let mut out = RopeBuilder::default();
    encode(request, dialect, &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    let losses = notes.losses().iter().map(|loss| loss.element.to_string()).collect();
    let refusal = notes.take_refusal().map(|error| error.message.to_string());
    (serde_json::from_slice(&out).unwrap(), losses, refusal)
}

pub(super) fn write(request: &Request<'_>) -> Value {
    let (value, _, refusal) = write_for(request, &dialect("gemini-2.5-flash"));
    assert_eq!(refusal, None);
    value
}
