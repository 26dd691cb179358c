//! Messages of a request: their content blocks, and the rules between them.

use serde_json::Value;

use super::super::conversation::Conversation;
use super::super::ids::{decode_base64, is_seal};
use super::errors::{ApiError, Fields, required, should_be, wrong_tag};

/// Rules for the messages, by API version and model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    /// API version 2026-10-21.
    pub(super) strict: bool,
    /// Extended thinking is enabled with a budget.
    pub(super) manual_thinking: bool,
    /// The model supports prefill: the last message may be the start of the response.
    pub(super) prefill: bool,
}

/// Block types with their members.
const BLOCKS: [(&str, &[&str]); 7] = [
    ("text", &["type", "text", "citations", "cache_control"]),
    ("image", &["type", "source", "transformations", "cache_control"]),
    ("document", &["type", "source", "title", "context", "citations", "cache_control"]),
    ("thinking", &["type", "thinking", "signature"]),
    ("redacted_thinking", &["type", "data"]),
    ("tool_use", &["type", "id", "name", "input", "caller", "toolset_name", "cache_control"]),
    ("tool_result", &["type", "tool_use_id", "content", "is_error", "cache_control"]),
];

/// Block types that are accepted without checks.
const PASSED: [&str; 16] = [
    "advisor_tool_result",
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "compaction",
    "container_upload",
    "fallback",
    "mcp_tool_result",
    "mcp_tool_use",
    "search_result",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_addition",
    "tool_removal",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];

/// Reads and checks the messages.
pub(super) fn conversation(messages: &[Value], rules: Rules) -> Result<Conversation, ApiError> {
    let mut talk = Conversation::default();
    let mut calls = Calls::default();
    for (at, message) in messages.iter().enumerate() {
        if !message.is_object() {
            return Err(ApiError::invalid(format!(
                "messages.{at}: Input does not match the expected shape."
            )));
        }
        let fields = Fields::new(message, format!("messages.{at}"));
        fields.only(&[&["role", "content"]])?;
        let role = fields.require("role")?;
        let last = at + 1 == messages.len();
        match role {
            "user" => talk.user(),
            "assistant" => talk.assistant(),
            "system" => {}
            _ => return Err(should_be(&fields.at("role"), "'user', 'assistant' or 'system'")),
        }
        calls.turn(role)?;
        let content = fields.get("content").ok_or_else(|| required(&fields.at("content")))?;
        check_empty(content, role, last, &fields.path)?;
        match content {
            Value::String(text) => {
                calls.other()?;
                say(text, role, &mut talk);
            }
            Value::Array(blocks) => {
                for (index, block) in blocks.iter().enumerate() {
                    let block = Fields::new(block, format!("messages.{at}.content.{index}"));
                    read_block(&block, role, at, rules, &mut talk, &mut calls)?;
                }
                check_last(blocks, at)?;
            }
            _ => return Err(should_be(&fields.at("content"), "a valid list")),
        }
    }
    calls.end()?;
    if rules.manual_thinking {
        check_thinking_first(messages)?;
    }
    check_prefill(messages, rules)?;
    Ok(talk)
}

fn check_last(blocks: &[Value], at: usize) -> Result<(), ApiError> {
    let kind = blocks.last().and_then(|block| block["type"].as_str()).unwrap_or_default();
    if matches!(kind, "thinking" | "redacted_thinking") {
        return Err(ApiError::invalid(format!(
            "messages.{at}: The final block in an assistant message cannot be `{kind}`."
        )));
    }
    Ok(())
}

fn say(text: &str, role: &str, talk: &mut Conversation) {
    match role {
        "user" => talk.say(text),
        "system" => talk.instruct(text),
        _ => {}
    }
}

