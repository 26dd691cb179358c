//! Routing of requests: keys, models, paths, methods, and the headers that are forwarded in each direction.

use serde_json::json;

use crate::bodies::chat;
use crate::support::client::{post, post_with, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, DISABLED_KEY, EXPIRED_KEY, KEY, NARROW_KEY, Setup};
use crate::support::upstream::Upstream;

/// Starts an upstream for all formats (see [`every_provider`]), and a gateway in front of it.
pub(crate) async fn providers() -> (Upstream, Gateway) {
    let upstream = every_provider().await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    (upstream, gateway)
}

/// Starts an upstream that answers every request in the format of its path.
pub(crate) async fn every_provider() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let target = request.head.target().to_owned();
            let form = Form::ALL.into_iter().find(|form| target.contains(form.mark())).unwrap();
            let stream = target.contains("streamGenerate") || request.text().contains("\"stream\":true");
            let model = match form {
                Form::Generate => "gemini".to_owned(),
                _ => request.json()["model"].as_str().unwrap().to_owned(),
            };
            let answer = if stream {
                reply::stream(&form.frames(&model))
            } else {
                reply::json(200, form.whole(&model))
            };
            conn.send(answer).await;
        }
    })
    .await
}

/// Places where SDKs put the key.
const PLACES: [&str; 6] =
    ["authorization", "x-api-key", "x-goog-api-key", "x-vendor-api-key", "api-key", "query"];

fn keyed(form: Form, place: &str, key: &str) -> Vec<u8> {
    let (path, body) = (form.path(form.model(), false), form.body(form.model(), false));
    match place {
        "authorization" => post_with(&path, &[("authorization", &format!("Bearer {key}"))], body),
        "query" => post_with(&format!("{path}?key={key}&x=1"), &[], body),
        header => post_with(&path, &[(header, key)], body),
    }
}

#[tokio::test]
async fn key_in_any_place_is_accepted_and_not_forwarded() {
    let (upstream, gateway) = providers().await;
    let mut asked = 0;
    for form in Form::ALL {
        for place in PLACES {
            let answer = gateway.ask(keyed(form, place, KEY)).await;
            assert_eq!(answer.status(), 200, "{form:?} {place}: {}", answer.text());
            asked += 1;
            let request = upstream.last_request();
            assert!(!request.everything().contains(KEY), "{form:?} {place}: {}", request.everything());
            let (header, value) = form.credential();
            assert_eq!(request.head.all(header), [value], "{form:?} {place}");
            let credentials = request.everything().matches(CREDENTIAL).count();
            assert_eq!(credentials, 1, "{form:?} {place}: {}", request.everything());
            assert!(!request.head.target().contains("key="), "{}", request.head.target());
        }
    }
    for line in gateway.wait_for_log(asked).await {
        assert_eq!((line["key"].as_str(), line["status"].as_u64()), (Some("alice"), Some(200)), "{line}");
    }
    let written = gateway.everything_written();
    assert!(!written.contains(KEY) && !written.contains(CREDENTIAL), "{written}");
}

#[tokio::test]
async fn key_scheme_is_case_insensitive_and_query_key_is_decoded() {
    let (_upstream, gateway) = chat().await;
    let body = Form::Chat.body("gpt", false);
    for value in [format!("bearer {KEY}"), format!("BEARER   {KEY} "), format!("Bearer {KEY}")] {
        let request = post_with("/v1/chat/completions", &[("authorization", &value)], &body);
        assert_eq!(gateway.ask(request).await.status(), 200, "{value}");
    }
    let escaped = KEY.replace('-', "%2D");
    let request = post_with(&format!("/v1/chat/completions?key={escaped}"), &[], &body);
    assert_eq!(gateway.ask(request).await.status(), 200);
}

