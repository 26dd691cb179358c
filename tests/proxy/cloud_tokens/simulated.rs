//! Simulated platforms, which refuse what Claude on Vertex AI and in Foundry refuses.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};

use super::provider;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
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
