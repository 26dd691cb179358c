//! A gateway with simulated vendors of every format, which refuse a request that is not exactly what their API takes.

use model_gateway::simulator::{Options, Simulator, Vendor};

use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup};

/// See the module.
pub(crate) struct Vendors {
    pub(crate) gateway: Gateway,
    pub(crate) openai: Simulator,
    pub(crate) anthropic: Simulator,
    pub(crate) google: Simulator,
}

/// The gateway's model at the vendor that speaks a format.
pub(crate) fn at(format: &str) -> &'static str {
    match format {
        "chat" => "gpt-chat",
        "responses" => "gpt-responses",
        "messages" => "claude-messages",
        _ => "gemini-generate",
    }
}

/// All of them.
pub(crate) const MODELS: [&str; 4] = ["gpt-chat", "gpt-responses", "claude-messages", "gemini-generate"];

async fn start(vendor: Vendor) -> Simulator {
    Simulator::start(vendor, Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() })
        .await
        .unwrap()
}

impl Vendors {
    pub(crate) async fn start() -> Vendors {
        let openai = start(Vendor::OpenAi).await;
        let anthropic = start(Vendor::Anthropic).await;
        let google = start(Vendor::Google).await;
        let setup = Setup::new()
            .provider("at-chat", "openai", &openai.base_url(), "apis = [\"chat\"]")
            .provider("at-responses", "openai", &openai.base_url(), "apis = [\"responses\"]")
            .provider("at-messages", "anthropic", &anthropic.base_url(), "")
            .provider("at-generate", "gemini", &google.base_url(), "")
            .model(at("chat"), "at-chat", "gpt-5.1")
            .model(at("responses"), "at-responses", "gpt-5.1")
            .model(at("messages"), "at-messages", "claude-sonnet-4-6")
            .model(at("generate"), "at-generate", "gemini-3.1-pro-preview");
        let gateway = Gateway::start(&setup).await;
        Vendors { gateway, openai, anthropic, google }
    }

    /// The vendor that speaks a format.
    pub(crate) fn of(&self, format: &str) -> &Simulator {
        match format {
            "chat" | "responses" => &self.openai,
            "messages" => &self.anthropic,
            _ => &self.google,
        }
    }
}
