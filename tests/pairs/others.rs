//! Bodies of messages, content generation and Converse.

use serde_json::{Map, Value, json};

use crate::talk::{FOREIGN, History, PIXEL, Reasoned, Talk, put};

impl Talk {
    pub(crate) fn messages(&self, model: &str, stream: bool) -> Value {
        let mut body = Map::new();
        put(&mut body, "model", model.into());
        put(
            &mut body,
            "max_tokens",
            self.limit.unwrap_or(4096).max(self.budget.map_or(0, |budget| budget + 1)).into(),
        );
        if stream {
            put(&mut body, "stream", true.into());
        }
        if self.system {
            let mut text = json!({"type": "text", "text": "Be brief, and write JSON."});
            if self.marks {
                text["cache_control"] = json!({"type": "ephemeral"});
            }
            put(&mut body, "system", json!([text]));
        }
        put(&mut body, "messages", self.messages_turns());
        if self.has_tools() {
            let mut tool = json!({"name": "look", "description": "Looks.", "input_schema": self.schema()});
            if self.strict_tool && !self.root_union {
                tool["strict"] = true.into();
            }
            let other = json!({"name": "find", "input_schema": {"type": "object", "properties": {}}});
            put(&mut body, "tools", json!([tool, other]));
            let mut choice = match self.choice {
                Some("named" | "allowed") => json!({"type": "tool", "name": "look"}),
                Some("required") => json!({"type": "any"}),
                Some(word) => json!({"type": word}),
                None if self.several.is_some() => json!({"type": "auto"}),
                None => Value::Null,
            };
            if let Some(several) = self.several.filter(|_| choice["type"] != "none") {
                choice["disable_parallel_tool_use"] = (!several).into();
            }
            if !choice.is_null() {
                put(&mut body, "tool_choice", choice);
            }
        }
        match (self.budget, self.thinking) {
            (Some(budget), _) => {
                put(&mut body, "thinking", json!({"type": "enabled", "budget_tokens": budget.max(1024)}))
            }
            (None, Some("off")) => put(&mut body, "thinking", json!({"type": "disabled"})),
            (None, Some("adaptive" | "on")) => put(&mut body, "thinking", json!({"type": "adaptive"})),
            (None, _) => {}
        }
        let mut config = Map::new();
        if let Some(effort) = self.effort.filter(|effort| !["none", "minimal"].contains(effort)) {
            put(&mut config, "effort", effort.into());
        }
        if matches!(self.output, Some("schema" | "strict")) {
            put(&mut config, "format", json!({"type": "json_schema", "schema": Talk::form()}));
        }
        if !config.is_empty() {
            put(&mut body, "output_config", config.into());
        }
        self.common(&mut body, ["temperature", "top_p"]);
        if let Some(number) = body.get_mut("temperature") {
            *number = number.as_f64().unwrap_or(1.0).min(1.0).into();
        }
        if let Some(top_k) = self.top_k {
            put(&mut body, "top_k", top_k.into());
        }
        if self.stop {
            put(&mut body, "stop_sequences", json!(["END"]));
        }
        if self.user {
            put(&mut body, "metadata", json!({"user_id": "u1"}));
        }
        body.into()
    }

