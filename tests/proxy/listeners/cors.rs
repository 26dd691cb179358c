//! CORS: web pages of other origins.

use crate::support::client::{Answer, post, post_with, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

const PAGE: &str = "https://chat.example";

const RULES: &str = "[[server.cors]]\norigins = [\"https://chat.example\", \"https://*.chat.example\"]\n\
    methods = [\"POST\"]\nheaders = [\"Authorization\", \"content-type\"]\nmax_age = \"1h\"\n\
    [[server.cors]]\norigins = [\"*\"]";

fn preflight(origin: &str, path: &str) -> Vec<u8> {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,x-stainless-os"),
    ];
    request("OPTIONS", path, &headers)
}

fn of_cors(answer: &Answer) -> Vec<(String, String)> {
    let fields = answer.head.fields.iter();
    let mut found: Vec<_> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| name.starts_with("access-control-") || name == "vary")
        .collect();
    found.sort();
    found
}

fn get<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.get(&format!("access-control-{name}"))
}

#[tokio::test]
async fn cors_preflight_needs_no_key() {
    let gateway = Gateway::start(&Setup::providers("127.0.0.1:1".parse().unwrap()).server(RULES)).await;
    let mut client = gateway.connect().await;
    for origin in [PAGE, "https://pr-7.chat.example"] {
        let answer = client.ask(preflight(origin, "/v1/chat/completions")).await;
        assert_eq!((answer.status(), answer.text()), (204, ""));
        assert_eq!(get(&answer, "allow-origin"), Some(origin));
        assert_eq!(get(&answer, "allow-methods"), Some("POST"));
        assert_eq!(get(&answer, "allow-headers"), Some("authorization, content-type"));
        assert_eq!(get(&answer, "max-age"), Some("3600"));
        assert_eq!(answer.get("vary"), Some("origin"));
        assert_eq!((get(&answer, "allow-credentials"), answer.get("content-length")), (None, None));
    }
    // The second rule: every origin, the headers that the page asks for, the usual methods.
    for (origin, path) in [("https://other.example", "/v1/messages"), ("null", "/v1/models")] {
        let answer = client.ask(preflight(origin, path)).await;
        assert_eq!((answer.status(), get(&answer, "allow-origin")), (204, Some("*")));
        assert_eq!(get(&answer, "allow-methods"), Some("GET, HEAD, POST, DELETE"));
        assert_eq!(get(&answer, "allow-headers"), Some("authorization,x-stainless-os"));
        assert_eq!((get(&answer, "max-age"), answer.get("vary")), (Some("600"), None));
    }
    // OPTIONS that is no preflight request, and an unknown path.
    assert_eq!(client.ask(request("OPTIONS", "/v1/models", &[("origin", PAGE)])).await.status(), 405);
    assert_eq!(client.ask(preflight(PAGE, "/nowhere")).await.status(), 404);
}

#[tokio::test]
async fn cors_headers_are_on_every_response_errors_included() {
    let frames = Form::Chat.frames("gpt");
    let upstream = Upstream::answering_each(vec![
        reply::json(200, Form::Chat.whole("gpt")),
        reply::stream(&frames),
        reply::json(429, "{}"),
    ])
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).server(RULES)).await;
    let bearer = format!("Bearer {KEY}");
    let with_key = [("origin", PAGE), ("authorization", &*bearer)];
    let path = "/v1/chat/completions";
    for (request, status) in [
        (Form::Chat.request_with(false, &with_key), 200),
        (Form::Chat.request_with(true, &with_key), 200),
        (Form::Chat.request_with(false, &with_key), 429),
        (post_with(path, &with_key, "{]"), 400),
        (post_with(path, &[("origin", PAGE)], "{}"), 401),
        (request("GET", path, &with_key), 405),
        (request("GET", "/nowhere", &with_key), 404),
        (request("GET", "/v1/models", &with_key), 200),
    ] {
        let mut client = gateway.connect().await;
        let answer = client.ask(request).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
        assert_eq!((get(&answer, "allow-origin"), answer.get("vary")), (Some(PAGE), Some("origin")));
        let exposed: Vec<&str> = get(&answer, "expose-headers").unwrap().split(", ").collect();
        for name in [
            "x-request-id",
            "retry-after",
            "x-ratelimit-remaining-tokens",
            "x-gateway-target",
            "x-codex-primary-used-percent",
            "x-codex-secondary-reset-at",
            "x-codex-turn-state",
            "anthropic-ratelimit-unified-status",
            "anthropic-ratelimit-unified-overage-utilization",
        ] {
            assert!(exposed.contains(&name), "{name}: {exposed:?}");
        }
        // Each header of the response is one that the page may read.
        let readable = ["content-type", "content-length", "cache-control"];
        let of_connection = ["date", "connection", "keep-alive", "transfer-encoding", "vary", "allow"];
        for (name, _) in &answer.head.fields {
            let name = name.to_ascii_lowercase();
            let listed = exposed.contains(&&*name)
                || readable.contains(&&*name)
                || of_connection.contains(&&*name)
                || name.starts_with("access-control-")
                || name == "x-accel-buffering";
            assert!(listed, "{name}: {exposed:?}");
        }
    }
}

#[tokio::test]
async fn cors_adds_nothing_without_a_rule_or_an_origin() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    let path = "/v1/chat/completions";
    assert_eq!(client.ask(preflight(PAGE, path)).await.status(), 405);
    let bearer = format!("Bearer {KEY}");
    let with_key = [("origin", PAGE), ("authorization", &*bearer)];
    assert!(of_cors(&client.ask(Form::Chat.request_with(false, &with_key)).await).is_empty());
    drop(gateway);

    let rules = RULES.split("[[server.cors]]\norigins = [\"*\"]").next().unwrap();
    let gateway = Gateway::start(&Setup::providers(upstream.addr).server(rules)).await;
    let mut client = gateway.connect().await;
    let other = "https://evil.example";
    // A cache must not give what it has of one page to another one.
    let vary = vec![("vary".to_owned(), "origin".to_owned())];
    let answer = client.ask(preflight(other, path)).await;
    assert_eq!((answer.status(), of_cors(&answer)), (405, vary.clone()));
    let with_key = [("origin", other), ("authorization", &*bearer)];
    let answer = client.ask(Form::Chat.request_with(false, &with_key)).await;
    assert_eq!((answer.status(), of_cors(&answer)), (200, vary.clone()));
    let answer = client.ask(post(path, Form::Chat.body("gpt", false))).await;
    assert_eq!((answer.status(), of_cors(&answer)), (200, vary));
}
