//! Bodies of chat completions and responses.

use serde_json::{Map, Value, json};

use crate::talk::{FOREIGN, History, PIXEL, Reasoned, Talk, put};

impl Talk {
    #[expect(clippy::too_many_lines, reason = "one paragraph for each fact")]
    pub(crate) fn chat(&self, model: &str, stream: bool) -> Value {
        let mut body = Map::new();
        put(&mut body, "model", model.into());
        if stream {
            put(&mut body, "stream", true.into());
        }
        put(&mut body, "messages", self.chat_messages());
        if let Some(limit) = self.limit {
            put(&mut body, if self.seed { "max_tokens" } else { "max_completion_tokens" }, limit.into());
        }
        if self.has_tools() {
            let mut function = json!({"name": "look", "description": "Looks.", "parameters": self.schema()});
            if self.strict_tool && !self.root_union {
                function["strict"] = true.into();
            }
            let mut tools = vec![
                json!({"type": "function", "function": function}),
                json!({"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}),
            ];
            if self.custom_tool {
                tools.push(json!({"type": "custom", "custom": {"name": "patch"}}));
            }
            put(&mut body, "tools", tools.into());
            let named = json!({"type": "function", "function": {"name": "look"}});
            match self.choice {
                Some("named") => put(&mut body, "tool_choice", named),
                Some("allowed") => put(
                    &mut body,
                    "tool_choice",
                    json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}),
                ),
                Some(word) => put(&mut body, "tool_choice", word.into()),
                None => {}
            }
            if let Some(several) = self.several {
                put(&mut body, "parallel_tool_calls", several.into());
            }
        }
        if let Some(effort) = self.effort {
            put(&mut body, "reasoning_effort", effort.into());
        }
        match self.thinking {
            Some("off") => put(&mut body, "thinking", json!({"type": "disabled"})),
            Some("on") => put(&mut body, "thinking", json!({"type": "enabled"})),
            _ => {}
        }
        if let Some(budget) = self.budget {
            put(&mut body, "enable_thinking", true.into());
            put(&mut body, "thinking_budget", budget.into());
        }
        self.common(&mut body, ["temperature", "top_p"]);
        if self.penalties {
            put(&mut body, "presence_penalty", 0.5.into());
            put(&mut body, "frequency_penalty", 0.25.into());
        }
        for (holds, name, value) in [
            (self.seed, "seed", json!(7)),
            (self.stop, "stop", json!(["END"])),
            (self.logprobs, "logprobs", json!(true)),
            (self.bias, "logit_bias", json!({"5": -100})),
            (self.user, "user", json!("u1")),
            (self.metadata, "metadata", json!({"k": "v"})),
            (self.tier, "service_tier", json!("flex")),
            (self.verbosity, "verbosity", json!("low")),
            (self.store, "store", json!(true)),
            (self.cache_key, "prompt_cache_key", json!("k1")),
            (self.search, "web_search_options", json!({})),
            (self.added, "repetition_penalty", json!(1.1)),
        ] {
            if holds {
                put(&mut body, name, value);
            }
        }
        if let Some(top_k) = self.top_k {
            put(&mut body, "top_k", top_k.into());
        }
        if let Some(choices) = self.choices {
            put(&mut body, "n", choices.into());
        }
        match self.output {
            Some("json") => put(&mut body, "response_format", json!({"type": "json_object"})),
            Some(kind) => put(
                &mut body,
                "response_format",
                json!({"type": "json_schema", "json_schema": {"name": "form", "schema": Talk::form(), "strict": kind == "strict"}}),
            ),
            None => {}
        }
        body.into()
    }

