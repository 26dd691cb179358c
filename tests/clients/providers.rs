//! Gateway with simulated providers of every format. They refuse a request that their API would not accept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup};
use crate::support::upstream::Upstream;

/// Gateway, its simulated providers, and delaying proxies between them.
pub(crate) struct Providers {
    pub(crate) gateway: Gateway,
    pub(crate) openai: Simulator,
    pub(crate) anthropic: Simulator,
    pub(crate) google: Simulator,
    /// Delaying proxies; empty if the providers respond at once.
    between: Vec<Upstream>,
}

/// Returns the gateway's model at the provider of a format.
pub(crate) fn at(format: &str) -> &'static str {
    match format {
        "chat" => "gpt-chat",
        "responses" => "gpt-responses",
        "messages" => "claude-messages",
        _ => "gemini-generate",
    }
}

/// Models of all providers.
pub(crate) const MODELS: [&str; 4] = ["gpt-chat", "gpt-responses", "claude-messages", "gemini-generate"];

async fn start(provider: SimulatedProvider) -> Simulator {
    Simulator::start(provider, Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() })
        .await
        .unwrap()
}

/// Starts a proxy in front of a provider that delays the start of every response.
async fn delay(provider: &Simulator) -> Upstream {
    let url = provider.base_url();
    let provider = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    Upstream::accept(move |_, gateway, _| {
        let provider = provider.clone();
        async move {
            let provider = TcpStream::connect(provider).await.unwrap();
            let (mut asking, mut answered) = gateway.into_split();
            let (mut answers, mut asked) = provider.into_split();
            let fresh = Arc::new(AtomicBool::new(false));
            let noted = fresh.clone();
            let there = async move {
                let mut piece = vec![0; 65_536];
                while let Ok(length @ 1..) = asking.read(&mut piece).await {
                    noted.store(true, Ordering::SeqCst);
                    asked.write_all(&piece[..length]).await?;
                }
                asked.shutdown().await
            };
            let back = async move {
                let mut piece = vec![0; 65_536];
                while let Ok(length @ 1..) = answers.read(&mut piece).await {
                    if fresh.swap(false, Ordering::SeqCst) {
                        tokio::time::sleep(LATE).await;
                    }
                    answered.write_all(&piece[..length]).await?;
                }
                answered.shutdown().await
            };
            let _ = tokio::join!(there, back);
        }
    })
    .await
}

/// Delay of a response: several times `limits.slow_start`.
const LATE: Duration = Duration::from_millis(300);

async fn gateway([openai, anthropic, google]: [String; 3], limits: &str) -> Gateway {
    let setup = Setup::new()
        .limits(limits)
        .provider("at-chat", "openai", &openai, "apis = [\"chat\"]")
        .provider("at-responses", "openai", &openai, "apis = [\"responses\"]")
        .provider("at-messages", "anthropic", &anthropic, "")
        .provider("at-generate", "gemini", &google, "")
        .model(at("chat"), "at-chat", "gpt-5.1")
        .model(at("responses"), "at-responses", "gpt-5.1")
        .model(at("messages"), "at-messages", "claude-sonnet-4-6")
        .model(at("generate"), "at-generate", "gemini-3.1-pro-preview");
    Gateway::start(&setup).await
}

impl Providers {
    pub(crate) async fn start() -> Providers {
        let openai = start(SimulatedProvider::OpenAi).await;
        let anthropic = start(SimulatedProvider::Anthropic).await;
        let google = start(SimulatedProvider::Google).await;
        let urls = [&openai, &anthropic, &google].map(Simulator::base_url);
        Providers { gateway: gateway(urls, "").await, openai, anthropic, google, between: Vec::new() }
    }

    /// Starts the gateway with providers that respond later than `limits.slow_start`.
    pub(crate) async fn start_late() -> Providers {
        let openai = start(SimulatedProvider::OpenAi).await;
        let anthropic = start(SimulatedProvider::Anthropic).await;
        let google = start(SimulatedProvider::Google).await;
        let mut between = Vec::new();
        let mut urls = Vec::new();
        for provider in [&openai, &anthropic, &google] {
            let upstream = delay(provider).await;
            let url = provider.base_url();
            let (_, path) = url.trim_start_matches("http://").split_once('/').unwrap();
            urls.push(format!("http://{}/{path}", upstream.addr));
            between.push(upstream);
        }
        let limits = "slow_start = \"50ms\"\nheartbeat = \"50ms\"";
        let gateway = gateway(urls.try_into().unwrap(), limits).await;
        Providers { gateway, openai, anthropic, google, between }
    }

    /// Returns the provider of a format.
    pub(crate) fn of(&self, format: &str) -> &Simulator {
        match format {
            "chat" | "responses" => &self.openai,
            "messages" => &self.anthropic,
            _ => &self.google,
        }
    }
}
