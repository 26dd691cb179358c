//! Keys, credentials and conversation content never appear in logs, metrics, the status page or error responses.

use nix::sys::signal::Signal;

use crate::support::client::post_with;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, DISABLED_KEY, KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::{http2, reply, tls};

/// Text of every prompt and every response.
const PROMPT: &str = "Grüße";
const WRONG: &str = "sk-wrong-key-of-somebody";

/// Requests of every outcome, at every log level.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
#[tokio::test]
async fn secrets_are_not_written_at_any_log_level() {
    for level in ["info", "trace"] {
        let authority = tls::Authority::new();
        let identity = authority.identity(&["gateway.test", "localhost"]);
        let upstream = Upstream::start(|mut conn| async move {
            while let Some(request) = conn.request().await {
                let target = request.head.target().to_owned();
                let form = Form::ALL.into_iter().find(|form| target.contains(form.mark())).unwrap();
                let stream = target.contains("stream") || request.text().contains("\"stream\":true");
                let answer =
                    match (stream, request.text().contains("gpt-2026") || target.contains("gemini-2026")) {
                        // A provider that repeats the credential in its error.
                        (_, true) => {
                            reply::json(400, provider_error(form, 400, &format!("{CREDENTIAL} is no good")))
                        }
                        (true, false) => reply::stream(&form.frames(form.model())),
                        (false, false) => reply::json(200, form.whole(form.model())),
                    };
                conn.send(answer).await;
            }
        })
        .await;
        let h2_upstream = Upstream::start_h2(Some(identity.server(&["h2"])), |mut exchange| async move {
            exchange.whole(200, "application/json", Form::Chat.whole("gpt")).await;
        })
        .await;
        let port = h2_upstream.addr.port();
        let mut setup = Setup::providers(upstream.addr)
            .provider("h2", "openai", &format!("https://localhost:{port}/v1"), "ca = \"ca.pem\"")
            .provider("wary", "openai", &format!("https://localhost:{port}/v1"), "")
            .model("over-h2", "h2", "gpt")
            .model("over-nothing", "wary", "gpt")
            .file("ca.pem", authority.pem())
            .tls(&identity.chain, &identity.key);
        setup.log = format!("level = \"{level}\"");
        let gateway = Gateway::start(&setup).await;
        let mut plain = http2::Client::connect(gateway.addr).await;
        let config = authority.client(&["h2"]);
        let mut encrypted = http2::Client::connect_tls(gateway.tls, config, "gateway.test").await;
        let mut asked = 0;
        for form in Form::ALL {
            for model in [form.model(), form.alias().0, "over-h2", "over-nothing", "nope"] {
                for (key, stream) in [(KEY, false), (KEY, true), (WRONG, false), (DISABLED_KEY, false)] {
                    if key != KEY && model != form.model() {
                        continue;
                    }
                    let (path, body) = (form.path(model, stream), form.body(model, stream));
                    let bearer = format!("Bearer {key}");
                    let in_query = format!("{path}{}key={key}", if path.contains('?') { '&' } else { '?' });
                    for request in [
                        post_with(&path, &[("authorization", &bearer)], &body),
                        post_with(&path, &[("x-api-key", key), ("cookie", "session=of-a-person")], &body),
                        post_with(&in_query, &[], &body),
                    ] {
                        let answer = gateway.ask(request).await;
                        asked += 1;
                        let everything = answer.everything();
                        for secret in [CREDENTIAL, KEY, WRONG, DISABLED_KEY] {
                            assert!(!everything.contains(secret), "{secret}: {everything}");
                        }
                    }
                    for client in [&mut plain, &mut encrypted] {
                        let (answer, mut send) = client.begin_with(&path, &[("x-goog-api-key", key)]).await;
                        let _ = http2::send_all(&mut send, body.clone().into(), true).await;
                        http2::answer(answer).await;
                        asked += 1;
                    }
                }
            }
        }
        // Configuration files with errors next to their secrets.
        gateway
            .replace("routes.toml", &setup.routes.replace("credential = {", "credential = { nothing = 1,"));
        gateway.reload("refused").await;
        gateway.replace("routes.toml", &setup.routes.replace(" }\n", "\n"));
        gateway.reload("refused").await;
        let status = gateway.admin("/status").await.text().to_owned();
        let metrics = gateway.admin("/metrics").await.text().to_owned();
        gateway.wait_for_log(asked).await;
        let mut gateway = gateway;
        gateway.signal(Signal::SIGTERM);
        gateway.ended().await;
        let written = gateway.everything_written();
        for secret in [CREDENTIAL, KEY, WRONG, DISABLED_KEY, PROMPT, "of-a-person"] {
            for (place, text) in [("status", &status), ("metrics", &metrics), ("logs", &written)] {
                let line = text.lines().find(|line| line.contains(secret));
                assert_eq!(line, None, "{secret} in the {place} at level {level}");
            }
        }
    }
}
