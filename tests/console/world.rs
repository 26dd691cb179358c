//! A gateway with simulated providers, accounts, prices and traffic, as the tests of the console use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model_gateway::account::KeyHash;
use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::json;

use crate::browser::Browser;
use crate::support::client::{Answer, ask, post_with};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;

/// Token of an operator who may do all.
pub(crate) const TOKEN: &str = "admin-token-of-anna-0001";
/// Keys of clients.
pub(crate) const WEB: &str = "client-key-of-the-web-app-0001";
pub(crate) const CI: &str = "client-key-of-the-build-0002";

/// Running gateway with its providers.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    _providers: [Simulator; 3],
}

async fn simulator(provider: SimulatedProvider) -> Simulator {
    let options = Options {
        first_token: Duration::from_millis(30),
        per_token: Duration::from_millis(4),
        ..Options::default()
    };
    Simulator::start(provider, options).await.unwrap()
}

/// Returns the entry of a model.
fn model(id: &str, context: u32, targets: &str, price: &str) -> String {
    format!(
        "[[model]]\nid = \"{id}\"\nowned_by = \"demo\"\ncontext_window = {context}\ntargets = [{targets}]\nprice = {price}\n\n"
    )
}

pub(crate) fn key(name: &str, text: &str, lines: &str) -> String {
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{}\"\n{lines}\n\n", KeyHash::of(text).to_hex())
}

impl World {
    /// Starts the gateway with its providers.
    pub(crate) async fn start() -> World {
        World::start_with(|_| {}).await
    }

    /// Starts the gateway with a changed configuration.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Setup)) -> World {
        let openai = simulator(SimulatedProvider::OpenAi).await;
        let anthropic = simulator(SimulatedProvider::Anthropic).await;
        let google = simulator(SimulatedProvider::Google).await;
        let mut setup = Setup::new()
            .provider("openai", "openai", &openai.base_url(), "")
            .provider("openai-eu", "openai", &openai.base_url(), "")
            .provider("anthropic", "anthropic", &anthropic.base_url(), "")
            .provider("google", "gemini", &google.base_url(), "")
            .account("product", "250")
            .account("engineering", "40");
        setup.routes += &model(
            "gpt-4o",
            128_000,
            "{ provider = \"openai\", model = \"gpt-4o-2024-11-20\", weight = 3 }, { provider = \"openai-eu\", model = \"gpt-4o-2024-11-20\" }",
            "{ input = 2.5, cached_input = 1.25, output = 10 }",
        );
        setup.routes += &model(
            "claude-sonnet-4-6",
            200_000,
            "{ provider = \"anthropic\", model = \"claude-sonnet-4-6\" }",
            "{ input = 3, cached_input = 0.3, cache_write = 3.75, output = 15 }",
        );
        setup.routes += &model(
            "gemini-2.5-flash",
            1_048_576,
            "{ provider = \"google\", model = \"gemini-2.5-flash\" }",
            "{ input = 0.3, cached_input = 0.075, output = 2.5 }",
        );
        setup.keys = key(
            "web-app",
            WEB,
            "account = \"product\"\nlimits = { spend_per_day = 5, requests_per_minute = 60000 }",
        );
        setup.keys += &key("ci", CI, "account = \"engineering\"\nmodels = [\"gpt-*\"]");
        setup.keys +=
            "[[account]]\nname = \"product\"\nlimits = { spend_per_month = 200, concurrent = 64 }\n\n";
        setup.keys += &key("old-script", "client-key-that-is-old-0003", "enabled = false");
        let token = KeyHash::of(TOKEN).to_hex();
        let tokens = format!("[[token]]\nname = \"anna\"\nrole = \"admin\"\nsha256 = \"{token}\"\n");
        change(&mut setup);
        let gateway = Gateway::start(&setup.file("admin.toml", &tokens)).await;
        World { gateway, _providers: [openai, anthropic, google] }
    }

    /// Returns the address of a page of the console.
    pub(crate) fn page(&self, name: &str) -> String {
        format!("http://{}/console/#/{name}", self.gateway.admin)
    }

    /// Opens the console and signs in with the token of an operator who may do all.
    pub(crate) async fn sign_in(&self, browser: &Browser, page: &str) {
        browser.open(&self.page(page)).await;
        browser.click("Sign in").await;
        browser.type_into("Token", TOKEN).await;
        browser.click_submit("Sign in").await;
        browser.sees("anna may do all").await;
    }

    /// Sends a request to the admin API, as another operator with all rights does, and returns its answer.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = format!(
            "{method} /admin/v1{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.gateway.admin,
            body.len()
        );
        let answer = ask(self.gateway.admin, request).await;
        assert!(answer.status() < 300, "{method} {path}: {}", answer.text());
        answer
    }

    /// Sends a request of a client.
    pub(crate) async fn chat(&self, key: &str, model: &str, text: &str) -> Answer {
        chat(self.gateway.addr, key, model, text).await
    }

    /// Starts requests that follow each other until the value is dropped.
    pub(crate) fn load(&self) -> Load {
        let running = Arc::new(AtomicBool::new(true));
        for (key, model) in
            [(WEB, "gpt-4o"), (WEB, "claude-sonnet-4-6"), (WEB, "gemini-2.5-flash"), (CI, "gpt-4o")]
        {
            let (running, address) = (running.clone(), self.gateway.addr);
            tokio::spawn(async move {
                let mut number = 0_usize;
                while running.load(Ordering::Relaxed) {
                    number += 1;
                    let text = match number % 23 {
                        7 => "Please fail [[status 500]]".to_owned(),
                        3 => {
                            "A prompt that is cached in part [[cached 900]] ".to_owned()
                                + &"word ".repeat(1_000)
                        }
                        _ => format!("Hello for the time of number {number}"),
                    };
                    chat(address, key, model, &text).await;
                    tokio::time::sleep(Duration::from_millis(60)).await;
                }
            });
        }
        Load(running)
    }
}

pub(crate) async fn chat(address: std::net::SocketAddr, key: &str, model: &str, text: &str) -> Answer {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": text }], "stream": true });
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("connection", "close")];
    ask(address, post_with("/v1/chat/completions", &headers, body.to_string())).await
}

/// Requests that follow each other, until it is dropped.
pub(crate) struct Load(Arc<AtomicBool>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