    fn messages_turns(&self) -> Value {
        let mut turns = Vec::new();
        let image =
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}});
        if self.history != History::None {
            turns.push(json!({"role": "user", "content": "First, in JSON."}));
            let mut blocks = Vec::new();
            match self.reasoned {
                Some(Reasoned::Foreign) => {
                    blocks.push(json!({"type": "thinking", "thinking": "Hm.", "signature": FOREIGN}))
                }
                Some(Reasoned::Unsigned) => {
                    blocks.push(json!({"type": "thinking", "thinking": "Hm.", "signature": ""}))
                }
                None => {}
            }
            blocks.push(json!({"type": "text", "text": "Well."}));
            let mut results = Vec::new();
            if self.called() {
                for id in self.ids() {
                    blocks.push(json!({"type": "tool_use", "id": id, "name": "look", "input": {"a": "b"}}));
                    let mut content = vec![json!({"type": "text", "text": "seen"})];
                    if self.image_in_result && !self.failed {
                        content.push(image.clone());
                    }
                    let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
                    if self.failed {
                        result["is_error"] = true.into();
                    }
                    results.push(result);
                }
            }
            turns.push(json!({"role": "assistant", "content": blocks}));
            if !results.is_empty() && !self.interrupted {
                turns.push(json!({"role": "user", "content": results}));
            }
        }
        let mut question = Vec::new();
        if !(self.ends_with_result && self.called()) {
            let mut text = json!({"type": "text", "text": "Go on, with JSON."});
            if self.marks {
                text["cache_control"] = json!({"type": "ephemeral"});
            }
            question.push(text);
            if self.image {
                question.push(image);
            }
            if self.document {
                question.push(json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}}));
            }
        }
        if !question.is_empty() {
            match turns.last_mut().filter(|turn| turn["role"] == "user" && self.middle.is_none()) {
                Some(last) => last["content"].as_array_mut().unwrap().extend(question),
                None => turns.push(json!({"role": "user", "content": question})),
            }
        }
        if self.middle.is_some() {
            turns.push(json!({"role": "system", "content": "From now on, in French."}));
        }
        if self.prefill {
            turns.push(json!({"role": "assistant", "content": "Sure:"}));
        }
        turns.into()
    }

    #[expect(clippy::too_many_lines, reason = "one paragraph for each fact")]
    pub(crate) fn generate(&self) -> Value {
        let mut body = Map::new();
        if self.system {
            put(&mut body, "systemInstruction", json!({"parts": [{"text": "Be brief, and write JSON."}]}));
        }
        let image = json!({"inlineData": {"mimeType": "image/png", "data": PIXEL}});
        let mut contents = Vec::new();
        if self.history != History::None {
            contents.push(json!({"role": "user", "parts": [{"text": "First, in JSON."}]}));
            let mut parts = Vec::new();
            if self.reasoned.is_some() {
                parts.push(json!({"text": "Hm.", "thought": true}));
            }
            parts.push(json!({"text": "Well."}));
            let mut results = Vec::new();
            if self.called() {
                for _ in self.ids() {
                    let mut call = json!({"functionCall": {"name": "look", "args": {"a": "b"}}});
                    if self.reasoned == Some(Reasoned::Foreign) {
                        call["thoughtSignature"] = FOREIGN.into();
                    }
                    parts.push(call);
                    results
                        .push(json!({"functionResponse": {"name": "look", "response": {"output": "seen"}}}));
                }
            }
            contents.push(json!({"role": "model", "parts": parts}));
            if !results.is_empty() && !self.interrupted {
                contents.push(json!({"role": "user", "parts": results}));
            }
        }
        if !(self.ends_with_result && self.called()) {
            let mut parts = vec![json!({"text": "Go on, with JSON."})];
            if self.image {
                parts.push(image);
            }
            if self.document {
                parts.push(json!({"inlineData": {"mimeType": "application/pdf", "data": PIXEL}}));
            }
            if self.audio {
                parts.push(json!({"inlineData": {"mimeType": "audio/wav", "data": PIXEL}}));
            }
            contents.push(json!({"role": "user", "parts": parts}));
        }
        if self.prefill {
            contents.push(json!({"role": "model", "parts": [{"text": "Sure:"}]}));
        }
        put(&mut body, "contents", contents.into());
        if self.has_tools() {
            put(
                &mut body,
                "tools",
                json!([{"functionDeclarations": [
                {"name": "look", "description": "Looks.", "parametersJsonSchema": self.schema()},
                {"name": "find", "parametersJsonSchema": {"type": "object", "properties": {}}}]}]),
            );
            let config = match self.choice {
                Some("required") => json!({"mode": "ANY"}),
                Some("named" | "allowed") => json!({"mode": "ANY", "allowedFunctionNames": ["look"]}),
                Some("none") => json!({"mode": "NONE"}),
                _ => json!({"mode": "AUTO"}),
            };
            if self.choice.is_some() {
                put(&mut body, "toolConfig", json!({"functionCallingConfig": config}));
            }
        }
        let mut config = Map::new();
        self.common(&mut config, ["temperature", "topP"]);
        let mut thinking = Map::new();
        match (self.budget, self.thinking, self.effort) {
            (Some(budget), _, _) => put(&mut thinking, "thinkingBudget", budget.into()),
            (None, Some("off"), _) => put(&mut thinking, "thinkingBudget", 0.into()),
            (None, Some("adaptive" | "on"), _) => put(&mut thinking, "thinkingBudget", (-1).into()),
            (None, _, Some(effort @ ("minimal" | "low" | "medium" | "high" | "xhigh"))) => {
                put(&mut thinking, "thinkingLevel", effort.to_uppercase().into());
            }
            _ => {}
        }
        if !thinking.is_empty() {
            put(&mut config, "thinkingConfig", thinking.into());
        }
        if self.penalties {
            put(&mut config, "presencePenalty", 0.5.into());
            put(&mut config, "frequencyPenalty", 0.25.into());
        }
        match self.output {
            Some("json") => put(&mut config, "responseMimeType", "application/json".into()),
            Some(_) => {
                put(&mut config, "responseMimeType", "application/json".into());
                put(&mut config, "responseJsonSchema", Talk::form());
            }
            None => {}
        }
        for (holds, name, value) in [
            (self.seed, "seed", json!(7)),
            (self.stop, "stopSequences", json!(["END"])),
            (self.limit.is_some(), "maxOutputTokens", json!(self.limit)),
            (self.top_k.is_some(), "topK", json!(self.top_k)),
            (self.choices.is_some(), "candidateCount", json!(self.choices)),
        ] {
            if holds {
                put(&mut config, name, value);
            }
        }
        if !config.is_empty() {
            put(&mut body, "generationConfig", config.into());
        }
        body.into()
    }

    #[expect(clippy::too_many_lines, reason = "one paragraph for each fact")]
    pub(crate) fn converse(&self) -> Value {
        let mut body = Map::new();
        if self.system {
            let mut system = vec![json!({"text": "Be brief, and write JSON."})];
            if self.marks {
                system.push(json!({"cachePoint": {"type": "default"}}));
            }
            put(&mut body, "system", system.into());
        }
        let image = json!({"image": {"format": "png", "source": {"bytes": PIXEL}}});
        let mut turns = Vec::new();
        if self.history != History::None {
            turns.push(json!({"role": "user", "content": [{"text": "First, in JSON."}]}));
            let mut blocks = Vec::new();
            match self.reasoned {
                Some(Reasoned::Foreign) => blocks.push(
                    json!({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": FOREIGN}}}),
                ),
                Some(Reasoned::Unsigned) => {
                    blocks.push(json!({"reasoningContent": {"reasoningText": {"text": "Hm."}}}))
                }
                None => {}
            }
            blocks.push(json!({"text": "Well."}));
            let mut results = Vec::new();
            if self.called() {
                for id in self.ids() {
                    blocks.push(json!({"toolUse": {"toolUseId": id, "name": "look", "input": {"a": "b"}}}));
                    let mut content = vec![json!({"text": "seen"})];
                    if self.image_in_result {
                        content.push(image.clone());
                    }
                    let status = if self.failed { "error" } else { "success" };
                    results
                        .push(json!({"toolResult": {"toolUseId": id, "content": content, "status": status}}));
                }
            }
            turns.push(json!({"role": "assistant", "content": blocks}));
            if !results.is_empty() && !self.interrupted {
                turns.push(json!({"role": "user", "content": results}));
            }
        }
        if !(self.ends_with_result && self.called()) {
            let mut blocks = vec![json!({"text": "Go on, with JSON."})];
            if self.image {
                blocks.push(image);
            }
            if self.document {
                blocks.push(json!({"document": {"format": "pdf", "name": "a", "source": {"bytes": PIXEL}}}));
            }
            match turns.last_mut().filter(|turn| turn["role"] == "user") {
                Some(last) => last["content"].as_array_mut().unwrap().extend(blocks),
                None => turns.push(json!({"role": "user", "content": blocks})),
            }
        }
        if self.prefill {
            turns.push(json!({"role": "assistant", "content": [{"text": "Sure:"}]}));
        }
        put(&mut body, "messages", turns.into());
        if self.has_tools() {
            let mut config = json!({"tools": [
                {"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": self.schema()}}},
                {"toolSpec": {"name": "find", "inputSchema": {"json": {"type": "object", "properties": {}}}}}]});
            match self.choice {
                Some("required") => config["toolChoice"] = json!({"any": {}}),
                Some("named" | "allowed") => config["toolChoice"] = json!({"tool": {"name": "look"}}),
                _ => {}
            }
            put(&mut body, "toolConfig", config);
        }
        let mut inference = Map::new();
        self.common(&mut inference, ["temperature", "topP"]);
        if let Some(number) = inference.get_mut("temperature") {
            *number = number.as_f64().unwrap_or(1.0).min(1.0).into();
        }
        if let Some(limit) = self.limit {
            put(&mut inference, "maxTokens", limit.max(self.budget.map_or(0, |budget| budget + 1)).into());
        }
        if self.stop {
            put(&mut inference, "stopSequences", json!(["END"]));
        }
        if !inference.is_empty() {
            put(&mut body, "inferenceConfig", inference.into());
        }
        body.into()
    }
}
