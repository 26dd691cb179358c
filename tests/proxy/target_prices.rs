//! Prices of targets: a model that two providers serve costs what the target costs.

use serde_json::json;

use crate::accounts::{PAYING, asking, providers};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{Setup, key};

/// The providers of [`Form`] report 11 input and 7 output tokens.
const PRICES: &str = "[[price]]\nmodels = [\"dear\"]\ninput = 10\noutput = 20\n";

fn setup(address: std::net::SocketAddr, first: &str) -> Setup {
    let base = format!("http://{address}/v1");
    let mut setup = Setup::new()
        .provider("at-chat", "openai", &base, "apis = [\"chat\"]")
        .provider("other", "openai", &base, "apis = [\"chat\"]")
        .account("acme", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let (own, dear) = if first == "dear" { (1, 0) } else { (0, 1) };
    setup.routes = format!(
        "prices = \"prices.toml\"\n\n{}\n[[model]]\nid = \"at-chat\"\nprice = {{ input = 1, output = 2 }}\ntargets = [\n\
         {{ provider = \"at-chat\", model = \"at-chat\", tier = {own} }},\n\
         {{ provider = \"other\", model = \"at-chat\", tier = {dear}, price = \"dear\" }} ]\n",
        setup.routes
    );
    setup.files.push(("prices.toml".to_owned(), PRICES.to_owned()));
    setup
}

#[tokio::test]
async fn target_price_is_charged_for_the_requests_of_the_target() {
    for (first, cost) in [("own", "0.000025"), ("dear", "0.00025")] {
        let upstream = providers().await;
        let gateway = Gateway::start(&setup(upstream.addr, first)).await;
        let answer = gateway.ask(asking(Form::Chat, "at-chat", false, PAYING)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(gateway.records(1).await[0]["cost"], json!(cost), "{first}");
    }
}
