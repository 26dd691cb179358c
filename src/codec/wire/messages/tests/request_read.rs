//! Tests of the request decoder.

use super::super::request::decode;
use crate::canonical::{
    Block, CacheBreakpoint, Effort, Input, MediaSource, OutputFormat, ProviderSignature, Role, Thinking,
    ToolChoice,
};
use crate::error::ErrorKind;
use json::JsonStr;

const fn s(text: &str) -> JsonStr<'_> {
    JsonStr::from_escaped(text)
}

/// Returns a request with these members besides a message.
fn with(members: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#)
}

/// Returns a request whose only message has this content.
fn said(role: &str, content: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"{role}","content":{content}}}]}}"#)
}

fn file(name: &'static str, source: MediaSource<'static>) -> Block<'static> {
    Block::File { source, name: s(name), cache: None }
}

#[test]
fn mapping_1_instructions_and_turns_are_decoded() {
    let body = r#"{"messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"b"}]},{"role":"assistant","content":[{"type":"text","text":"c"}]}],"max_tokens":77,"system":"S","stream":true,"model":"m"}"#;
    let request = decode(body).unwrap();
    let roles: Vec<Role> = request.turns.iter().map(|turn| turn.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::System, Role::Assistant]);
    assert_eq!(request.turns[0].blocks, [Block::text(s("S"))]);
    assert_eq!(request.turns[2].blocks, [Block::text(s("b"))]);
    assert_eq!((request.stream, request.max_output), (true, Some(77)));
    assert!(request.extra.is_empty());
}

#[test]
fn bug_52_cache_marks_stay_on_their_blocks() {
    let body = r#"{"system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"persistent"}}],
        "tools":[{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral","ttl":"1h"}}],
        "messages":[{"role":"user","content":[{"type":"text","text":"c","cache_control":{"type":"ephemeral"}},
            {"type":"tool_result","tool_use_id":"t","content":"x","cache_control":{"type":"ephemeral","ttl":"5m"}}]}]}"#;
    let request = decode(body).unwrap();
    let mark = |block: &Block<'_>| match block {
        Block::Text { cache, .. } | Block::ToolResult { cache, .. } => *cache,
        _ => None,
    };
    let marks: Vec<_> = request.turns.iter().flat_map(|turn| &turn.blocks).map(mark).collect();
    assert_eq!(
        marks,
        [None, Some(CacheBreakpoint::Long), Some(CacheBreakpoint::Short), Some(CacheBreakpoint::Short)]
    );
    assert_eq!(request.tools[0].cache, Some(CacheBreakpoint::Long));
}

#[test]
fn mapping_2_images_and_documents_of_every_source_are_decoded() {
    let content = r#"[
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR"}},
        {"type":"image","source":{"type":"url","url":"https://a.example/i.png"}},
        {"type":"image","source":{"type":"url","url":"data:image/gif;base64,R0lG"}},
        {"type":"image","source":{"type":"file","file_id":"file_1"}},
        {"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}},
        {"type":"document","source":{"type":"url","url":"https://a.example/a.pdf"}},
        {"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain"}},
        {"type":"document","source":{"type":"file","file_id":"file_2"}},
        {"type":"document","title":"T","context":"C","source":{"type":"content","content":"inside"}},
        {"type":"document","title":"T","source":{"type":"content","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"url","url":"https://a.example/i.png"}}]},"cache_control":{"type":"ephemeral"}}]"#;
    let body = said("user", content);
    let request = decode(&body).unwrap();
    let image = |source, cache| Block::Image { source, detail: s(""), cache, signature: None };
    let url = |url| MediaSource::Url { url: s(url), mime: s("") };
    assert_eq!(
        request.turns[0].blocks,
        [
            image(MediaSource::Base64 { mime: s("image/png"), data: s("iVBOR") }, None),
            image(url("https://a.example/i.png"), None),
            image(MediaSource::Base64 { mime: s("image/gif"), data: s("R0lG") }, None),
            image(MediaSource::Id { id: s("file_1") }, None),
            file("a.pdf", MediaSource::Base64 { mime: s("application/pdf"), data: s("JVBERi0=") }),
            file("", url("https://a.example/a.pdf")),
            file("", MediaSource::Text { text: s("plain") }),
            file("", MediaSource::Id { id: s("file_2") }),
            Block::text(s("C")),
            file("T", MediaSource::Text { text: s("inside") }),
            Block::text(s("T")),
            Block::text(s("one")),
            image(url("https://a.example/i.png"), Some(CacheBreakpoint::Short)),
        ]
    );
}

#[test]
fn mapping_12_search_results_and_citation_settings_are_decoded() {
    let content = r#"[{"type":"search_result","source":"https://a.example/","title":"A","content":[{"type":"text","text":"so"}],"citations":{"enabled":true}},
        {"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"},"citations":{"enabled":true}}]"#;
    let body = said("user", content);
    let request = decode(&body).unwrap();
    let Block::SearchResult(result) = &request.turns[0].blocks[0] else { panic!("{request:?}") };
    assert_eq!(
        (result.title, result.source, result.texts.as_slice()),
        (s("A"), s("https://a.example/"), &[s("so")][..])
    );
    assert!(result.cites);
    let extra: Vec<&str> = request.extra.iter().map(|extra| extra.name).collect();
    assert_eq!(extra, ["citations"]);
}

