//! Automatic cache points at a simulated Bedrock, which refuses points that a model does not take.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::{
    Agent, MODEL, PRICE, ask, calls, chat_assistant, conversation_is_cheap_through, generate_agent,
    messages_agent, responses_agent, schema, text,
};
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, KEY, Setup};

const SONNET: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
/// Claude without a lifetime of an hour.
const OLD_SONNET: &str = "us.anthropic.claude-sonnet-4-20250514-v1:0";
const NOVA: &str = "us.amazon.nova-pro-v1:0";
const LLAMA: &str = "us.meta.llama3-3-70b-instruct-v1:0";

/// Starts a simulated Bedrock, and a gateway with one of its models through Converse.
async fn simulated(model: &str, policy: &str) -> (Simulator, Gateway) {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::Bedrock, options).await.unwrap();
    let base = simulator.base_url();
    let mut setup = Setup::new().provider("p", "bedrock", &base, "apis = [\"converse\"]").priced(PRICE);
    setup.routes += &format!(
        "[[model]]\nid = \"{MODEL}\"\nprompt_cache = \"{policy}\"\n\
         targets = [{{ provider = \"p\", model = \"{model}\" }}]\n"
    );
    let gateway = Gateway::start(&setup).await;
    (simulator, gateway)
}

/// Coding agent of the Converse format.
fn converse_agent(turn: usize) -> (String, Value) {
    let mut messages = vec![json!({"role": "user", "content": [{"text": text("task", 2_000)}]})];
    for at in 0..turn {
        let ids: Vec<String> = (0..calls(at)).map(|call| format!("tooluse_{at}_{call}")).collect();
        let calls =
            ids.iter().map(|id| json!({"toolUse": {"toolUseId": id, "name": "read", "input": {"path": id}}}));
        messages.push(json!({"role": "assistant", "content": calls.collect::<Vec<_>>()}));
        let results = ids.iter().map(|id| {
            let content = json!([{"text": text(id, 1_200 / ids.len())}]);
            json!({"toolResult": {"toolUseId": id, "content": content}})
        });
        messages.push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
    }
    let tool =
        json!({"name": "read", "description": text("reads", 6_000), "inputSchema": {"json": schema()}});
    let body = json!({
        "inferenceConfig": {"maxTokens": 50}, "messages": messages,
        "system": [{"text": text("instructions", 20_000)}],
        "toolConfig": {"tools": [{"toolSpec": tool}], "toolChoice": {"auto": {}}},
    });
    (format!("/model/{MODEL}/converse"), body)
}

/// Returns the cache points of a request in the order in which the model reads it: where each is, and its lifetime.
fn points(body: &Value) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut list = |name: String, elements: &Value| {
        for element in elements.as_array().into_iter().flatten() {
            if let Some(point) = element.get("cachePoint") {
                found.push((name.clone(), point["ttl"].as_str().map(str::to_owned)));
            }
        }
    };
    list("tools".to_owned(), &body["toolConfig"]["tools"]);
    list("system".to_owned(), &body["system"]);
    for (at, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        list(at.to_string(), &message["content"]);
    }
    found
}

fn sent(simulator: &Simulator) -> Value {
    serde_json::from_slice(&simulator.last_request().unwrap().body).unwrap()
}

#[tokio::test]
async fn cache_points_make_a_conversation_cheap_in_every_format() {
    for agent in [converse_agent as Agent, messages_agent, chat_assistant, responses_agent, generate_agent] {
        let (_simulator, gateway) = simulated(SONNET, "auto").await;
        conversation_is_cheap_through(&gateway, agent, 24).await;
    }
}

#[tokio::test]
async fn cache_points_have_the_places_and_lifetimes_that_the_model_takes() {
    let hour = Some("1h".to_owned());
    for (model, policy, places, lifetime) in [
        (SONNET, "5m", &["tools", "system", "2", "4"][..], None),
        (SONNET, "1h", &["tools", "system", "2", "4"], hour),
        (OLD_SONNET, "1h", &["tools", "system", "2", "4"], None),
        (NOVA, "1h", &["system", "2", "4"], None),
        (LLAMA, "1h", &[], None),
    ] {
        let (simulator, gateway) = simulated(model, policy).await;
        let expected: Vec<_> = places.iter().map(|place| ((*place).to_owned(), lifetime.clone())).collect();
        // Forwarded with edits, and translated.
        for agent in [converse_agent as Agent, messages_agent] {
            let (path, body) = agent(2);
            let answer = ask(&gateway, &path, KEY, &body).await;
            assert_eq!(points(&sent(&simulator)), expected, "{model} {policy} {path}");
            let header = match places.len() {
                0 => "none".to_owned(),
                count => format!("breakpoints={count}"),
            };
            assert_eq!(answer.get("x-gateway-cache"), Some(&*header), "{model} {policy} {path}");
        }
    }
}

#[tokio::test]
async fn cache_points_of_the_client_stay_where_the_model_takes_them() {
    for (model, own, kept) in [
        (SONNET, "1h", &[("tools", Some("1h")), ("2", None)][..]),
        (OLD_SONNET, "1h", &[("tools", None), ("2", None)]),
        (NOVA, "5m", &[("2", None)]),
        (LLAMA, "5m", &[]),
    ] {
        let (simulator, gateway) = simulated(model, "auto").await;
        let kept: Vec<_> =
            kept.iter().map(|(place, ttl)| ((*place).to_owned(), ttl.map(str::to_owned))).collect();
        let (path, mut body) = messages_agent(2);
        body["tools"][0]["cache_control"] = json!({"type": "ephemeral", "ttl": own});
        body["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
        let answer = ask(&gateway, &path, KEY, &body).await;
        assert_eq!(points(&sent(&simulator)), kept, "{model}");
        assert_eq!(answer.get("x-gateway-cache"), Some("none"), "{model}");
    }
    // A body in the same format keeps its bytes.
    let (simulator, gateway) = simulated(SONNET, "auto").await;
    let (path, mut body) = converse_agent(2);
    body["system"].as_array_mut().unwrap().push(json!({"cachePoint": {"type": "default"}}));
    ask(&gateway, &path, KEY, &body).await;
    assert_eq!(sent(&simulator), body);
}

#[tokio::test]
async fn cache_points_are_not_set_in_short_prompts() {
    let (simulator, gateway) = simulated(SONNET, "auto").await;
    let body = json!({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]});
    let answer = ask(&gateway, &format!("/model/{MODEL}/converse"), KEY, &body).await;
    assert_eq!((sent(&simulator), answer.get("x-gateway-cache")), (body, Some("none")));
}
