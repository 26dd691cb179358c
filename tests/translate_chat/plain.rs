//! Reference parser of the chat format on a JSON tree: slow and simple.

use model_gateway::canonical::answer::{AnswerBlockKind, FinishOwned};
use model_gateway::canonical::{Answer, ToolKind};
use model_gateway::json::JsonStr;
use serde_json::Value;

/// Content of a response.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plain {
    pub(crate) choices: Vec<Choice>,
    /// Input and output tokens.
    pub(crate) usage: Option<(u64, u64)>,
    pub(crate) error: Option<Value>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Choice {
    text: String,
    reasoning: String,
    refusal: String,
    /// Name and arguments.
    calls: Vec<(String, String)>,
    finish: Option<String>,
    sources: Vec<String>,
    sounds: usize,
    images: usize,
    ids: Vec<Option<String>>,
}

/// Parses the frames of a stream.
pub(crate) fn stream(frames: &[String]) -> Plain {
    let mut plain = Plain::default();
    for frame in frames.iter().filter(|frame| !frame.starts_with("[DONE]")) {
        plain.chunk(&serde_json::from_str(frame).unwrap(), false);
    }
    plain.settle();
    plain
}

/// Parses a completion. Returns `None` if the document is not a completion.
pub(crate) fn whole(body: &Value) -> Option<Plain> {
    let mut plain = Plain::default();
    plain.chunk(body, true);
    plain.settle();
    (!plain.choices.is_empty() && plain.error.is_none()).then_some(plain)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Plain {
    fn chunk(&mut self, chunk: &Value, whole: bool) {
        if !chunk["error"].is_null() {
            self.error = Some(chunk["error"].clone());
        }
        for usage in [&chunk["x_groq"]["usage"], &chunk["usage"]] {
            if usage.is_object() {
                self.usage = Some(totals(usage));
            }
        }
        for said in chunk["choices"].as_array().into_iter().flatten() {
            let index = said["index"].as_u64().unwrap_or(0) as usize;
            while self.choices.len() <= index {
                self.choices.push(Choice::default());
            }
            let delta = match (whole, said["message"].is_object(), said["delta"].is_object()) {
                (true, true, _) | (false, true, false) => &said["message"],
                _ => &said["delta"],
            };
            self.choices[index].delta(delta);
            let finish = text(&said["finish_reason"]);
            if !finish.is_empty() {
                // Some providers send a list of citations outside the choices and repeat it in every chunk.
                let listed = chunk["citations"].as_array().into_iter().flatten().filter_map(Value::as_str);
                if self.choices[index].sources.is_empty() {
                    self.choices[index].sources.extend(listed.map(str::to_owned));
                }
                self.choices[index].finish = Some(finish.to_owned());
            }
        }
    }

    fn settle(&mut self) {
        for choice in &mut self.choices {
            // Tool calls without a name are empty placeholders.
            choice.calls.retain(|call| !call.0.is_empty());
            for call in choice.calls.iter_mut().filter(|call| call.1.is_empty()) {
                "{}".clone_into(&mut call.1);
            }
            let word = choice.finish.take().unwrap_or_else(|| "stop".to_owned());
            choice.finish = Some(match word.as_str() {
                "stop" | "eos" if !choice.calls.is_empty() => "tool_calls".to_owned(),
                "eos" => "stop".to_owned(),
                "function_call" => "tool_calls".to_owned(),
                _ => word,
            });
        }
    }

    /// Returns the differences to a decoded response.
    pub(crate) fn differ(&self, answer: &Answer) -> impl Iterator<Item = String> + use<> {
        self.differ_from(&Plain::of(answer))
    }

    /// Returns the differences to another parsed response.
    pub(crate) fn differ_from(&self, other: &Plain) -> impl Iterator<Item = String> + use<> {
        let mut faults = Vec::new();
        if self.usage != other.usage {
            faults.push(format!("usage {:?} is {:?}", self.usage, other.usage));
        }
        if self.choices.len() != other.choices.len() {
            faults.push(format!("{} choices are {}", self.choices.len(), other.choices.len()));
        }
        for (before, after) in self.choices.iter().zip(&other.choices) {
            let mut differ = |what: &str, before: &dyn std::fmt::Debug, after: &dyn std::fmt::Debug| {
                let (before, after) = (format!("{before:?}"), format!("{after:?}"));
                if before != after {
                    faults.push(format!("{what} {before:.200} is {after:.200}"));
                }
            };
            differ("text", &before.text, &after.text);
            differ("reasoning", &before.reasoning, &after.reasoning);
            differ("refusal", &before.refusal, &after.refusal);
            differ("calls", &before.calls, &after.calls);
            differ("finish", &before.finish, &after.finish);
            differ("sources", &before.sources, &after.sources);
            differ("sounds", &before.sounds, &after.sounds);
            differ("images", &before.images, &after.images);
        }
        faults.into_iter()
    }

    fn of(answer: &Answer) -> Plain {
        let plain = |text: &str| JsonStr::from_escaped(text).decode().into_owned();
        let usage = answer.usage;
        let mut read = Plain {
            usage: usage.is_known().then(|| (usage.input.unwrap_or(0), usage.output.unwrap_or(0))),
            ..Plain::default()
        };
        for index in 0..answer.choices() {
            let mut choice = Choice::default();
            for block in answer.blocks_of(index) {
                match &block.kind {
                    AnswerBlockKind::Text => choice.text += &plain(&block.text),
                    AnswerBlockKind::Refusal => choice.refusal += &plain(&block.text),
                    AnswerBlockKind::Reasoning => choice.reasoning += &plain(&block.text),
                    AnswerBlockKind::ToolUse { name, kind, .. } => {
                        let input = block.object.clone().unwrap_or_else(|| plain(&block.text));
                        let input = if input.is_empty() && *kind == ToolKind::Function {
                            "{}".to_owned()
                        } else {
                            input
                        };
                        choice.calls.push((plain(name), input));
                    }
                    AnswerBlockKind::Media { mime } if mime.starts_with("audio/") => choice.sounds += 1,
                    AnswerBlockKind::Media { .. } => choice.images += 1,
                    AnswerBlockKind::HiddenReasoning | AnswerBlockKind::Opaque { .. } => {}
                }
                choice.sources.extend(block.citations.iter().map(|citation| plain(&citation.url)));
            }
            let word = match answer.finish_of(index) {
                Some(FinishOwned::Stop | FinishOwned::StopSequence(_)) => "stop",
                Some(FinishOwned::Length | FinishOwned::ContextFull) => "length",
                Some(FinishOwned::ToolUse) => "tool_calls",
                Some(FinishOwned::ContentFilter) => "content_filter",
                Some(FinishOwned::Other(word)) => word,
                Some(FinishOwned::Pause) | None => "",
            };
            choice.finish = Some(word.to_owned());
            read.choices.push(choice);
        }
        read
    }
}

/// Returns all input tokens and all output tokens.
fn totals(usage: &Value) -> (u64, u64) {
    let figure = |name: &str| usage[name].as_u64().unwrap_or(0);
    let (input, mut output) = (figure("prompt_tokens"), figure("completion_tokens"));
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap_or(0);
    // Some report reasoning in addition to the output: one provider, and a gateway in front of another.
    if reasoning > output || (reasoning > 0 && figure("total_tokens") == input + output + reasoning) {
        output += reasoning;
    }
    (input, output)
}

impl Choice {
    fn delta(&mut self, delta: &Value) {
        match &delta["content"] {
            Value::String(said) => self.text += said,
            Value::Array(parts) => {
                for part in parts {
                    self.text += text(&part["text"]);
                    for thought in part["thinking"].as_array().into_iter().flatten() {
                        self.reasoning += text(&thought["text"]);
                    }
                }
            }
            _ => {}
        }
        let thought = [&delta["reasoning_content"], &delta["reasoning"]];
        match thought.into_iter().map(text).find(|said| !said.is_empty()) {
            Some(said) => self.reasoning += said,
            None => {
                for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
                    self.reasoning += text(&detail["text"]);
                    self.reasoning += text(&detail["summary"]);
                }
            }
        }
        self.refusal += text(&delta["refusal"]);
        let calls = delta["tool_calls"].as_array();
        for call in calls.into_iter().flatten() {
            self.call(call, &call["index"]);
        }
        if calls.is_none_or(Vec::is_empty) && !delta["function_call"].is_null() {
            self.call(&serde_json::json!({"function": delta["function_call"]}), &Value::from(0));
        }
        for source in delta["annotations"].as_array().into_iter().flatten() {
            if source["type"] == "url_citation" {
                self.sources.push(text(&source["url_citation"]["url"]).to_owned());
            }
        }
        if !text(&delta["audio"]["data"]).is_empty() {
            self.sounds += 1;
        }
        self.images += delta["images"].as_array().map_or(0, Vec::len);
    }

    /// A fragment has an index; without one, the call is complete.
    fn call(&mut self, call: &Value, index: &Value) {
        let function = if call["custom"]["name"].as_str().is_some_and(|name| !name.is_empty()) {
            &call["custom"]
        } else {
            &call["function"]
        };
        let input =
            text(if function["input"].is_string() { &function["input"] } else { &function["arguments"] });
        let at = match index.as_u64() {
            Some(index) => {
                let known = self.ids.iter().position(|id| id.as_deref() == Some(&index.to_string()));
                // In complete messages the index only gives the order.
                known.unwrap_or_else(|| {
                    self.ids.push(Some(index.to_string()));
                    self.calls.push(Default::default());
                    self.calls.len() - 1
                })
            }
            None => {
                self.ids.push(None);
                self.calls.push(Default::default());
                self.calls.len() - 1
            }
        };
        if self.calls[at].0.is_empty() {
            text(&function["name"]).clone_into(&mut self.calls[at].0);
        }
        self.calls[at].1 += input;
    }
}

