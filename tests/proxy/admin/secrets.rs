//! Secrets of the configuration: a marker at each place that has one, or may have one, is in no output.

use std::collections::BTreeMap;
use std::process::Command;

use model_gateway::config::{reference::ConfigFile, secret_paths};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{ADMIN, Ask, get, post, with_tokens};
use crate::support::gateway::Gateway;
use crate::support::ports::free_port;
use crate::support::setup::Setup;
use crate::support::until;

/// Secret places of the configuration, each with its marker. The value of a URL has it as its user or in its query.
const MARKERS: [(&str, &str); 14] = [
    ("provider.credential.value", "mark01-credential-0123456789"),
    ("provider.headers", "mark02-header-0123456789"),
    ("provider.check.path", "mark03-check-0123456789"),
    ("provider.azure.client_secret.value", "mark04-azure-0123456789"),
    ("provider.azure.authority", "mark05-authority-0123456789"),
    ("provider.aws.session_token.value", "mark06-session-0123456789"),
    ("provider.aws.external_id", "mark07-external-0123456789"),
    ("provider.aws.sts_url", "mark08-sts-0123456789"),
    ("provider.aws.endpoint", "mark09-endpoint-0123456789"),
    ("tokens.key.secret.value", "mark10-signing-0123456789-0123456789-0123456789"),
    ("key.access_key.secret.value", "mark11-access-0123456789"),
    ("telemetry.headers", "mark12-telemetry-0123456789"),
    ("telemetry.otlp", "mark13-collector-0123456789"),
    ("store.valkey", "mark14-store-0123456789"),
];
/// Places that the reader refuses if they have a secret: they are tried with wrong texts.
const REFUSED: [(&str, &str); 2] =
    [("provider.base_url", "mark15-base-0123456789"), ("telemetry.otlp", "mark16-user-0123456789")];

fn marker(path: &str) -> &'static str {
    MARKERS.iter().find(|(known, _)| *known == path).unwrap().1
}

/// Configuration with the markers, but for that of `store.valkey`.
fn marked() -> Setup {
    let mut setup = with_tokens(Setup::new());
    let dead = free_port();
    let value = |path| format!("{{ value = \"{}\" }}", marker(path));
    setup.routes = format!(
        "[[tokens.key]]\nid = \"one\"\nalgorithm = \"HS256\"\nsecret = {signing}\n\n\
         [[provider]]\nname = \"plain\"\nkind = \"openai-compatible\"\nbase_url = \"http://{dead}/v1\"\n\
         credential = {credential}\nheaders = {{ x-secret = \"{header}\" }}\n\
         check = {{ path = \"/models?key={check}\", every = \"100ms\", timeout = \"100ms\" }}\n\n\
         [[provider]]\nname = \"az\"\nkind = \"azure\"\nbase_url = \"http://{dead}\"\n[provider.azure]\n\
         source = \"client-secret\"\ntenant = \"t\"\nclient_id = \"c\"\nclient_secret = {azure}\n\
         authority = \"http://{dead}/{authority_path}\"\n\n\
         [[provider]]\nname = \"cloud\"\nkind = \"bedrock\"\nbase_url = \"http://{dead}\"\ncredential = {credential}\n\
         [provider.aws]\nregion = \"eu-west-1\"\naccess_key_id = \"AKIA0123456789\"\nsession_token = {session}\n\
         role_arn = \"arn:aws:iam::123456789012:role/gateway\"\nexternal_id = \"{external}\"\n\
         sts_url = \"http://user:{sts}@{dead}/\"\nendpoint = \"http://{dead}/?token={endpoint}\"\n\n\
         [[model]]\nid = \"gpt\"\ntargets = [{{ provider = \"plain\", model = \"gpt\" }}]\n\n\
         [[model]]\nid = \"claude\"\ntargets = [{{ provider = \"cloud\", model = \"claude\" }}]\n",
        signing = value("tokens.key.secret.value"),
        credential = value("provider.credential.value"),
        header = marker("provider.headers"),
        check = marker("provider.check.path"),
        azure = value("provider.azure.client_secret.value"),
        authority_path = "",
        session = value("provider.aws.session_token.value"),
        external = marker("provider.aws.external_id"),
        sts = marker("provider.aws.sts_url"),
        endpoint = marker("provider.aws.endpoint"),
    );
    setup.keys += &format!(
        "[[key]]\nname = \"signer\"\nsha256 = \"{}\"\naccess_key = {{ id = \"MGWA0123456789ABCDEF\", secret = {} }}\n",
        "1".repeat(64),
        value("key.access_key.secret.value")
    );
    setup.log = format!(
        "level = \"trace\"\n[telemetry]\notlp = \"http://{dead}\"\nmetrics = true\nlogs = true\ntimeout = \"1s\"\n\
         interval = \"1s\"\nsample = 1\n[telemetry.headers]\nauthorization = \"Bearer {}\"\n",
        marker("telemetry.headers"),
    );
    setup
}