#[test]
fn mapping_3_tool_calls_and_results_are_decoded() {
    let body = r#"{"messages":[
        {"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{"b":1,"a":2},"caller":{"type":"direct"}}]},
        {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"toolu_1","is_error":true,"content":"timeout"},
            {"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"url","url":"u"}},{"type":"search_result","source":"s","title":"t","content":[]}]},
            {"type":"tool_result","tool_use_id":"toolu_3"}]}]}"#;
    let request = decode(body).unwrap();
    let Block::ToolUse { id, name, input: Input::Object(input), .. } = &request.turns[0].blocks[0] else {
        panic!()
    };
    assert_eq!((id.escaped(), name.escaped(), input.text()), ("toolu_1", "f", r#"{"b":1,"a":2}"#));
    let results: Vec<_> = request.turns[1]
        .blocks
        .iter()
        .map(|block| match block {
            Block::ToolResult { id, content, error, .. } => (id.escaped(), content.len(), *error),
            _ => panic!("{block:?}"),
        })
        .collect();
    assert_eq!(results, [("toolu_1", 1, true), ("toolu_2", 3, false), ("toolu_3", 0, false)]);
}

#[test]
fn mapping_4_signatures_of_reasoning_and_tool_calls_are_decoded() {
    let mut envelope = b"".to_vec();
    crate::canonical::SealedSignature { issuer: "google", text: s("CiQB") }.write(&mut envelope);
    let envelope = String::from_utf8(envelope).unwrap();
    let mut id = b"call_1".to_vec();
    let sealed = crate::canonical::SealedSignature { issuer: "google", text: s("CiQB") };
    crate::canonical::seal::SignedCallId::write(sealed, &mut id);
    let id = String::from_utf8(id).unwrap();
    let content = format!(
        r#"[{{"type":"thinking","thinking":"Hm.","signature":"{envelope}"}},{{"type":"thinking","thinking":"U","signature":""}},
        {{"type":"thinking","thinking":"O","signature":"Eq\/+"}},{{"type":"redacted_thinking","data":"{envelope}"}},
        {{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}]"#
    );
    let body = said("assistant", &content);
    let request = decode(&body).unwrap();
    let blocks = &request.turns[0].blocks;
    let seal = |block: &Block<'_>| match block {
        Block::Reasoning { signature: seal, .. } | Block::ToolUse { signature: seal, .. } => {
            seal.clone().map(|seal: ProviderSignature<'_>| {
                (seal.issuer.map(|issuer| issuer.to_string()), seal.text.to_string())
            })
        }
        _ => panic!("{block:?}"),
    };
    let google = Some((Some("google".to_owned()), "CiQB".to_owned()));
    assert_eq!(seal(&blocks[0]), google);
    assert_eq!(seal(&blocks[1]), None);
    assert_eq!(seal(&blocks[2]), Some((None, "Eq\\/+".to_owned())));
    assert_eq!(seal(&blocks[3]), google);
    assert_eq!(seal(&blocks[4]), google);
    assert!(matches!(&blocks[3], Block::Reasoning { hidden: true, text, .. } if text.is_empty()));
    assert!(matches!(&blocks[4], Block::ToolUse { id, .. } if id.escaped() == "call_1"));
    // The result of the same call has the same id.
    let result = said("user", &format!(r#"[{{"type":"tool_result","tool_use_id":"{id}","content":""}}]"#));
    let request = decode(&result).unwrap();
    assert!(matches!(&request.turns[0].blocks[0], Block::ToolResult { id, .. } if id.escaped() == "call_1"));
}

#[test]
fn server_tool_blocks_are_decoded_unchanged() {
    let raw = r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"u"}]}"#;
    let body = said("assistant", &format!("[{raw}]"));
    let request = decode(&body).unwrap();
    let Block::Opaque { name, raw: whole } = &request.turns[0].blocks[0] else { panic!() };
    assert_eq!((name.escaped(), whole.text()), ("web_search_tool_result", raw));
}