    fn chat_messages(&self) -> Value {
        let mut turns = Vec::new();
        if self.system {
            turns.push(json!({"role": "system", "content": "Be brief, and write JSON."}));
        }
        if self.history != History::None {
            turns.push(json!({"role": "user", "content": "First, in JSON."}));
            let mut answer = json!({"role": "assistant", "content": "Well."});
            if self.called() {
                let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"a\":\"b\"}"}});
                answer["tool_calls"] = self.ids().iter().map(call).collect();
            }
            if self.reasoned.is_some() {
                answer["reasoning_content"] = "Hm.".into();
            }
            if self.hosted {
                answer["reasoning"] = "Hm.".into();
                answer["reasoning_details"] =
                    json!([{"type": "reasoning.encrypted", "data": "AAAA", "format": "x-v1", "index": 0}]);
                answer["thinking_blocks"] =
                    json!([{"type": "thinking", "thinking": "Hm.", "signature": "BBBB"}]);
                answer["provider_specific_fields"] = json!({"citations": null});
                for call in answer["tool_calls"].as_array_mut().into_iter().flatten() {
                    call["extra_content"] = json!({"google": {"thought_signature": "CCCC"}});
                    call["function"]["provider_specific_fields"] = json!({"thought_signature": "CCCC"});
                }
            }
            turns.push(answer);
            if self.called() && !self.interrupted {
                for id in self.ids() {
                    let mut content = json!("seen");
                    if self.image_in_result {
                        content = json!([{"type": "text", "text": "seen"}, {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PIXEL}")}}]);
                    }
                    turns.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
                }
            }
        }
        if let Some(role) = self.middle {
            turns.push(json!({"role": role, "content": "From now on, in French."}));
        }
        if !(self.ends_with_result && self.called()) {
            let mut parts = vec![json!({"type": "text", "text": "Go on, with JSON."})];
            if self.image {
                parts.push(json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PIXEL}")}}));
            }
            if self.document {
                parts.push(json!({"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{PIXEL}")}}));
            }
            if self.audio {
                parts.push(json!({"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}));
            }
            let mut turn = json!({"role": "user", "content": parts});
            if self.name {
                turn["name"] = "bob".into();
            }
            turns.push(turn);
        }
        if self.prefill {
            turns.push(json!({"role": "assistant", "content": "Sure:"}));
        }
        turns.into()
    }

    pub(crate) fn responses(&self, model: &str, stream: bool) -> Value {
        let mut body = Map::new();
        put(&mut body, "model", model.into());
        if stream {
            put(&mut body, "stream", true.into());
        }
        if self.system {
            put(&mut body, "instructions", "Be brief, and write JSON.".into());
        }
        put(&mut body, "input", self.responses_items());
        if let Some(limit) = self.limit {
            put(&mut body, "max_output_tokens", limit.into());
        }
        if self.has_tools() {
            let mut tool = json!({"type": "function", "name": "look", "description": "Looks.", "parameters": self.schema()});
            tool["strict"] = (self.strict_tool && !self.root_union).into();
            let mut tools = vec![
                tool,
                json!({"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}, "strict": false}),
            ];
            if self.custom_tool {
                tools.push(json!({"type": "custom", "name": "patch"}));
            }
            put(&mut body, "tools", tools.into());
            let named = json!({"type": "function", "name": "look"});
            match self.choice {
                Some("named") => put(&mut body, "tool_choice", named),
                Some("allowed") => put(
                    &mut body,
                    "tool_choice",
                    json!({"type": "allowed_tools", "mode": "required", "tools": [named]}),
                ),
                Some(word) => put(&mut body, "tool_choice", word.into()),
                None => {}
            }
            if let Some(several) = self.several {
                put(&mut body, "parallel_tool_calls", several.into());
            }
        }
        if let Some(effort) = self.effort {
            put(&mut body, "reasoning", json!({"effort": effort, "summary": "auto"}));
        }
        self.common(&mut body, ["temperature", "top_p"]);
        let mut text = Map::new();
        if self.verbosity {
            put(&mut text, "verbosity", "low".into());
        }
        match self.output {
            Some("json") => put(&mut text, "format", json!({"type": "json_object"})),
            Some(kind) => put(
                &mut text,
                "format",
                json!({"type": "json_schema", "name": "form", "schema": Talk::form(), "strict": kind == "strict"}),
            ),
            None => {}
        }
        if !text.is_empty() {
            put(&mut body, "text", text.into());
        }
        for (holds, name, value) in [
            (self.user, "user", json!("u1")),
            (self.metadata, "metadata", json!({"k": "v"})),
            (self.tier, "service_tier", json!("flex")),
            (self.store, "store", json!(false)),
            (self.cache_key, "prompt_cache_key", json!("k1")),
        ] {
            if holds {
                put(&mut body, name, value);
            }
        }
        body.into()
    }

    fn responses_items(&self) -> Value {
        let mut items = Vec::new();
        if self.history != History::None {
            items.push(json!({"role": "user", "content": "First, in JSON."}));
            match self.reasoned {
                Some(Reasoned::Foreign) => items.push(json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": FOREIGN})),
                Some(Reasoned::Unsigned) => items.push(json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gw1.no_issuer."})),
                None => {}
            }
            items.push(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]}));
            if self.called() {
                for id in self.ids() {
                    items.push(json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{\"a\":\"b\"}"}));
                }
                for id in self.ids().into_iter().filter(|_| !self.interrupted) {
                    let mut output = json!("seen");
                    if self.image_in_result {
                        output = json!([{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}")}]);
                    }
                    items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
                }
            }
        }
        if let Some(role) = self.middle {
            items.push(json!({"role": role, "content": "From now on, in French."}));
        }
        if !(self.ends_with_result && self.called()) {
            let mut parts = vec![json!({"type": "input_text", "text": "Go on, with JSON."})];
            if self.image {
                parts.push(
                    json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}")}),
                );
            }
            if self.document {
                parts.push(json!({"type": "input_file", "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{PIXEL}")}));
            }
            items.push(json!({"role": "user", "content": parts}));
        }
        items.into()
    }
}
