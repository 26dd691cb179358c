//! Reference reader of recordings: cuts the text at blank lines and parses every frame into a JSON tree.

use bytes::Bytes;
use model_gateway::canonical::Usage;
use model_gateway::translate::Meter;
use model_gateway::translate::verbatim::Arrival;
use model_gateway::wire::Api;
use serde_json::{Map, Value, json};

/// Maximum length of a recorded id, in bytes.
const MAX_ID: usize = 80;

/// Facts that the meter must note of a response.
#[derive(Default)]
pub(crate) struct Notes {
    id: String,
    finish: String,
    usage: Usage,
}

impl Notes {
    /// Returns the difference to what the meter noted, or `None` if there is none.
    pub(crate) fn differ(&self, meter: &Meter) -> Option<String> {
        let id = self.id.get(..MAX_ID).unwrap_or(&self.id);
        // These two fields are intermediate values of the meter.
        let mut noted_usage = Usage {
            uncached: None,
            written: None,
            cached_audio_input: None,
            cached_image_input: None,
            tier: None,
            traffic: None,
            region: None,
            ..*meter.usage()
        };
        if meter.is_counted() {
            // Where the provider reports no figure, the meter has the gateway's own count, which no recording contains.
            noted_usage.input = noted_usage.input.filter(|_| self.usage.input.is_some());
            noted_usage.output = noted_usage.output.filter(|_| self.usage.output.is_some());
        }
        let noted = (meter.id(), meter.finish(), noted_usage);
        let expected = (id, self.finish.as_str(), self.usage);
        (noted != expected).then(|| format!("noted {noted:?}, expected {expected:?}"))
    }

    fn see(&mut self, api: Api, value: &Value, usage: &mut Value) {
        let (object, last) = match (api, value["type"].as_str()) {
            (Api::Messages, Some("message_start")) => (&value["message"], true),
            (Api::Responses, Some(kind)) => {
                let last = ["response.completed", "response.incomplete", "response.failed"].contains(&kind);
                (&value["response"], last)
            }
            _ => (value, true),
        };
        self.see_object(api, object, last, usage);
        if api == Api::Messages && value["type"] == "message_delta" {
            self.set_finish(&value["delta"]["stop_reason"]);
        }
    }

    fn see_object(&mut self, api: Api, object: &Value, last: bool, usage: &mut Value) {
        let id = if api == Api::Generate { &object["responseId"] } else { &object["id"] };
        if self.id.is_empty() {
            self.id = id.as_str().unwrap_or_default().to_owned();
        }
        let choices = |member: &str| object[member].as_array().cloned().unwrap_or_default();
        match api {
            Api::Chat => {
                for choice in choices("choices") {
                    self.set_finish(&choice["finish_reason"]);
                    merge(usage, &choice["usage"]);
                }
                merge(usage, &object["x_groq"]["usage"]);
            }
            Api::Generate => {
                self.set_finish(&object["promptFeedback"]["blockReason"]);
                for candidate in choices("candidates") {
                    self.set_finish(&reason_of(&candidate["finishReason"]));
                }
            }
            Api::Responses if last => self.set_finish(&object["status"]),
            Api::Messages => self.set_finish(&object["stop_reason"]),
            _ => {}
        }
        let name = if matches!(api, Api::Generate | Api::EmbedContent) { "usageMetadata" } else { "usage" };
        merge(usage, &object[name]);
    }

    fn set_finish(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str().filter(|reason| !reason.is_empty()) {
            self.finish = reason.to_owned();
        }
    }
}

/// Normalizes a finish reason: some providers of the generate format send a number.
fn reason_of(reason: &Value) -> Value {
    let names = ["STOP", "MAX_TOKENS", "SAFETY", "RECITATION"];
    let name =
        |n: u64| *usize::try_from(n).ok().and_then(|n| names.get(n.wrapping_sub(1))).unwrap_or(&"OTHER");
    reason.as_u64().map_or_else(|| reason.clone(), |n| Value::from(name(n)))
}