fn check_empty(content: &Value, role: &str, last: bool, path: &str) -> Result<(), ApiError> {
    let empty = match content {
        Value::String(text) => text.is_empty(),
        Value::Array(blocks) => blocks.is_empty(),
        _ => false,
    };
    match (empty, role) {
        (false, _) => Ok(()),
        (true, "assistant") if last => Ok(()),
        (true, "user") => {
            Err(ApiError::invalid(format!("{path}: user messages must have non-empty content")))
        }
        (true, _) => Err(ApiError::invalid(format!(
            "{path}: all messages must have non-empty content except for the optional final assistant message"
        ))),
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of block")]
fn read_block<'a>(
    block: &Fields<'a>,
    role: &str,
    at: usize,
    rules: Rules,
    talk: &mut Conversation,
    calls: &mut Calls<'a>,
) -> Result<(), ApiError> {
    if !block.value.is_object() {
        return Err(should_be(&block.path, "a valid dictionary"));
    }
    let kind = block.require("type")?;
    let allowed = match (kind, role) {
        ("text", _) => true,
        ("image" | "tool_result", _) => role == "user",
        ("document", _) => role == "user" || !rules.strict,
        ("thinking" | "redacted_thinking" | "tool_use", _) => role == "assistant",
        _ => PASSED.contains(&kind),
    };
    if !allowed {
        let mut expected: Vec<&str> = BLOCKS.iter().map(|(name, _)| *name).chain(PASSED).collect();
        expected.sort_unstable();
        expected.retain(|name| *name != kind);
        return Err(wrong_tag(&block.path, kind, &expected));
    }
    let tagged = Fields::new(block.value, format!("{}.{kind}", block.path));
    if let Some((_, known)) = BLOCKS.iter().find(|(name, _)| *name == kind) {
        tagged.only(&[known])?;
    }
    if kind != "tool_result" {
        calls.other()?;
    }
    match kind {
        "text" => {
            let text = tagged.require("text")?;
            if text.is_empty() {
                return Err(ApiError::invalid("messages: text content blocks must be non-empty"));
            }
            if text.trim().is_empty() {
                return Err(ApiError::invalid(
                    "messages: text content blocks must contain non-whitespace text",
                ));
            }
            let cited =
                tagged.get("citations").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
            if rules.strict && role == "user" && cited {
                return Err(super::errors::extra(&tagged.at("citations")));
            }
            say(text, role, talk);
        }
        "image" => {
            check_source(&tagged, &["base64", "url", "file"])?;
            talk.media.images += 1;
        }
        "document" => {
            check_source(&tagged, &["base64", "url", "text", "content", "file"])?;
            talk.media.documents += 1;
        }
        "thinking" => {
            let (thinking, signature) = (tagged.require("thinking")?, tagged.require("signature")?);
            if !is_seal(signature, thinking) {
                return Err(ApiError::invalid(format!(
                    "{}: Invalid `signature` in `thinking` block",
                    block.path
                )));
            }
        }
        "redacted_thinking" => {
            tagged.require("data")?;
        }
        "tool_use" => {
            let (id, name) = (tagged.require("id")?, tagged.require("name")?);
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if id.len() > 64 {
                return Err(ApiError::invalid(format!(
                    "{}: String should have at most 64 characters",
                    tagged.at("id")
                )));
            }
            if id.is_empty() || !id.chars().all(legal) {
                return Err(ApiError::invalid(format!(
                    "{}: String should match pattern '^[a-zA-Z0-9_-]+$'",
                    tagged.at("id")
                )));
            }
            match tagged.get("input") {
                Some(input) if input.is_object() => {}
                Some(_) => return Err(should_be(&tagged.at("input"), "a valid dictionary")),
                None => return Err(required(&tagged.at("input"))),
            }
            calls.call(id, at)?;
            talk.call(id, name);
        }
        "tool_result" => {
            let id = tagged.require("tool_use_id")?;
            calls.result(id, &block.path)?;
            check_failure(&tagged)?;
            let text = result_text(&tagged, talk)?;
            talk.result(id, text);
        }
        _ => {}
    }
    Ok(())
}

/// Checks that a result with `is_error` is text, and not empty.
fn check_failure(result: &Fields<'_>) -> Result<(), ApiError> {
    if result.boolean("is_error")? != Some(true) {
        return Ok(());
    }
    let refusal = |why: &str| Err(ApiError::invalid(format!("{}: {why}", result.at("content"))));
    match result.get("content") {
        None => refusal("content cannot be empty if `is_error` is true"),
        Some(Value::String(text)) if text.is_empty() => {
            refusal("content cannot be empty if `is_error` is true")
        }
        Some(Value::Array(blocks)) if blocks.is_empty() => {
            refusal("content cannot be empty if `is_error` is true")
        }
        Some(Value::Array(blocks)) if blocks.iter().any(|block| block["type"] != "text") => {
            refusal("all content must be type `text` if `is_error` is true")
        }
        Some(_) => Ok(()),
    }
}

/// Returns the text of a tool result, and counts its images and documents.
fn result_text(result: &Fields<'_>, talk: &mut Conversation) -> Result<String, ApiError> {
    let blocks = match result.get("content") {
        None => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(should_be(&result.at("content"), "a valid list")),
    };
    let mut texts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let block = Fields::new(block, format!("{}.{index}", result.at("content")));
        let kind = block.require("type")?;
        let tagged = Fields::new(block.value, format!("{}.{kind}", block.path));
        match kind {
            "text" => texts.push(tagged.require("text")?),
            "image" => {
                check_source(&tagged, &["base64", "url", "file"])?;
                talk.media.images += 1;
            }
            "document" => talk.media.documents += 1,
            "search_result" | "tool_reference" => {}
            other => {
                let expected = ["document", "image", "search_result", "text", "tool_reference"];
                return Err(wrong_tag(&block.path, other, &expected));
            }
        }
    }
    Ok(texts.join("\n"))
}

