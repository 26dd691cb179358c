//! Addresses and secrets of providers that a caller with the role `admin` changes: it reads no secret by it.

use serde_json::{Value, json};

use super::{ADMIN, Ask, post, with_tokens};
use crate::bodies::body_of;
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

fn patch(path: &str, body: Value) -> Ask {
    Ask::new("PATCH", path).token(ADMIN).body(body)
}

async fn refused(gateway: &Gateway, ask: Ask) -> Value {
    ask.expect(gateway, 400).await["error"]["field"].clone()
}

#[tokio::test]
async fn admin_address_of_a_provider_with_a_secret_is_changed_where_a_setting_permits() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let other = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let (here, there) = (format!("http://{}/v1", upstream.addr), format!("http://{}/v1", other.addr));
    for permitted in [false, true] {
        let mut setup = with_tokens(Setup::new())
            .provider("up", "openai-compatible", &here, "headers = { x-key = \"header-secret\" }")
            .model("gpt", "up", "gpt");
        if permitted {
            setup.log += "[admin]\nprovider_hosts = [\"127.0.0.*\"]\n";
        }
        let gateway = Gateway::start(&setup).await;
        // The same host: another path.
        patch("/providers/up", json!({ "base_url": format!("{here}/x") })).expect(&gateway, 200).await;
        patch("/providers/up", json!({ "base_url": here })).expect(&gateway, 200).await;
        let moved = patch("/providers/up", json!({ "base_url": there }));
        if permitted {
            moved.expect(&gateway, 200).await;
            continue;
        }
        let before = gateway.read("routes.toml");
        assert_eq!(refused(&gateway, moved.clone()).await, "base_url");
        let renamed = json!({ "base_url": there, "name": "other" });
        assert_eq!(refused(&gateway, patch("/providers/up", renamed)).await, "base_url");
        assert_eq!(gateway.read("routes.toml"), before);
        let ask = || post_with("/v1/chat/completions", &[("x-api-key", KEY)], body_of(200));
        assert_eq!(gateway.ask(ask()).await.status(), 200);
        assert_eq!((upstream.count(), other.count()), (1, 0));
        // Without its secrets, a provider may be anywhere.
        patch("/providers/up", json!({ "base_url": there, "credential": null, "headers": null }))
            .expect(&gateway, 200)
            .await;
        assert_eq!(gateway.ask(ask()).await.status(), 200);
        let line = get_line(&gateway).await;
        assert_eq!((&line["action"], &line["outcome"]), (&json!("provider.update"), &json!("applied")));
    }
}

async fn get_line(gateway: &Gateway) -> Value {
    super::get("/audit?limit=1").expect(gateway, 200).await["items"][0].clone()
}

#[tokio::test]
async fn admin_names_only_sources_of_secrets_that_are_in_use_or_permitted() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let here = format!("http://{}/v1", upstream.addr);
    let mut setup =
        with_tokens(Setup::new()).file("used.key", "used").file("new.key", "new").file("hidden", "hidden");
    setup.routes = format!(
        "[[provider]]\nname = \"up\"\nkind = \"openai-compatible\"\nbase_url = \"{here}\"\n\
         credential = {{ file = \"used.key\" }}\n\n\
         [[model]]\nid = \"gpt\"\ntargets = [{{ provider = \"up\", model = \"gpt\" }}]\n"
    );
    setup.log += "[admin]\ncredential_sources = [\"file:/*/new.key\", \"env:PROVIDER_*\"]\n";
    let gateway = Gateway::start(&setup).await;
    let provider = |name: &str, base: &str, credential: Value| json!({ "name": name, "kind": "openai-compatible", "base_url": base, "credential": credential });
    let evil = "http://127.0.0.9:9/v1";
    for (source, base, field) in [
        (json!({ "file": "hidden" }), here.as_str(), "credential.file"),
        (json!({ "file": "/etc/passwd" }), &here, "credential.file"),
        (json!({ "file": "new.key/../hidden" }), &here, "credential.file"),
        (json!({ "env": "HOME" }), &here, "credential.env"),
        (json!({ "file": "used.key" }), evil, "base_url"),
        (json!({ "file": "./used.key" }), evil, "base_url"),
    ] {
        let ask = post("/providers").body(provider("p", base, source.clone()));
        assert_eq!(refused(&gateway, ask).await, field, "{source}");
    }
    assert_eq!(
        refused(&gateway, patch("/providers/up", json!({ "credential": { "env": "HOME" } }))).await,
        "credential.env"
    );
    post("/providers")
        .body(provider("same", &here, json!({ "file": "used.key" })))
        .expect(&gateway, 200)
        .await;
    post("/providers").body(provider("new", evil, json!({ "file": "new.key" }))).expect(&gateway, 200).await;
    // One without a secret first, and the secret then.
    post("/providers")
        .body(json!({ "name": "open", "kind": "openai-compatible", "base_url": evil }))
        .expect(&gateway, 200)
        .await;
    let then = patch("/providers/open", json!({ "credential": { "file": "used.key" } }));
    assert_eq!(refused(&gateway, then).await, "base_url");
    let access = json!({ "access_key": { "id": "MGWA0123456789ABCDEF", "secret": { "env": "HOME" } } });
    assert_eq!(refused(&gateway, patch("/keys/alice", access)).await, "access_key.secret.env");
}

#[tokio::test]
async fn admin_refuses_addresses_of_metadata_services() {
    let mut setup = with_tokens(Setup::new());
    setup.log += "[admin]\nprovider_hosts = [\"169.254.7.7\"]\n";
    let gateway = Gateway::start(&setup).await;
    for (number, (host, status)) in [
        ("169.254.169.254", 400),
        ("[::ffff:169.254.169.254]", 400),
        ("[fe80::1]", 400),
        ("2852039166", 400),
        ("metadata.google.internal", 400),
        ("169.254.7.7", 200),
        ("127.0.0.1:1", 200),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({
            "name": format!("p{number}"), "kind": "openai-compatible", "base_url": format!("http://{host}/latest"),
            "check": {},
        });
        let answer = post("/providers").body(body).expect(&gateway, status).await;
        if status == 400 {
            assert_eq!(answer["error"]["field"], "base_url", "{host}: {answer}");
        }
    }
}