/// Outputs by their names.
#[derive(Default)]
struct Outputs(Vec<(String, String)>);

impl Outputs {
    async fn send(&mut self, ask: Ask, gateway: &Gateway) -> Value {
        let name = format!("{ask:?}").chars().take(160).collect();
        let answer = ask.send(gateway).await;
        self.0.push((name, answer.everything()));
        serde_json::from_str(answer.text()).unwrap_or_default()
    }

    fn command(&mut self, gateway: &Gateway, arguments: &[&str]) {
        let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
            .args(arguments)
            .arg("--conf")
            .arg(gateway.folder().join("gateway.toml"))
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        self.0.push((arguments.join(" "), text));
    }

    /// Fails if a marker is in an output. Returns the number of pairs that were looked at.
    fn assert_none(&self) -> usize {
        let mut found = Vec::new();
        for (path, marker) in MARKERS.iter().chain(&REFUSED) {
            for (name, text) in &self.0 {
                if let Some(line) = text.lines().find(|line| line.contains(marker)) {
                    found.push(format!("{path} in {name}: {}", line.chars().take(400).collect::<String>()));
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
        (MARKERS.len() + REFUSED.len()) * self.0.len()
    }
}

/// Wrong notations of each place with a marker, as texts of the file.
fn broken(text: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for (_, marker) in MARKERS {
        let Some(at) = text.find(marker) else { continue };
        let begin = text[..at].rfind('"').unwrap();
        let end = at + text[at..].find('"').unwrap();
        let quoted = &text[begin..=end];
        let edits = [
            format!("[{quoted}]"),
            format!("{{ x = {quoted} }}"),
            quoted[..quoted.len() - 1].to_owned(),
            quoted.trim_matches('"').to_owned(),
            format!("{quoted} {quoted}"),
            format!("{}\\q\"", &quoted[..quoted.len() - 1]),
            format!("{}\"", quoted.replace('"', "\"\"\"")),
        ];
        for edit in edits {
            texts.push(format!("{}{edit}{}", &text[..begin], &text[end + 1..]));
        }
        // The text of a source, or of a table, in place of the table.
        for parent in
            ["value = ", "authorization = ", "x-secret = ", "path = ", "external_id = ", "sts_url = "]
        {
            if text[..begin].ends_with(parent) {
                texts.push(format!(
                    "{}{parent}5, valeu = {quoted}{}",
                    &text[..begin - parent.len()],
                    &text[end + 1..]
                ));
            }
        }
    }
    for (from, to) in [
        ("credential = { value = ", "credential = { value = 5, other = "),
        ("credential = {", "credential = [{"),
        ("client_secret = { value = ", "client_secret = [ "),
        ("session_token = { value = ", "session_token = [ "),
        ("access_key = {", "access_key = [{"),
        ("headers = {", "headers = [{"),
    ] {
        let close = if to.ends_with("[{") { "}]" } else { "]" };
        let Some(at) = text.find(from) else { continue };
        let line_end = at + text[at..].find('\n').unwrap();
        let line = text[at..line_end].replacen(from, to, 1);
        let line =
            if to.contains('[') { format!("{}{close}", line.trim_end_matches(['}', ' '])) } else { line };
        texts.push(format!("{}{line}{}", &text[..at], &text[line_end..]));
    }
    texts
}

async fn read_all(outputs: &mut Outputs, gateway: &Gateway) {
    for path in [
        "",
        "/config",
        "/config/files",
        "/config/pending",
        "/providers",
        "/providers/plain",
        "/providers/az",
        "/providers/cloud",
        "/keys",
        "/keys/signer",
        "/models",
        "/models/gpt",
        "/targets",
        "/instance",
        "/totals",
        "/limits",
        "/audit?limit=1000",
        "/audit?outcome=begun",
        "/fleet",
        "/accounts",
        "/usage",
        "/session",
        "/openapi.json",
        "/usage/records",
    ] {
        outputs.send(get(path), gateway).await;
    }
    for path in ["/status", "/metrics", "/healthz", "/readyz"] {
        outputs.0.push((path.to_owned(), gateway.admin(path).await.text().to_owned()));
    }
}

async fn refuse_all(outputs: &mut Outputs, gateway: &Gateway) {
    let secret = "mark01-credential-0123456789";
    let provider = |more: Value| {
        let mut entry =
            json!({ "name": "new", "kind": "openai-compatible", "base_url": "http://127.0.0.1:1" });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    for (more, field) in [
        (json!({ "credential": { "value": secret } }), "credential.value"),
        (json!({ "credential": { "valeu": secret } }), "credential.valeu"),
        (json!({ "credential": secret }), "credential"),
        (json!({ "credential": [{ "value": secret }] }), "credential.value"),
        (json!({ "headers": { "x": secret } }), "headers.x"),
        (json!({ "aws": { "session_token": { "value": secret } } }), "aws.session_token.value"),
        (json!({ "aws": { "session_token": secret } }), "aws.session_token"),
        (json!({ "aws": { "external_id": secret } }), "aws.external_id"),
        (json!({ "azure": { "client_secret": { "value": secret } } }), "azure.client_secret.value"),
        (json!({ "aws": { "sts_url": format!("https://u:{secret}@h/") } }), "aws.sts_url"),
        (json!({ "base_url": format!("https://u:{secret}@h/") }), "base_url"),
    ] {
        let created = outputs.send(post("/providers").body(provider(more.clone())), gateway).await;
        assert_eq!(created["error"]["field"], field, "{more}: {created}");
        let patch = Ask::new("PATCH", "/providers/plain").token(ADMIN).body(more);
        assert_eq!(outputs.send(patch, gateway).await["error"]["field"], field);
    }
    let access = json!({ "access_key": { "id": "MGWA0123456789ABCDEX", "secret": { "value": secret } } });
    let mut new = access.clone();
    new["name"] = "new".into();
    for ask in [post("/keys").body(new), Ask::new("PATCH", "/keys/alice").token(ADMIN).body(access)] {
        assert_eq!(outputs.send(ask, gateway).await["error"]["field"], "access_key.secret.value");
    }
}

#[tokio::test]
async fn admin_secrets_are_in_no_output() {
    let known: BTreeMap<&str, &str> = MARKERS.into_iter().chain(REFUSED).collect();
    let mut paths = 0;
    for path in ConfigFile::ALL.into_iter().flat_map(secret_paths) {
        let is_covered = known.keys().any(|known| *known == path || known.starts_with(&format!("{path}.")));
        assert!(is_covered, "{path} may have a secret, and no marker");
        paths += 1;
    }
    let setup = marked();
    let gateway = Gateway::start(&setup).await;
    let mut outputs = Outputs::default();
    refuse_all(&mut outputs, &gateway).await;
    let timeouts = json!({ "timeouts": { "connect": "2s" } });
    let mut last = 0;
    for provider in ["plain", "az", "cloud"] {
        let path = format!("/providers/{provider}");
        for query in ["?dry_run=true", ""] {
            let patch = Ask::new("PATCH", &format!("{path}{query}")).token(ADMIN).body(timeouts.clone());
            let changed = outputs.send(patch, &gateway).await;
            assert_eq!(changed["applied"], query.is_empty(), "{changed}");
            last = changed["audit"].as_u64().unwrap_or(last);
        }
    }
    outputs.send(post(&format!("/audit/{last}/undo")), &gateway).await;
    let patch = Ask::new("PATCH", "/keys/signer").token(ADMIN).body(json!({ "enabled": false }));
    outputs.send(patch, &gateway).await;
    let removed = outputs.send(Ask::new("DELETE", "/providers/az").token(ADMIN), &gateway).await;
    assert_eq!(removed["before"]["azure"]["client_secret"]["value"], "***", "{removed}");
    let back = outputs.send(post(&format!("/audit/{}/undo", removed["audit"])), &gateway).await;
    assert_eq!(back["after"]["azure"]["client_secret"]["value"], "***", "{back}");
    outputs.send(Ask::new("DELETE", "/keys/signer").token(ADMIN), &gateway).await;
    let undo = get("/audit?action=key.delete").expect(&gateway, 200).await["items"][0]["seq"].clone();
    outputs.send(post(&format!("/audit/{undo}/undo")), &gateway).await;
    read_all(&mut outputs, &gateway).await;
    outputs.command(&gateway, &["check", "--print"]);
    outputs.command(&gateway, &["check", "--no-secrets"]);
    outputs.command(&gateway, &["audit", "verify"]);
    // Texts with faults beside the secrets.
    let conf = gateway.read("gateway.toml");
    let mut routes = broken(&setup.routes);
    let dead = free_port();
    routes.push(setup.routes.replacen("http://", &format!("http://u:{}@", REFUSED[0].1), 1));
    let user = conf.replace("otlp = \"http://", &format!("otlp = \"http://u:{}@", REFUSED[1].1));
    let query = conf.replace(
        "[telemetry]\notlp = \"http://",
        &format!("[telemetry]\notlp = \"http://{dead}/?{}&", marker("telemetry.otlp")),
    );
    let store = format!("{conf}[store]\nvalkey = \"redis://:{}@{dead}\"\n", marker("store.valkey"));
    let gateways = broken(&conf).into_iter().chain(broken(&store)).chain([user, query, store]);
    let texts = routes.iter().map(|text| ("routes", text.clone()));
    let texts = texts.chain(broken(&setup.keys).into_iter().map(|text| ("keys", text)));
    let texts: Vec<_> = texts.chain(gateways.map(|text| ("gateway", text))).collect();
    for (file, text) in &texts {
        outputs.send(post("/config/validate").body(json!({ *file: text })), &gateway).await;
    }
    let (good, faulty): (Vec<&String>, usize) = (routes.iter().step_by(5).collect(), texts.len());
    for text in good {
        gateway.replace("routes.toml", text);
        gateway.signal(Signal::SIGHUP);
        outputs.send(post("/config/reload"), &gateway).await;
        outputs.send(get("/config/pending"), &gateway).await;
        outputs.command(&gateway, &["check", "--print"]);
        outputs.0.push(("/status".to_owned(), gateway.admin("/status").await.text().to_owned()));
    }
    // The token in a path of a health check has changed: that it has is said, and not to what.
    gateway.replace("routes.toml", &setup.routes.replace("?key=mark03", "?key=mark33"));
    let pending = outputs.send(get("/config/pending"), &gateway).await;
    let change = pending["changes"].as_array().unwrap().iter().find(|change| change["name"] == "plain");
    assert_eq!(change.unwrap()["members"], json!(["check"]), "{pending}");
    gateway.replace("routes.toml", &setup.routes);
    gateway.reload("applied").await;
    read_all(&mut outputs, &gateway).await;
    // Telemetry is exported each second, to a collector that is not there.
    until(|| gateway.log().contains("telemetry was not exported")).await;
    let mut gateway = gateway;
    gateway.signal(Signal::SIGTERM);
    gateway.ended().await;
    outputs.0.push(("logs".to_owned(), gateway.everything_written()));
    outputs.0.push(("audit.jsonl".to_owned(), gateway.read("admin/audit.jsonl")));
    let pairs = outputs.assert_none();
    eprintln!("{paths} secret paths, {} outputs, {faulty} faulty texts, {pairs} pairs", outputs.0.len());
}

/// The password of a store that cannot be reached.
#[tokio::test]
async fn admin_password_of_the_store_is_in_no_output() {
    let mut setup = with_tokens(Setup::new());
    let (dead, password) = (free_port(), marker("store.valkey"));
    setup.log = format!(
        "level = \"trace\"\n[store]\nvalkey = \"redis://user:{password}@{dead}/?password={password}\"\n"
    );
    let gateway = Gateway::start(&setup).await;
    let mut outputs = Outputs::default();
    for path in ["/config", "/config/pending", "/fleet", "/accounts", "/instance"] {
        outputs.send(get(path), &gateway).await;
    }
    outputs.command(&gateway, &["check", "--print"]);
    outputs.command(&gateway, &["accounts", "list"]);
    outputs.0.push(("logs".to_owned(), gateway.everything_written()));
    outputs.assert_none();
}

/// A line of a version that knew fewer secrets.
#[tokio::test]
async fn admin_audit_masks_secrets_in_lines_of_the_past() {
    let gateway = Gateway::start(&with_tokens(Setup::new())).await;
    post("/keys").body(json!({ "name": "first" })).expect(&gateway, 200).await;
    let path = gateway.folder().join("admin/audit.jsonl");
    let line = json!({
        "seq": 3, "prev": "", "time": "2026-01-01T00:00:00Z", "actor": "token:anna", "role": "admin", "client": null,
        "request_id": "x", "action": "provider.update", "object": "provider/az", "outcome": "applied",
        "before": { "azure": { "client_secret": { "value": "SECRET" } }, "check": { "path": "/m?key=SECRET" } },
        "after": { "aws": { "session_token": { "value": "SECRET" }, "external_id": "SECRET" } },
    });
    let text = std::fs::read_to_string(&path).unwrap() + &line.to_string() + "\n";
    std::fs::write(&path, text).unwrap();
    let shown = get("/audit").send(&gateway).await;
    assert!(shown.text().contains("provider/az") && !shown.text().contains("SECRET"), "{}", shown.text());
    assert!(shown.text().contains("/m?key=***"), "{}", shown.text());
}
