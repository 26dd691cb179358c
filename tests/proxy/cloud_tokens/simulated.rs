//! Simulated platforms, which refuse what Claude on Vertex AI and in Foundry refuses.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};

use serde_json::json;

use super::provider;
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};
use crate::support::token_server::{Behavior, TOKEN, TokenServer};

/// Asks for a model in every format, whole and as a stream.
async fn ask_in_all_formats(gateway: &Gateway, model: &str) {
    for form in [Form::Messages, Form::Chat, Form::Responses, Form::Generate] {
        for stream in [false, true] {
            let answer = gateway.ask(form.request_for(model, stream)).await;
            assert_eq!(answer.status(), 200, "{model} {form:?} {stream}: {}", answer.everything());
        }
    }
}

#[tokio::test]
async fn simulated_azure_accepts_both_address_schemes_with_a_key_and_with_a_token() {
    let options = Options { credential: Some(format!("{TOKEN}1")), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::AzureOpenAi, options).await.unwrap();
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let resource = format!("http://{}", simulator.addr());
    let key = format!("credential = {{ value = \"{TOKEN}1\" }}");
    let token = format!(
        "[provider.azure]\nsource = \"client-secret\"\ntenant = \"t\"\nclient_id = \"c\"\n\
         authority = \"http://{}\"\nclient_secret = {{ value = \"secret-of-the-application\" }}",
        tokens.host()
    );
    // Without a version the deployment is in the path, and the version in the query.
    let setup = provider(Setup::new(), "v1", "azure", &simulator.base_url(), &token);
    let setup = provider(setup, "dated", "azure", &resource, &key).model("gpt-v1", "v1", "gpt-4o").model(
        "gpt-dated",
        "dated",
        "gpt-4o",
    );
    let gateway = Gateway::start(&setup).await;
    for model in ["gpt-v1", "gpt-dated"] {
        ask_in_all_formats(&gateway, model).await;
    }
    assert_eq!(simulator.requests(), 16);
}

#[tokio::test]
async fn simulated_gemini_on_vertex_accepts_a_token_with_a_project_and_a_key_without() {
    let options = Options { credential: Some(format!("{TOKEN}1")), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::GeminiVertex, options).await.unwrap();
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let express = format!("http://{}/v1", simulator.addr());
    let key = format!("credential = {{ value = \"{TOKEN}1\" }}");
    let google = "google = { file = \"user.json\" }";
    let mut setup = provider(Setup::new(), "project", "vertex", &simulator.base_url(), google);
    setup =
        provider(setup, "express", "vertex", &express, &key).file("user.json", &tokens.authorized_user("p"));
    for by in ["project", "express"] {
        setup = setup
            .model(&format!("gemini-{by}"), by, "gemini-2.5-flash")
            .model(&format!("old-{by}"), by, "text-embedding-005")
            .model(&format!("new-{by}"), by, "gemini-embedding-2-preview");
    }
    let gateway = Gateway::start(&setup).await;
    for by in ["project", "express"] {
        ask_in_all_formats(&gateway, &format!("gemini-{by}")).await;
        for model in ["old", "new"] {
            let body = json!({"model": format!("{model}-{by}"), "input": ["a", "b"], "dimensions": 8});
            let request = post_with("/v1/embeddings", &[("x-api-key", KEY)], body.to_string());
            let answer = gateway.ask(request).await;
            assert_eq!(answer.status(), 200, "{model} {by}: {}", answer.everything());
        }
    }
    assert_eq!(simulator.requests(), 16 + 2 * 3);
}

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
