//! Request translation: adaptations on the canonical model, and elements that survive a round trip in the same format.

use serde_json::{Value, json};

use crate::canonical::Thinking;
use crate::provider::{BaseUrl, Preset, Provider, ProviderKind, Setup};
use crate::translate::{
    EncodeError, Outgoing, PromptCaching, StoreOptions, TranslateRequest, outgoing_stored,
};
use crate::wire::Format;
use crate::wire::loss::LossPolicy;
use json::EscapedString;

/// Returns the body that is sent to a provider, and the lost elements.
pub(super) fn sent(
    kind: ProviderKind,
    model: &str,
    from: Format,
    to: Format,
    body: &Value,
) -> (Value, Vec<String>) {
    body_and_losses(&made(None, kind, model, from, to, body))
}

fn body_and_losses(outgoing: &Outgoing) -> (Value, Vec<String>) {
    let losses = outgoing.losses.iter().map(|loss| loss.element.to_string()).collect();
    (serde_json::from_slice(&outgoing.text()).unwrap(), losses)
}

/// Translates a request for a provider.
pub(super) fn made(
    row: Option<Preset>,
    kind: ProviderKind,
    model: &str,
    from: Format,
    to: Format,
    body: &Value,
) -> Outgoing {
    made_with(PromptCaching::default(), row, kind, model, [from, to], body)
}

/// Translates a request for a provider, with prompt caching.
pub(super) fn made_with(
    caching: PromptCaching<'_>,
    row: Option<Preset>,
    kind: ProviderKind,
    model: &str,
    [from, to]: [Format; 2],
    body: &Value,
) -> Outgoing {
    translated(caching, row, kind, model, [from, to], body).unwrap()
}

/// Translates a request for a provider, which may be refused.
pub(super) fn translated(
    caching: PromptCaching<'_>,
    row: Option<Preset>,
    kind: ProviderKind,
    model: &str,
    [from, to]: [Format; 2],
    body: &Value,
) -> Result<Outgoing, EncodeError> {
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let mut provider = Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![to.api()], base });
    provider.preset = row.unwrap_or(provider.preset);
    outgoing_stored(
        &body.to_string().into(),
        &TranslateRequest {
            client: from,
            provider: to,
            stream: false,
            array: false,
            thinking: Thinking::Unset,
            dialect: &provider.dialect(to.api(), model),
            model: &EscapedString::from(model),
            id: "req_1",
            seed: "req_1",
            now: 0,
        },
        StoreOptions { caching, ..StoreOptions::default() },
    )
}

fn says_json(value: &Value) -> bool {
    value.to_string().to_ascii_lowercase().contains("json object")
}

#[test]
fn mapping_5_json_mode_adds_the_word_json_where_required() {
    let ask = |text: &str| json!({"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": {"responseMimeType": "application/json"}});
    let (chat, _) =
        sent(ProviderKind::OpenAi, "gpt-4.1", Format::Generate, Format::Chat, &ask("Name three birds."));
    assert_eq!(chat["response_format"], json!({"type": "json_object"}));
    assert!(says_json(&chat["messages"][0]), "{chat}");
    // The provider of the responses format looks for the word JSON in the input only, not in the instructions.
    let (responses, _) =
        sent(ProviderKind::OpenAi, "gpt-4.1", Format::Generate, Format::Responses, &ask("Name three birds."));
    assert_eq!(responses["text"]["format"], json!({"type": "json_object"}));
    assert!(says_json(&responses["input"]), "{responses}");
    // A request that mentions JSON gets no additional instruction.
    for to in [Format::Chat, Format::Responses] {
        let (body, _) =
            sent(ProviderKind::OpenAi, "gpt-4.1", Format::Generate, to, &ask("Name three birds in JSON."));
        assert!(!says_json(&body), "{body}");
    }
}

