//! Decoder of the conversation: messages to turns.

use std::collections::HashMap;
use std::fmt::Arguments;
use std::sync::LazyLock;

use super::media::{CACHE_CONTROL, cache_mark, image_mime, mark_last};
use super::parts::content;
use super::read::{Result, array, broken, invalid, missing, object, raw, raw_object, text};
use super::reasoning::{DetachedSignature, ReasoningMembers};
use crate::canonical::content::TYPICAL_TURNS;
use crate::canonical::seal::SignedCallId;
use crate::canonical::{
    Block, CacheBreakpoint, Index, IndexKey, Input, MediaSource, ProviderSignature, Role, ToolKind, Turn,
};
use crate::wire::chat::enums::{image_address, thought_signature};
use crate::wire::codec::means_no_arguments;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Ids for calls of the deprecated `function_call` form, which has none. They depend only on the position, so that the
/// same history always has the same ids.
static LEGACY_IDS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..256).map(|number| format!("call_function_{number}")).collect());

/// Decodes `messages`.
pub(super) fn conversation<'a>(json: &mut Cursor<'a>) -> Result<Vec<Turn<'a>>> {
    let mut reader = Reader::default();
    let mut turns = Vec::with_capacity(TYPICAL_TURNS);
    array(json, "messages", |number, json| {
        turns.push(reader.message(json, number)?);
        Ok(())
    })?;
    if turns.is_empty() {
        return Err(invalid("messages", "at least one message"));
    }
    Ok(turns)
}

/// Facts of earlier messages that later messages depend on.
#[derive(Default)]
struct Reader {
    /// Ids of calls to custom tools.
    custom: Index,
    /// Number of calls in the deprecated form.
    legacy: usize,
}

/// Members of a message. They may come in any order, so all are collected before any is interpreted.
#[derive(Default)]
struct Message<'a> {
    role: JsonStr<'a>,
    /// Blocks of the content, or the fault in it.
    content: Option<Result<Vec<Block<'a>>>>,
    name: JsonStr<'a>,
    refusal: JsonStr<'a>,
    calls: Option<RawJson<'a>>,
    function_call: Option<RawJson<'a>>,
    call_id: JsonStr<'a>,
    images: Option<RawJson<'a>>,
    audio: Option<RawJson<'a>>,
    signature: JsonStr<'a>,
    thoughts: ReasoningMembers<'a>,
    cache: Option<CacheBreakpoint>,
    prefix: bool,
}

impl<'a> Message<'a> {
    fn read(json: &mut Cursor<'a>, path: Arguments<'_>) -> Result<Self> {
        let mut message = Message::default();
        object(json, path, |key, json| {
            let name = key.escaped();
            if name == "content" {
                message.content = Some(content(json, format_args!("{path}.content"))?);
                return Ok(());
            }
            let value = raw(json)?;
            let said = || value.as_str().unwrap_or_default();
            match name {
                "role" => message.role = said(),
                "name" => message.name = said(),
                "refusal" => message.refusal = said(),
                "tool_calls" => message.calls = Some(value),
                "function_call" => message.function_call = Some(value),
                "tool_call_id" => message.call_id = said(),
                "images" => message.images = Some(value),
                "audio" => message.audio = Some(value),
                "extra_content" => message.signature = thought_signature(value),
                "reasoning_content" => message.thoughts.reasoning_content = Some(value),
                "reasoning" => message.thoughts.reasoning = Some(value),
                "reasoning_details" => message.thoughts.details = Some(value),
                "thinking_blocks" => message.thoughts.thinking_blocks = Some(value),
                "prefix" | "partial" => message.prefix |= value.as_bool() == Some(true),
                CACHE_CONTROL => message.cache = cache_mark(value),
                _ => {}
            }
            Ok(())
        })?;
        Ok(message)
    }

    /// Returns the blocks of the content, once.
    fn blocks(&mut self) -> Result<Vec<Block<'a>>> {
        Ok(self.content.take().transpose()?.unwrap_or_default())
    }
}

