//! Messages of a Converse request: the turns, their content blocks, and the rules between them.

use serde_json::Value;

use super::super::conversation::Conversation;
use super::super::ids::decode_base64;
use super::errors::{ApiError, Fields, constraint, extraneous, missing};
use super::media::{self, Attachments};
use super::models::{Family, Model};

/// Reads and checks the messages. `has_tools` states whether the request has `toolConfig`.
pub(super) fn conversation(
    messages: &[Value],
    model: &Model,
    has_tools: bool,
) -> Result<Conversation, ApiError> {
    let mut reader = Reader { model, has_tools, ..Reader::new(model) };
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages.{at}");
        let message = Fields::new(message, &*path)?;
        message.only(&["role", "content"])?;
        let role = message.require("role")?;
        let blocks = message.array("content")?.ok_or_else(|| missing(&message.at("content")))?;
        if blocks.is_empty() {
            return Err(ApiError::invalid(format!(
                "The content field in the Message object at {path} is empty. Add a ContentBlock object to the content \
                 field and try again."
            )));
        }
        reader.begin(role, &path)?;
        for (index, block) in blocks.iter().enumerate() {
            reader.block(&Fields::new(block, format!("{path}.content.{index}"))?, index)?;
        }
        reader.end(&path)?;
    }
    reader.finish()
}

struct Reader<'a> {
    model: &'a Model,
    has_tools: bool,
    talk: Conversation,
    /// Role of the message that is read. Empty before the first one.
    role: &'a str,
    /// Identifiers of the tool calls in the model turn before, that wait for their results.
    open: Vec<&'a str>,
    /// Number of tool calls in the model turn before.
    called: usize,
    /// Identifiers of the tool calls in the model turn that is read.
    calls: Vec<&'a str>,
    results: usize,
    has_text: bool,
    needs_text: bool,
    has_media: bool,
    ends_in_reasoning: bool,
    attachments: Attachments<'a>,
}

