//! Who may do what: tokens, roles, hostile pages, bounds.

use serde_json::{Value, json};

use super::changes::patch;
use super::{ADMIN, Ask, OPERATOR, READER, get, post, with_tokens};
use crate::support::client::ask;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;

#[tokio::test]
async fn admin_roles_permit_what_the_document_says() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let document = Ask::new("GET", "/openapi.json").token(READER).send(&gateway).await.json();
    let roles = ["read", "operate", "admin"];
    let rank = |role: &str| roles.iter().position(|known| *known == role).unwrap();
    let (mut refused, mut requests) = (0, Vec::new());
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.strip_prefix("/admin/v1").unwrap().replace(['{', '}'], "");
        for (method, operation) in methods.as_object().unwrap() {
            let method: &'static str = match method.as_str() {
                "get" => "GET",
                "post" => "POST",
                "patch" => "PATCH",
                "delete" => "DELETE",
                other => panic!("{other}"),
            };
            // These let one sign in.
            if operation["x-role"] == "none" {
                assert!(path.starts_with("/session"), "{path}");
                continue;
            }
            let needed = rank(operation["x-role"].as_str().unwrap());
            // Without a token, from this machine: read.
            for (role, token) in [(0, None), (0, Some(READER)), (1, Some(OPERATOR))] {
                let request = Ask::new(method, &path);
                let request = token.map_or(request.clone(), |token| request.token(token));
                if role < needed {
                    let error = request.expect(&gateway, 403).await;
                    assert_eq!(error["error"]["code"], "forbidden", "{method} {path}");
                    refused += 1;
                }
            }
            requests.push(Ask::new(method, &path));
        }
    }
    assert!(refused > 20, "{refused}");
    // Nothing was changed; refusals are recorded, a bounded number of them.
    let lines = Ask::new("GET", "/audit").expect(&gateway, 200).await["items"].clone();
    let lines = lines.as_array().unwrap();
    assert!(lines.len() > 10 && lines.len() < refused, "{} of {refused}", lines.len());
    for line in lines {
        assert_eq!((&line["action"], &line["outcome"]), (&json!("access.refuse"), &json!("refused")));
        assert_eq!(line["code"], "forbidden", "{line}");
    }
    for request in requests {
        let answer = request.clone().token("unknown").send(&gateway).await;
        assert!([401, 429].contains(&answer.status()), "{request:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn admin_wrong_tokens_are_limited() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    for _ in 0..10 {
        let answer = get("").token("mga_wrong").send(&gateway).await;
        assert_eq!((answer.status(), answer.get("www-authenticate").is_some()), (401, true));
    }
    let answer = get("").token("mga_wrong").send(&gateway).await;
    assert_eq!((answer.status(), answer.get("retry-after").is_some()), (429, true), "{}", answer.text());
    // Who shares the address and has a right token is not locked out.
    get("").token(ADMIN).expect(&gateway, 200).await;
    let signed_in = Ask::new("POST", "/session").body(json!({ "token": ADMIN }));
    signed_in.expect(&gateway, 200).await;
    // Other paths are not concerned.
    assert_eq!(gateway.admin("/readyz").await.status(), 200);
}