#[test]
fn mapping_2_url_safe_base64_is_sent_to_other_providers_as_standard() {
    let image = |data: &str| json!({"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}]});
    for (data, wanted) in
        [("-_-_", "+/+/"), ("aaaa-_8", "aaaa+/8="), ("_w", "/w=="), ("iVBO", "iVBO"), ("a/+=", "a/+=")]
    {
        let (body, _) = sent(
            ProviderKind::Anthropic,
            "claude-sonnet-4-5",
            Format::Generate,
            Format::Messages,
            &image(data),
        );
        assert_eq!(body["messages"][0]["content"][0]["source"]["data"], wanted, "{data}");
    }
    // Data that is not base64 stays escaped in the request's JSON: the provider gets it as the client wrote it, and
    // refuses it.
    for data in ["-_\",\"model\":\"dear", "a\\", "\u{fc}-", "\n_"] {
        let (body, _) = sent(
            ProviderKind::Anthropic,
            "claude-sonnet-4-5",
            Format::Generate,
            Format::Messages,
            &image(data),
        );
        assert_eq!(body["messages"][0]["content"][0]["source"]["data"], data);
    }
    // The format's own provider accepts both alphabets.
    let (body, _) =
        sent(ProviderKind::Gemini, "gemini-2.5-pro", Format::Generate, Format::Generate, &image("-_-_"));
    assert_eq!(body["contents"][0]["parts"][0]["inlineData"]["data"], "-_-_");
}

#[test]
fn mapping_12_tool_members_stay_when_encoded_in_the_same_format() {
    let examples = json!([{"city": "Oslo"}]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": [
        {"name": "a", "input_schema": {"type": "object"}, "input_examples": examples, "defer_loading": true},
        {"name": "b", "input_schema": {"type": "object"}, "allowed_callers": ["direct"]},
    ]});
    let (anew, losses) =
        sent(ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages, Format::Messages, &body);
    assert_eq!(
        (&anew["tools"][0]["input_examples"], &anew["tools"][0]["defer_loading"]),
        (&examples, &json!(true))
    );
    assert_eq!(anew["tools"][1]["allowed_callers"], json!(["direct"]));
    assert!(losses.is_empty(), "{losses:?}");
    let (_, losses) = sent(ProviderKind::OpenAi, "gpt-4.1", Format::Messages, Format::Chat, &body);
    assert_eq!(losses, ["input_examples", "defer_loading", "allowed_callers"]);
}

#[test]
fn tool_members_that_invoke_model_refuses_are_left_out_with_a_warning() {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": [
        {"name": "a", "input_schema": {"type": "object"}, "input_examples": [{}], "defer_loading": true},
        {"type": "bash_20250124", "name": "bash", "allowed_callers": ["direct"], "defer_loading": false},
    ]});
    let claude = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let made = made(None, ProviderKind::Bedrock, claude, Format::Messages, Format::Messages, &body);
    let anew: Value = serde_json::from_slice(&made.text()).unwrap();
    assert_eq!(
        anew["tools"],
        json!([{"name": "a", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}])
    );
    let losses: Vec<_> = made.losses.iter().map(|loss| (&*loss.element, loss.policy)).collect();
    let warned = ["input_examples", "defer_loading", "allowed_callers"];
    assert_eq!(losses, warned.map(|name| (name, LossPolicy::Warn)));
}

