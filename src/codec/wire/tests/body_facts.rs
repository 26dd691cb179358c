//! Tests of body facts: output limits, other models that a body names, and ids of stored content.

use bytes::Bytes;

use crate::error::{ApiError, ErrorKind};
use crate::wire::Api;
use crate::wire::body_facts::OutputCaps;
use crate::wire::request::{Body, BodyReader};

fn read(api: Api, members: &str) -> Body {
    try_read(api, members).unwrap()
}

fn try_read(api: Api, members: &str) -> Result<Body, ApiError> {
    let required = match api {
        Api::Messages => r#""model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1"#,
        Api::Responses => r#""model":"m","input":"x""#,
        Api::Generate => r#""contents":[]"#,
        _ => r#""model":"m","messages":[{"role":"user","content":"x"}]"#,
    };
    let mut reader = BodyReader::new(api, false);
    reader.push(Bytes::from(format!("{{{required},{members}}}"))).unwrap();
    reader.finish()
}

#[test]
fn output_limit_of_several_is_the_largest() {
    for (api, members, output) in [
        (Api::Chat, r#""max_completion_tokens":1,"max_tokens":1000000"#, 1_000_000),
        (Api::Chat, r#""max_tokens":1000000,"max_completion_tokens":1"#, 1_000_000),
        (Api::Chat, r#""max_tokens":5,"Max_Tokens":7"#, 5),
        (
            Api::Generate,
            r#""generationConfig":{"maxOutputTokens":1},"generation_config":{"max_output_tokens":9}"#,
            9,
        ),
        (Api::Generate, r#""generationConfig":{"maxOutputTokens":1,"max_output_tokens":9}"#, 9),
    ] {
        assert_eq!(read(api, members).output_caps().output, Some(output), "{members}");
    }
}

#[test]
fn output_limit_of_another_api_never_lowers_what_is_expected() {
    for (api, members, unsure) in [
        (Api::Chat, r#""max_new_tokens":70000"#, 70_000),
        (Api::Chat, r#""max_output_tokens":"70000""#, 70_000),
        (Api::Chat, r#""MAX_TOKENS":70000"#, 70_000),
        (Api::Chat, "\"max_token\u{17f}\":70000", 70_000),
        (Api::Generate, r#""GenerationConfig":{"maxOutputTokens":70000}"#, 70_000),
        (Api::Responses, r#""max_tokens":70000,"max_completion_tokens":1"#, 70_000),
    ] {
        let most = read(api, members).output_caps();
        assert_eq!((most.output, most.unsure), (None, unsure), "{members}");
    }
}

#[test]
fn output_limit_that_is_not_a_whole_number_is_rounded_up_or_maximal() {
    for (value, output) in [
        ("1.5e9", Some(1_500_000_000)),
        ("1e3", Some(1_000)),
        ("7.0", Some(7)),
        ("7.2", Some(8)),
        ("1e30", Some(u64::MAX)),
        ("10000000000000000000000000000000000000000", Some(u64::MAX)),
        ("1e999", Some(u64::MAX)),
        ("-1", Some(u64::MAX)),
        (r#""5000000000""#, Some(5_000_000_000)),
        (r#""many""#, Some(u64::MAX)),
        ("true", Some(u64::MAX)),
        ("null", None),
    ] {
        let most = OutputCaps { output, ..OutputCaps::default() };
        // Values that are not a limit may be rejected.
        match try_read(Api::Chat, &format!(r#""max_tokens":{value}"#)) {
            Ok(mut body) => assert_eq!(body.output_caps(), most, "{value}"),
            Err(error) => assert_eq!(error.kind, ErrorKind::InvalidField, "{value}"),
        }
        let settings = format!(r#""generationConfig":{{"maxOutputTokens":{value}}}"#);
        match try_read(Api::Generate, &settings) {
            Ok(mut body) => assert_eq!(body.output_caps(), most, "{value}"),
            Err(error) => assert_eq!((error.kind, value), (ErrorKind::InvalidField, "-1")),
        }
        let answers = OutputCaps { answers: output, ..OutputCaps::default() };
        assert_eq!(read(Api::Chat, &format!(r#""n":{value}"#)).output_caps(), answers, "{value}");
    }
}

#[test]
fn answer_count_is_the_larger_of_n_and_best_of() {
    for members in [r#""n":1,"best_of":20"#, r#""n":20"#, r#""best_of":20,"N":2"#] {
        assert_eq!(read(Api::Chat, members).output_caps().answers, Some(20), "{members}");
    }
}

#[test]
fn fallback_models_are_found_in_every_form() {
    for (api, members, names) in [
        (Api::Chat, r#""models":["a","b"]"#, &["a", "b"][..]),
        (Api::Chat, r#""Models":["a"]"#, &["a"]),
        (Api::Chat, r#""fallbacks":["a",{"model":"b","messages":[]},{"c":["d"]}]"#, &["a", "b", "d"]),
        (Api::Chat, r#""fallback_models":"a""#, &["a"]),
        (
            Api::Chat,
            r#""providerOptions":{"gateway":{"models":["a"],"order":["x"]},"openai":{"models":["y"]}}"#,
            &["a"],
        ),
        (Api::Messages, r#""models":["\u0061"]"#, &["a"]),
        (Api::Responses, r#""models":["a"]"#, &["a"]),
        (Api::Chat, r#""models":null"#, &[]),
    ] {
        let mut body = read(api, members);
        assert!(body.names_models(), "{members}");
        let named = body.named_models();
        assert_eq!(named.iter().flat_map(|one| &one.names).collect::<Vec<_>>(), names, "{members}");
        assert!(named.iter().all(|one| !one.unreadable), "{members}");
    }
    assert!(!read(Api::Chat, r#""metadata":{"models":["a"]}"#).names_models());
    for members in [r#""models":[1]"#, r#""models":[{}]"#, r#""models":true"#] {
        assert!(read(Api::Chat, members).named_models()[0].unreadable, "{members}");
    }
}

#[test]
fn model_member_in_another_letter_case_is_refused() {
    for (api, required) in [
        (Api::Chat, r#""model":"m","messages":[{"role":"user","content":"x"}]"#),
        (Api::Messages, r#""model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1"#),
        (Api::Responses, r#""model":"m","input":"x""#),
        (Api::Embeddings, r#""model":"m","input":"x""#),
        (Api::Rerank, r#""model":"m","query":"x","documents":[]"#),
        (Api::Generate, r#""contents":[]"#),
    ] {
        for name in ["Model", "MODEL", "mod\\u0045l"] {
            let mut reader = BodyReader::new(api, false);
            reader.push(Bytes::from(format!(r#"{{{required},"{name}":"other"}}"#))).unwrap();
            let error = reader.finish().unwrap_err();
            assert_eq!(
                (error.kind, error.param.as_deref()),
                (ErrorKind::InvalidField, Some(name)),
                "{api:?}"
            );
            assert!(error.message.contains(name), "{}", error.message);
        }
    }
    assert!(!read(Api::Chat, r#""modes":1,"mode":2,"x":{"Model":1}"#).names_models());
}

#[test]
fn stored_ids_are_found_in_every_form() {
    for (members, ids) in [
        (r#""previous_response_id":"resp_1""#, &["resp_1"][..]),
        (r#""previous_response_id":"resp\u005f1""#, &["resp_1"]),
        (r#""Previous_Response_Id":"resp_1""#, &["resp_1"]),
        (r#""conversation":{"id":"conv_1"}"#, &["conv_1"]),
        (r#""conversation":{"id":"conv_1","\u0069d":"conv_2"}"#, &["conv_1", "conv_2"]),
        (r#""conversation":"conv_1","previous_response_id":"resp_1""#, &["conv_1", "resp_1"]),
        (r#""conversation":{}"#, &[""]),
        (r#""conversation":{"id":7}"#, &[""]),
        (r#""previous_response_id":7"#, &[""]),
        (r#""previous_response_id":null"#, &[]),
    ] {
        let kept = read(Api::Responses, members).stored_ids();
        assert_eq!(kept.iter().map(|(_, id)| &**id).collect::<Vec<_>>(), ids, "{members}");
    }
}

#[test]
fn output_limit_is_lowered_in_place() {
    for (api, members, lowered) in [
        (Api::Chat, r#""max_completion_tokens":32000,"n":2"#, r#""max_completion_tokens":8192 ,"n":2"#),
        (
            Api::Chat,
            r#""max_tokens": 9000 ,"max_completion_tokens":10000"#,
            r#""max_tokens": 8192 ,"max_completion_tokens":8192 "#,
        ),
        (Api::Responses, r#""max_output_tokens":128000"#, r#""max_output_tokens":8192  "#),
        (
            Api::Generate,
            r#""generationConfig":{"temperature":0,"maxOutputTokens":65536}"#,
            r#""generationConfig":{"temperature":0,"maxOutputTokens":8192 }"#,
        ),
        // Within the limit, not a whole number, or a member of another API.
        (Api::Chat, r#""max_tokens":8192"#, r#""max_tokens":8192"#),
        (Api::Chat, r#""max_tokens":null"#, r#""max_tokens":null"#),
        (Api::Chat, r#""max_tokens":1e9"#, r#""max_tokens":1e9"#),
        (Api::Chat, r#""max_output_tokens":32000"#, r#""max_output_tokens":32000"#),
    ] {
        let mut body = read(api, members);
        body.clamp_output(8_192);
        let cap = body.output_caps().output;
        assert!(cap.is_none_or(|cap| cap <= 8_192 || members.contains("1e9")), "{members}");
        let text = body.text.into_contiguous();
        assert!(text.ends_with(&format!("{lowered}}}")), "{}", &*text);
    }
}

#[test]
fn output_limit_is_lowered_wherever_the_body_is_split() {
    let body = r#"{"model":"m","max_tokens":32000,"messages":[{"role":"user","content":"\u00fc Ã¼"}],"stream":true}"#;
    let expected = body.replace("32000", "8192 ");
    for cut in 0..body.len() {
        let mut reader = BodyReader::new(Api::Messages, false);
        let (first, second) = body.as_bytes().split_at(cut);
        reader.push(Bytes::copy_from_slice(first)).unwrap();
        reader.push(Bytes::copy_from_slice(second)).unwrap();
        let mut body = reader.finish().unwrap();
        body.clamp_output(8_192);
        assert_eq!(body.output_caps().output, Some(8_192));
        assert!(body.set_model("other").iter().all(|edit| edit.range == (9..12)));
        assert_eq!(&*body.text.into_contiguous(), expected, "cut at {cut}");
    }
}

/// Anthropic refuses a budget that does not leave room for a response within `max_tokens`.
#[test]
fn thinking_budget_is_lowered_with_the_output_limit() {
    for (limit, thinking, lowered) in [
        // As Claude Code sends it to a model that it does not know.
        (
            32_000,
            r#"{"budget_tokens":31999,"type":"enabled"}"#,
            r#"{"budget_tokens":8191 ,"type":"enabled"}"#,
        ),
        (32_000, r#"{"type":"enabled","budget_tokens":8192}"#, r#"{"type":"enabled","budget_tokens":6554}"#),
        (
            9_000,
            r#"{"type":"enabled", "budget_tokens": 8500 }"#,
            r#"{"type":"enabled", "budget_tokens": 7692 }"#,
        ),
        // Within the limit, beyond that of the client, and none.
        (32_000, r#"{"type":"enabled","budget_tokens":8191}"#, r#"{"type":"enabled","budget_tokens":8191}"#),
        (9_000, r#"{"type":"enabled","budget_tokens":9000}"#, r#"{"type":"enabled","budget_tokens":9000}"#),
        (8_192, r#"{"type":"enabled","budget_tokens":9000}"#, r#"{"type":"enabled","budget_tokens":9000}"#),
        (32_000, r#"{"type":"adaptive"}"#, r#"{"type":"adaptive"}"#),
        (32_000, "null", "null"),
    ] {
        let rest = r#""model":"m","messages":[{"role":"user","content":"x"}]"#;
        let with = |limit: u64, thinking: &str, fill: &str| {
            [
                format!(r#"{{"max_tokens":{limit}{fill},{rest},"thinking":{thinking}}}"#),
                format!(r#"{{"thinking":{thinking},{rest},"max_tokens":{limit}{fill}}}"#),
            ]
        };
        let width = limit.to_string().len() - 4;
        let expected = with(8_192, lowered, &" ".repeat(width));
        for (body, expected) in with(limit, thinking, "").into_iter().zip(expected) {
            let mut reader = BodyReader::new(Api::Messages, false);
            reader.push(Bytes::from(body)).unwrap();
            let mut body = reader.finish().unwrap();
            body.clamp_output(8_192);
            assert_eq!(&*body.text.into_contiguous(), expected);
        }
    }
}

#[test]
fn thinking_budget_has_a_minimum() {
    let at = |most: u64| {
        let body = r#"{"model":"m","messages":[1],"max_tokens":9000,"thinking":{"budget_tokens":8000}}"#;
        let mut reader = BodyReader::new(Api::Messages, false);
        reader.push(Bytes::from(body)).unwrap();
        let mut body = reader.finish().unwrap();
        body.clamp_output(most);
        let text: serde_json::Value = serde_json::from_str(&body.text.into_contiguous()).unwrap();
        (text["max_tokens"].as_u64().unwrap(), text["thinking"]["budget_tokens"].as_u64().unwrap())
    };
    assert_eq!(at(1_100), (1_100, 1_024));
    // No budget fits: the provider says so.
    assert_eq!(at(1_024), (1_024, 8_000));
}

#[test]
fn item_references_are_noticed_in_every_spelling_at_every_split() {
    for item in [
        r#"{"type":"item_reference","id":"msg_1"}"#,
        r#"{"id":"msg_1"}"#,
        r#"{"\u0069d":"msg_1"}"#,
        r#"{"i\u0064":"msg_1"}"#,
        r#"{"\u0069\u0064":"msg_1","type":"item\u005freference"}"#,
        r#"{"ID":"msg\u005f1","type":null}"#,
        r#"{ "I\u0044" : "msg_1" }"#,
    ] {
        let text = format!(r#"{{"model":"m","input":["{}",{item}]}}"#, r"a \n\\ ".repeat(12));
        for size in 1..=text.len() {
            let mut reader = BodyReader::new(Api::Responses, false);
            for piece in text.as_bytes().chunks(size) {
                reader.push(Bytes::copy_from_slice(piece)).unwrap();
            }
            let mut body = reader.finish().unwrap();
            let found = body.item_references();
            assert_eq!(found.len(), 1, "{size}: {text}");
            assert_eq!((&*found[0].id, found[0].index), ("msg_1", 1));
            assert_eq!(&text[found[0].range.clone()], item);
        }
    }
    // Bodies without an id in an item are not read again.
    let plain = r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"id"}]}],"metadata":{"id":"1"}}"#;
    let mut reader = BodyReader::new(Api::Responses, false);
    reader.push(Bytes::from(plain)).unwrap();
    assert!(!reader.finish().unwrap().may_have_references());
}
