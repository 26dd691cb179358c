//! Changes through the admin API: keys, accounts, models and providers, targets, reloads; audit log and undo.

use serde_json::{Value, json};

use super::{OPERATOR, get, post, with_tokens};
use crate::bodies::body_of;
use crate::reload::halting;
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};

use super::{ADMIN, Ask};

pub(super) fn patch(path: &str) -> Ask {
    Ask::new("PATCH", path).token(ADMIN)
}

pub(super) async fn chat(gateway: &Gateway, key: &str) -> u16 {
    gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", key)], body_of(200))).await.status()
}

pub(super) async fn provider() -> Upstream {
    Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await
}

#[tokio::test]
async fn admin_key_is_created_used_changed_rotated_and_removed() {
    let upstream = provider().await;
    let mut setup = with_tokens(Setup::providers(upstream.addr));
    setup.keys = format!("# Keys of the team.\n{}# The last line.\n", setup.keys);
    let gateway = Gateway::start(&setup).await;

    let tried = post("/keys?dry_run=true").body(json!({ "name": "ci" })).expect(&gateway, 200).await;
    assert_eq!((&tried["applied"], &tried["key"]), (&json!(false), &Value::Null));
    assert_eq!(gateway.read("keys.toml"), setup.keys);

    let members = json!({
        "name": "ci", "models": ["gpt"], "expires": "2100-01-01T00:00:00Z",
        "limits": { "spend_per_day": "0.25", "requests_per_minute": 60 },
    });
    let created = post("/keys").body(members).expect(&gateway, 200).await;
    let key = created["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("mgw_"), "{created}");
    assert_eq!(chat(&gateway, &key).await, 200);
    let text = gateway.read("keys.toml");
    let (before, last) = setup.keys.rsplit_once("# The last line.").unwrap();
    assert!(text.starts_with(before), "the lines before are untouched: {text}");
    assert!(text.ends_with(&format!("# The last line.{last}")), "the last line stays the last one: {text}");
    assert!(text.contains("# Added by token:anna through the admin API.\n[[key]]\nname = \"ci\""), "{text}");
    assert!(
        text.contains("spend_per_day = 0.25") && text.contains("expires = 2100-01-01T00:00:00Z"),
        "{text}"
    );
    assert!(!text.contains(&key));

    let shown = get("/keys/ci").expect(&gateway, 200).await;
    assert_eq!(shown["limits"]["spend_per_day"], "0.25");
    assert_eq!((&shown["state"], &shown["etag"]), (&json!("usable"), &created["etag"]));
    assert_eq!(shown["sha256"].as_str().unwrap().len(), 12);

    // With a version that is not the present one, nothing changes.
    let stale = patch("/keys/ci").header("if-match", "\"0123\"").body(json!({ "enabled": false }));
    assert_eq!(stale.expect(&gateway, 412).await["error"]["code"], "stale");
    assert_eq!(chat(&gateway, &key).await, 200);
    let etag = shown["etag"].as_str().unwrap();
    let off = patch("/keys/ci").header("if-match", &format!("\"{etag}\""));
    let changed = off.body(json!({ "enabled": false, "models": null })).expect(&gateway, 200).await;
    assert_eq!((&changed["before"]["models"], &changed["after"]["models"]), (&json!(["gpt"]), &Value::Null));
    assert_eq!(chat(&gateway, &key).await, 401);
    patch("/keys/ci").body(json!({ "enabled": true })).expect(&gateway, 200).await;

    let rotated = post("/keys/ci/rotate").expect(&gateway, 200).await;
    let new = rotated["key"].as_str().unwrap().to_owned();
    assert_eq!((chat(&gateway, &key).await, chat(&gateway, &new).await), (401, 200));
    Ask::new("DELETE", "/keys/ci").token(ADMIN).expect(&gateway, 200).await;
    assert_eq!(chat(&gateway, &new).await, 401);
    let after = gateway.read("keys.toml");
    assert_eq!(after, setup.keys, "creating and removing an entry leaves nothing behind");

    // Neither key is written anywhere.
    for name in ["admin/audit.jsonl", "stderr", "keys.toml"] {
        let text = gateway.read(name);
        assert!(!text.contains(&key) && !text.contains(&new), "{name}");
    }
}

#[tokio::test]
async fn admin_change_that_check_refuses_changes_nothing() {
    let upstream = provider().await;
    let setup = with_tokens(Setup::providers(upstream.addr));
    let gateway = Gateway::start(&setup).await;
    let before = (gateway.read("keys.toml"), gateway.read("routes.toml"));
    for (request, field) in [
        (post("/keys").body(json!({ "name": "x", "losses": "some" })), "key[4].losses"),
        (
            post("/keys").body(json!({ "name": "x", "limits": { "concurrent": 0 } })),
            "key[4].limits.concurrent",
        ),
        (post("/keys").body(json!({ "name": "x", "colour": "red" })), "key[4].colour"),
        (patch("/keys/alice").body(json!({ "models": 5 })), "key[0].models"),
        (patch("/keys/alice").body(json!({ "limits": { "spend_per_day": "much" } })), "limits.spend_per_day"),
        (patch("/keys/alice").body(json!({ "sha256": "0" })), "sha256"),
        (patch("/keys/alice").body(json!({ "expires": "soon" })), "expires"),
        (
            post("/models").body(json!({ "id": "x", "targets": [{ "provider": "nobody", "model": "m" }] })),
            "model[6].targets[0].provider",
        ),
        (post("/models").body(json!({ "id": "x" })), "model[6].targets"),
        (post("/providers").body(json!({ "name": "p", "kind": "none" })), "provider[3].kind"),
        (
            post("/providers")
                .body(json!({ "name": "p", "kind": "openai", "credential": { "value": "secret" } })),
            "credential.value",
        ),
        (Ask::new("DELETE", "/providers/openai").token(ADMIN), "model[0].targets[0].provider"),
    ] {
        let error = request.expect(&gateway, 400).await["error"].clone();
        assert_eq!(error["field"], field, "{request:?}: {error}");
    }
    assert_eq!((gateway.read("keys.toml"), gateway.read("routes.toml")), before);
    assert_eq!(gateway.status().await["generation"], 1);
    // Attempts are recorded, and secrets are not.
    let lines = get("/audit?outcome=refused").expect(&gateway, 200).await;
    assert!(lines["items"].as_array().unwrap().len() >= 9, "{lines}");
    assert!(!gateway.read("admin/audit.jsonl").contains("\"secret\""));
}

#[tokio::test]
async fn admin_models_and_providers_are_added_and_used() {
    let upstream = provider().await;
    let gateway = Gateway::start(&with_tokens(Setup::providers(upstream.addr))).await;
    let base = format!("http://{}/v1", upstream.addr);
    let added = json!({ "name": "local", "kind": "openai-compatible", "base_url": base, "apis": ["chat"] });
    post("/providers").body(added).expect(&gateway, 200).await;
    let model = json!({
        "id": "org/new", "targets": [{ "provider": "local", "model": "gpt" }],
        "price": { "input": "0.15", "output": 2.5, "tiers": [{ "above": 1000, "input": "0.3" }] },
    });
    let created = post("/models").body(model).expect(&gateway, 200).await;
    assert!(gateway.read("routes.toml").contains("input = 0.15"), "{}", gateway.read("routes.toml"));
    let shown = get("/models/org%2Fnew").expect(&gateway, 200).await;
    assert_eq!((&shown["price"]["output"], &shown["etag"]), (&json!("2.5"), &created["etag"]));
    assert_eq!(shown["targets"][0]["apis"]["messages"], "chat", "{shown}");
    let body = String::from_utf8(body_of(200)).unwrap().replacen("\"gpt\"", "\"org/new\"", 1);
    let answer = gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", KEY)], body)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    patch("/models/org%2Fnew").body(json!({ "policy": "least", "price": null })).expect(&gateway, 200).await;
    let shown = get("/models/local%2Forg%2Fnew").expect(&gateway, 200).await;
    assert_eq!((&shown["policy"], &shown["price"]), (&json!("least"), &Value::Null));
    assert_eq!(shown["resolved"]["provider"], "local");
    Ask::new("DELETE", "/models/org%2Fnew").token(ADMIN).expect(&gateway, 200).await;
    Ask::new("DELETE", "/providers/local").token(ADMIN).expect(&gateway, 200).await;
    get("/providers/local").expect(&gateway, 404).await;
}

#[tokio::test]
async fn admin_change_of_a_file_that_an_editor_has_changed_is_refused() {
    let upstream = provider().await;
    let setup = with_tokens(Setup::providers(upstream.addr));
    let gateway = Gateway::start(&setup).await;
    gateway.replace("keys.toml", &format!("{}# Edited by hand.\n", setup.keys));
    let files = get("/config/files").expect(&gateway, 200).await;
    let changed: Vec<&Value> =
        files["items"].as_array().unwrap().iter().filter(|file| file["changed"] == true).collect();
    assert!(changed.len() == 1 && changed[0]["path"].as_str().unwrap().ends_with("keys.toml"), "{files}");
    let kinds: Vec<&str> =
        files["items"].as_array().unwrap().iter().map(|file| file["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["gateway", "routes", "keys", "admin"]);
    assert!(changed[0]["size"].as_u64().unwrap() > 100 && changed[0]["modified"].is_string(), "{files}");
    let refused = post("/keys").body(json!({ "name": "x" })).expect(&gateway, 409).await;
    assert_eq!(refused["error"]["code"], "changed_on_disk");
    let reloaded = Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(reloaded["reload"]["result"], "applied", "{reloaded}");
    post("/keys").body(json!({ "name": "x" })).expect(&gateway, 200).await;
    assert!(gateway.read("keys.toml").contains("# Edited by hand.\n"));
    // A reload that is refused says why, and where.
    gateway.replace("routes.toml", "[[provider]\n");
    let reloaded = Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(reloaded["reload"]["result"], "refused");
    assert_eq!(reloaded["reload"]["faults"][0]["line"], 1, "{reloaded}");
}

#[tokio::test]
async fn admin_entries_go_to_the_state_folder_when_files_are_read_only() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "SKIPPED: for root every folder is writable");
        return;
    }
    let upstream = provider().await;
    let mut setup = with_tokens(Setup::providers(upstream.addr));
    // The keys are in a folder that the gateway may not write.
    let outside = tempfile::tempdir().unwrap();
    setup.server += &format!("keys = \"{}/conf/keys.toml\"\n", outside.path().display());
    let folder = outside.path().join("conf");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("keys.toml"), &setup.keys).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let gateway = Gateway::start(&setup).await;
    let created = post("/keys").body(json!({ "name": "new" })).expect(&gateway, 200).await;
    assert!(created["file"].as_str().unwrap().ends_with("admin/keys.d/admin.toml"), "{created}");
    assert_eq!(chat(&gateway, created["key"].as_str().unwrap()).await, 200);
    let refused = patch("/keys/alice").body(json!({ "enabled": false })).expect(&gateway, 409).await;
    assert_eq!(refused["error"]["code"], "read_only");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn admin_writes_can_be_switched_off() {
    let mut setup = with_tokens(Setup::new());
    setup.log += "[admin]\nwrites = false\n";
    let gateway = Gateway::start(&setup).await;
    let refused = post("/keys").body(json!({ "name": "x" })).expect(&gateway, 409).await;
    assert_eq!(refused["error"]["code"], "read_only");
    assert_eq!(get("/instance").expect(&gateway, 200).await["writes"], false);
    Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;
}