impl<'a> Reader<'a> {
    fn new(model: &'a Model) -> Reader<'a> {
        Reader {
            model,
            has_tools: false,
            talk: Conversation::default(),
            role: "",
            open: Vec::new(),
            called: 0,
            calls: Vec::new(),
            results: 0,
            has_text: false,
            needs_text: false,
            has_media: false,
            ends_in_reasoning: false,
            attachments: Attachments::default(),
        }
    }

    fn begin(&mut self, role: &'a str, path: &str) -> Result<(), ApiError> {
        match role {
            "user" => self.talk.user(),
            "assistant" => self.talk.assistant(),
            "system" if self.model.generation() >= Some((4, 8)) => {}
            "system" => {
                return Err(ApiError::invalid("This model doesn't support the system role in messages."));
            }
            other => {
                return Err(constraint(
                    &format!("{path}.role"),
                    other,
                    "satisfy enum value set: [user, assistant]",
                ));
            }
        }
        if self.role.is_empty() && role != "user" && self.model.family != Family::Claude {
            return Err(ApiError::invalid(
                "A conversation must start with a user message. Try again with a conversation that starts with a user \
                 message.",
            ));
        }
        if role == self.role {
            return Err(ApiError::invalid(
                "A conversation must alternate between user and assistant roles. Make sure the conversation alternates \
                 between user and assistant roles and try again.",
            ));
        }
        self.role = role;
        (self.results, self.has_text, self.needs_text, self.has_media) = (0, false, false, false);
        self.ends_in_reasoning = false;
        self.calls.clear();
        self.attachments = self.attachments.next_turn();
        Ok(())
    }

    fn block(&mut self, block: &Fields<'a>, index: usize) -> Result<(), ApiError> {
        let (kind, value) = block.one()?;
        let path = block.at(kind);
        let is_user = self.role == "user";
        let misplaced = || {
            ApiError::invalid(format!(
                "The {kind} content block at {path} isn't supported in a turn of the role {}.",
                if is_user { "user" } else { "assistant" }
            ))
        };
        self.ends_in_reasoning = kind == "reasoningContent";
        match kind {
            "text" => self.text(value, &path),
            "image" | "document" | "video" | "audio" => {
                if !is_user {
                    return Err(misplaced());
                }
                self.has_media = true;
                self.needs_text |= kind == "document";
                let media = Fields::new(value, path)?;
                self.attachments.add(kind, &media, self.model, &mut self.talk.media)
            }
            "toolUse" if !is_user => self.call(&Fields::new(value, path)?),
            "toolResult" if is_user => self.result(&Fields::new(value, path)?),
            "reasoningContent" if !is_user => self.reasoning(&Fields::new(value, path)?),
            "cachePoint" => {
                if index == 0 {
                    return Err(ApiError::invalid(format!(
                        "The cachePoint block at {path} has nothing before it that could be cached."
                    )));
                }
                cache_point(&Fields::new(value, path)?)
            }
            "guardContent" if is_user => {
                let guard = Fields::new(value, path)?;
                guard.only(&["text", "image"])?;
                match guard.object("text")? {
                    Some(text) => self.text(text.get("text").unwrap_or(&Value::Null), &text.at("text")),
                    None => Ok(()),
                }
            }
            "citationsContent" if !is_user => Fields::new(value, path)?.only(&["content", "citations"]),
            "searchResult" if is_user => {
                Fields::new(value, path)?.only(&["source", "title", "content", "citations"])
            }
            "toolUse" | "toolResult" | "reasoningContent" | "guardContent" | "citationsContent"
            | "searchResult" => Err(misplaced()),
            other => Err(extraneous(&block.path, other)),
        }
    }

    fn text(&mut self, value: &'a Value, path: &str) -> Result<(), ApiError> {
        let text = value.as_str().ok_or_else(|| missing(path))?;
        let object = path.rsplit_once('.').map_or(path, |(object, _)| object);
        if text.trim().is_empty() {
            return Err(ApiError::invalid(format!(
                "The text field in the ContentBlock object at {object} is blank. Add text to the text field, and try \
                 again."
            )));
        }
        self.has_text = true;
        match self.role {
            "user" => self.talk.say(text),
            "system" => self.talk.instruct(text),
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, call: &Fields<'a>) -> Result<(), ApiError> {
        call.only(&["toolUseId", "name", "input", "type"])?;
        let (id, name) = (call.require("toolUseId")?, call.require("name")?);
        check_id(&call.at("toolUseId"), id)?;
        super::tools::check_name(&call.at("name"), name)?;
        if !call.get("input").is_some_and(Value::is_object) {
            return Err(ApiError::invalid(format!(
                "The format of the value at {} in the toolUse block is invalid. Provide a json object for the field \
                 and try again.",
                call.at("input")
            )));
        }
        self.check_tools()?;
        self.talk.call(id, name);
        if call.string("type")? != Some("server_tool_use") {
            self.calls.push(id);
        }
        Ok(())
    }

    fn result(&mut self, result: &Fields<'a>) -> Result<(), ApiError> {
        result.only(&["toolUseId", "content", "status", "type"])?;
        let id = result.require("toolUseId")?;
        check_id(&result.at("toolUseId"), id)?;
        self.check_tools()?;
        let status = result.string("status")?;
        if !matches!(status, None | Some("success" | "error")) {
            return Err(constraint(
                &result.at("status"),
                status.unwrap_or_default(),
                "satisfy enum value set: [success, error]",
            ));
        }
        let content = result.array("content")?.ok_or_else(|| missing(&result.at("content")))?;
        if content.is_empty() && status == Some("error") {
            return Err(ApiError::invalid(format!(
                "The content field of the toolResult block at {} is empty. Add content and try again.",
                result.path
            )));
        }
        let mut text = String::new();
        for (index, part) in content.iter().enumerate() {
            let part = Fields::new(part, format!("{}.content.{index}", result.path))?;
            let (kind, value) = part.one()?;
            let path = part.at(kind);
            match kind {
                "text" => text.push_str(value.as_str().ok_or_else(|| missing(&path))?),
                "json" if value.is_object() => text.push_str(&value.to_string()),
                "image" | "document" | "video" => {
                    let media = Fields::new(value, path)?;
                    self.attachments.add(kind, &media, self.model, &mut self.talk.media)?;
                }
                "searchResult" => {}
                other => return Err(extraneous(&part.path, other)),
            }
        }
        self.talk.result(id, text);
        self.results += 1;
        if self.results > self.called {
            return Err(ApiError::invalid(format!(
                "The number of toolResult blocks at {} exceeds the number of toolUse blocks of previous turn.",
                result
                    .path
                    .rsplit_once('.')
                    .and_then(|(path, _)| path.rsplit_once('.'))
                    .map_or("", |(path, _)| path)
            )));
        }
        self.open.retain(|open| *open != id);
        Ok(())
    }

    fn reasoning(&mut self, block: &Fields<'a>) -> Result<(), ApiError> {
        let (kind, value) = block.one()?;
        match kind {
            "reasoningText" => {
                let reasoning = Fields::new(value, block.at(kind))?;
                reasoning.only(&["text", "signature"])?;
                let text = reasoning.require("text")?;
                let signature = reasoning.string("signature")?;
                let is_signed = signature.is_some_and(|it| super::super::ids::is_seal(it, text));
                if self.model.family != Family::Claude && signature.is_some() {
                    return Err(extraneous(&reasoning.path, "signature"));
                }
                if self.model.family == Family::Claude && !is_signed {
                    let at = block.path.trim_end_matches(".reasoningContent");
                    return Err(ApiError::of_model(&format!(
                        "{at}: Invalid `signature` in `thinking` block"
                    )));
                }
                Ok(())
            }
            "redactedContent" => match value.as_str().and_then(decode_base64) {
                Some(_) => Ok(()),
                None => Err(media::invalid_base64(&block.at(kind))),
            },
            other => Err(extraneous(&block.path, other)),
        }
    }

    fn check_tools(&self) -> Result<(), ApiError> {
        if self.has_tools {
            return Ok(());
        }
        Err(ApiError::invalid(
            "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        ))
    }

    fn end(&mut self, path: &str) -> Result<(), ApiError> {
        if self.needs_text && !self.has_text {
            return Err(ApiError::invalid(
                "The messages field contains a document without a text block. Include a text block in the message and \
                 try again.",
            ));
        }
        if self.ends_in_reasoning && self.model.family == Family::Claude {
            return Err(ApiError::of_model(&format!(
                "{path}: The final block in an assistant message cannot be `thinking`."
            )));
        }
        if self.role == "user" {
            if !self.open.is_empty() {
                return Err(ApiError::invalid(format!(
                    "Expected toolResult blocks at {path}.content for the following Ids: {}",
                    self.open.join(", ")
                )));
            }
            // Nova refuses results beside media of the user.
            if self.model.family == Family::Nova && self.results > 0 && self.has_media {
                let at = path.replace('.', "/");
                return Err(ApiError::of_model(&format!(
                    "Malformed input request: #/{at}/content/0: extraneous key [toolResult] is not permitted, please \
                     reformat your input and try again."
                )));
            }
            self.called = 0;
        } else {
            self.open = std::mem::take(&mut self.calls);
            self.called = self.open.len();
        }
        Ok(())
    }

    fn finish(self) -> Result<Conversation, ApiError> {
        if self.role == "assistant" {
            let generation = self.model.generation();
            // Amazon Nova User Guide, "Prefill": the models of Amazon continue a turn as well.
            let continues = matches!(self.model.family, Family::Claude | Family::Nova);
            if !self.open.is_empty() || !continues || generation >= Some((4, 6)) {
                return Err(ApiError::invalid(
                    "A conversation must end with a user message. Try again with a conversation that ends with a user \
                     message.",
                ));
            }
        }
        Ok(self.talk)
    }
}

/// Checks the members of a cache point.
pub(super) fn cache_point(point: &Fields<'_>) -> Result<(), ApiError> {
    point.only(&["type", "ttl"])?;
    if point.require("type")? != "default" {
        return Err(constraint(&point.at("type"), "", "satisfy enum value set: [default]"));
    }
    match point.string("ttl")? {
        None | Some("5m" | "1h") => {}
        Some(other) => return Err(constraint(&point.at("ttl"), other, "satisfy enum value set: [5m, 1h]")),
    }
    Ok(())
}

fn check_id(path: &str, id: &str) -> Result<(), ApiError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    if (1..=64).contains(&id.len()) && id.chars().all(legal) {
        return Ok(());
    }
    Err(constraint(path, id, "satisfy regular expression pattern: [a-zA-Z0-9_.:-]{1,64}"))
}