fn check_source(block: &Fields<'_>, kinds: &[&str]) -> Result<(), ApiError> {
    let source = block.object("source")?.ok_or_else(|| required(&block.at("source")))?;
    let kind = source.require("type")?;
    if !kinds.contains(&kind) {
        return Err(wrong_tag(&source.path, kind, kinds));
    }
    let tagged = Fields::new(source.value, format!("{}.{kind}", source.path));
    match kind {
        "base64" => {
            let media = tagged.require("media_type")?;
            let (expected, fits) = if block.path.ends_with(".image") {
                let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
                ("'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", known.contains(&media))
            } else {
                ("'application/pdf'", media == "application/pdf")
            };
            if !fits {
                return Err(should_be(&tagged.at("media_type"), expected));
            }
            if decode_base64(tagged.require("data")?).is_none_or(|bytes| bytes.is_empty()) {
                return Err(ApiError::invalid(format!("{}: Invalid base64 data", tagged.at("data"))));
            }
        }
        "url" => {
            let url = tagged.require("url")?;
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err(ApiError::invalid(format!(
                    "{}: Only HTTPS URLs are supported.",
                    tagged.at("url")
                )));
            }
        }
        "file" => {
            tagged.require("file_id")?;
        }
        "text" => {
            tagged.require("data")?;
        }
        _ => {}
    }
    Ok(())
}

/// Tool calls of the last model turn, and the ones without a result so far.
#[derive(Debug, Default)]
struct Calls<'a> {
    role: String,
    /// All calls of the conversation.
    known: Vec<&'a str>,
    last: Vec<&'a str>,
    open: Vec<&'a str>,
    /// Index of the message with the open calls.
    at: usize,
}

impl<'a> Calls<'a> {
    /// Starts a message. Consecutive messages of one role are one turn.
    fn turn(&mut self, role: &str) -> Result<(), ApiError> {
        if role != self.role && role == "assistant" {
            self.end()?;
            self.last.clear();
        }
        role.clone_into(&mut self.role);
        Ok(())
    }

    fn call(&mut self, id: &'a str, at: usize) -> Result<(), ApiError> {
        if self.known.contains(&id) {
            return Err(ApiError::invalid("messages: `tool_use` ids must be unique"));
        }
        self.known.push(id);
        self.last.push(id);
        self.open.push(id);
        self.at = at;
        Ok(())
    }

    fn result(&mut self, id: &str, path: &str) -> Result<(), ApiError> {
        if !self.last.contains(&id) {
            return Err(ApiError::invalid(format!(
                "{path}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must \
                 have a corresponding `tool_use` block in the previous message."
            )));
        }
        self.open.retain(|open| *open != id);
        Ok(())
    }

    /// Checks a block that is not a tool result: in a user turn, all results must precede it.
    fn other(&self) -> Result<(), ApiError> {
        if self.role == "user" { self.end() } else { Ok(()) }
    }

    fn end(&self) -> Result<(), ApiError> {
        if self.open.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(format!(
            "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
             `tool_use` block must have a corresponding `tool_result` block in the next message.",
            self.at,
            self.open.join(", ")
        )))
    }
}

/// Checks that in a tool loop the last model turn starts with a thinking block.
fn check_thinking_first(messages: &[Value]) -> Result<(), ApiError> {
    let has = |message: &Value, kind: &str| {
        message["content"].as_array().is_some_and(|blocks| blocks.iter().any(|block| block["type"] == kind))
    };
    let answers = messages.last().is_some_and(|last| last["role"] == "user" && has(last, "tool_result"));
    let Some((at, message)) = messages
        .iter()
        .enumerate()
        .rev()
        .find(|(_, message)| message["role"] == "assistant")
        .filter(|(_, message)| answers && has(message, "tool_use"))
    else {
        return Ok(());
    };
    match message.pointer("/content/0/type").and_then(Value::as_str) {
        Some("thinking" | "redacted_thinking") => Ok(()),
        other => Err(ApiError::invalid(format!(
            "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` \
             is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of \
             `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To \
             avoid this requirement, disable `thinking`. Please consult our documentation at \
             https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
            other.unwrap_or_default()
        ))),
    }
}

fn check_prefill(messages: &[Value], rules: Rules) -> Result<(), ApiError> {
    let Some(last) = messages.last().filter(|last| last["role"] == "assistant") else {
        return Ok(());
    };
    if !rules.prefill || rules.manual_thinking {
        return Err(ApiError::invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ));
    }
    let text = match &last["content"] {
        Value::Array(blocks) => blocks.last().and_then(|block| block["text"].as_str()),
        content => content.as_str(),
    };
    if text.is_some_and(|text| text.ends_with(char::is_whitespace)) {
        return Err(ApiError::invalid(
            "messages: final assistant content cannot end with trailing whitespace",
        ));
    }
    Ok(())
}
