//! Access tokens of Google Cloud and Azure: how they are requested, used and renewed, and token servers that misbehave.

mod azure;
mod check;
mod google;
mod renewal;
mod simulated;

use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::{Request, Upstream};

/// Name of the series that counts renewals.
const RENEWALS: &str = "gateway_credential_renewals_total";

/// Adds a provider whose tokens come from a cloud platform.
fn provider(mut setup: Setup, name: &str, kind: &str, base: &str, lines: &str) -> Setup {
    setup.routes +=
        &format!("[[provider]]\nname = \"{name}\"\nkind = \"{kind}\"\nbase_url = \"{base}\"\n{lines}\n\n");
    setup
}

/// Starts a provider of a format. Its answers are streams if the request is one.
async fn upstream(form: Form) -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let streams = request.json()["stream"] == true || request.head.target().contains("stream");
            let answer = match streams {
                true => reply::stream(&form.frames("m")),
                false => reply::json(200, form.whole("m")),
            };
            conn.send(answer).await;
        }
    })
    .await
}

/// Returns the token that a request carries.
fn bearer(request: &Request) -> &str {
    let value = request.head.get("authorization").unwrap_or_else(|| panic!("{}", request.everything()));
    value.strip_prefix("Bearer ").unwrap()
}

/// Returns how many renewals have had an outcome.
async fn renewals(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metrics().await.sum(RENEWALS, &[("outcome", outcome)])
}

/// Asserts that nothing that the gateway has written contains a secret.
fn assert_no_secret(gateway: &Gateway, secrets: &[&str]) {
    let written = gateway.everything_written();
    for secret in secrets {
        assert!(!written.contains(secret), "{secret} was written");
    }
}