#[tokio::test]
async fn key_refused_is_an_error_in_the_client_format() {
    let (upstream, gateway) = providers().await;
    let types = |form: Form, status: u16| match (form, status) {
        (Form::Generate, 401) => "UNAUTHENTICATED",
        (Form::Generate, 403) => "PERMISSION_DENIED",
        (Form::Generate, _) => "NOT_FOUND",
        (Form::Messages, 401) => "authentication_error",
        (Form::Messages, 403) => "authentication_error",
        (Form::Messages, _) => "not_found_error",
        (_, 403) => "permission_denied",
        (_, _) => "invalid_request_error",
    };
    let mut asked = 0;
    for form in Form::ALL {
        for stream in [false, true] {
            let (path, body) = (form.path(form.model(), stream), form.body(form.model(), stream));
            let with = |name: &str, value: &str| post_with(&path, &[(name, value)], &body);
            let bearer = |key: &str| with("authorization", &format!("Bearer {key}"));
            let renamed = form.path("nope", stream);
            for (what, request, status) in [
                ("missing", post_with(&path, &[], &body), 401),
                ("empty", with("authorization", "Bearer "), 401),
                ("another scheme", with("authorization", &format!("Basic {KEY}")), 401),
                ("wrong", bearer("sk-wrong-key-of-somebody"), 401),
                ("wrong in its own header", with("x-api-key", "sk-wrong-key-of-somebody"), 401),
                ("mistyped", bearer(&format!("mgw_{}", "A1".repeat(25))), 401),
                (
                    "not text",
                    [path_line(&path), b"x-api-key: \xff\xfe\r\ncontent-length: 0\r\n\r\n".to_vec()].concat(),
                    401,
                ),
                ("disabled", bearer(DISABLED_KEY), 401),
                ("expired", bearer(EXPIRED_KEY), 401),
                ("unknown model", post(&renamed, form.body("nope", stream)), 404),
            ] {
                let answer = gateway.ask(request).await;
                assert_eq!(answer.status(), status, "{form:?} {what}: {}", answer.text());
                let (kind, message) = form.error(&answer);
                assert_eq!(kind, types(form, status), "{form:?} {what}");
                assert!(!message.contains("key-of"), "{form:?} {what}: {message}");
                assert!(answer.get("x-request-id").is_some(), "{form:?} {what}");
                asked += 1;
            }
        }
    }
    assert_eq!(upstream.connections(), 0);
    gateway.wait_for_log(asked).await;
    let written = gateway.everything_written();
    for secret in ["sk-wrong-key-of-somebody", DISABLED_KEY, EXPIRED_KEY, "mgw_"] {
        assert!(!written.contains(secret), "{secret}: {written}");
    }
}

fn path_line(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: gateway.test\r\n").into_bytes()
}