#[tokio::test]
async fn admin_requests_of_hostile_pages_are_refused() {
    let gateway = Gateway::start(&with_tokens(Setup::new()).file("x", "")).await;
    let port = gateway.admin.port();
    let hostile = [
        ("host", "rebound.test".to_owned()),
        ("host", format!("127.0.0.1.rebound.test:{port}")),
        ("origin", "http://hostile.test".to_owned()),
        ("origin", "null".to_owned()),
        ("sec-fetch-site", "cross-site".to_owned()),
        ("sec-fetch-site", "same-site".to_owned()),
    ];
    for (name, value) in &hostile {
        for request in [get("/instance"), post("/config/reload").body(json!({}))] {
            let error = request.header(name, value).expect(&gateway, 403).await;
            assert_eq!(error["error"]["code"], "forbidden");
        }
    }
    // A form, as a page of another origin can send it without asking.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
        let answer = post("/config/reload").body(json!({})).header("content-type", kind).send(&gateway).await;
        assert_eq!(answer.status(), 415, "{kind}: {}", answer.text());
    }
    let answer =
        Ask::new("OPTIONS", "/keys").token(ADMIN).header("origin", "http://127.0.0.1").send(&gateway).await;
    assert_eq!((answer.status(), answer.get("allow")), (204, Some("GET, POST, HEAD, OPTIONS")));
    let answer = Ask::new("PUT", "/keys").token(ADMIN).send(&gateway).await;
    assert_eq!((answer.status(), answer.get("allow")), (405, Some("GET, POST, HEAD, OPTIONS")));
    let own = get("/instance")
        .header("host", "localhost:1")
        .header("origin", "http://localhost:1")
        .send(&gateway)
        .await;
    assert_eq!(own.status(), 200, "{}", own.text());
    assert!(own.head.fields.iter().all(|(name, _)| !name.starts_with("access-control")));
    assert_eq!(
        (own.get("cache-control"), own.get("x-content-type-options")),
        (Some("no-store"), Some("nosniff"))
    );
    // The other paths of the port serve scrapers that name any host.
    assert_eq!(gateway.admin("/metrics").await.status(), 200);
}

#[tokio::test]
async fn admin_errors_name_what_is_wrong() {
    let gateway = Gateway::start(&with_tokens(Setup::new().account("acme", "5"))).await;
    for (request, status, code, field) in [
        (get("/nothing"), 404, "not_found", None),
        (get("/keys/nobody"), 404, "not_found", None),
        (get("/accounts/nobody"), 404, "not_found", None),
        (get("/targets/a/b"), 404, "not_found", None),
        (Ask::new("PUT", "/keys").token(ADMIN), 405, "method_not_allowed", None),
        (get("/keys?limit=0"), 400, "invalid", Some("limit")),
        (get("/keys?limit=x"), 400, "invalid", Some("limit")),
        (get("/keys?nam=alice"), 400, "invalid", Some("nam")),
        (get("/usage?from=2026-13"), 400, "invalid", Some("from")),
        (get("/usage?from=2026-02-02&to=2026-02-01"), 400, "invalid", Some("to")),
        (get("/usage?group=minute"), 400, "invalid", Some("group")),
        (get("/usage/records?cursor=x"), 400, "invalid", Some("cursor")),
        (get("/usage?format=xml"), 400, "invalid", Some("format")),
        (get("/audit?outcome=AAA"), 400, "invalid", Some("outcome")),
        (get("/usage/records?order=cost"), 400, "invalid", Some("order")),
        (get("/events?topic=secrets"), 400, "invalid", Some("topic")),
        (post("/accounts/acme/credits").body(json!({ "amount": 5 })), 400, "invalid", Some("amount")),
        (post("/accounts/acme/credits").body(json!({ "amount": "x" })), 400, "invalid", Some("amount")),
        (post("/accounts/acme/credits").body(json!({})), 400, "invalid", Some("amount")),
        (post("/accounts/nobody/credits").body(json!({ "amount": "1" })), 404, "not_found", None),
        (post("/accounts").body(json!({ "name": "acme" })), 409, "exists", None),
        (post("/accounts").body(json!({ "name": "" })), 400, "invalid", Some("name")),
        (post("/keys").body(json!({})), 400, "invalid", Some("name")),
        (
            post("/keys").body(json!({ "name": "x", "models": ["gpt", ""] })),
            400,
            "invalid",
            Some("models[1]"),
        ),
        (patch("/keys/alice").body(json!({ "models": [" "] })), 400, "invalid", Some("models[0]")),
        (post("/keys").body(json!({ "name": 5 })), 400, "invalid", Some("name")),
        (post("/keys").body(json!({ "name": "alice" })), 409, "exists", None),
        (post("/keys?dry_run=maybe").body(json!({ "name": "x" })), 400, "invalid", Some("dry_run")),
        (post("/audit/9999/undo"), 404, "not_found", None),
        (post("/config/reload").body(json!({ "x": 1 })), 400, "invalid", None),
    ] {
        let error = request.expect(&gateway, status).await["error"].clone();
        assert_eq!(error["code"], code, "{request:?}: {error}");
        assert_eq!(error["field"].as_str(), field, "{request:?}: {error}");
    }
    // A misspelt name of the name is named.
    for path in ["/keys", "/models", "/providers"] {
        let error = post(path).body(json!({ "nam": "x" })).expect(&gateway, 400).await["error"].clone();
        assert!(error["message"].as_str().unwrap().contains("`nam` is no member"), "{path}: {error}");
    }
    get("/audit?outcome=refused").expect(&gateway, 200).await;
    let home = gateway.admin("/").await;
    assert_eq!(home.status(), 200);
    assert!(home.text().contains("/console/"), "{}", home.text());
    let broken = Ask { body: Some("{".to_owned()), ..post("/keys").body(json!({})) };
    assert_eq!(broken.expect(&gateway, 400).await["error"]["code"], "invalid");
    let list = Ask { body: Some("[]".to_owned()), ..post("/keys").body(json!({})) };
    assert_eq!(list.expect(&gateway, 400).await["error"]["code"], "invalid");
    let large = post("/keys").body(json!({ "name": "x".repeat(300 << 10) }));
    assert_eq!(large.expect(&gateway, 413).await["error"]["code"], "too_large");
    let answer = get("/nothing").header("x-request-id", "mine-1").send(&gateway).await;
    assert_eq!(
        (answer.get("x-request-id"), &answer.json()["error"]["request_id"]),
        (Some("mine-1"), &json!("mine-1"))
    );
    let answer = get("").header("x-request-id", "not \"mine\"").send(&gateway).await;
    assert!(answer.get("x-request-id").unwrap().starts_with("adm_"));
}