/// Merges a later report into earlier ones, member by member.
fn merge(all: &mut Value, later: &Value) {
    match (all, later) {
        (_, Value::Null) => {}
        (Value::Object(all), Value::Object(later)) => {
            for (name, value) in later {
                merge(all.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (all, later) => *all = later.clone(),
    }
}

/// Returns the canonical usage of a provider's report.
fn usage(api: Api, report: &Value) -> Usage {
    let n = |value: &Value| value.as_u64();
    let mut usage = Usage::default();
    match api {
        Api::Chat | Api::Embeddings => {
            usage.input = n(&report["prompt_tokens"]);
            usage.output = n(&report["completion_tokens"]);
            let details = &report["prompt_tokens_details"];
            let beside =
                ["prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens"];
            let beside = beside.into_iter().filter_map(|name| n(&report[name])).max();
            usage.cached = n(&details["cached_tokens"]).or(beside);
            usage.cache_write = n(&details["cache_write_tokens"])
                .or(n(&details["cache_creation_input_tokens"]))
                .or(n(&report["cache_creation_input_tokens"]));
            usage.searches = n(&report["server_tool_use_details"]["web_search_requests"]);
            usage.audio_input = n(&details["audio_tokens"]);
            let details = &report["completion_tokens_details"];
            usage.reasoning = n(&details["reasoning_tokens"]).or(n(&report["reasoning_tokens"]));
            usage.audio_output = n(&details["audio_tokens"]);
            usage.image_output = n(&details["image_tokens"]);
            let (reasoning, total) = (usage.reasoning.unwrap_or(0), n(&report["total_tokens"]));
            let sum = usage.output.map(|output| usage.input.unwrap_or(0) + output + reasoning);
            // Reasoning is counted in addition to the output if the total shows it, or if it exceeds the output.
            let beside = reasoning > 0 && sum.is_some() && sum == total;
            if beside || usage.output.is_some_and(|output| reasoning > output) {
                usage.output = usage.output.map(|output| output + reasoning);
            }
            if usage.input.is_none() && usage.output.is_none() {
                usage.input = total;
            }
        }
        Api::Messages => {
            usage.output = n(&report["output_tokens"]);
            usage.cached = n(&report["cache_read_input_tokens"]);
            usage.cache_write_1h = n(&report["cache_creation"]["ephemeral_1h_input_tokens"]);
            let all = n(&report["cache_creation_input_tokens"]);
            usage.cache_write = n(&report["cache_creation"]["ephemeral_5m_input_tokens"])
                .or(all.map(|all| all - usage.cache_write_1h.unwrap_or(0)));
            let cache = [usage.cached, usage.cache_write, usage.cache_write_1h];
            let cache: u64 = cache.into_iter().flatten().sum();
            usage.input = n(&report["input_tokens"]).map(|input| input + cache);
            usage.reasoning = n(&report["output_tokens_details"]["thinking_tokens"]);
            usage.searches = n(&report["server_tool_use"]["web_search_requests"]);
        }
        Api::Responses => {
            usage.input = n(&report["input_tokens"]);
            usage.output = n(&report["output_tokens"]);
            usage.cached = n(&report["input_tokens_details"]["cached_tokens"]);
            usage.cache_write = n(&report["input_tokens_details"]["cache_write_tokens"]);
            usage.reasoning = n(&report["output_tokens_details"]["reasoning_tokens"]);
        }
        Api::Generate | Api::EmbedContent => {
            let (prompt, thoughts) = (n(&report["promptTokenCount"]), n(&report["thoughtsTokenCount"]));
            let candidates = n(&report["candidatesTokenCount"]);
            usage.input = prompt.map(|n| n + report["toolUsePromptTokenCount"].as_u64().unwrap_or(0));
            usage.cached = n(&report["cachedContentTokenCount"]);
            usage.reasoning = thoughts;
            if candidates.is_some() || thoughts.is_some() {
                let (said, thought) = (candidates.unwrap_or(0), thoughts.unwrap_or(0));
                let total = n(&report["totalTokenCount"]);
                let included = thought > 0 && total == Some(usage.input.unwrap_or(0) + said);
                usage.output = Some(if included { said } else { said + thought });
            }
            let of = |list: &str, kind: &str| {
                report[list].as_array()?.iter().find(|part| part["modality"] == kind)?["tokenCount"].as_u64()
            };
            usage.audio_input = of("promptTokensDetails", "AUDIO");
            usage.audio_output = of("candidatesTokensDetails", "AUDIO");
            usage.image_output = of("candidatesTokensDetails", "IMAGE");
        }
        _ => {}
    }
    if matches!(api, Api::Embeddings | Api::EmbedContent) {
        usage = Usage { input: usage.input, ..Usage::default() };
    }
    usage
}

/// Whether a response or the data of a frame is an error.
pub(crate) fn is_error(api: Api, value: &Value) -> bool {
    match api {
        Api::Messages => value["type"] == "error",
        Api::Responses => !value["error"].is_null() && value["object"] != "response",
        // An error object without an `error` member.
        Api::Chat if value["choices"].is_null() && value["usage"].is_null() => {
            let has = |names: &[&str]| names.iter().any(|name| !value[name].is_null());
            let has_code = has(&["code", "type", "request_id"]);
            has(&["error", "detail", "errors", "error_msg"]) || has(&["message", "msg"]) && has_code
        }
        _ => !value["error"].is_null(),
    }
}

/// Converts all names to camel case in the generate format, which permits both spellings.
fn one_spelling(api: Api, value: &Value) -> Value {
    let camel = |name: &str| {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| {
            name + &word
                .chars()
                .take(1)
                .flat_map(char::to_uppercase)
                .chain(word.chars().skip(1))
                .collect::<String>()
        })
    };
    match value {
        _ if api != Api::Generate => value.clone(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (camel(name), one_spelling(api, value))).collect()
        }
        Value::Array(elements) => elements.iter().map(|value| one_spelling(api, value)).collect(),
        _ => value.clone(),
    }
}

/// Returns the facts that the meter must note of a complete response.
pub(crate) fn answer(api: Api, value: &Value) -> Notes {
    let value = &one_spelling(api, value);
    let (mut notes, mut report) = (Notes::default(), Value::Null);
    notes.see_object(api, value, true, &mut report);
    notes.usage = usage(api, &report);
    notes
}

/// Expected outcome of a stream.
pub(crate) struct Stream {
    pub(crate) notes: Notes,
    pub(crate) begins_with_error: bool,
    /// Whether it has the end that its format demands.
    pub(crate) complete: bool,
    /// Number of bytes up to the end of the last complete frame.
    pub(crate) passing: usize,
    /// Whether the last frame is complete except for its blank line.
    pub(crate) unterminated: bool,
}

pub(crate) fn stream(api: Api, arrival: Arrival, text: &[u8]) -> Stream {
    let mut found = Stream {
        notes: Notes::default(),
        begins_with_error: false,
        complete: false,
        passing: text.len(),
        unterminated: false,
    };
    let mut frames = frames(arrival, text);
    if arrival == Arrival::Events {
        let lines = text.rsplitn(3, |byte| *byte == b'\n').collect::<Vec<_>>();
        let blank = |line: &[u8]| line.iter().all(|byte| *byte == b'\r');
        let ended = lines.len() == 3 && lines[..2].iter().all(|line| blank(line));
        found.unterminated = !ended;
        let rest = self::frames(arrival, &text[last_blank_line(text)..]);
        let whole = rest
            .first()
            .is_some_and(|last| last.starts_with("[DONE]") || serde_json::from_str::<Value>(last).is_ok());
        if !ended && !whole {
            found.unterminated = false;
            found.passing = last_blank_line(text);
            frames = self::frames(arrival, &text[..found.passing]);
        }
    }
    let (mut report, mut finished, mut read) = (Value::Null, Map::new(), 0);
    let mut before = Usage::default();
    for frame in frames {
        if frame.starts_with("[DONE]") && matches!(api, Api::Chat | Api::Responses) {
            found.complete = true;
        }
        let Ok(value) = serde_json::from_str::<Value>(&frame) else { continue };
        let value = one_spelling(api, &value);
        let failed = match value["type"].as_str() {
            Some(kind) if api == Api::Responses => kind == "error" || kind == "response.failed",
            _ => is_error(api, &value),
        };
        // A second response in the same stream is one more that the provider charges.
        if value["type"] == "response.created" && found.complete {
            before.add(&usage(api, &std::mem::take(&mut report)));
        }
        found.begins_with_error |= failed && read == 0;
        read += 1;
        // An error ends a stream too.
        found.complete |= failed;
        found.complete |= ["message_stop", "response.completed", "response.incomplete"]
            .contains(&value["type"].as_str().unwrap_or_default());
        for member in ["choices", "candidates"] {
            for choice in value[member].as_array().into_iter().flatten() {
                let native = reason_of(&choice["finishReason"]);
                let reason = choice["finish_reason"].as_str().or(native.as_str());
                let index = choice["index"].as_u64().unwrap_or(0).to_string();
                let done = finished.entry(index).or_insert(json!(false));
                *done = json!(*done == json!(true) || reason.is_some_and(|reason| !reason.is_empty()));
            }
        }
        if value["promptFeedback"]["blockReason"].is_string() {
            finished.insert("0".to_owned(), json!(true));
        }
        found.notes.see(api, &value, &mut report);
    }
    if matches!(api, Api::Chat | Api::Generate) {
        found.complete |= !finished.is_empty() && finished.values().all(|done| *done == json!(true));
    }
    before.add(&usage(api, &report));
    found.notes.usage = before;
    found
}

fn last_blank_line(text: &[u8]) -> usize {
    let ends = [&b"\n\n"[..], b"\r\n\r\n"];
    (0..=text.len()).rev().find(|end| ends.iter().any(|blank| text[..*end].ends_with(blank))).unwrap_or(0)
}

/// Returns the data of every frame that has data.
pub(crate) fn frames(arrival: Arrival, text: &[u8]) -> Vec<String> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    if arrival == Arrival::Array {
        let elements: Vec<Value> = serde_json::from_str(&text).unwrap();
        return elements.iter().map(Value::to_string).collect();
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let events = text.split("\n\n").map(|event| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        // A JSON object without a field name: an error that Gemini sends in the middle of a stream.
        let bare = lines.is_empty() && event.trim().starts_with('{');
        if bare { event.trim().to_owned() } else { lines.join("\n") }
    });
    events.filter(|data| !data.is_empty()).collect()
}

