//! Reference parser of the responses format on a JSON tree. Of a stream it reads what the provider reports at the end.

use model_gateway::canonical::answer::{AnswerBlockKind, FinishOwned};
use model_gateway::canonical::{Answer, ToolKind, Usage};
use model_gateway::json::JsonStr;
use serde_json::Value;

/// Envelope of reasoning that its provider did not sign.
const UNSIGNED: &str = "gw1.no_issuer.";

/// Content of a response.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reading {
    id: String,
    model: String,
    texts: Vec<String>,
    refusals: Vec<String>,
    reasoning: Vec<String>,
    seals: Vec<String>,
    /// Id, name, namespace, input, and whether the input is free text.
    calls: Vec<(String, String, String, String, bool)>,
    images: Vec<String>,
    /// Types of items that no other format has.
    hosted: Vec<String>,
    addresses: Vec<String>,
    usage: Usage,
    finish: String,
    error: Option<String>,
}

/// Returns the data of each frame.
pub(crate) fn frames(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n");
    text.split("\n\n")
        .filter_map(|frame| {
            let lines: Vec<&str> =
                frame.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        })
        .collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Reading {
    pub(crate) fn of_stream(text: &str) -> Self {
        let frames: Vec<Value> =
            frames(text).iter().filter_map(|frame| serde_json::from_str(frame).ok()).collect();
        if let Some(error) = frames.iter().find(|frame| frame["type"] == "error") {
            return Reading {
                id: text_of(&frames[0]["response"]["id"]),
                model: text_of(&frames[0]["response"]["model"]),
                error: Some(text_of(&error["error"]["message"])),
                ..Reading::default()
            };
        }
        // Events after the end belong to another response.
        let end = frames
            .iter()
            .position(|frame| {
                ["response.completed", "response.incomplete"]
                    .contains(&frame["type"].as_str().unwrap_or_default())
            })
            .unwrap();
        let frames = &frames[..=end];
        let mut response = frames[end]["response"].clone();
        // Items as they were when done; not all providers repeat them at the end.
        let done: Vec<Value> = frames
            .iter()
            .filter(|frame| frame["type"] == "response.output_item.done")
            .map(|frame| frame["item"].clone())
            .collect();
        if !done.is_empty() && list(&response["output"]).len() <= done.len() {
            response["output"] = Value::Array(done);
        }
        let mut reading = Reading::of_response(&response);
        reading.id = text_of(&frames[0]["response"]["id"]);
        reading.model = text_of(&frames[0]["response"]["model"]);
        reading
    }

    pub(crate) fn of_response(response: &Value) -> Self {
        let mut reading = Reading { ..Reading::default() };
        if response["object"] != "response" && !response["error"].is_null() {
            let error = &response["error"];
            reading.error = Some(text_of(if error.is_string() { error } else { &error["message"] }));
            return reading;
        }
        reading.id = text_of(&response["id"]);
        reading.model = text_of(&response["model"]);
        let mut searches = 0;
        for item in list(&response["output"]) {
            searches += u64::from(item["type"] == "web_search_call");
            reading.item(item);
        }
        let usage = &response["usage"];
        reading.usage = Usage {
            input: usage["input_tokens"].as_u64(),
            cached: usage["input_tokens_details"]["cached_tokens"].as_u64(),
            cache_write: usage["input_tokens_details"]["cache_write_tokens"].as_u64(),
            output: usage["output_tokens"].as_u64(),
            reasoning: usage["output_tokens_details"]["reasoning_tokens"].as_u64(),
            searches: Some(searches).filter(|count| *count > 0),
            ..Usage::default()
        };
        reading.finish =
            match (response["status"].as_str(), response["incomplete_details"]["reason"].as_str()) {
                (Some("incomplete"), Some("max_output_tokens")) => "length".to_owned(),
                (Some("incomplete"), Some("content_filter")) => "filter".to_owned(),
                (Some("completed" | "complete") | None, _) if !reading.calls.is_empty() => "tools".to_owned(),
                (Some("completed" | "complete") | None, _) => "stop".to_owned(),
                (Some(status), reason) => reason.unwrap_or(status).to_owned(),
            };
        reading
    }

    fn item(&mut self, item: &Value) {
        let call = |input: &str, free: bool| {
            let [id, name, group] = ["call_id", "name", "namespace"].map(|member| text_of(&item[member]));
            (id, name, group, text_of(&item[input]), free)
        };
        match item["type"].as_str().unwrap() {
            "message" => {
                for part in list(&item["content"]) {
                    if part["type"] == "refusal" {
                        self.refusals.push(text_of(&part["refusal"]));
                        continue;
                    }
                    self.texts.push(text_of(&part["text"]));
                    let annotations = list(&part["annotations"]).iter();
                    self.addresses.extend(
                        annotations
                            .filter(|note| note["type"] == "url_citation")
                            .map(|note| text_of(&note["url"])),
                    );
                }
            }
            "reasoning" => {
                let filled = |member: &str| list(&item[member]).iter().any(|part| part["text"] != "");
                let member = if filled("content") { "content" } else { "summary" };
                let parts: Vec<String> = list(&item[member])
                    .iter()
                    .map(|part| text_of(&part["text"]))
                    .filter(|text| !text.is_empty())
                    .collect();
                self.reasoning.extend(Some(parts.join("\n\n")).filter(|text| !text.is_empty()));
                let seal = Some(text_of(&item["encrypted_content"]));
                self.seals.extend(seal.filter(|seal| !seal.is_empty() && seal != UNSIGNED));
            }
            "function_call" => self.calls.push(call("arguments", false)),
            "custom_tool_call" => self.calls.push(call("input", true)),
            "image_generation_call" if item["result"].is_string() => {
                self.images.push(text_of(&item["result"]))
            }
            other => self.hosted.push(other.to_owned()),
        }
    }

    pub(crate) fn of_answer(answer: &Answer) -> Self {
        let plain = |text: &str| JsonStr::from_escaped(text).decode().into_owned();
        let mut reading = Reading {
            id: plain(&answer.id),
            model: plain(&answer.model),
            usage: Usage { tier: None, ..answer.usage },
            finish: match answer.finish_of(0) {
                Some(FinishOwned::Stop) => "stop".to_owned(),
                Some(FinishOwned::Length) => "length".to_owned(),
                Some(FinishOwned::ContentFilter) => "filter".to_owned(),
                Some(FinishOwned::ToolUse) => "tools".to_owned(),
                Some(FinishOwned::Other(word)) => word.clone(),
                Some(other) => format!("{other:?}"),
                None => String::new(),
            },
            error: answer.error.as_ref().map(|error| {
                let error: Value = serde_json::from_str(error).unwrap();
                text_of(&error["message"])
            }),
            ..Reading::default()
        };
        for block in &answer.blocks {
            let text = plain(&block.text);
            match &block.kind {
                AnswerBlockKind::Text => {
                    reading.texts.push(text);
                    reading.addresses.extend(block.citations.iter().map(|citation| plain(&citation.url)));
                }
                AnswerBlockKind::Refusal => reading.refusals.push(text),
                // Reasoning that the provider encrypted has no text.
                AnswerBlockKind::Reasoning if text.is_empty() => {}
                AnswerBlockKind::Reasoning => reading.reasoning.push(text),
                AnswerBlockKind::HiddenReasoning => {}
                AnswerBlockKind::ToolUse { id, name, kind, namespace } => {
                    let input = block.object.clone().unwrap_or(text);
                    let free = *kind == ToolKind::Custom;
                    reading.calls.push((plain(id), plain(name), plain(namespace), input, free));
                }
                AnswerBlockKind::Media { .. } => reading.images.push(text),
                AnswerBlockKind::Opaque { name, .. } => reading.hosted.push(name.clone()),
            }
            if matches!(block.kind, AnswerBlockKind::Reasoning | AnswerBlockKind::HiddenReasoning) {
                let seal = Some(plain(&block.signature));
                reading.seals.extend(seal.filter(|seal| !seal.is_empty() && seal != UNSIGNED));
            }
        }
        reading
    }

    /// Normalizes what encoding changes: the model's name, signatures in envelopes, usage figures that must be present,
    /// and provider errors, which end a stream on their own.
    pub(crate) fn rewritten(mut self) -> Self {
        self.model.clear();
        self.texts.retain(|text| !text.is_empty());
        self.id = self
            .id
            .trim_start_matches("resp_")
            .trim_start_matches("gen-")
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        for seal in &mut self.seals {
            seal.clear();
        }
        let known = |figure: &mut Option<u64>| *figure = Some(figure.unwrap_or(0));
        let Usage { input, output, cached, cache_write, reasoning, .. } = &mut self.usage;
        for figure in [input, output, cached, cache_write, reasoning] {
            known(figure);
        }
        // Finish reasons of a single provider, and responses that have not ended.
        if !["stop", "length", "filter", "tools"].contains(&self.finish.as_str()) {
            self.finish.clear();
        }
        if self.error.is_some() {
            self = Reading { error: self.error, ..Reading::default() };
        }
        self
    }

    /// Whether the response is still being produced, for a client that polls it.
    pub(crate) fn is_unfinished(&self) -> bool {
        ["queued", "in_progress"].contains(&self.finish.as_str())
    }
}