#[test]
fn client_1_tool_namespace_keeps_its_description() {
    let body = json!({"model": "m", "input": "Hi", "tools": [
        {"type": "namespace", "name": "g", "description": "All about g.", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
        {"type": "namespace", "name": "h", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
    ]});
    let (anew, _) = sent(ProviderKind::OpenAi, "gpt-5.2", Format::Responses, Format::Responses, &body);
    assert_eq!(anew["tools"][0]["description"], "All about g.");
    // The member is required.
    assert_eq!(anew["tools"][1]["description"], "h");
}

#[test]
fn model_text_in_several_parts_is_joined_upstream() {
    let body = json!({"contents": [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hel"}, {"text": "lo, "}, {"text": "you"}, {"text": " \"there\".\n"}]},
        {"role": "model", "parts": [{"text": "How are"}, {"text": " you?"}]},
        {"role": "model", "parts": [{"text": ""}]},
        {"role": "user", "parts": [{"text": "Fi"}, {"text": "ne"}]},
        {"role": "model", "parts": [{"text": "I lo"}, {"text": "ok."}, {"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "5"}}}]},
        {"role": "model", "parts": [{"text": "Let me think", "thought": true}, {"text": "It is "}, {"text": "5."}]},
        {"role": "user", "parts": [{"text": "Thanks"}]}
    ]});
    let (chat, _) = sent(ProviderKind::OpenAi, "gpt-4.1", Format::Generate, Format::Chat, &body);
    let said = |message: &Value| (message["role"].as_str().unwrap().to_owned(), message["content"].clone());
    let assistant: Vec<Value> = chat["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(said)
        .filter(|(role, _)| role == "assistant")
        .map(|(_, content)| content)
        .collect();
    assert_eq!(
        assistant,
        [json!("Hello, you \"there\".\nHow are you?"), json!("I look."), json!("It is 5.")]
    );
    let (messages, _) =
        sent(ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Generate, Format::Messages, &body);
    let texts: Vec<Value> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| {
            json!(
                message["content"]
                    .as_array()
                    .map(|blocks| {
                        blocks
                            .iter()
                            .filter(|block| block["type"] == "text")
                            .map(|block| block["text"].clone())
                            .collect::<Vec<_>>()
                    })
                    .unwrap_or_else(|| vec![message["content"].clone()])
            )
        })
        .collect();
    assert_eq!(
        texts,
        [json!(["Hello, you \"there\".\nHow are you?"]), json!(["I look."]), json!(["It is 5."])]
    );
    let (responses, _) = sent(ProviderKind::OpenAi, "gpt-5.1", Format::Generate, Format::Responses, &body);
    let texts: Vec<Value> = responses["input"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["role"] == "assistant")
        .map(|item| item["content"].clone())
        .collect();
    assert_eq!(texts.len(), 3, "{responses}");
    for content in &texts {
        assert!(content.is_string() || content.as_array().unwrap().len() == 1, "{content}");
    }
    // The parts of the user's turn stay separate.
    assert_eq!(chat["messages"][2]["content"].as_array().unwrap().len(), 2, "{chat}");
}

#[test]
fn text_document_is_sent_to_chat_as_text_with_its_title() {
    let document = |title: Value| json!({"type": "document", "title": title, "source": {"type": "text", "media_type": "text/plain", "data": "Line 1\nLine 2"}});
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": [document(json!("Two \"lines\"")), {"type": "text", "text": "Sum up."}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [document(json!("Log"))]}]}
    ]});
    let (chat, _) = sent(ProviderKind::OpenAi, "gpt-4.1", Format::Messages, Format::Chat, &body);
    let messages = chat["messages"].as_array().unwrap();
    assert_eq!(messages[0]["content"][0]["text"], "Two \"lines\"\n\nLine 1\nLine 2");
    assert_eq!(messages[2]["role"], "tool");
    assert_eq!(messages[2]["content"], "Log\n\nLine 1\nLine 2");
    assert_eq!(messages.len(), 3, "nothing follows: {chat}");
    // A provider that requires one string gets one.
    let (row, kind) = (Some(Preset::DeepSeek), ProviderKind::OpenAiCompatible);
    let (joined, _) =
        body_and_losses(&made(row, kind, "deepseek-chat", Format::Messages, Format::Chat, &body));
    assert_eq!(joined["messages"][0]["content"], "Two \"lines\"\n\nLine 1\nLine 2\n\nSum up.");
}

#[test]
fn mapping_9_search_settings_of_generate_are_reported_as_lost() {
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}],
        "tools": [{"googleSearch": {"timeRangeFilter": {"startTime": "2026-01-01T00:00:00Z"}}}]});
    for (kind, model, to) in [
        (ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages),
        (ProviderKind::OpenAi, "gpt-5", Format::Responses),
    ] {
        let (sent, losses) = sent(kind, model, Format::Generate, to, &body);
        assert_eq!(
            (sent["tools"].as_array().map(Vec::len), losses),
            (Some(1), vec!["web_search_settings".to_owned()])
        );
        assert_eq!(crate::wire::loss::policy("web_search_settings", to), LossPolicy::Warn);
    }
}