/// Replaces the model in the data of a frame.
pub(crate) fn rename(api: Api, value: &mut Value, model: &str) {
    match (api, value["type"].as_str()) {
        (Api::Messages, Some("message_start")) => rename_answer(api, &mut value["message"], model),
        (Api::Messages, _) => {}
        (Api::Responses, Some(_)) => {
            if let Some(response) = value.get_mut("response") {
                rename_answer(api, response, model);
            }
        }
        _ => rename_answer(api, value, model),
    }
}

/// Replaces the model in a complete response.
pub(crate) fn rename_answer(api: Api, value: &mut Value, model: &str) {
    let names: &[_] = if api == Api::Generate { &["modelVersion", "model_version"] } else { &["model"] };
    for name in names {
        if let Some(value) = value.get_mut(name).filter(|value| value.is_string()) {
            *value = Value::from(model);
        }
    }
}

/// Returns a chat completion with the finish reason that clients of the format know (Together AI: `eos`).
pub(crate) fn with_known_words(api: Api, text: Bytes) -> Bytes {
    let said = String::from_utf8_lossy(&text);
    if api != Api::Chat || !said.contains("\"eos\"") {
        return text;
    }
    let said = said.replace("\"finish_reason\":\"eos\"", "\"finish_reason\":\"stop\"");
    Bytes::from(said.replace("\"finish_reason\": \"eos\"", "\"finish_reason\": \"stop\""))
}

