//! A gateway with simulated vendors of every format, which refuse a request that is not exactly what their API takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model_gateway::simulator::{Options, Simulator, Vendor};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup};
use crate::support::upstream::Upstream;

/// See the module.
pub(crate) struct Vendors {
    pub(crate) gateway: Gateway,
    pub(crate) openai: Simulator,
    pub(crate) anthropic: Simulator,
    pub(crate) google: Simulator,
    /// What makes them late, if they are.
    between: Vec<Upstream>,
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

/// What stands between the gateway and a vendor that is to begin late: every answer waits here for a while.
async fn delay(vendor: &Simulator) -> Upstream {
    let url = vendor.base_url();
    let vendor = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    Upstream::accept(move |_, gateway, _| {
        let vendor = vendor.clone();
        async move {
            let vendor = TcpStream::connect(vendor).await.unwrap();
            let (mut asking, mut answered) = gateway.into_split();
            let (mut answers, mut asked) = vendor.into_split();
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

/// How late: several times what the gateway waits.
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

impl Vendors {
    pub(crate) async fn start() -> Vendors {
        let openai = start(Vendor::OpenAi).await;
        let anthropic = start(Vendor::Anthropic).await;
        let google = start(Vendor::Google).await;
        let urls = [&openai, &anthropic, &google].map(Simulator::base_url);
        Vendors { gateway: gateway(urls, "").await, openai, anthropic, google, between: Vec::new() }
    }

    /// The same with vendors that begin to answer later than the gateway lets its clients wait for.
    pub(crate) async fn start_late() -> Vendors {
        let openai = start(Vendor::OpenAi).await;
        let anthropic = start(Vendor::Anthropic).await;
        let google = start(Vendor::Google).await;
        let mut between = Vec::new();
        let mut urls = Vec::new();
        for vendor in [&openai, &anthropic, &google] {
            let upstream = delay(vendor).await;
            let url = vendor.base_url();
            let (_, path) = url.trim_start_matches("http://").split_once('/').unwrap();
            urls.push(format!("http://{}/{path}", upstream.addr));
            between.push(upstream);
        }
        let limits = "slow_start = \"50ms\"\nheartbeat = \"50ms\"";
        let gateway = gateway(urls.try_into().unwrap(), limits).await;
        Vendors { gateway, openai, anthropic, google, between }
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
