//! Stream continuation: streams that break after the client has received a part of them, and are resumed by another
//! target.

mod after;
mod providers;
mod refused;
mod told;
mod traced;

use std::sync::{Arc, Mutex};

use model_gateway::tokens::{TokenizerFamily, count_text};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::client::{Answer, post};
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup, key};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};
use providers::{
    BREAKS, Break, Frames, STORY, USED, beginning, break_off, breaking, frames, going_on, pieces,
};
use told::{Told, read};

/// Question of every client.
const QUESTION: &str = "Tell me the story of the city.";

/// Name of the model at a provider of a format.
fn name(form: Form) -> &'static str {
    match form {
        Form::Chat => "m",
        Form::Messages => "claude-sonnet-4-5",
        Form::Responses => "gpt-4.1",
        Form::Generate => "gemini-2.0-flash",
    }
}

/// A target's provider: its format, and additional lines of its configuration.
struct Asked<'u> {
    form: Form,
    upstream: &'u Upstream,
    lines: &'static str,
}

/// Returns a target that can continue from a prefill.
fn able(form: Form, upstream: &Upstream) -> Asked<'_> {
    let lines = if form == Form::Chat { "prefill = true" } else { "" };
    Asked { form, upstream, lines }
}

/// Starts a gateway with these targets, one in each tier, and additional lines for their model.
async fn gateway(targets: &[Asked<'_>], lines: &str) -> Gateway {
    gateway_with(targets, lines, "").await
}

/// Like [`gateway`], with additional lines for the limits.
async fn gateway_with(targets: &[Asked<'_>], lines: &str, limits: &str) -> Gateway {
    let mut setup = Setup::new().account("acme", "1000").limits(limits);
    setup.keys = key("alice", KEY, "account = \"acme\"") + "[[account]]\nname = \"acme\"\n";
    setup.routes += "[breaker]\nfailures = 100000\nrequests = 100000\n\n";
    let mut list = Vec::new();
    for (tier, Asked { form, upstream, lines }) in targets.iter().enumerate() {
        let (kind, api, version) = match form {
            Form::Chat => ("openai-compatible", "chat", "v1"),
            Form::Responses => ("openai", "responses", "v1"),
            Form::Messages => ("anthropic", "messages", "v1"),
            Form::Generate => ("gemini", "generate", "v1beta"),
        };
        let provider = format!("p{tier}");
        let base = format!("http://{}/{version}", upstream.addr);
        // The tests wait for a stalled stream; one that waits for its gate must not be taken for stalled.
        let lines = format!("apis = [\"{api}\"]\ntimeouts = {{ idle = \"2s\" }}\n{lines}");
        setup = setup.provider(&provider, kind, &base, &lines);
        list.push(format!("{{ provider = \"{provider}\", model = \"{}\", tier = {tier} }}", name(*form)));
    }
    setup.routes += &format!(
        "[[model]]\nid = \"gpt\"\nprice = {{ input = 1000, output = 1000 }}\n{lines}\ntargets = [{}]\n",
        list.join(", ")
    );
    Gateway::start(&setup).await
}

const CONTINUED: &str = "gateway_streams_continued_total";
const ON: &str = "retry = { continue = true, reserve = 1000000 }";

/// Returns a request for a stream, with additional members.
fn asking(form: Form, more: Value) -> Vec<u8> {
    let mut body = match form {
        Form::Chat => json!({"model": "gpt", "stream": true, "stream_options": {"include_usage": true},
                             "messages": [{"role": "user", "content": QUESTION}]}),
        Form::Messages => json!({"model": "gpt", "stream": true, "max_tokens": 1000,
                                 "messages": [{"role": "user", "content": QUESTION}]}),
        Form::Responses => json!({"model": "gpt", "stream": true, "input": QUESTION}),
        Form::Generate => json!({"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]}),
    };
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    post(&form.path("gpt", true), body.to_string())
}

/// Sends a request, opens the gate once the answer contains `needle`, and reads the rest.
async fn hear(gateway: &Gateway, request: Vec<u8>, needle: &str, gate: &Gate) -> Answer {
    let mut client = gateway.connect().await;
    client.send(request).await;
    let head = client.head().await;
    let mut body = Vec::new();
    read_until(&mut client, &mut body, needle).await;
    gate.open();
    let complete = loop {
        match client.piece().await {
            Piece::Data(piece) => body.extend_from_slice(&piece),
            end => break end == Piece::End,
        }
    };
    Answer { head, body, complete, trailers: Vec::new() }
}

/// Reads the stream of an answer. Panics unless it contains the whole story.
fn whole(form: Form, answer: &Answer, what: &str) -> Told {
    assert_eq!(answer.status(), 200, "{what}: {}", answer.text());
    assert!(answer.complete, "{what}");
    let told = std::panic::catch_unwind(|| read(form, answer.text()))
        .unwrap_or_else(|_| panic!("{what}: {}", answer.text()));
    assert_eq!(told.text, STORY, "{what}: {}", answer.text());
    assert!(matches!(&*told.reason, "stop" | "end_turn" | "STOP" | "completed"), "{what}: {told:?}");
    told
}

/// Formats of client, first provider and second provider: equal and different ones.
const WAYS: [(Form, Form, Form); 10] = [
    (Form::Chat, Form::Chat, Form::Chat),
    (Form::Messages, Form::Messages, Form::Messages),
    (Form::Generate, Form::Generate, Form::Generate),
    (Form::Messages, Form::Chat, Form::Messages),
    (Form::Responses, Form::Messages, Form::Messages),
    (Form::Chat, Form::Generate, Form::Generate),
    (Form::Chat, Form::Chat, Form::Messages),
    (Form::Generate, Form::Messages, Form::Chat),
    (Form::Messages, Form::Messages, Form::Generate),
    (Form::Responses, Form::Chat, Form::Generate),
];

/// However a stream breaks, the client receives one complete response: text, grammar, usage and charge.
#[tokio::test]
async fn resume_after_every_kind_of_break_in_all_formats() {
    let mut ways = JoinSet::new();
    for way in WAYS {
        ways.spawn(async move {
            for how in BREAKS {
                goes_on(way, how).await;
            }
        });
    }
    while let Some(ended) = ways.join_next().await {
        ended.unwrap();
    }
}

async fn goes_on((client, first, second): (Form, Form, Form), how: Break) {
    let what = format!("{client:?} by {first:?} and {second:?}, {how:?}");
    let after = 6;
    let written = pieces(STORY)[..after].concat();
    let gate = Gate::new();
    let (one, two) = (breaking(first, after, how, &gate).await, going_on(second, false).await);
    let gateway = gateway(&[able(first, &one), able(second, &two)], ON).await;
    let answer = hear(&gateway, asking(client, json!({})), "dann:", &gate).await;
    let told = whole(client, &answer, &what);
    assert_eq!(told.model, "gpt", "{what}");

    let sent = two.only_request();
    assert_eq!(beginning(second, &sent), written.trim_end(), "{what}");
    assert!(sent.text().contains(QUESTION), "{what}: {}", sent.text());

    // Output of the first provider is counted, unless it reported more; the input is charged once.
    let counted = count_text(TokenizerFamily::of(name(first)), &written).max(after as u64);
    let output = counted + USED.1;
    // Chat providers report their input at the end of a stream, which the first provider did not reach: it is counted.
    let input = if first == Form::Chat { told.usage.0 } else { USED.0 };
    assert!(input > 0, "{what}");
    assert_eq!(told.usage, (input, output), "{what}");
    let cost = (input + output) as f64 / 1000.0;
    let log = gateway.wait_for_log(1).await;
    let line = &log[0];
    assert_eq!((line["cost"].as_f64(), &line["attempts"]), (Some(cost), &json!(2)), "{what}: {line}");
    assert_eq!((&line["status"], &line["provider"]), (&json!(200), &json!("p1")), "{what}: {line}");
    assert!(line["tried"].as_str().unwrap().starts_with("p0/"), "{what}: {line}");
    gateway.records(1).await;
    let balance = gateway.account("acme")["balance"].to_string();
    let left = format!("{:.3}", 1000.0 - cost);
    assert!(balance.contains(left.trim_end_matches('0')), "{what}: {balance}, not {left}");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum(CONTINUED, &[("outcome", "asked")]), 1.0, "{what}");
    assert_eq!(metrics.sum("gateway_upstream_errors_total", &[("provider", "p0")]), 1.0, "{what}");
}

/// Wherever a stream is cut, the client receives one complete response.
#[tokio::test]
async fn resume_after_a_cut_at_every_byte() {
    let Frames { opening, content, closing } = frames(Form::Messages, "msg_first", &pieces(STORY)[..3]);
    let content = content.concat();
    let stream = [opening.as_str(), &content, &closing].concat();
    let shown = opening.len() + content.find("\n\n").unwrap() + 2;
    // After the finish reason the response is complete.
    let last = stream.find("event: message_delta").unwrap();
    let turn = Arc::new(Mutex::new((0, Gate::new())));
    let now = turn.clone();
    let cutting = Upstream::start(move |mut conn| {
        let (now, stream) = (now.clone(), stream.clone());
        async move {
            if conn.request().await.is_some() {
                let (cut, gate) = now.lock().unwrap().clone();
                break_off(conn, Form::Messages, &stream.as_bytes()[..cut], Break::Cut, &gate).await;
            }
        }
    })
    .await;
    let two = going_on(Form::Messages, false).await;
    let gateway = gateway(&[able(Form::Messages, &cutting), able(Form::Messages, &two)], ON).await;
    for cut in 0..=last {
        let gate = Gate::new();
        *turn.lock().unwrap() = (cut, gate.clone());
        let request = asking(Form::Messages, json!({}));
        let answer = if cut >= shown {
            hear(&gateway, request, "Grüße", &gate).await
        } else {
            gate.open();
            gateway.ask(request).await
        };
        whole(Form::Messages, &answer, &format!("cut at {cut}"));
        assert_eq!(two.count(), cut + 1);
        assert_eq!(beginning(Form::Messages, &two.last_request()).is_empty(), cut < shown, "cut at {cut}");
    }
}

/// The prefill is marked in each provider's own way; one provider repeats the prefill in its response.
#[tokio::test]
async fn resume_prefill_is_marked_as_each_provider_requires() {
    for (lines, repeats, marks) in [
        ("dialect = \"mistral\"", true, json!({"prefix": true})),
        ("dialect = \"moonshot\"", false, json!({"partial": true})),
        ("dialect = \"qwen\"", false, json!({"partial": true})),
        ("dialect = \"vllm\"", false, json!({})),
    ] {
        let gate = Gate::new();
        let one = breaking(Form::Chat, 6, Break::Cut, &gate).await;
        let two = going_on(Form::Chat, repeats).await;
        let second = Asked { form: Form::Chat, upstream: &two, lines };
        let gateway = gateway(&[able(Form::Chat, &one), second], ON).await;
        let answer = hear(&gateway, asking(Form::Chat, json!({})), "dann:", &gate).await;
        whole(Form::Chat, &answer, lines);
        let body = two.only_request().json();
        let last = body["messages"].as_array().unwrap().last().unwrap();
        for name in ["prefix", "partial"] {
            assert_eq!(last.get(name), marks.get(name), "{lines}: {body}");
        }
        let members = ["continue_final_message", "add_generation_prompt"].map(|name| body[name].as_bool());
        let vllm = lines.contains("vllm");
        assert_eq!(members, [vllm.then_some(true), vllm.then_some(false)], "{lines}: {body}");
    }
}

/// A continuing target may fail as well, before its first content or after it.
#[tokio::test]
async fn resume_continues_when_a_continuing_target_fails() {
    let gates = [Gate::new(), Gate::new()];
    let gate = gates[1].clone();
    let one = breaking(Form::Chat, 3, Break::Cut, &gates[0]).await;
    let two = Upstream::answering(reply::json(500, provider_error(Form::Messages, 500, "no"))).await;
    let three = Upstream::start(move |mut conn| {
        let gate = gate.clone();
        async move {
            let request = conn.request().await.unwrap();
            let begun = beginning(Form::Messages, &request);
            let Frames { opening, content, .. } =
                frames(Form::Messages, "msg_third", &pieces(&STORY[begun.len()..])[..4]);
            break_off(conn, Form::Messages, opening + &content.concat(), Break::Cut, &gate).await;
        }
    })
    .await;
    let four = going_on(Form::Generate, false).await;
    let targets = [
        able(Form::Chat, &one),
        able(Form::Messages, &two),
        able(Form::Messages, &three),
        able(Form::Generate, &four),
    ];
    let gateway = gateway(&targets, "retry = { continue = true, attempts = 4 }").await;
    let mut client = gateway.connect().await;
    client.send(asking(Form::Chat, json!({}))).await;
    let (head, mut body) = (client.head().await, Vec::new());
    for (needle, gate) in ["ln", "dann:"].into_iter().zip(&gates) {
        read_until(&mut client, &mut body, needle).await;
        gate.open();
    }
    while let Piece::Data(piece) = client.piece().await {
        body.extend_from_slice(&piece);
    }
    let answer = Answer { head, body, complete: true, trailers: Vec::new() };
    let told = whole(Form::Chat, &answer, "four targets");
    assert_eq!((one.count(), two.count(), three.count(), four.count()), (1, 1, 1, 1));
    let log = gateway.wait_for_log(1).await;
    assert_eq!(log[0]["attempts"], 4);
    let tried = log[0]["tried"].as_str().unwrap();
    assert!(["p0/", "p1/", "p2/"].iter().all(|name| tried.matches(name).count() == 1), "{tried}");
    assert_eq!(log[0]["cost"].as_f64(), Some((told.usage.0 + told.usage.1) as f64 / 1000.0));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum(CONTINUED, &[("outcome", "asked")]), 3.0);
}

/// Output of all targets together stays within the client's limit on output tokens.
#[tokio::test]
async fn resume_reduces_the_output_limit_by_delivered_tokens() {
    let written = pieces(STORY)[..6].concat();
    for (client, first, second) in WAYS.into_iter().filter(|way| way.0 != Form::Responses) {
        let counted = count_text(TokenizerFamily::of(name(first)), &written).max(6);
        for left in [0, 30] {
            let most = counted + left;
            let more = match client {
                Form::Generate => json!({"generationConfig": {"maxOutputTokens": most}}),
                _ => json!({"max_tokens": most}),
            };
            let gate = Gate::new();
            let (one, two) = (breaking(first, 6, Break::Cut, &gate).await, going_on(second, false).await);
            let gateway = gateway(&[able(first, &one), able(second, &two)], ON).await;
            let answer = hear(&gateway, asking(client, more), "dann:", &gate).await;
            let told = read(client, answer.text());
            let what = format!("{client:?} by {first:?} and {second:?}, {left} left: {}", answer.text());
            if left > 0 {
                assert_eq!(told.text, STORY, "{what}");
                let body = two.only_request().json();
                let limit = match second {
                    Form::Generate => &body["generationConfig"]["maxOutputTokens"],
                    _ => &body["max_tokens"],
                };
                assert_eq!(limit, left, "{what}: {body}");
                continue;
            }
            assert_eq!((told.text.as_str(), two.count()), (&*written, 0), "{what}");
            assert!(matches!(&*told.reason, "length" | "max_tokens" | "MAX_TOKENS"), "{what}");
            assert_eq!(told.usage.1, most, "{what}");
            let log = gateway.wait_for_log(1).await;
            let cost = (told.usage.0 + told.usage.1) as f64 / 1000.0;
            assert_eq!((log[0]["cost"].as_f64(), &log[0]["status"]), (Some(cost), &json!(200)), "{what}");
        }
    }
}

/// Starts a provider that sends `beginning` and breaks its stream.
async fn sending(form: Form, beginning: String, how: Break, gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |mut conn| {
        let (gate, beginning) = (gate.clone(), beginning.clone());
        async move {
            conn.request().await;
            break_off(conn, form, beginning, how, &gate).await;
        }
    })
    .await
}

/// Before the first text, a target needs no prefill support to take over.
#[tokio::test]
async fn resume_before_any_text_starts_the_stream_anew() {
    for (client, first) in
        [(Form::Chat, Form::Chat), (Form::Messages, Form::Messages), (Form::Chat, Form::Messages)]
    {
        let gate = Gate::new();
        let (one, two) = (breaking(first, 0, Break::Cut, &gate).await, going_on(Form::Chat, false).await);
        let second = Asked { form: Form::Chat, upstream: &two, lines: "" };
        let lines = "retry = { continue = true, hold = \"1ms\" }";
        let gateway = gateway(&[able(first, &one), second], lines).await;
        let needle = if client == Form::Chat { "assistant" } else { "message_start" };
        let answer = hear(&gateway, asking(client, json!({})), needle, &gate).await;
        whole(client, &answer, &format!("{client:?} by {first:?}"));
        assert_eq!(beginning(Form::Chat, &two.only_request()), "");
    }
}

/// A prefill by the client is kept, and the delivered text is appended to it.
#[tokio::test]
async fn resume_extends_a_prefill_of_the_client() {
    let (begun, rest) = STORY.split_at(STORY.find("aus").unwrap());
    let gate = Gate::new();
    let Frames { opening, content, .. } = frames(Form::Messages, "msg_first", &pieces(rest)[..3]);
    let one = sending(Form::Messages, opening + &content.concat(), Break::End, &gate).await;
    let two = going_on(Form::Messages, false).await;
    let gateway = gateway(&[able(Form::Messages, &one), able(Form::Messages, &two)], ON).await;
    let messages = json!([{"role": "user", "content": QUESTION}, {"role": "assistant", "content": begun}]);
    let answer = hear(&gateway, asking(Form::Messages, json!({"messages": messages})), "aus", &gate).await;
    assert_eq!(read(Form::Messages, answer.text()).text, rest);
    assert_eq!(two.only_request().json()["messages"].as_array().unwrap().len(), 2);
}

/// A continuation does not repeat reasoning that has ended; unsigned reasoning does not prevent it.
#[tokio::test]
async fn resume_does_not_repeat_finished_reasoning() {
    let gate = Gate::new();
    let Frames { opening, content, .. } = frames(Form::Chat, "chatcmpl-first", &pieces(STORY)[..3]);
    let thought = content[0].replace("content", "reasoning_content").replace("Grüße ", "Hm.");
    assert_ne!(thought, content[0]);
    let one = sending(Form::Chat, opening + &thought + &content.concat(), Break::Cut, &gate).await;
    let two = going_on(Form::Messages, false).await;
    let gateway = gateway(&[able(Form::Chat, &one), able(Form::Messages, &two)], ON).await;
    let request = asking(Form::Chat, json!({"reasoning_effort": "high"}));
    let answer = hear(&gateway, request, "ln", &gate).await;
    whole(Form::Chat, &answer, "reasoning");
    assert_eq!(answer.text().matches("reasoning_content").count(), 1, "{}", answer.text());
    let body = two.only_request().json();
    assert!(body.get("thinking").is_none_or(|thinking| thinking["type"] == "disabled"), "{body}");
}