/// Replaces the model in a request. Gemini names it as a resource, also in nested requests.
pub(crate) fn rename_request(api: Api, request: &mut Value, model: &str) {
    let resource = matches!(api, Api::Generate | Api::EmbedContent);
    let name = if resource { format!("models/{model}") } else { model.to_owned() };
    let mut set = |request: &mut Value| {
        if let Some(value) = request.get_mut("model").filter(|value| value.is_string()) {
            *value = Value::from(name.as_str());
        }
    };
    set(request);
    if let Some(Value::Array(inner)) = request.get_mut("requests") {
        inner.iter_mut().for_each(&mut set);
    }
    if let Some(inner) = request.get_mut("generateContentRequest") {
        set(inner);
    }
}

/// Returns the member that is missing or invalid and for which the gateway refuses the request.
pub(crate) fn refused(api: Api, request: &Value) -> Option<&'static str> {
    let content = match api {
        Api::Chat | Api::Messages => request["messages"].is_array(),
        Api::Responses => {
            request["input"].is_array() || request["input"].is_string() || request.get("prompt").is_some()
        }
        Api::Generate => request["contents"].is_array(),
        Api::Embeddings => request["input"].is_array() || request["input"].is_string(),
        Api::EmbedContent => request["requests"].is_array() || request["content"].is_object(),
        _ => true,
    };
    let named = matches!(api, Api::Generate | Api::EmbedContent)
        || request["model"].as_str().is_some_and(|model| !model.is_empty());
    let bounded = api != Api::Messages || request["max_tokens"].as_f64().is_some_and(|n| n > 0.0);
    // Maximum temperature of each format. The providers in the recordings also refuse values above it.
    let warmest = match api {
        Api::Chat | Api::Responses | Api::Generate => 2.0,
        _ => 1.0,
    };
    let warm = request["temperature"].as_f64().is_none_or(|figure| (0.0..=warmest).contains(&figure));
    let checks = [("content", content), ("model", named), ("max_tokens", bounded), ("temperature", warm)];
    checks.into_iter().find(|(_, there)| !there).map(|(name, _)| name)
}

/// Whether a chat request asks for the usage chunk.
pub(crate) fn asks_usage(request: &Value) -> bool {
    request["stream_options"]["include_usage"] == json!(true)
}

/// Returns the chat request with a request for the usage chunk.
pub(crate) fn with_usage(request: &Value) -> Value {
    let mut request = request.clone();
    if !request["stream_options"].is_object() {
        request["stream_options"] = json!({});
    }
    request["stream_options"]["include_usage"] = json!(true);
    request
}