/// Returns the faults of an encoded stream: violations of what OpenAI's SDKs rely on.
pub(crate) fn faults_of_stream(text: &str, usage_wanted: bool) -> impl Iterator<Item = String> + use<> {
    let mut faults = Vec::new();
    let frames: Vec<&str> = text.split("\n\n").filter(|frame| !frame.is_empty()).collect();
    if frames.last() != Some(&"data: [DONE]") {
        faults.push("the last frame is not [DONE]".to_owned());
    }
    let chunks: Vec<Value> = frames[..frames.len() - 1]
        .iter()
        .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    let mut roles = std::collections::BTreeSet::new();
    let mut finished = std::collections::BTreeSet::new();
    let mut calls = std::collections::BTreeMap::new();
    let mut annotated = 0;
    for (at, chunk) in chunks.iter().enumerate() {
        for member in ["id", "created", "model", "object"] {
            if chunk[member] != chunks[0][member] || chunk[member].is_null() {
                faults.push(format!("{member} changes"));
            }
        }
        let choices = chunk["choices"].as_array().unwrap();
        if choices.is_empty() && (!usage_wanted || at + 1 != chunks.len()) {
            faults.push("a chunk without choices that is not the last".to_owned());
        }
        if !choices.is_empty() && !chunk["usage"].is_null() {
            faults.push("usage beside a choice".to_owned());
        }
        for choice in choices {
            let index = choice["index"].as_u64().unwrap();
            if roles.insert(index) != (choice["delta"]["role"] == "assistant") {
                faults.push(format!("the role of choice {index}"));
            }
            if finished.contains(&index) {
                faults.push(format!("choice {index} goes on behind its end"));
            }
            if !choice["finish_reason"].is_null() {
                finished.insert(index);
            }
            annotated += usize::from(!choice["delta"]["annotations"].is_null());
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                let number = call["index"].as_u64().unwrap();
                let known = calls.entry(index).or_insert(0);
                let begins = !call["id"].is_null();
                if begins != (number == *known) || number > *known {
                    faults.push(format!("call {number} when {known} were begun"));
                }
                *known += u64::from(begins);
            }
        }
    }
    if roles != finished {
        faults.push("a choice does not end".to_owned());
    }
    if annotated > roles.len() {
        faults.push("annotations in more than one chunk".to_owned());
    }
    faults.into_iter()
}
