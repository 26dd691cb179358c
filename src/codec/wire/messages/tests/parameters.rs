//! Tests of the parameters that are sent to a provider.

use serde_json::{Value, json};

use super::{Sent, by_budget, dialect, send_as};
use crate::canonical::dialect::{ReasoningSupport, SamplingSupport};
use crate::canonical::{Dialect, Effort};
use crate::wire::Format;

fn body(members: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#)
}

fn sent(members: &str, dialect: &Dialect<'_>) -> Sent {
    send_as(Format::Chat, &body(members), dialect)
}

/// Returns the request without the members that every request has.
fn rest(sent: &Sent) -> Value {
    let mut body = sent.body.as_object().unwrap().clone();
    for name in ["model", "messages", "max_tokens"] {
        assert!(body.remove(name).is_some(), "{name}");
    }
    Value::from(body)
}

const EFFORT: &str = r#""output_config":{"effort":"medium"}"#;

#[test]
fn mapping_6_max_tokens_is_sent_or_defaulted() {
    let asked = sent(r#""max_tokens":77"#, &dialect());
    assert_eq!(asked.body["max_tokens"], 77);
    assert_eq!((rest(&asked), asked.body["model"].as_str()), (json!({}), Some("claude-sonnet")));
    assert_eq!(sent(r#""stream":false"#, &dialect()).body["max_tokens"], 8192);
    assert_eq!(rest(&sent(r#""stream":true"#, &dialect())), json!({"stream": true}));
}

#[test]
fn bug_68_max_tokens_is_raised_above_the_thinking_budget() {
    let at = |limit: u64, budget: u64| {
        let members =
            format!(r#""max_tokens":{limit},"thinking":{{"type":"enabled","budget_tokens":{budget}}}"#);
        let sent = sent(&members, &by_budget());
        (sent.body["max_tokens"].as_u64().unwrap(), sent.body["thinking"]["budget_tokens"].as_u64().unwrap())
    };
    assert_eq!(at(16_000, 8000), (16_000, 8000));
    assert_eq!(at(2000, 8000), (10_000, 8000));
    assert_eq!(at(8000, 8000), (16_000, 8000));
    // Values out of range are moved to the minimum or maximum.
    assert_eq!(at(16_000, 5), (16_000, 1024));
    assert_eq!(at(64_000, 60_000), (64_000, 32_000));
    // Without a limit of the client, `max_tokens` covers the budget and a response.
    let sent = sent(r#""thinking":{"type":"enabled","budget_tokens":9000}"#, &by_budget());
    assert_eq!(sent.body["max_tokens"], 9000 + 8192);
}

#[test]
fn mapping_4_effort_becomes_a_budget_or_a_word() {
    let by = |effort: &str, dialect: &Dialect<'_>| {
        let sent = sent(&format!(r#""output_config":{{"effort":"{effort}"}}"#), dialect);
        rest(&sent)
    };
    assert_eq!(by("low", &by_budget()), json!({"thinking": {"type": "enabled", "budget_tokens": 2048}}));
    assert_eq!(by("high", &by_budget()), json!({"thinking": {"type": "enabled", "budget_tokens": 16_384}}));
    let adaptive = |effort: &str| json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}});
    assert_eq!(by("high", &dialect()), adaptive("high"));
    assert_eq!(by("max", &dialect()), adaptive("max"));
    assert_eq!(by("minimal", &dialect()), adaptive("low"));
    let words = ReasoningSupport::efforts(Effort::Low, Effort::High, false);
    assert_eq!(
        by("max", &Dialect { reasoning: words, ..dialect() }),
        json!({"output_config": {"effort": "high"}})
    );
    let fixed = Dialect { reasoning: ReasoningSupport::Fixed, ..dialect() };
    let sent = sent(EFFORT, &fixed);
    assert_eq!((rest(&sent), sent.losses), (json!({}), vec!["reasoning_effort".to_owned()]));
}

#[test]
fn mapping_4_reasoning_adaptive_and_off_depend_on_the_model() {
    let thinking = |members: &str, dialect: &Dialect<'_>| rest(&sent(members, dialect));
    let adaptive = r#""thinking":{"type":"adaptive"},"max_tokens":10000"#;
    assert_eq!(
        thinking(adaptive, &dialect()),
        json!({"thinking": {"type": "adaptive", "display": "summarized"}})
    );
    // A model that requires a budget gets most of the output limit.
    assert_eq!(
        thinking(adaptive, &by_budget()),
        json!({"thinking": {"type": "enabled", "budget_tokens": 8000}})
    );
    assert_eq!(
        thinking(r#""thinking":{"type":"adaptive","display":"omitted"}"#, &dialect()),
        json!({"thinking": {"type": "adaptive", "display": "omitted"}})
    );
    let off = r#""thinking":{"type":"disabled"}"#;
    assert_eq!(thinking(off, &by_budget()), json!({"thinking": {"type": "disabled"}}));
    let always = Dialect { reasoning: ReasoningSupport::adaptive(Effort::Max, false), ..dialect() };
    assert_eq!(thinking(off, &always)["output_config"], json!({"effort": "low"}));
}

#[test]
fn mapping_6_temperature_is_capped_at_one() {
    for (given, taken) in [("1.7", json!(1)), ("1.0", json!(1.0)), ("0.70", json!(0.7)), ("0", json!(0))] {
        let sent = sent(&format!(r#""temperature":{given}"#), &dialect());
        assert_eq!(rest(&sent), json!({"temperature": taken}));
        assert_eq!(sent.losses.len(), usize::from(given == "1.7"));
    }
    assert!(sent(r#""temperature":0.70"#, &dialect()).raw.contains(r#""temperature":0.70,"#));
}

#[test]
fn client_3_sampling_is_reduced_to_the_supported_parameters() {
    let all = r#""temperature":1,"top_p":0.95,"top_k":64.0"#;
    assert_eq!(rest(&sent(all, &dialect())), json!({"temperature": 1, "top_p": 0.95, "top_k": 64}));
    let one = Dialect { sampling: SamplingSupport::One, ..dialect() };
    let both = sent(all, &one);
    assert_eq!(rest(&both), json!({"temperature": 1, "top_k": 64}));
    assert_eq!(both.losses, ["top_p"]);
    assert_eq!(rest(&sent(r#""top_p":0.9"#, &one)), json!({"top_p": 0.9}));
    let none = Dialect { sampling: SamplingSupport::None, ..dialect() };
    let nothing = sent(r#""temperature":0.5,"top_p":0.9,"top_k":3"#, &none);
    assert_eq!(rest(&nothing), json!({}));
    assert_eq!(nothing.losses, ["temperature", "top_p", "top_k"]);
    // Dropping a default value is not a loss.
    assert!(sent(r#""temperature":1.0,"top_p":1"#, &none).losses.is_empty());
}

#[test]
fn mapping_4_sampling_is_dropped_with_reasoning() {
    for dialect in [by_budget(), dialect()] {
        let tuned = sent(&format!(r#"{EFFORT},"temperature":0.2,"top_p":0.5,"top_k":3"#), &dialect);
        for name in ["temperature", "top_p", "top_k"] {
            assert!(tuned.body.get(name).is_none(), "{name}");
        }
        assert_eq!(tuned.losses, ["temperature", "top_p", "top_k"]);
        assert_eq!(sent(&format!(r#"{EFFORT},"top_p":0.97"#), &dialect).body["top_p"], 0.97);
    }
    // Without reasoning it is sent.
    let off = sent(r#""thinking":{"type":"disabled"},"temperature":0.2"#, &by_budget());
    assert_eq!(off.body["temperature"], 0.2);
}

#[test]
fn mapping_6_stop_sequences_of_white_space_are_dropped() {
    let stop = sent(r#""stop_sequences":["END","\n","STOP\n"]"#, &dialect());
    assert_eq!(stop.body["stop_sequences"], json!(["END", "STOP\n"]));
    assert_eq!((stop.losses, stop.refused), (vec!["stop".to_owned()], None));
    let blank = sent(r#""stop_sequences":[" "]"#, &dialect());
    assert!(blank.body.get("stop_sequences").is_none());
}

#[test]
fn mapping_6_user_and_service_tier_are_encoded() {
    let user = sent(r#""metadata":{"user_id":"u-42"}"#, &dialect());
    assert_eq!(rest(&user), json!({"metadata": {"user_id": "u-42"}}));
    let identifier = sent(r#""safety_identifier":"u-43""#, &dialect());
    assert_eq!(rest(&identifier), json!({"metadata": {"user_id": "u-43"}}));
    assert!(identifier.losses.is_empty());
    let notes = sent(r#""metadata":{"user_id":"u","team":"x"}"#, &dialect());
    assert_eq!(
        (rest(&notes), notes.losses),
        (json!({"metadata": {"user_id": "u"}}), vec!["metadata".into()])
    );

    for (tier, members) in [
        ("auto", json!({"service_tier": "auto"})),
        ("priority", json!({"service_tier": "auto"})),
        ("standard_only", json!({"service_tier": "standard_only"})),
        ("default", json!({"service_tier": "standard_only"})),
        ("fast", json!({"speed": "fast"})),
        ("flex", json!({})),
    ] {
        assert_eq!(rest(&sent(&format!(r#""service_tier":"{tier}""#), &dialect())), members, "{tier}");
    }
}

#[test]
fn mapping_12_members_of_other_formats_are_dropped_as_losses() {
    let own = r#""context_management":{"edits":[]},"container":"c","mcp_servers":[],"inference_geo":"eu","speed":"fast","cache_control":{"type":"ephemeral"},"x_provider":{"f":1.0}"#;
    let kept = send_as(Format::Messages, &body(own), &dialect());
    for name in ["context_management", "container", "mcp_servers", "inference_geo", "speed", "cache_control"]
    {
        assert!(kept.body.get(name).is_some(), "{name}");
    }
    assert!(kept.raw.contains(r#""x_provider":{"f":1.0}"#));
    assert!(kept.losses.is_empty());

    let foreign =
        r#""logit_bias":{},"enable_thinking":true,"generationConfig.imageConfig":{},"prediction":{}"#;
    let dropped = sent(foreign, &dialect());
    assert_eq!(rest(&dropped), json!({}));
    assert_eq!(
        dropped.losses,
        ["logit_bias", "enable_thinking", "generationConfig.imageConfig", "prediction"]
    );
    let understood = Dialect { extensions: &["enable_thinking"], ..dialect() };
    assert_eq!(rest(&sent(foreign, &understood)), json!({"enable_thinking": true}));
    // An element that no format can carry refuses the request.
    assert_eq!(sent(r#""conversation":"c""#, &dialect()).refused.as_deref(), Some("conversation"));
}

#[test]
fn effort_and_budget_of_the_same_format_are_kept() {
    let members = r#""thinking":{"type":"enabled","budget_tokens":2000},"output_config":{"effort":"high","task_budget":{"type":"tokens","total":9}}"#;
    let kept = send_as(Format::Messages, &body(members), &by_budget());
    assert_eq!(
        kept.body["output_config"],
        json!({"effort": "high", "task_budget": {"type": "tokens", "total": 9}})
    );
    let between = send_as(Format::Messages, &body(r#""thinking":{"type":"between_tools"}"#), &dialect());
    assert_eq!(between.body["thinking"]["type"], "between_tools");
    let lost = sent(members, &by_budget());
    assert_eq!(lost.losses, ["output_config.task_budget", "output_config.effort"]);
}

#[test]
fn settings_unsupported_are_reported_as_losses() {
    let mut request = crate::canonical::Request {
        choices: Some(2),
        logprobs: Some(0),
        store: Some(true),
        verbosity: Some(json::JsonStr::from_escaped("low")),
        cache_key: Some(json::JsonStr::from_escaped("k")),
        previous: Some(json::JsonStr::from_escaped("resp_1")),
        modalities: vec![json::JsonStr::from_escaped("TEXT")],
        ..crate::canonical::Request::default()
    };
    request.sampling.seed = Some(json::RawJson::from_text("7"));
    let sent = super::send(Format::Chat, &request, &dialect());
    let lost = ["seed", "n", "logprobs", "verbosity", "prompt_cache_key", "store", "previous_response_id"];
    assert_eq!(sent.losses, lost);
    assert_eq!(sent.refused.as_deref(), Some("n"));
    request.modalities.push(json::JsonStr::from_escaped("IMAGE"));
    assert!(super::send(Format::Chat, &request, &dialect()).losses.contains(&"modalities".to_owned()));
}

/// Recorded clients send -1 for "not set", and the provider accepts it; other formats do not.
#[test]
fn sampling_of_minus_one_is_unset() {
    let body = r#"{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"temperature":1,"top_k":-1,"top_p":-1}"#;
    let sampling = crate::wire::messages::request::decode(body).unwrap().sampling;
    assert!(sampling.temperature.is_some() && sampling.top_k.is_none() && sampling.top_p.is_none());
}
