//! What the audit log has besides the changes of callers: commands, signals, refusals; and the values of an undo.

use serde_json::{Value, json};

use super::{Ask, OPERATOR, get, post, with_tokens};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::until;

async fn lines(gateway: &Gateway, query: &str) -> Vec<Value> {
    get(&format!("/audit{query}")).expect(gateway, 200).await["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn admin_audit_has_the_changes_of_commands_and_signals() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    gateway.command(&["keys", "create", "by-command", "--model", "gpt-*"]);
    gateway.command(&["accounts", "create", "acme", "--credit", "5"]);
    gateway.command(&["accounts", "credit", "acme", "2.5", "--note", "invoice"]);
    gateway.command(&["accounts", "disable", "acme"]);
    gateway.command(&["admin", "create", "ops", "--role", "operate"]);
    gateway.reload("applied").await;
    gateway.command(&["keys", "disable", "by-command"]);
    let all = lines(&gateway, "?limit=20").await;
    let actions: Vec<&str> = all.iter().rev().map(|line| line["action"].as_str().unwrap()).collect();
    let expected = [
        "key.create",
        "account.create",
        "account.credit",
        "account.update",
        "token.create",
        "config.reload",
        "key.update",
    ];
    assert_eq!(actions, expected);
    let created = all.last().unwrap();
    assert!(created["actor"].as_str().unwrap().starts_with("uid:"), "{created}");
    assert_eq!((&created["via"], &created["object"]), (&json!("command"), &json!("key/by-command")));
    assert_eq!((&created["before"], &created["after"]["models"]), (&Value::Null, &json!(["gpt-*"])));
    assert_eq!(created["after"]["sha256"].as_str().unwrap().len(), 12, "{created}");
    let disabled = &all[0];
    assert_eq!(
        (&disabled["before"]["enabled"], &disabled["after"]["enabled"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(all[1]["actor"], "signal:SIGHUP");
    assert_eq!(all[3]["after"], json!({ "enabled": false }));
    // One chain, of all writers: two lines for a change, one for the reload.
    let checked = gateway.command(&["audit", "verify"]);
    assert!(checked.starts_with("13 lines, 1 to 13"), "{checked}");

    // The change of a command is undone like any other, and its line says what it has changed.
    post("/config/reload").expect(&gateway, 200).await;
    let undone = post(&format!("/audit/{}/undo", disabled["seq"])).expect(&gateway, 200).await;
    assert_eq!((&undone["before"]["enabled"], &undone["after"]["enabled"]), (&json!(false), &json!(true)));
    let line = &lines(&gateway, "?action=change.undo").await[0];
    assert_eq!((&line["before"]["enabled"], &line["after"]["enabled"]), (&json!(false), &json!(true)));
    assert_eq!(get("/keys/by-command").expect(&gateway, 200).await["enabled"], true);
}

#[tokio::test]
async fn admin_audit_has_refused_callers() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    post("/keys").token(OPERATOR).body(json!({ "name": "x" })).expect(&gateway, 403).await;
    post("/keys").token("mga_wrong").body(json!({ "name": "x" })).expect(&gateway, 401).await;
    let sign_in = Ask::new("POST", "/session").body(json!({ "token": "mga_wrong" }));
    sign_in.expect(&gateway, 401).await;
    gateway.replace("routes.toml", "[[provider]\n");
    gateway.reload("refused").await;
    until(|| gateway.read("admin/audit.jsonl").lines().count() == 4).await;
    let mut all = lines(&gateway, "?outcome=refused").await;
    all.sort_by_key(|line| line["action"].as_str().unwrap().to_owned());
    let role = all.iter().find(|line| line["actor"] == "token:otto").unwrap();
    assert_eq!((&role["object"], &role["operation"]), (&json!("/keys"), &json!("createKey")));
    assert_eq!((&role["code"], &role["role"]), (&json!("forbidden"), &json!("operate")));
    let unknown = all.iter().filter(|line| line["code"] == "unauthenticated").collect::<Vec<_>>();
    assert_eq!(unknown.len(), 2, "{all:?}");
    assert!(unknown.iter().all(|line| line["actor"] == "none" && line["client"] == "127.0.0.1"), "{all:?}");
    assert_eq!(unknown[1]["action"], "session.begin");
    let reload = all.iter().find(|line| line["action"] == "config.reload").unwrap();
    assert!(reload["faults"][0].as_str().unwrap().contains("routes.toml"), "{reload}");
    assert!(!gateway.read("admin/audit.jsonl").contains("mga_wrong"));
}

/// Who holds the door shut with wrong tokens does not fill the disk.
#[tokio::test]
async fn admin_audit_lines_of_refused_callers_are_bounded() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    for number in 0..60 {
        post("/keys").token(OPERATOR).body(json!({ "name": number })).expect(&gateway, 403).await;
    }
    let lines = lines(&gateway, "?limit=1000").await.len();
    assert!((15..=40).contains(&lines), "{lines}");
}
