//! Simulated platforms, which refuse what Claude on Vertex AI and in Foundry refuses.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};

use serde_json::json;

use super::provider;
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};
use crate::support::token_server::{Behavior, TOKEN, TokenServer};

#[tokio::test]
async fn simulated_platforms_accept_requests_of_every_format() {
    let options = Options { credential: Some(format!("{TOKEN}1")), ..Options::default() };
    for (simulated, kind) in [
        (SimulatedProvider::ClaudeVertex, "vertex-anthropic"),
        (SimulatedProvider::ClaudeFoundry, "azure-anthropic"),
    ] {
        let simulator = Simulator::start(simulated, options.clone()).await.unwrap();
        let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
        let lines = match simulated {
            SimulatedProvider::ClaudeVertex => "google = { file = \"user.json\" }".to_owned(),
            _ => format!(
                "[provider.azure]\nsource = \"client-secret\"\ntenant = \"t\"\nclient_id = \"c\"\n\
                 authority = \"http://{}\"\nclient_secret = {{ value = \"secret-of-the-application\" }}",
                tokens.host()
            ),
        };
        let setup = provider(Setup::new(), "claude", kind, &simulator.base_url(), &lines)
            .model("claude", "claude", "claude-sonnet-4-5")
            .file("user.json", &tokens.authorized_user("p"));
        let gateway = Gateway::start(&setup).await;
        for form in [Form::Messages, Form::Chat, Form::Responses, Form::Generate] {
            for stream in [false, true] {
                let answer = gateway.ask(form.request_for("claude", stream)).await;
                assert_eq!(answer.status(), 200, "{kind} {form:?} {stream}: {}", answer.everything());
            }
        }
        assert_eq!(simulator.requests(), 8);
    }
}

/// Clients write their members in any order; Vertex AI finds a prompt again only behind all other members.
#[tokio::test]
async fn bug_54_cache_of_vertex_is_read_whatever_the_order_of_the_client() {
    let options = Options { credential: Some(format!("{TOKEN}1")), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::ClaudeVertex, options).await.unwrap();
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let lines = "google = { file = \"user.json\" }";
    let setup = provider(Setup::new(), "claude", "vertex-anthropic", &simulator.base_url(), lines)
        .model("claude", "claude", "claude-sonnet-4-5")
        .file("user.json", &tokens.authorized_user("p"));
    let gateway = Gateway::start(&setup).await;
    let mark = json!({"type": "ephemeral"});
    let system = json!([{"type": "text", "text": "instructions ".repeat(2_000), "cache_control": mark}]);
    let user = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text, "cache_control": mark}]});
    let mut messages = vec![user("one")];
    for turn in 0..3 {
        let body = json!({"messages": messages, "system": system, "model": "claude", "max_tokens": 64,
                          "stream": false, "temperature": 0.5});
        let answer = gateway.ask(post_with("/v1/messages", &[("x-api-key", KEY)], body.to_string())).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        let read = answer.json()["usage"]["cache_read_input_tokens"].as_u64().unwrap();
        assert_eq!(read > 5_000, turn > 0, "turn {turn}: {read}");
        let sent: serde_json::Value =
            serde_json::from_slice(&simulator.last_request().unwrap().body).unwrap();
        assert_eq!(sent["messages"], body["messages"]);
        messages.push(json!({"role": "assistant", "content": answer.json()["content"]}));
        messages.push(user(&format!("more {turn}")));
    }
}
