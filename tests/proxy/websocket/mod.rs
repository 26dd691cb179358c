//! The responses API over WebSocket, with real sockets.

mod agent;
pub(crate) mod client;
mod close;
mod conversation;
mod frames;
mod handshake;
mod hostile;
mod lanes;
mod responses;
mod steering;
mod upstream;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};

use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup};

/// Models of [`World`]: one for each upstream format.
pub(crate) const MODELS: [&str; 4] = ["fast-chat", "fast-claude", "fast-gemini", "fast-gpt"];

/// Waits until the access log has the lines of this many responses over sockets, and returns them.
pub(crate) async fn responses_logged(gateway: &Gateway, count: usize) -> Vec<serde_json::Value> {
    let lines = || {
        let mut lines = gateway.access_log();
        lines.retain(|line| line["websocket"] == true);
        lines
    };
    crate::support::until(|| lines().len() >= count).await;
    lines()
}

/// Gateway with a simulated provider for each format.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    claude: Simulator,
    google: Simulator,
    chat: Simulator,
    openai: Simulator,
}

impl World {
    pub(crate) async fn start() -> World {
        World::start_with(|setup| setup).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(Setup) -> Setup) -> World {
        let start = |provider| {
            Simulator::start(
                provider,
                Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() },
            )
        };
        let claude = start(SimulatedProvider::Anthropic).await.unwrap();
        let google = start(SimulatedProvider::Google).await.unwrap();
        let chat = start(SimulatedProvider::OpenAi).await.unwrap();
        let openai = start(SimulatedProvider::OpenAi).await.unwrap();
        let setup = Setup::new()
            .provider("claude", "anthropic", &claude.base_url(), "")
            .provider("google", "gemini", &google.base_url(), "")
            .provider("chat", "openai", &chat.base_url(), "apis = [\"chat\"]")
            .provider("openai", "openai", &openai.base_url(), "apis = [\"responses\"]")
            .model("fast-claude", "claude", "claude-sonnet-4-5")
            .model("fast-gemini", "google", "gemini-2.5-flash")
            .model("fast-chat", "chat", "gpt-4.1")
            .model("fast-gpt", "openai", "gpt-4.1");
        let gateway = Gateway::start(&change(setup)).await;
        World { gateway, claude, google, chat, openai }
    }

    /// Returns the simulated provider of a model.
    pub(crate) fn provider(&self, model: &str) -> &Simulator {
        match model {
            "fast-claude" => &self.claude,
            "fast-gemini" => &self.google,
            "fast-chat" => &self.chat,
            _ => &self.openai,
        }
    }

    /// Returns the last body that the provider of a model received.
    pub(crate) fn sent(&self, model: &str) -> serde_json::Value {
        serde_json::from_slice(&self.provider(model).last_request().unwrap().body).unwrap()
    }
}