/// Chat providers require the result of a call directly behind the message with the call.
#[test]
fn mapping_1_phase_does_not_divide_an_assistant_message_of_another_format() {
    let body = json!({"input": [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "a", "phase": "commentary"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "b", "phase": "final_answer"},
        {"type": "function_call_output", "call_id": "c", "output": "5"},
    ]});
    let roles = |kind, model, to| {
        let (sent, losses) = sent(kind, model, Format::Responses, to, &body);
        // Dropped silently.
        assert_eq!(losses, ["phase"]);
        let turns = if to == Format::Generate { &sent["contents"] } else { &sent["messages"] };
        turns
            .as_array()
            .unwrap()
            .iter()
            .map(|turn| turn["role"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(roles(ProviderKind::OpenAiCompatible, "m", Format::Chat), ["user", "assistant", "tool"]);
    let claude = roles(ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages);
    assert_eq!(claude, ["user", "assistant", "user"]);
    assert_eq!(roles(ProviderKind::Gemini, "gemini-2.5-pro", Format::Generate), ["user", "model", "user"]);
}

/// A compaction holds the earlier conversation. Only its own format can read it, and the client is told.
#[test]
fn mapping_12_compaction_of_another_format_is_reported_as_lost() {
    let claude = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [{"type": "compaction", "content": "Before."}, {"type": "text", "text": "a"}]},
        {"role": "user", "content": "more"}]});
    let codex = json!({"input": [{"type": "compaction", "encrypted_content": "gAA"}, {"role": "user", "content": "?"}]});
    let lost = |from, body: &Value| {
        let (_, losses) = sent(ProviderKind::OpenAiCompatible, "m", from, Format::Chat, body);
        losses
    };
    assert_eq!(lost(Format::Messages, &claude), ["server_tool_block"]);
    assert_eq!(lost(Format::Responses, &codex), ["server_tool_block"]);
}

/// The text is carried; that a guardrail is to check it is not, which the client is told.
#[test]
fn text_for_a_guardrail_is_carried_with_a_warning() {
    let guarded =
        |text: &str| json!({"guardContent": {"text": {"text": text, "qualifiers": ["guard_content"]}}});
    let body = json!({"system": [guarded("Be brief.")],
        "messages": [{"role": "user", "content": [{"text": "a"}, guarded("b")]}]});
    let claude = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    for (kind, model, to) in [
        (ProviderKind::OpenAi, "gpt-4.1", Format::Chat),
        (ProviderKind::OpenAi, "gpt-4.1", Format::Responses),
        (ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages),
        (ProviderKind::Bedrock, claude, Format::Messages),
        (ProviderKind::Gemini, "gemini-2.5-pro", Format::Generate),
    ] {
        let made = made(None, kind, model, Format::Converse, to, &body);
        let losses: Vec<_> = made.losses.iter().map(|loss| (&*loss.element, loss.policy)).collect();
        assert_eq!(losses, [("guardContent", LossPolicy::Warn)], "{to}");
        let text = String::from_utf8(made.text().into()).unwrap();
        assert!(text.contains("Be brief.") && text.contains("\"b\"") && !text.contains("guard"), "{text}");
    }
}

/// A type that is not known may be a client's spelling mistake, and what it carries is of no use to any provider.
#[test]
fn element_of_an_unknown_type_goes_out_without_an_envelope_of_the_gateway() {
    let envelope = "Z3cxLm90aGVyLlV3";
    let blocks = json!([
        {"type": "thinkikng", "thinking": "I add.", "signature": envelope},
        {"type": "strange", "parts": [{"id": "call__gw1__other__Uw"}]},
        {"type": "strange", "text": envelope, "signature": "own"},
        {"type": "text", "text": "So: 2."}
    ]);
    let body = json!({"model": "m", "max_tokens": 9000, "messages": [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "And 2 + 2?"}
    ]});
    let (sent, losses) = sent(ProviderKind::Anthropic, "m", Format::Messages, Format::Messages, &body);
    assert_eq!(sent["messages"][1]["content"], json!([blocks[2], blocks[3]]));
    assert_eq!(losses, ["thinking_block"]);
}