impl Reader {
    fn message<'a>(&mut self, json: &mut Cursor<'a>, number: usize) -> Result<Turn<'a>> {
        let path = format_args!("messages[{number}]");
        let mut message = Message::read(json, path)?;
        // The canonical form has no tool role: results are blocks of a user turn.
        let role = match message.role.escaped() {
            "system" => Role::System,
            "developer" => Role::Developer,
            "assistant" => Role::Assistant,
            "user" | "tool" | "function" => Role::User,
            "" => return Err(missing(format_args!("{path}.role"))),
            _ => {
                let expected = "'system', 'developer', 'user', 'assistant', 'tool' or 'function'";
                return Err(invalid(format_args!("{path}.role"), expected));
            }
        };
        let mut blocks = match message.role.escaped() {
            "assistant" => self.assistant(&mut message, path)?,
            "tool" | "function" => vec![self.result(&mut message, path)?],
            _ => {
                // OpenAI refuses such a message, and other formats cannot have one.
                if message.content.is_none() && message.images.is_none() {
                    return Err(missing(format_args!("{path}.content")));
                }
                let mut blocks = message.blocks()?;
                images(&message, path, &mut blocks)?;
                blocks
            }
        };
        if let Some(mark) = message.cache {
            mark_last(&mut blocks, mark);
        }
        let is_result = matches!(blocks.first(), Some(Block::ToolResult { .. }));
        let name = if is_result { JsonStr::default() } else { message.name };
        Ok(Turn { name, prefix: message.prefix, ..Turn::new(role, blocks) })
    }

    /// Decodes an assistant message: reasoning, text, refusal, calls, media. This format does not preserve their
    /// original order.
    fn assistant<'a>(&mut self, message: &mut Message<'a>, path: Arguments<'_>) -> Result<Vec<Block<'a>>> {
        let (mut blocks, mut elsewhere) = message.thoughts.read()?;
        let first_part = blocks.len();
        let mut parts = message.blocks()?;
        if blocks.is_empty() {
            blocks = parts;
        } else {
            blocks.append(&mut parts);
        }
        if !message.refusal.is_empty() {
            blocks.push(Block::Refusal { text: message.refusal });
        }
        let first_call = blocks.len();
        if let Some(calls) = message.calls {
            let path = format_args!("{path}.tool_calls");
            array(&mut Cursor::new(calls.text()), path, |number, json| {
                let call = self.call(json, format_args!("{path}[{number}]"))?;
                blocks.extend(call);
                Ok(())
            })?;
        }
        if let (true, Some(call)) = (blocks.len() == first_call, message.function_call) {
            let mut function = Function::default();
            let path = format_args!("{path}.function_call");
            function.read(&mut Cursor::new(call.text()), path)?;
            if !function.name.is_empty() {
                let id = self.legacy_id(function.name);
                self.legacy += 1;
                blocks.push(function.block(id, ToolKind::Function, None, None));
            }
        }
        images(message, path, &mut blocks)?;
        if let Some(raw) = message.audio {
            blocks.push(Block::Opaque { name: JsonStr::from_escaped("audio"), raw });
        }
        // One provider puts the signature on the message instead of a part.
        if let Some(seal) = ProviderSignature::read(message.signature) {
            elsewhere.insert(0, DetachedSignature { id: JsonStr::from_escaped("text"), signature: seal });
        }
        if !elsewhere.is_empty() {
            attach(&mut blocks, first_part, elsewhere);
        }
        Ok(blocks)
    }

    /// Returns the id of the next call in the deprecated form. `name` is the fallback after 256 calls.
    fn legacy_id<'a>(&self, name: JsonStr<'a>) -> JsonStr<'a> {
        LEGACY_IDS.get(self.legacy).map_or(name, |id| JsonStr::from_escaped(id))
    }

    fn call<'a>(&mut self, json: &mut Cursor<'a>, path: Arguments<'_>) -> Result<Option<Block<'a>>> {
        let mut id = JsonStr::default();
        let (mut function, mut custom) = (Function::default(), Function::default());
        let (mut signature, mut cache) = (JsonStr::default(), None);
        object(json, path, |key, json| {
            match key.escaped() {
                "id" => id = text(json, format_args!("{path}.id"))?,
                "function" => function.read(json, format_args!("{path}.function"))?,
                "custom" => custom.read(json, format_args!("{path}.custom"))?,
                "extra_content" => signature = thought_signature(raw(json)?),
                CACHE_CONTROL => cache = cache_mark(raw(json)?),
                _ => drop(raw(json)?),
            }
            Ok(())
        })?;
        let (function, kind) = match function.name.is_empty() {
            false => (function, ToolKind::Function),
            true if !custom.name.is_empty() => (custom, ToolKind::Custom),
            true => return Err(missing(format_args!("{path}.function.name"))),
        };
        // The id may carry a provider signature that this gateway appended to it.
        let carried = SignedCallId::read(id);
        if carried.id.is_empty() {
            return Err(missing(format_args!("{path}.id")));
        }
        if kind == ToolKind::Custom {
            self.custom.push(IndexKey::of(carried.id));
        }
        let seal = carried.signature.or_else(|| ProviderSignature::read(signature));
        Ok(Some(function.block(carried.id, kind, seal, cache)))
    }

    fn result<'a>(&mut self, message: &mut Message<'a>, path: Arguments<'_>) -> Result<Block<'a>> {
        let legacy = message.role.is("function");
        let id = if legacy {
            // A `function` message has no call id; it answers the last call.
            LEGACY_IDS.get(self.legacy.saturating_sub(1)).map_or(message.name, |id| JsonStr::from_escaped(id))
        } else {
            SignedCallId::read(message.call_id).id
        };
        if id.is_empty() {
            return Err(missing(format_args!("{path}.tool_call_id")));
        }
        let mut content = message.blocks()?;
        // A cache mark on a part of a tool result applies to the whole result.
        let mut cache = None;
        for block in &mut content {
            cache = super::media::take_mark(block).or(cache);
        }
        let kind = if self.custom.has(IndexKey::of(id)) { ToolKind::Custom } else { ToolKind::Function };
        Ok(Block::ToolResult { id, name: message.name, content, object: None, error: false, kind, cache })
    }
}