#[tokio::test]
async fn admin_changes_are_recorded_and_undone() {
    let setup = with_tokens(Setup::new());
    let gateway = Gateway::start(&setup).await;
    let first = post("/keys").body(json!({ "name": "one" })).expect(&gateway, 200).await;
    let second = post("/keys").body(json!({ "name": "two" })).expect(&gateway, 200).await;
    let undo = |change: &Value| post(&format!("/audit/{}/undo", change["audit"]));
    // Only the last change of a file: the other one would take that back too.
    assert_eq!(undo(&first).expect(&gateway, 412).await["error"]["code"], "stale");
    let undone = undo(&second).expect(&gateway, 200).await;
    get("/keys/two").expect(&gateway, 404).await;
    undo(&undone).expect(&gateway, 200).await;
    get("/keys/two").expect(&gateway, 200).await;

    let lines = get("/audit?outcome=applied").expect(&gateway, 200).await;
    let lines = lines["items"].as_array().unwrap();
    let actions: Vec<&str> = lines.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["change.undo", "change.undo", "key.create", "key.create"]);
    let line = &lines[3];
    assert_eq!(
        (&line["actor"], &line["object"], &line["role"]),
        (&json!("token:anna"), &json!("key/one"), &json!("admin"))
    );
    assert_eq!((&line["before"], &line["after"]["name"]), (&Value::Null, &json!("one")));
    assert_eq!(line["client"], "127.0.0.1");
    let page = get("/audit?limit=1&object=key%2Fone").expect(&gateway, 200).await;
    assert_eq!(
        (page["items"][0]["seq"].clone(), &page["next_cursor"]),
        (first["audit"].clone(), &Value::Null)
    );
}