#[tokio::test]
async fn key_permissions_restrict_models_and_listing() {
    let (upstream, gateway) = providers().await;
    let bearer = format!("Bearer {NARROW_KEY}");
    let headers = [("authorization", &*bearer)];
    for form in Form::ALL {
        let ask = |model: &str| post_with(&form.path(model, false), &headers, form.body(model, false));
        assert_eq!(gateway.ask(ask(form.alias().0)).await.status(), 200, "{form:?}");
        let forbidden = if matches!(form, Form::Chat | Form::Responses) { None } else { Some(form.model()) };
        let Some(model) = forbidden else { continue };
        let answer = gateway.ask(ask(model)).await;
        assert_eq!(answer.status(), 403, "{form:?}");
        form.error(&answer);
    }
    assert_eq!(upstream.count(), 4);
    let names = |answer: serde_json::Value| -> Vec<String> {
        answer["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let mine = gateway.ask(request("GET", "/v1/models", &headers)).await;
    assert_eq!(names(mine.json()), ["gpt", "fast-gpt", "fast-claude", "fast-gemini"]);
    let bearer = format!("Bearer {KEY}");
    let all = gateway.ask(request("GET", "/v1/models", &[("authorization", &bearer)])).await;
    assert_eq!(names(all.json()).len(), 6);
    // A model without permission is reported as not found.
    let hidden = gateway.ask(request("GET", "/v1/models/claude", &headers)).await;
    assert_eq!(hidden.status(), 404);
    assert_eq!(gateway.ask(request("GET", "/v1/models/fast-claude", &headers)).await.status(), 200);
}

#[tokio::test]
async fn listing_has_the_client_format() {
    let (_upstream, gateway) = providers().await;
    let ask = async |path: &str, headers: &[(&str, &str)]| {
        let answer = gateway.ask(request("GET", path, headers)).await;
        (answer.status(), answer.json())
    };
    let bearer = format!("Bearer {KEY}");
    let authorization = ("authorization", &*bearer);
    let (status, list) = ask("/v1/models", &[authorization]).await;
    assert_eq!((status, &list["object"]), (200, &json!("list")));
    assert_eq!(
        list["data"][0],
        json!({"id": "gpt", "object": "model", "created": 1715367049, "owned_by": "openai"})
    );
    let (_, list) =
        ask("/v1/models?limit=2", &[("x-api-key", KEY), ("anthropic-version", "2023-06-01")]).await;
    assert_eq!((&list["has_more"], &list["first_id"]), (&json!(true), &json!("gpt")));
    assert_eq!(list["data"][0]["type"], "model");
    assert!(
        list["data"][0]["display_name"].is_string() && list["data"][0]["created_at"].is_string(),
        "{list}"
    );
    for (path, headers) in [
        ("/v1beta/models", &[("x-goog-api-key", KEY)][..]),
        ("/v1beta/models", &[authorization]),
        (&*format!("/v1beta/models?key={KEY}"), &[]),
    ] {
        let (status, list) = ask(path, headers).await;
        assert_eq!(status, 200, "{path}");
        assert_eq!(list["models"][2]["name"], "models/gemini", "{list}");
        let methods = list["models"][2]["supportedGenerationMethods"].as_array().unwrap();
        assert!(methods.contains(&json!("generateContent")), "{list}");
    }
    // Errors of the listing have the client's format too.
    let answer = gateway.ask(request("GET", "/v1beta/models", &[])).await;
    assert_eq!(answer.status(), 401);
    Form::Generate.error(&answer);
    let answer = gateway.ask(request("GET", "/v1/models", &[("anthropic-version", "2023-06-01")])).await;
    Form::Messages.error(&answer);
    let answer = gateway.ask(request("GET", "/v1/models", &[])).await;
    Form::Chat.error(&answer);
}

#[tokio::test]
async fn path_variants_of_base_urls_are_accepted() {
    let (upstream, gateway) = providers().await;
    let mut asked = 0;
    for form in Form::ALL {
        let path = form.path(form.model(), false);
        let (version, rest) = path[1..].split_once('/').unwrap();
        let mut spelled = vec![
            format!("/{version}/{rest}"),
            format!("//{version}/{rest}"),
            format!("/{version}//{rest}"),
            format!("/{version}/{version}/{rest}"),
            format!("/{version}/{version}//{rest}"),
            format!("/{version}/{rest}/"),
            format!("/{version}/{rest}?beta=true"),
            format!("/{version}/{rest}?"),
            format!("/{version}/{rest}?a=%26b&&c"),
        ];
        if form == Form::Generate {
            spelled.push(format!("/v1/{rest}"));
            spelled.push(format!("/v1/v1beta/{rest}"));
            spelled.push(format!("/v1beta/{}", rest.replace(':', "%3A")));
        }
        for path in spelled {
            let answer = gateway.ask(post(&path, form.body(form.model(), false))).await;
            assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
            asked += 1;
            let expected = match form {
                Form::Chat => "/v1/chat/completions",
                Form::Messages => "/v1/messages",
                Form::Responses => "/v1/responses",
                Form::Generate => "/v1beta/models/gemini:generateContent",
            };
            assert_eq!(upstream.last_request().head.target(), expected, "{path}");
        }
    }
    assert_eq!(upstream.count(), asked);
    for path in ["/", "/v1", "/v1/"] {
        assert_eq!(gateway.ask(request("GET", path, &[])).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn path_or_method_unknown_is_an_error_in_the_client_format() {
    let (upstream, gateway) = providers().await;
    let bearer = format!("Bearer {KEY}");
    let key = ("authorization", &*bearer);
    let messages = ("anthropic-version", "2023-06-01");
    for (method, path, headers, form, status) in [
        ("POST", "/v1/nothing", &[key][..], Form::Chat, 404),
        ("POST", "/v1/nothing", &[key, messages], Form::Messages, 404),
        ("POST", "/v1beta/nothing", &[key], Form::Generate, 404),
        ("POST", "/v1/chat/completions/more", &[key], Form::Chat, 404),
        ("GET", "/v1/chat/completions", &[key], Form::Chat, 405),
        ("PUT", "/v1/messages", &[key], Form::Messages, 405),
        ("DELETE", "/v1/responses", &[key], Form::Responses, 405),
        ("GET", "/v1beta/models/gemini:generateContent", &[key], Form::Generate, 405),
        ("POST", "/v1/models", &[key], Form::Chat, 405),
    ] {
        let answer = gateway.ask(request(method, path, headers)).await;
        assert_eq!(answer.status(), status, "{method} {path}: {}", answer.text());
        form.error(&answer);
        let allowed = answer.get("allow").is_some();
        assert_eq!(allowed, status == 405, "{method} {path}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn body_malformed_is_400_that_names_the_field() {
    let (upstream, gateway) = providers().await;
    let twice = r#"{"model":"gpt","messages":[],"model":"claude"}"#;
    for form in Form::ALL {
        let path = form.path(form.model(), false);
        for body in
            ["", "{", "[]", "null", "{\"model\":}", "{\"model\":\"gpt\"} x", "{\"a\":\"\u{1}\"}", "\u{feff}{"]
        {
            let answer = gateway.ask(post(&path, body)).await;
            assert_eq!(answer.status(), 400, "{form:?} {body:?}: {}", answer.text());
            form.error(&answer);
        }
        let invalid = [b"{\"model\":\"".as_slice(), &[0xff, 0xfe], b"\"}"].concat();
        assert_eq!(gateway.ask(post(&path, invalid)).await.status(), 400, "{form:?}");
    }
    assert_eq!(gateway.ask(post("/v1/chat/completions", twice)).await.status(), 400);
    for (path, body, field) in [
        ("/v1/chat/completions", json!({"messages": []}), "model"),
        ("/v1/chat/completions", json!({"model": "gpt"}), "messages"),
        ("/v1/chat/completions", json!({"model": 5, "messages": []}), "model"),
        ("/v1/chat/completions", json!({"model": "gpt", "messages": {}}), "messages"),
        ("/v1/messages", json!({"model": "claude", "messages": []}), "max_tokens"),
        ("/v1/responses", json!({"model": "gpt"}), "input"),
        ("/v1beta/models/gemini:generateContent", json!({}), "contents"),
        ("/v1/embeddings", json!({"model": "gpt"}), "input"),
    ] {
        let answer = gateway.ask(post(path, body.to_string())).await;
        assert_eq!(answer.status(), 400, "{path} {body}: {}", answer.text());
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(field), "{}", answer.text());
    }
    assert_eq!(upstream.connections(), 0);
}

#[expect(clippy::too_many_lines, reason = "a list of headers and one exchange")]
#[tokio::test]
async fn headers_hop_by_hop_are_not_forwarded() {
    let upstream = Upstream::answering(reply::whole(
        200,
        &[
            ("content-type", "application/json"),
            ("connection", "keep-alive, x-of-this-hop"),
            ("keep-alive", "timeout=5"),
            ("x-of-this-hop", "1"),
            ("proxy-authenticate", "Basic"),
            ("upgrade", "h2c"),
            ("set-cookie", "__cf_bm=1"),
            ("server", "cloudflare"),
            ("openai-organization", "org-of-the-gateway"),
            ("openai-processing-ms", "12"),
            ("x-request-id", "req-of-the-provider"),
        ],
        Form::Chat.whole("gpt"),
    ))
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let bearer = format!("Bearer {KEY}");
    let answer = gateway
        .ask(Form::Chat.request_with(
            false,
            &[
                ("authorization", &bearer),
                ("connection", "keep-alive, x-mine"),
                ("x-mine", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authorization", "Basic c2VjcmV0"),
                ("proxy-connection", "keep-alive"),
                ("te", "trailers"),
                ("trailer", "x-checksum"),
                ("upgrade", "websocket"),
                ("cookie", "session=secret"),
                ("user-agent", "OpenAI/Python 2.0"),
                ("x-stainless-lang", "python"),
                ("x-forwarded-for", "192.0.2.7"),
                ("accept-encoding", "gzip, br"),
                ("openai-beta", "assistants=v2"),
                ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                ("tracestate", "one=1"),
                ("tracestate", "two=2"),
                ("baggage", "a=1"),
                ("baggage", "b=2"),
                ("accept-language", "de"),
                ("accept-language", "en;q=0.5"),
                ("x-request-id", "id-of-the-client"),
            ],
        ))
        .await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let head = upstream.only_request().head;
    for name in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "cookie",
        "x-stainless-lang",
        "x-forwarded-for",
        "transfer-encoding",
    ] {
        assert_eq!(head.get(name), None, "{name}");
    }
    assert_eq!(head.get("host"), Some(&*upstream.addr.to_string()));
    assert_eq!(head.get("accept-encoding"), Some("identity"));
    assert_eq!(head.get("openai-beta"), Some("assistants=v2"));
    assert!(head.get("traceparent").is_some());
    assert_eq!(head.all("tracestate").join(","), "one=1,two=2");
    assert_eq!(head.all("baggage").join(","), "a=1,b=2");
    assert_eq!(head.all("accept-language").join(","), "de,en;q=0.5");
    assert_eq!(head.get("x-request-id"), Some("id-of-the-client"));
    assert_eq!(answer.get("x-request-id"), Some("id-of-the-client"));
    assert_eq!(answer.get("openai-processing-ms"), Some("12"));
    for name in [
        "x-of-this-hop",
        "proxy-authenticate",
        "upgrade",
        "set-cookie",
        "openai-organization",
        "transfer-encoding",
    ] {
        assert_eq!(answer.get(name), None, "{name}");
    }
    let line = gateway.wait_for_log(1).await.remove(0);
    assert_eq!(
        (&line["request_id"], &line["upstream_id"]),
        (&json!("id-of-the-client"), &json!("req-of-the-provider"))
    );
}

#[tokio::test]
async fn headers_request_id_is_added_and_invalid_ones_are_replaced() {
    let (_upstream, gateway) = providers().await;
    let mut seen = std::collections::HashSet::new();
    let bearer = format!("Bearer {KEY}");
    let long = "x".repeat(500);
    for given in [None, Some("<script>"), Some("a b"), Some(&*long), Some("")] {
        for form in Form::ALL {
            let mut headers = vec![("authorization", &*bearer)];
            headers.extend(given.map(|id| ("x-request-id", id)));
            let answer = gateway.ask(form.request_with(false, &headers)).await;
            assert_eq!(answer.status(), 200);
            let id = answer.get("x-request-id").unwrap().to_owned();
            assert_ne!(Some(&*id), given);
            if form == Form::Messages {
                assert_eq!(answer.get("request-id"), Some(&*id));
            }
            assert!(seen.insert(id), "the same id twice");
        }
    }
}

#[tokio::test]
async fn headers_client_is_forwarded_if_configured() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let lines = "forward_client = true\nheaders = { \"x-team\" = \"red\" }";
    let gateway = Gateway::start(&Setup::providers_with(upstream.addr, lines)).await;
    let bearer = format!("Bearer {KEY}");
    // Several lines of a list are one list (RFC 9110, section 5.3).
    let headers = [
        ("authorization", &*bearer),
        ("x-forwarded-for", "192.0.2.7, 198.51.100.1"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
    ];
    assert_eq!(gateway.ask(Form::Chat.request_with(false, &headers)).await.status(), 200);
    let head = upstream.only_request().head;
    assert_eq!(head.all("x-forwarded-for"), ["192.0.2.7, 198.51.100.1, 203.0.113.9, 127.0.0.1"]);
    assert_eq!(head.get("x-forwarded-proto"), Some("https"));
    assert_eq!(head.get("x-forwarded-host"), Some("gateway.test"));
    assert_eq!(head.get("via"), Some("1.1 model-gateway"));
    assert_eq!(head.get("x-team"), Some("red"));
}

/// Requests are distributed by weight; a target of weight 0 receives none.
#[tokio::test]
async fn targets_share_the_requests_by_weight() {
    let (one, two, none) = (chat_upstream().await, chat_upstream().await, chat_upstream().await);
    let mut setup = Setup::new();
    for (name, upstream) in [("one", &one), ("two", &two), ("none", &none)] {
        setup = setup.provider(name, "openai", &format!("http://{}/v1", upstream.addr), "");
    }
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [\n\
                     { provider = \"one\", model = \"a\", weight = 1 },\n\
                     { provider = \"two\", model = \"b\", weight = 1 },\n\
                     { provider = \"none\", model = \"c\", weight = 0 },\n]\n";
    let gateway = Gateway::start(&setup).await;
    let mut client = gateway.connect().await;
    for _ in 0..200 {
        assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
    }
    assert_eq!(one.count() + two.count(), 200);
    // Fewer than 40 of 200 fair coin tosses have a probability of 10^-18.
    assert!(one.count() >= 40 && two.count() >= 40, "{} {}", one.count(), two.count());
    assert_eq!(none.count(), 0);
    assert_eq!(one.last_request().json()["model"], "a");
    assert_eq!(two.last_request().json()["model"], "b");
}

async fn chat_upstream() -> Upstream {
    Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await
}