#[tokio::test]
async fn admin_tokens_are_made_by_the_command_and_read_on_reload() {
    let setup = Setup::new();
    let gateway = Gateway::start(&setup).await;
    let token = gateway.command(&["admin", "create", "ops", "--role", "operate"]).trim().to_owned();
    assert!(token.starts_with("mga_"), "{token}");
    assert!(!gateway.read("admin.toml").contains(&token));
    let index = Ask::new("GET", "").token(&token);
    index.expect(&gateway, 401).await;
    gateway.reload("applied").await;
    let shown = crate::support::soon(async {
        loop {
            let answer = index.send(&gateway).await;
            if answer.status() == 200 {
                return answer.json();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!((&shown["caller"], &shown["role"]), (&json!("token:ops"), &json!("operate")));
    assert!(gateway.command(&["admin", "list"]).contains("operate"));
    gateway.command(&["admin", "disable", "ops"]);
    Ask::new("POST", "/config/reload").token(&token).expect(&gateway, 200).await;
    index.expect(&gateway, 401).await;
}

#[tokio::test]
async fn admin_socket_of_the_own_user_needs_no_token() {
    let mut setup = Setup::new();
    setup.log += "[admin]\nsocket = \"admin.sock\"\n";
    let gateway = Gateway::start(&setup).await;
    let socket = tokio::net::UnixStream::connect(gateway.folder().join("admin.sock")).await.unwrap();
    let mut client = crate::support::client::Client::over(socket);
    let answer = client.ask(Ask::new("POST", "/keys").body(json!({ "name": "new" })).bytes()).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let lines = Ask::new("GET", "/audit").expect(&gateway, 200).await;
    let actor = lines["items"][0]["actor"].as_str().unwrap();
    assert!(actor.starts_with("uid:"), "{lines}");
    assert_eq!(lines["items"][0]["client"], Value::Null);
}

#[tokio::test]
async fn admin_answers_over_http2_and_to_head() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let head = Ask::new("HEAD", "/instance").token(READER).bytes();
    let mut client = crate::support::client::Client::connect(gateway.admin).await;
    client.send(head).await;
    let answer = client.answer_to_head().await;
    assert_eq!(answer.status(), 200);
    let answer = ask(gateway.admin, get("/keys/a%2Fb").bytes()).await;
    assert!(answer.text().contains("a/b"), "{}", answer.text());
}