#[tokio::test]
async fn admin_account_is_credited_once_for_a_reference() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    let created =
        post("/accounts").body(json!({ "name": "acme", "credit": "10" })).expect(&gateway, 200).await;
    assert_eq!(created["balance"], "10");
    let credit = Ask::new("POST", "/accounts/acme/credits").token(OPERATOR);
    let invoice = credit.clone().body(json!({ "amount": "2.5", "note": "invoice", "reference": "r-1" }));
    assert_eq!(invoice.expect(&gateway, 200).await["repeated"], false);
    let again = invoice.expect(&gateway, 200).await;
    assert_eq!((&again["repeated"], &again["balance"]), (&json!(true), &json!("12.5")));
    let other = credit.clone().body(json!({ "amount": "3", "reference": "r-1" })).expect(&gateway, 409).await;
    assert_eq!(other["error"]["field"], "reference");
    // A deduction takes money away, which is not for an operator.
    let deduction = credit.body(json!({ "amount": "-0.000000001" })).header("idempotency-key", "k-1");
    assert_eq!(deduction.expect(&gateway, 403).await["error"]["code"], "forbidden");
    assert_eq!(get("/accounts/acme").expect(&gateway, 200).await["balance"], "12.5");
    let keyed = deduction.token(ADMIN);
    keyed.expect(&gateway, 200).await;
    assert_eq!(keyed.expect(&gateway, 200).await["balance"], "12.499999999");
    for (body, status) in [
        (json!({ "amount": "1", "reference": "r-1" }), 409),
        (json!({ "amount": "2.5", "reference": "r-1" }), 200),
        (json!({ "amount": "9223372037" }), 400),
        (json!({ "amount": "1" }), 200),
    ] {
        let tried = post("/accounts/acme/credits?dry_run=true").body(body).expect(&gateway, status).await;
        assert!(status != 200 || tried["applied"] == false, "{tried}");
        assert!(
            status != 200
                || tried["balance"]
                    == if tried["repeated"] == true { "12.499999999" } else { "13.499999999" }
        );
    }
    let tried = post("/accounts?dry_run=true").body(json!({ "name": "new", "credit": "1" }));
    assert_eq!(tried.expect(&gateway, 200).await["balance"], "1");
    get("/accounts/new").expect(&gateway, 404).await;
    post("/accounts?dry_run=true").body(json!({ "name": "acme" })).expect(&gateway, 409).await;
    let first = get("/accounts/acme/credits?limit=2").expect(&gateway, 200).await;
    let rest = format!("/accounts/acme/credits?limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
    let rest = get(&rest).expect(&gateway, 200).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (1, &Value::Null), "{rest}");
    assert_eq!(rest["items"][0]["note"], "first credit");
    let credits = get("/accounts/acme/credits?limit=2").expect(&gateway, 200).await;
    assert_eq!(
        (&credits["items"][0]["reference"], credits["items"].as_array().unwrap().len()),
        (&json!("k-1"), 2)
    );
    patch("/accounts/acme").body(json!({ "enabled": false })).expect(&gateway, 200).await;
    post("/keys").body(json!({ "name": "of-acme", "account": "acme" })).expect(&gateway, 200).await;
    let limited =
        patch("/accounts/acme").body(json!({ "limits": { "concurrent": 2, "spend_per_day": "1.5" } }));
    let limited = limited.expect(&gateway, 200).await;
    assert_eq!((&limited["limits"]["concurrent"], &limited["enabled"]), (&json!(2), &json!(false)));
    assert_eq!(limited["limits"]["spend_per_day"], "1.5");
    let all = get("/accounts").expect(&gateway, 200).await;
    assert_eq!((&all["total"], &all["items"][0]["name"]), (&json!(1), &json!("acme")));
}