/// Called function or custom tool.
#[derive(Default)]
struct Function<'a> {
    name: JsonStr<'a>,
    input: Option<RawJson<'a>>,
}

impl<'a> Function<'a> {
    fn read(&mut self, json: &mut Cursor<'a>, path: Arguments<'_>) -> Result<()> {
        object(json, path, |key, json| {
            match key.escaped() {
                "name" => self.name = text(json, format_args!("{path}.name"))?,
                "arguments" | "input" => self.input = Some(raw(json)?),
                _ => drop(raw(json)?),
            }
            Ok(())
        })
    }

    fn block(
        &self,
        id: JsonStr<'a>,
        kind: ToolKind,
        seal: Option<ProviderSignature<'a>>,
        cache: Option<CacheBreakpoint>,
    ) -> Block<'a> {
        let text = |input: RawJson<'a>| input.as_str().map(Input::Text);
        let input = match self.input {
            Some(input) if input.text().starts_with('{') => Input::Object(input),
            input => input.and_then(text).unwrap_or(Input::Text(JsonStr::default())),
        };
        // Other formats require an object, so missing arguments become an empty one.
        let input = match input {
            Input::Text(text) if kind == ToolKind::Function && means_no_arguments(text) => {
                Input::Text(JsonStr::from_escaped("{}"))
            }
            input => input,
        };
        Block::ToolUse {
            id,
            name: self.name,
            input,
            kind,
            namespace: JsonStr::default(),
            signature: seal,
            cache,
        }
    }
}

/// Decodes `images`: objects as OpenAI-compatible providers return them, or plain base64.
fn images<'a>(message: &Message<'a>, path: Arguments<'_>, blocks: &mut Vec<Block<'a>>) -> Result<()> {
    let Some(images) = message.images else { return Ok(()) };
    let path = format_args!("{path}.images");
    array(&mut Cursor::new(images.text()), path, |number, json| {
        let source = if json.kind().map_err(broken)? == ValueKind::String {
            let data = text(json, path)?;
            match MediaSource::from_url(data) {
                // Neither a data URL nor an address: plain base64.
                MediaSource::Url { url, .. } if !url.escaped().contains(':') => {
                    let mime = JsonStr::from_escaped(image_mime(data.escaped()));
                    MediaSource::Base64 { mime, data }
                }
                source => source,
            }
        } else {
            MediaSource::from_url(image_address(raw_object(json, format_args!("{path}[{number}]"))?))
        };
        blocks.push(Block::Image { source, detail: JsonStr::default(), cache: None, signature: None });
        Ok(())
    })
}

/// Attaches provider signatures to their blocks. A signature whose block no longer exists is dropped.
fn attach<'a>(blocks: &mut Vec<Block<'a>>, first_part: usize, found: Vec<DetachedSignature<'a>>) {
    let ids: Index = found.iter().map(|found| IndexKey::of(found.id)).collect();
    let number = |id: JsonStr<'a>| id.escaped().strip_prefix("image_")?.parse::<usize>().ok();
    let numbers: HashMap<usize, usize> =
        found.iter().enumerate().filter_map(|(at, found)| Some((number(found.id)?, at))).collect();
    let mut images = 0;
    for block in &mut *blocks {
        match block {
            Block::ToolUse { id, signature: seal, .. } if seal.is_none() => {
                *seal = ids
                    .first(IndexKey::of(*id))
                    .and_then(|at| found.get(at))
                    .map(|found| found.signature.clone());
            }
            Block::Image { signature: seal, .. } => {
                if let Some(found) = numbers.get(&images).and_then(|at| found.get(*at)) {
                    *seal = Some(found.signature.clone());
                }
                images += 1;
            }
            _ => {}
        }
    }
    let Some(of_text) = found.into_iter().rev().find(|found| found.id.is("text")) else { return };
    let last = blocks.iter_mut().rev().find_map(|block| match block {
        Block::Text { signature: seal, .. } => Some(seal),
        _ => None,
    });
    match last {
        Some(seal) => *seal = Some(of_text.signature),
        None => {
            let text =
                Block::Text { text: JsonStr::default(), cache: None, signature: Some(of_text.signature) };
            blocks.insert(first_part.min(blocks.len()), text);
        }
    }
}