#[test]
fn mapping_4_reasoning_setting_is_decoded_in_every_spelling() {
    for (members, thinking, shown) in [
        (r#""thinking":{"type":"enabled","budget_tokens":2048}"#, Thinking::Budget(2048), Some(true)),
        (
            r#""thinking":{"type":"enabled","budget_tokens":2048,"display":"omitted"}"#,
            Thinking::Budget(2048),
            Some(false),
        ),
        (r#""thinking":{"type":"adaptive"}"#, Thinking::Adaptive, Some(true)),
        (
            r#""output_config":{"effort":"max"},"thinking":{"type":"adaptive"}"#,
            Thinking::Effort(Effort::Max),
            Some(true),
        ),
        (r#""thinking":{"type":"disabled"}"#, Thinking::Off, Some(false)),
        (r#""thinking":{"type":"between_tools"}"#, Thinking::Adaptive, Some(true)),
        (r#""output_config":{"effort":"low"}"#, Thinking::Effort(Effort::Low), None),
        (r#""thinking":null"#, Thinking::Unset, None),
    ] {
        let body = with(members);
        let request = decode(&body).unwrap();
        assert_eq!((request.thinking, request.show_thinking), (thinking, shown), "{members}");
    }
    // An effort beside a budget is passed on as an extra.
    let body =
        with(r#""thinking":{"type":"enabled","budget_tokens":2048},"output_config":{"effort":"high"}"#);
    assert_eq!(decode(&body).unwrap().extra[0].name, "output_config.effort");
}

#[test]
fn mapping_5_response_schema_is_decoded_in_every_place() {
    for members in [
        r#""output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}"#,
        r#""output_format":{"type":"json_schema","schema":{"type":"object"}}"#,
        r#""output_config":{"format":{"schema":{"type":"object"}}}"#,
    ] {
        let body = with(members);
        let OutputFormat::Schema { schema, name, .. } = decode(&body).unwrap().output else {
            panic!("{members}")
        };
        assert_eq!((schema.text(), name.escaped()), (r#"{"type":"object"}"#, ""));
    }
}

#[test]
fn mapping_6_sampling_and_stop_sequences_are_decoded() {
    let body = with(
        r#""temperature":0.70,"top_p":0.9,"top_k":40,"stop_sequences":["END","\n"],"metadata":{"user_id":"u-42"},"service_tier":"standard_only""#,
    );
    let request = decode(&body).unwrap();
    let text = |value: Option<json::RawJson<'_>>| value.map(|value| value.text().to_owned());
    assert_eq!(text(request.sampling.temperature).as_deref(), Some("0.70"));
    assert_eq!(text(request.sampling.top_p).as_deref(), Some("0.9"));
    assert_eq!(text(request.sampling.top_k).as_deref(), Some("40"));
    assert_eq!(request.stop, [s("END"), s("\\n")]);
    assert_eq!((request.user, request.metadata), (Some(s("u-42")), None));
    assert_eq!(request.service_tier, Some(s("standard_only")));
}

#[test]
fn mapping_3_tools_and_tool_choice_are_decoded() {
    let body = with(
        r#""tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}},"strict":true,"input_examples":[{}],"defer_loading":false},
            {"type":"custom","name":"g"}]"#,
    );
    let request = decode(&body).unwrap();
    assert_eq!((request.tools[0].name, request.tools[0].description), (s("f"), s("d")));
    assert_eq!(request.tools[0].strict, Some(true));
    assert_eq!(request.tools[1].schema, None);
    let extra: Vec<&str> = request.extra.iter().map(|extra| extra.name).collect();
    assert_eq!(extra, ["input_examples"]);

    for (choice, tool_choice, parallel) in [
        (r#"{"type":"auto"}"#, ToolChoice::Auto, None),
        (r#"{"type":"any","disable_parallel_tool_use":true}"#, ToolChoice::Required, Some(false)),
        (
            r#"{"type":"tool","name":"f","disable_parallel_tool_use":false}"#,
            ToolChoice::Tool(s("f")),
            Some(true),
        ),
        (r#"{"type":"none"}"#, ToolChoice::None, None),
    ] {
        let body = with(&format!(r#""tool_choice":{choice}"#));
        let request = decode(&body).unwrap();
        assert_eq!((request.tool_choice, request.parallel_tools), (Some(tool_choice), parallel), "{choice}");
    }
}

#[test]
fn bug_62_web_search_is_decoded_and_other_server_tools_are_extras() {
    let body = with(
        r#""tools":[{"type":"web_search_20260209","name":"web_search","max_uses":3,"allowed_domains":["a.example"],"blocked_domains":null,
            "user_location":{"type":"approximate","city":"Oslo"},"cache_control":{"type":"ephemeral"}},
            {"type":"code_execution_20260120","name":"code_execution"},{"type":"bash_20250124","name":"bash"}]"#,
    );
    let request = decode(&body).unwrap();
    assert!(request.tools.is_empty());
    let search = request.search.unwrap();
    assert_eq!((search.max_uses, search.cache), (Some(3), Some(CacheBreakpoint::Short)));
    assert_eq!(search.allowed_domains.unwrap().text(), r#"["a.example"]"#);
    assert_eq!(search.blocked_domains, None);
    assert!(search.location.unwrap().text().contains("Oslo"));
    assert!(request.extra.iter().all(|extra| extra.name == "server_tool"));
    assert_eq!(request.extra.len(), 2);
}

#[test]
fn client_2_unknown_members_are_kept_in_order() {
    let body = with(
        r#""context_management":{"edits":[]},"cache_control":{"type":"ephemeral"},"container":"c","mcp_servers":[],"inference_geo":"eu","x_provider":{"f":1.0},"speed":null"#,
    );
    let request = decode(&body).unwrap();
    let extra: Vec<(&str, &str)> =
        request.extra.iter().map(|extra| (extra.name, extra.value.text())).collect();
    assert_eq!(
        extra,
        [
            ("context_management", r#"{"edits":[]}"#),
            ("cache_control", r#"{"type":"ephemeral"}"#),
            ("container", "\"c\""),
            ("mcp_servers", "[]"),
            ("inference_geo", "\"eu\""),
            ("x_provider", r#"{"f":1.0}"#)
        ]
    );
}

#[test]
fn blocks_nested_deeply_are_refused() {
    for (before, after) in [
        (r#"{"type":"search_result","title":"t","source":"s","content":["#, "]}"),
        (r#"{"type":"document","source":{"type":"content","content":["#, "]}}"),
        (r#"{"type":"tool_result","tool_use_id":"t","content":["#, "]}"),
        (r#"{"content":["#, r#"],"type":"tool_result","tool_use_id":"t"}"#),
    ] {
        let nested = |levels: usize| {
            let text = r#"{"type":"text","text":"x"}"#;
            said("user", &format!("[{}{text}{}]", before.repeat(levels), after.repeat(levels)))
        };
        assert!(decode(&nested(3)).is_ok(), "{before}");
        let error = decode(&nested(100)).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0]"), "{before}");
    }
}

#[test]
fn member_malformed_is_refused_with_its_path() {
    let message = |content: &str| said("user", content);
    for (body, param) in [
        ("{}".to_owned(), "messages"),
        (r#"{"messages":"Hi"}"#.to_owned(), "messages"),
        (r#"{"messages":[]}"#.to_owned(), "messages"),
        (r#"{"messages":["Hi"]}"#.to_owned(), "messages[0]"),
        (r#"{"messages":[{"content":"Hi"}]}"#.to_owned(), "messages[0].role"),
        (said("tool", "\"x\""), "messages[0].role"),
        (r#"{"messages":[{"role":"user"}]}"#.to_owned(), "messages[0].content"),
        (message("7"), "messages[0].content"),
        (message("[7]"), "messages[0].content[0]"),
        (message(r#"["a",{"text":"x"}]"#), "messages[0].content[1].type"),
        (message(r#"[{"type":"text"}]"#), "messages[0].content[0].text"),
        (message(r#"[{"type":"image"}]"#), "messages[0].content[0].source"),
        (message(r#"[{"type":"image","source":{"type":"novel"}}]"#), "messages[0].content[0].source"),
        (message(r#"[{"type":"tool_result","content":""}]"#), "messages[0].content[0].tool_use_id"),
        (message(r#"[{"type":"tool_use","id":"t","name":"f","input":[]}]"#), "messages[0].content[0].input"),
        (with(r#""max_tokens":0"#), "max_tokens"),
        (with(r#""max_tokens":"9""#), "max_tokens"),
        (with(r#""stream":"yes""#), "stream"),
        (with(r#""temperature":"hot""#), "temperature"),
        (with(r#""stop_sequences":[1]"#), "stop_sequences"),
        (with(r#""tools":{}"#), "tools"),
        (with(r#""tools":[{"input_schema":{}}]"#), "tools[0].name"),
        (with(r#""tools":[{"name":"f","input_schema":[]}]"#), "tools[0].input_schema"),
        (with(r#""tool_choice":{"type":"some"}"#), "tool_choice.type"),
        (with(r#""tool_choice":{"type":"tool"}"#), "tool_choice.name"),
        (with(r#""thinking":{"type":"enabled"}"#), "thinking.budget_tokens"),
        (with(r#""thinking":{}"#), "thinking.type"),
        (with(r#""metadata":[]"#), "metadata"),
        (with(r#""output_config":{"format":{"type":"json_schema"}}"#), "output_config.format"),
        (with(r#""system":7"#), "system"),
    ] {
        let error = decode(&body).unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidField, Some(param)), "{body}");
    }
    assert_eq!(decode("[]").unwrap_err().kind, ErrorKind::InvalidJson);
}

/// An empty system prompt is none: it costs no tokens, and no provider refuses it as an empty text.
#[test]
fn system_that_is_empty_is_none() {
    for system in [r#""""#, "[]", "null", r#"[{"type":"text","text":""}]"#] {
        let body = with(&format!("\"system\":{system}"));
        assert_eq!(decode(&body).unwrap().turns.len(), 1, "{system}");
    }
}

#[test]
fn user_message_without_content_is_refused_with_its_path() {
    for body in [
        r#"{"model":"m","max_tokens":9,"messages":[{"role":"user"}]}"#.to_owned(),
        said("user", "[]"),
        said("user", "null"),
    ] {
        let error = decode(&body).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some("messages[0].content")), "{body}");
    }
    assert!(decode(&said("assistant", "[]")).is_ok());
}