/// An operator sets the limits first and makes the keys then.
#[tokio::test]
async fn admin_limits_of_an_account_without_keys_are_shown() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    post("/accounts").body(json!({ "name": "new" })).expect(&gateway, 200).await;
    let limits = json!({ "limits": { "concurrent": 2, "spend_per_day": "1.5" } });
    let changed = patch("/accounts/new").body(limits).expect(&gateway, 200).await;
    let read = get("/accounts/new").expect(&gateway, 200).await;
    let list = get("/accounts").expect(&gateway, 200).await;
    for shown in [&changed, &read, &list["items"][0]] {
        assert_eq!(
            (&shown["limits"]["concurrent"], &shown["limits"]["spend_per_day"]),
            (&json!(2), &json!("1.5"))
        );
    }
    let used = get("/accounts/new/limits").expect(&gateway, 200).await;
    assert_eq!((&used["items"][0]["limit"], &used["items"][0]["used"]), (&json!("concurrent"), &json!("0")));
}

#[tokio::test]
async fn admin_change_of_an_account_takes_place_as_a_whole_or_not_at_all() {
    let gateway = Gateway::start(&with_tokens(Setup::new().account("acme", "5"))).await;
    let is_enabled = async || get("/accounts/acme").expect(&gateway, 200).await["enabled"] == true;
    let both = |limits: Value| patch("/accounts/acme").body(json!({ "enabled": false, "limits": limits }));
    both(json!({ "concurrent": 0 })).expect(&gateway, 400).await;
    assert!(is_enabled().await, "a refused limit has disabled the account");
    let stale = both(json!({ "concurrent": 2 })).header("if-match", "\"0123456789abcdef0123456789abcdef\"");
    assert_eq!(stale.expect(&gateway, 412).await["error"]["code"], "stale");
    assert!(is_enabled().await, "a stale change has disabled the account");
    let nobody = patch("/accounts/nobody").body(json!({ "enabled": true, "limits": { "concurrent": 2 } }));
    nobody.expect(&gateway, 404).await;
    assert!(!gateway.read("keys.toml").contains("nobody"));
    let changed = both(json!({ "concurrent": 2 })).expect(&gateway, 200).await;
    assert_eq!((&changed["enabled"], &changed["limits"]["concurrent"]), (&json!(false), &json!(2)));
    // The version of an account is that of the file that has its limits.
    let etag = get("/accounts/acme").send(&gateway).await.get("etag").unwrap().to_owned();
    let stale = patch("/accounts/acme").body(json!({ "enabled": true })).header("if-match", "\"0\"");
    stale.expect(&gateway, 412).await;
    assert!(!is_enabled().await);
    let current = patch("/accounts/acme").body(json!({ "enabled": true })).header("if-match", &etag);
    current.expect(&gateway, 200).await;
    // A dry run shows what would be, and changes nothing.
    let tried = patch("/accounts/acme?dry_run=true")
        .body(json!({ "enabled": false, "limits": { "spend_per_day": "1.5" } }))
        .expect(&gateway, 200)
        .await;
    assert_eq!((&tried["applied"], &tried["enabled"]), (&json!(false), &json!(false)));
    assert_eq!(
        (&tried["limits"]["concurrent"], &tried["limits"]["spend_per_day"]),
        (&json!(2), &json!("1.5"))
    );
    let shown = get("/accounts/acme").expect(&gateway, 200).await;
    assert_eq!((&shown["enabled"], &shown["limits"]["spend_per_day"]), (&json!(true), &Value::Null));
    // A null removes what it names.
    let removed = patch("/accounts/acme").body(json!({ "limits": null })).expect(&gateway, 200).await;
    assert_eq!(removed["limits"]["concurrent"], Value::Null, "{removed}");
}

