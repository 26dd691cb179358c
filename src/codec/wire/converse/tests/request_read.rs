use serde_json::json;

use crate::canonical::{
    Block, CacheBreakpoint, Input, MediaSource, OutputFormat, Role, Thinking, ToolChoice,
};
use crate::error::ErrorKind;
use crate::wire::converse::request::decode;

#[test]
fn request_is_read_with_all_its_parts() {
    let body = json!({
        "system": [{"text": "be brief"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
        "messages": [
            {"role": "user", "content": [
                {"text": "hi"},
                {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}},
                {"document": {"format": "pdf", "name": "paper", "source": {"bytes": "JVBERi0="}, "context": "about"}},
                {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v.mp4"}}}},
                {"cachePoint": {"type": "default"}},
            ]},
            {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
                {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}},
            ]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "t1", "status": "error", "content": [{"json": {"n": 2}}, {"text": "more"}]}},
            ]},
        ],
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "f", "description": "d", "strict": true, "inputSchema": {"json": {"type": "object"}}}},
                      {"cachePoint": {"type": "default"}},
                      {"systemTool": {"name": "nova_grounding"}}],
            "toolChoice": {"tool": {"name": "f"}},
        },
        "additionalModelRequestFields": {"top_k": 20, "thinking": {"type": "enabled", "budget_tokens": 2048}},
        "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{\"type\":\"object\"}", "name": "n"}}}},
        "serviceTier": {"type": "flex"},
        "requestMetadata": {"k": "v"},
        "performanceConfig": {"latency": "optimized"},
    })
    .to_string();
    let request = decode(&body).unwrap();
    assert_eq!(
        request.turns.iter().map(|turn| turn.role).collect::<Vec<_>>(),
        [Role::System, Role::User, Role::Assistant, Role::User]
    );
    assert!(matches!(&request.turns[0].blocks[..], [Block::Text { cache: Some(CacheBreakpoint::Long), .. }]));
    let [
        Block::Text { .. },
        Block::Image { source: MediaSource::Base64 { mime: image, .. }, .. },
        Block::Text { text: context, .. },
        Block::File { source: MediaSource::Base64 { mime: file, .. }, name, cache: None },
        Block::Video { source: MediaSource::Url { url, mime: video } },
    ] = &request.turns[1].blocks[..]
    else {
        panic!("{:?}", request.turns[1])
    };
    let words = [image, file, context, name, url, video].map(|word| word.escaped());
    assert_eq!(words, ["image/jpeg", "application/pdf", "about", "paper", "s3://b/v.mp4", "video/mp4"]);
    let [Block::Reasoning { signature: Some(seal), .. }, Block::ToolUse { input: Input::Object(input), .. }] =
        &request.turns[2].blocks[..]
    else {
        panic!("{:?}", request.turns[2])
    };
    assert_eq!((&*seal.text, input.text()), ("c2ln", r#"{"a":1}"#));
    let [Block::ToolResult { content, object: Some(object), error: true, .. }] = &request.turns[3].blocks[..]
    else {
        panic!("{:?}", request.turns[3])
    };
    assert_eq!((content.len(), object.raw().text()), (1, r#"{"n":2}"#));
    assert_eq!((request.max_output, request.stop.len()), (Some(9), 1));
    assert_eq!(request.sampling.top_k.unwrap().text(), "20");
    assert_eq!(request.thinking, Thinking::Budget(2048));
    assert_eq!(request.tools[0].cache, Some(CacheBreakpoint::Short));
    assert!(
        request.search.is_some()
            && matches!(&request.tool_choice, Some(ToolChoice::Tool(name)) if name.is("f"))
    );
    assert!(matches!(request.output, OutputFormat::Schema { .. }));
    assert_eq!(request.service_tier.unwrap().escaped(), "flex");
    let extras: Vec<&str> = request.extra.iter().map(|extra| extra.name).collect();
    assert_eq!(extras, ["performanceConfig", "additionalModelRequestFields"]);
}

#[test]
fn reasoning_is_read_in_the_names_of_every_family() {
    use crate::canonical::Effort;
    for (fields, expected, unread) in [
        (
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
            Thinking::Effort(Effort::Max),
            &[][..],
        ),
        (
            json!({"reasoning_config": {"type": "enabled", "budget_tokens": 4000}}),
            Thinking::Budget(4000),
            &[],
        ),
        (json!({"reasoning_config": "high"}), Thinking::Effort(Effort::High), &[]),
        (
            json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}),
            Thinking::Effort(Effort::Low),
            &[],
        ),
        (json!({"reasoning_effort": "medium"}), Thinking::Effort(Effort::Medium), &[]),
        (json!({"thinking": {"type": "disabled"}}), Thinking::Off, &[]),
        (json!({"anthropic_beta": ["x"]}), Thinking::Unset, &["anthropic_beta"]),
    ] {
        let body = json!({"messages": [{"role": "user", "content": [{"text": "x"}]}], "additionalModelRequestFields": fields});
        let body = body.to_string();
        let request = decode(&body).unwrap();
        assert_eq!(request.thinking, expected, "{fields}");
        let extras: Vec<&str> = request.extra.iter().map(|extra| extra.name).collect();
        assert_eq!(extras, [unread, &["additionalModelRequestFields"]].concat(), "{fields}");
    }
}

#[test]
fn error_names_the_member() {
    let user = |content: serde_json::Value| json!({"messages": [{"role": "user", "content": content}]});
    for (body, param) in [
        (json!({}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "tool", "content": []}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (user(json!("text")), "messages[0].content"),
        (user(json!([{"text": 1}])), "messages[0].content[0].text"),
        (user(json!([{"text": "a", "image": {}}])), "messages[0].content[0]"),
        (user(json!([{}])), "messages[0].content[0]"),
        (user(json!([{"image": {"format": "png"}}])), "messages[0].content[0].image.source"),
        (user(json!([{"image": {"source": {"x": 1}}}])), "messages[0].content[0].image.source"),
        (
            user(json!([{"toolUse": {"toolUseId": "t", "name": "f", "input": "x"}}])),
            "messages[0].content[0].toolUse.input",
        ),
        (user(json!([{"toolResult": {"content": []}}])), "messages[0].content[0].toolResult.toolUseId"),
        (
            user(json!([{"toolResult": {"toolUseId": "t", "content": [{"toolUse": {}}]}}])),
            "messages[0].content[0].toolResult.content[0]",
        ),
        (user(json!([{"guardContent": {"guardContent": {}}}])), "messages[0].content[0].guardContent"),
        (json!({"messages": [], "inferenceConfig": {"maxTokens": 0}}), "messages"),
        (json!({"inferenceConfig": {"maxTokens": 0}}), "inferenceConfig.maxTokens"),
        (json!({"inferenceConfig": {"stopSequences": [1]}}), "inferenceConfig.stopSequences[0]"),
        (json!({"toolConfig": {"tools": [{"toolSpec": {}}]}}), "toolConfig.tools[0].toolSpec.name"),
        (json!({"toolConfig": {"toolChoice": {"never": {}}}}), "toolConfig.toolChoice"),
        (
            json!({"outputConfig": {"textFormat": {"structure": {"jsonSchema": {"schema": "[]"}}}}}),
            "outputConfig.textFormat.structure.jsonSchema.schema",
        ),
        (json!({"additionalModelRequestFields": {"top_k": "x"}}), "additionalModelRequestFields.top_k"),
    ] {
        let error = decode(&body.to_string()).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{body}");
        assert!(matches!(error.kind, ErrorKind::InvalidField), "{body}: {error:?}");
        assert!(error.message.contains(param), "{}", error.message);
    }
    assert_eq!(decode("[]").unwrap_err().kind, ErrorKind::InvalidJson);
}
