//! Tests of efforts and sampling parameters that a target of the body's own format refuses: they are replaced or left out,
//! and all other bytes stay.

use bytes::Bytes;

use crate::canonical::dialect::{ReasoningOff, ReasoningSupport};
use crate::canonical::{Dialect, Effort, EffortSet, RequestFeatures as Features};
use crate::wire::Api;
use crate::wire::request::{Body, BodyReader};
use crate::wire::spelling::applied;

/// A model with these efforts.
fn dialect(efforts: EffortSet, off: ReasoningOff, refuses: Features) -> Dialect<'static> {
    let reasoning = ReasoningSupport::Adaptive { efforts, off };
    Dialect { reasoning, refuses, ..Dialect::plain("m", "i") }
}

fn read(api: Api, text: &str) -> Body {
    let mut reader = BodyReader::new(api, false);
    reader.push(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    reader.finish().unwrap()
}

#[test]
fn refused_effort_becomes_the_nearest_one_in_place() {
    let efforts = EffortSet::of([Effort::Low, Effort::High, Effort::Max]);
    let refused = [Effort::Minimal, Effort::Medium, Effort::XHigh].map(Features::effort);
    let refuses = refused.into_iter().fold(Features::NO_EFFORT, Features::with);
    let dialect = dialect(efforts, ReasoningOff::Never, refuses);
    for (api, before, after) in [
        (Api::Chat, r#"{"model":"m","reasoning_effort" : "medium","messages":[1]}"#, "\"high\""),
        (Api::Chat, r#"{"model":"m","reasoning_effort" : "minimal","messages":[1]}"#, "\"low\""),
        (Api::Chat, r#"{"model":"m","reasoning_effort" : "none","messages":[1]}"#, "\"low\""),
        (
            Api::Messages,
            r#"{"model":"m","max_tokens":9,"output_config":{"x":1,"effort":"xhigh"},"messages":[1]}"#,
            "\"max\"",
        ),
        (
            Api::Responses,
            r#"{"model":"m","reasoning":{"effort":"medium","summary":"auto"},"input":"x"}"#,
            "\"high\"",
        ),
        (
            Api::Generate,
            r#"{"contents":[1],"generationConfig":{"seed":1,"thinkingConfig":{"thinkingLevel":"MINIMAL"},"topK":2}}"#,
            "\"LOW\"",
        ),
        (
            Api::Generate,
            r#"{"generation_config":{"thinking_config":{"thinking_level":"minimal"}},"contents":[1]}"#,
            "\"LOW\"",
        ),
    ] {
        let word = ["\"medium\"", "\"minimal\"", "\"none\"", "\"xhigh\"", "\"MINIMAL\""];
        let word = word.into_iter().find(|word| before.contains(word)).unwrap();
        let body = read(api, before);
        assert!(body.is_settled_by_edits(body.features(refuses).common(refuses)));
        assert_eq!(applied(&body, &dialect), before.replace(word, after));
        assert_eq!(body.respelled(&dialect).clamped.len(), 1, "{before}");
    }
    for text in [
        r#"{"model":"m","reasoning_effort":"high","messages":[1]}"#,
        r#"{"model":"m","reasoning_effort":null,"messages":[1]}"#,
        r#"{"model":"m","reasoning_effort":"unheard-of","messages":[1]}"#,
    ] {
        assert_eq!(applied(&read(Api::Chat, text), &dialect), text);
    }
}

#[test]
fn effort_beside_reasoning_that_is_off_is_lowered() {
    let refuses = Features::off_beside(Effort::XHigh).with(Features::off_beside(Effort::Max));
    let dialect =
        dialect(EffortSet::range(Effort::Low, Effort::Max), ReasoningOff::UpTo(Effort::High), refuses);
    let body = |thinking: &str, effort: &str| {
        format!(
            r#"{{"model":"m","max_tokens":9,"thinking":{{"type":"{thinking}"}},"output_config":{{"effort":"{effort}"}},"messages":[1]}}"#
        )
    };
    let sent =
        |thinking: &str, effort: &str| applied(&read(Api::Messages, &body(thinking, effort)), &dialect);
    assert_eq!(sent("disabled", "max"), body("disabled", "high"));
    assert_eq!(sent("disabled", "xhigh"), body("disabled", "high"));
    assert_eq!(sent("disabled", "medium"), body("disabled", "medium"));
    assert_eq!(sent("adaptive", "max"), body("adaptive", "max"));
}

#[test]
fn sampling_beside_reasoning_is_left_out() {
    let efforts = EffortSet::range(Effort::Low, Effort::High);
    let beside = dialect(efforts, ReasoningOff::Full, Features::SAMPLING_BESIDE_EFFORT);
    let always =
        dialect(efforts, ReasoningOff::Full, Features::SAMPLING_BESIDE_EFFORT.with(Features::SAMPLING_ALONE));
    let chat = |effort: &str, temperature: &str| {
        format!(r#"{{"model":"m",{effort}"temperature":{temperature},"messages":[1]}}"#)
    };
    let low = r#""reasoning_effort":"low","#;
    let none = r#""reasoning_effort":"none","#;
    for (dialect, effort, kept) in [
        (&beside, low, false),
        (&beside, none, true),
        (&beside, "", true),
        (&always, "", false),
        (&always, none, true),
    ] {
        let expected = if kept { chat(effort, "0.3") } else { chat(effort, "null") };
        assert_eq!(applied(&read(Api::Chat, &chat(effort, "0.3")), dialect), expected, "{effort}");
        // The default value is no loss, and is accepted.
        assert_eq!(applied(&read(Api::Chat, &chat(effort, "1")), dialect), chat(effort, "1"));
    }
    let google = Dialect { refuses: Features::SAMPLING, ..beside };
    let body = read(
        Api::Generate,
        r#"{"contents":[1],"generationConfig":{"temperature":0.1,"seed":1,"topP":0.5,"top_k":3}}"#,
    );
    assert_eq!(applied(&body, &google), r#"{"contents":[1],"generationConfig":{"seed":1}}"#);
    assert_eq!(body.respelled(&google).dropped, ["temperature", "top_p", "top_k"]);
}

#[test]
fn generate_request_that_ends_with_the_model_is_noticed() {
    let features = |contents: &str| {
        read(Api::Generate, &format!(r#"{{"contents":[{contents}],"x":1}}"#)).features(Features::PREFILL)
    };
    let user = r#"{"role":"user","parts":[{"text":"\"role\":\"model\""}]}"#;
    let model = r#"{"parts":[{"text":"x"}],"role" : "model"}"#;
    let named = r#"{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"role":"model"}}}]}"#;
    for (contents, ends) in [
        (user.to_owned(), false),
        (format!("{user},{model}"), true),
        (format!("{model},{user}"), false),
        (format!("{model},{named}"), false),
        (String::new(), false),
    ] {
        assert_eq!(features(&contents).intersects(Features::PREFILL), ends, "{contents}");
    }
}