#[tokio::test]
async fn admin_change_of_an_account_with_writes_off_changes_nothing() {
    let mut setup = with_tokens(Setup::new().account("acme", "5"));
    setup.log += "[admin]\nwrites = false\n";
    let gateway = Gateway::start(&setup).await;
    let both = json!({ "enabled": false, "limits": { "concurrent": 2 } });
    let refused = patch("/accounts/acme").body(both).expect(&gateway, 409).await;
    assert_eq!(refused["error"]["code"], "read_only");
    assert_eq!(get("/accounts/acme").expect(&gateway, 200).await["enabled"], true);
}

#[tokio::test]
async fn admin_drained_target_gets_no_further_requests_and_ends_those_in_progress() {
    let gate = Gate::new();
    let first = halting(Form::Chat, &gate).await;
    let second = provider().await;
    let base = |upstream: &Upstream| format!("http://{}/v1", upstream.addr);
    let mut setup = Setup::new().provider("a", "openai-compatible", &base(&first), "").provider(
        "b",
        "openai-compatible",
        &base(&second),
        "",
    );
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"a\", model = \"gpt\" }, \
                     { provider = \"b\", model = \"gpt\", tier = 1 }]\n";
    let gateway = Gateway::start(&with_tokens(setup)).await;
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request(true)).await;
    client.head().await;
    let frames = Form::Chat.frames("gpt");
    let mut seen = Vec::new();
    read_until(&mut client, &mut seen, &frames[0]).await;

    let drain = Ask::new("POST", "/targets/a/gpt/drain").token(OPERATOR);
    let drained = drain.expect(&gateway, 200).await;
    assert_eq!((&drained["changed"], &drained["target"]["state"]), (&json!(true), &json!("drained")));
    assert_eq!(drained["target"]["in_flight"], 1, "{drained}");
    assert_eq!(drain.expect(&gateway, 200).await["changed"], false);
    let metrics = gateway.metrics().await;
    let labels = [("provider", "a"), ("target", "gpt"), ("reason", "drained")];
    assert_eq!(metrics.sum("gateway_target_reason", &labels), 1.0);
    assert_eq!(metrics.sum("gateway_targets_drained", &[]), 1.0);
    for _ in 0..3 {
        assert_eq!(chat(&gateway, KEY).await, 200);
    }
    assert_eq!((first.count(), second.count()), (1, 3));
    // A reload does not resume it.
    Ask::new("POST", "/config/reload").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(chat(&gateway, KEY).await, 200);
    assert_eq!((first.count(), second.count()), (1, 4));
    gate.open();
    while let Piece::Data(piece) = client.piece().await {
        seen.extend_from_slice(&piece);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), frames.concat());
    let resumed = Ask::new("POST", "/targets/a/gpt/resume").token(OPERATOR).expect(&gateway, 200).await;
    assert_eq!(resumed["target"]["state"], "closed");
    assert_eq!(resumed["target"]["in_flight"], 0, "the state is the same one: {resumed}");
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request(true)).await;
    client.head().await;
    assert_eq!((first.count(), second.count()), (2, 4));
}

