//! Contents of a request: their parts, and the rules between them.

use serde_json::Value;

use super::super::conversation::Conversation;
use super::super::ids::{decode_base64, is_opaque};
use super::errors::{ApiError, listed, violation};
use super::shape::{get, list, text};

/// Documented signature values that skip the check, for calls that another model made.
const ESCAPES: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Data members, of which a part has exactly one.
const DATA: [&str; 9] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];

/// Reads and checks the contents. `signed` is true if the model requires its signatures back.
pub(super) fn conversation(request: &Value, signed: bool) -> Result<Conversation, ApiError> {
    let contents = list(request, "contents");
    if contents.is_empty() {
        return Err(listed("contents: contents is not specified"));
    }
    let mut talk = Conversation::default();
    for part in get(request, "systemInstruction").map_or(&[][..], |content| list(content, "parts")) {
        talk.instruct(text(part, "text").unwrap_or_default());
    }
    for (at, content) in contents.iter().enumerate() {
        read(content, at, &mut talk)?;
    }
    check_turns(contents)?;
    check_signatures(contents, signed)?;
    Ok(talk)
}

fn read(content: &Value, at: usize, talk: &mut Conversation) -> Result<(), ApiError> {
    match text(content, "role").unwrap_or_default() {
        "" | "user" | "function" => talk.user(),
        "model" => talk.assistant(),
        _ => return Err(ApiError::invalid("Please use a valid role: user, model.")),
    }
    let model = is_model(content);
    let parts = list(content, "parts");
    if parts.is_empty() {
        return Err(listed(&format!("contents[{at}].parts: contents.parts must not be empty.")));
    }
    for (index, part) in parts.iter().enumerate() {
        let path = format!("contents[{at}].parts[{index}]");
        let mut data = DATA.iter().filter(|name| get(part, name).is_some());
        match (data.next(), data.next()) {
            (None, _) => {
                return Err(listed(&format!(
                    "{path}.data: required oneof field 'data' must have one initialized field"
                )));
            }
            (Some(_), Some(second)) => {
                return Err(violation(
                    &path,
                    format!(
                        "Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{second}'"
                    ),
                ));
            }
            (Some(&"text"), None) if !model => talk.say(text(part, "text").unwrap_or_default()),
            (Some(name @ &("inlineData" | "fileData")), None) => {
                count(get(part, name).unwrap_or(&Value::Null), talk);
            }
            (Some(name @ &("functionCall" | "functionResponse")), None) => {
                let inner = get(part, name).unwrap_or(&Value::Null);
                let function = text(inner, "name").unwrap_or_default();
                if function.is_empty() {
                    let field = super::shape::snake(name);
                    return Err(listed(&format!("{path}.{field}.name: Name cannot be empty.")));
                }
                if *name == "functionCall" {
                    talk.call(function, function);
                } else {
                    for media in list(inner, "parts") {
                        let data = get(media, "inlineData").or_else(|| get(media, "fileData"));
                        count(data.unwrap_or(&Value::Null), talk);
                    }
                    talk.result(function, result(get(inner, "response")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_model(content: &Value) -> bool {
    text(content, "role") == Some("model")
}

/// Returns the text of a function response, by convention in `output`, `result` or `error`.
fn result(response: Option<&Value>) -> String {
    let inner =
        response.and_then(|response| ["output", "result", "error"].iter().find_map(|key| response.get(key)));
    match inner.or(response) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn count(data: &Value, talk: &mut Conversation) {
    let uri = text(data, "fileUri").unwrap_or_default();
    match text(data, "mimeType").unwrap_or_default() {
        kind if kind.starts_with("image/") => talk.media.images += 1,
        kind if kind.starts_with("audio/") => talk.media.recordings += 1,
        kind if kind.starts_with("video/") || uri.contains("youtube.com/") => talk.media.videos += 1,
        _ if data.is_null() => {}
        _ => talk.media.documents += 1,
    }
}

fn calls(content: &Value, name: &str) -> usize {
    list(content, "parts").iter().filter(|part| get(part, name).is_some()).count()
}

/// Checks the turns: calls follow a user turn, and as many responses follow the calls.
fn check_turns(contents: &[Value]) -> Result<(), ApiError> {
    let mut before: Option<&Value> = None;
    for (at, content) in contents.iter().enumerate() {
        let asked =
            before.map_or(0, |before| if is_model(before) { calls(before, "functionCall") } else { 0 });
        let answered = calls(content, "functionResponse");
        if answered > 0 && asked == 0 {
            return Err(ApiError::invalid(
                "Please ensure that function response turn comes immediately after a function call turn.",
            ));
        }
        if asked != answered {
            return Err(unequal());
        }
        if is_model(content) && calls(content, "functionCall") > 0 {
            if before.is_none_or(is_model) {
                return Err(ApiError::invalid(
                    "Please ensure that function call turn comes immediately after a user turn or after a function \
                     response turn.",
                ));
            }
            if at + 1 == contents.len() {
                return Err(unequal());
            }
        }
        before = Some(content);
    }
    Ok(())
}

fn unequal() -> ApiError {
    ApiError::invalid(
        "Please ensure that the number of function response parts is equal to the number of function call parts of the \
         function call turn.",
    )
}

/// Checks the signatures: each must be one that the simulator issued. Models that require signatures need one on the
/// first call of each step of the current turn, which starts with the last user text.
fn check_signatures(contents: &[Value], signed: bool) -> Result<(), ApiError> {
    let turn =
        contents.iter().rposition(|content| !is_model(content) && calls(content, "functionResponse") == 0);
    for (at, content) in contents.iter().enumerate().filter(|(_, content)| is_model(content)) {
        let mut first = true;
        for (index, part) in list(content, "parts").iter().enumerate() {
            let signature = text(part, "thoughtSignature").filter(|signature| !signature.is_empty());
            if signature.is_some_and(|signature| !is_opaque(signature) && !is_escape(signature)) {
                return Err(ApiError::invalid("Corrupted thought signature."));
            }
            let Some(call) = get(part, "functionCall") else {
                continue;
            };
            let missing = std::mem::take(&mut first) && signature.is_none();
            if signed && missing && turn.is_some_and(|turn| at > turn) {
                return Err(ApiError::invalid(format!(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
                     work correctly, and missing thought_signature may lead to degraded model performance. Additional \
                     data, function call `default_api:{}` , position {}. Please refer to \
                     https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
                    text(call, "name").unwrap_or_default(),
                    at + index + 1
                )));
            }
        }
    }
    Ok(())
}

/// Returns true for a value that skips the check, plain or base64-encoded.
fn is_escape(signature: &str) -> bool {
    let decoded = decode_base64(signature).unwrap_or_default();
    ESCAPES.iter().any(|escape| signature == *escape || decoded == escape.as_bytes())
}