/// Keys that look usable and permit nothing, because their models are misspelt or gone.
#[tokio::test]
async fn admin_keys_tell_of_models_that_there_are_not() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&with_tokens(Setup::providers(upstream.addr))).await;
    let create = async |name: &str, models: Value| {
        let made = post("/keys").body(json!({ "name": name, "models": models })).expect(&gateway, 200).await;
        let shown = get(&format!("/keys/{name}")).expect(&gateway, 200).await;
        (made["warnings"].clone(), shown["permits_nothing"].clone(), shown["unmatched_models"].clone())
    };
    let (warnings, nothing, unmatched) = create("typo", json!(["claud"])).await;
    assert!(warnings[0].as_str().unwrap().contains("did you mean \"claude\"?"), "{warnings}");
    assert_eq!(warnings[1], "the key permits no configured model");
    assert_eq!((nothing, unmatched), (json!("models"), json!(["claud"])));
    let (warnings, nothing, unmatched) = create("some", json!(["gpt", "gone-*"])).await;
    assert_eq!((warnings.as_array().unwrap().len(), nothing, unmatched), (1, Value::Null, json!(["gone-*"])));
    let (warnings, nothing, unmatched) = create("none", json!([])).await;
    assert_eq!((warnings.as_array().unwrap().len(), nothing, unmatched), (1, json!("models"), json!([])));
    let (warnings, nothing, unmatched) = create("fine", json!(["fast-*"])).await;
    assert_eq!((warnings, nothing, unmatched), (Value::Null, Value::Null, json!([])));
    let changed = patch("/keys/fine").body(json!({ "models": ["nope"] })).expect(&gateway, 200).await;
    assert_eq!(changed["warnings"].as_array().unwrap().len(), 2, "{changed}");
    let changed = patch("/keys/fine").body(json!({ "enabled": false })).expect(&gateway, 200).await;
    assert_eq!(changed["warnings"], Value::Null);
    let listed = get("/keys?q=typo").expect(&gateway, 200).await;
    assert_eq!(listed["items"][0]["permits_nothing"], "models");
    // One gateway alone: its keys are valid everywhere.
    assert_eq!(get("/instance").expect(&gateway, 200).await["keys_at_this_gateway_only"], false);
    assert_eq!(gateway.status().await["keys_at_this_gateway_only"], false);
}
