//! What the admin API shows: instance, configuration, checks of texts, usage.

use serde_json::{Value, json};

use super::{Ask, get, post, with_tokens};
use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup};
use crate::support::upstream::Upstream;

async fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2").account("acme", "5");
    setup.keys = setup.keys.replacen("name = \"alice\"\n", "name = \"alice\"\naccount = \"acme\"\n", 1);
    let gateway = Gateway::start(&with_tokens(setup)).await;
    (upstream, gateway)
}

async fn use_once(gateway: &Gateway) -> Answer {
    let body = Form::Chat.body("gpt", false);
    gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", KEY)], body)).await
}

#[tokio::test]
async fn admin_shows_instance_and_configuration_without_secrets() {
    let (upstream, gateway) = gateway().await;
    let index = get("").expect(&gateway, 200).await;
    assert_eq!((&index["caller"], &index["role"]), (&json!("token:rita"), &json!("read")));
    let instance = get("/instance").expect(&gateway, 200).await;
    assert_eq!((&instance["ready"], &instance["last_reload"]["generation"]), (&json!(true), &json!(1)));
    let config = get("/config").send(&gateway).await;
    assert_eq!(config.get("content-type"), Some("application/toml; charset=utf-8"));
    assert!(config.text().contains("[[provider]]"), "{}", config.text());
    let mut all = config.text().to_owned();
    for path in [
        "/keys",
        "/keys/alice",
        "/models",
        "/models/gpt",
        "/providers",
        "/providers/openai",
        "/targets",
        "/config/files",
    ] {
        all += &get(path).expect(&gateway, 200).await.to_string();
    }
    assert!(!all.contains(CREDENTIAL) && !all.contains(KEY), "{all}");
    let hash = model_gateway::account::KeyHash::of(KEY).to_hex();
    assert!(all.contains(&hash[..12]) && !all.contains(&hash[..13]), "{all}");
    drop(upstream);
}

#[tokio::test]
async fn admin_pages_of_keys_and_models_are_complete() {
    let (_upstream, gateway) = gateway().await;
    for path in ["/keys", "/models"] {
        let mut names: Vec<String> = Vec::new();
        let mut next = format!("{path}?limit=2");
        loop {
            let page = get(&next).expect(&gateway, 200).await;
            for item in page["items"].as_array().unwrap() {
                names.push(item.get("name").or(item.get("id")).unwrap().as_str().unwrap().to_owned());
            }
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("{path}?limit=2&cursor={cursor}"),
                None => {
                    assert_eq!(page["total"], names.len(), "{page}");
                    break;
                }
            }
        }
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        assert!(names.len() >= 4, "{names:?}");
    }
    let of_acme = get("/keys?account=acme").expect(&gateway, 200).await;
    assert_eq!(of_acme["items"].as_array().unwrap().len(), 1, "{of_acme}");
}

#[tokio::test]
async fn admin_check_of_texts_reports_every_fault_and_reads_no_other_file() {
    let (_upstream, gateway) = gateway().await;
    let validate = |body: Value| Ask::new("POST", "/config/validate").body(body);
    let fine = validate(json!({})).expect(&gateway, 200).await;
    assert_eq!((&fine["ok"], &fine["models"]), (&json!(true), &json!(6)), "{fine}");
    let routes = gateway.read("routes.toml").replace("kind = \"openai\"", "kind = \"opena\"");
    let wrong =
        validate(json!({ "routes": routes, "keys": "[[key]]\nname = 1\n" })).expect(&gateway, 200).await;
    let faults: Vec<&str> =
        wrong["faults"].as_array().unwrap().iter().map(|fault| fault["key"].as_str().unwrap()).collect();
    assert_eq!(wrong["ok"], false);
    assert!(faults.contains(&"provider[0].kind") && faults.contains(&"key[0].name"), "{wrong}");
    let gone = validate(json!({ "gateway": "[server]\nlisten = []\n[logs]\n" })).expect(&gateway, 200).await;
    assert!(gone["faults"].to_string().contains("logs"), "{gone}");
    // A text cannot name a file to be read.
    std::fs::write(gateway.folder().join("secret.toml"), "sesame = 1\n").unwrap();
    for text in ["prices = \"secret.toml\"\n", "prices = \"admin.toml\"\n"] {
        let named = validate(json!({ "routes": text })).expect(&gateway, 200).await;
        assert!(!named.to_string().contains("sesame") && !named.to_string().contains("sha256"), "{named}");
        assert!(named.to_string().contains("no other price list"), "{named}");
    }
    let elsewhere =
        "[server]\nlisten = [\"127.0.0.1:1\"]\nroutes = \"secret.toml\"\nkeys = \"secret.toml\"\n";
    let elsewhere = validate(json!({ "gateway": elsewhere })).expect(&gateway, 200).await;
    assert_eq!(elsewhere["ok"], true, "{elsewhere}");
    assert_eq!(gateway.status().await["generation"], 1);
}

#[tokio::test]
async fn admin_usage_rows_and_others_add_up_and_are_exported() {
    let (_upstream, gateway) = gateway().await;
    for _ in 0..3 {
        assert_eq!(use_once(&gateway).await.status(), 200);
    }
    gateway.records(3).await;
    for group in ["day", "account", "key", "model"] {
        let usage = get(&format!("/usage?group={group}&limit=1")).expect(&gateway, 200).await;
        assert_eq!((&usage["total"]["requests"], &usage["others"]), (&json!(3), &Value::Null), "{usage}");
        assert_eq!(usage["rows"][0]["cost"], usage["total"]["cost"], "{usage}");
    }
    let none = get("/usage?account=&group=key").expect(&gateway, 200).await;
    assert_eq!(none["total"]["requests"], 0, "keys without an account: {none}");
    let mut times = Vec::new();
    let mut next = "/usage/records?limit=2".to_owned();
    loop {
        let page = get(&next).expect(&gateway, 200).await;
        times.extend(page["items"].as_array().unwrap().iter().map(|record| record["request"].clone()));
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("/usage/records?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    times.dedup();
    assert_eq!(times.len(), 3);
    let csv = get("/usage/records?format=csv&key=alice").send(&gateway).await;
    assert_eq!(csv.get("content-type"), Some("text/csv; charset=utf-8; header=present"));
    assert!(csv.get("content-disposition").unwrap().starts_with("attachment; filename=\"usage-records-"));
    assert_eq!(
        (csv.text().lines().count(), csv.text(), csv.complete),
        (4, &*gateway.command(&["usage", "--records", "--csv"]), true)
    );
    let lines = get("/usage/records?format=ndjson").send(&gateway).await;
    assert_eq!(lines.text(), gateway.command(&["usage", "--records", "--json"]));
    let sums = get("/usage?format=csv&group=key").send(&gateway).await;
    assert_eq!(sums.text(), gateway.command(&["usage", "--by", "key", "--csv"]));
    let account = get("/accounts/acme").expect(&gateway, 200).await;
    assert_ne!(account["charged"], "0", "{account}");
    // A wrong method does not reach the ledger.
    assert_eq!(post("/usage").send(&gateway).await.status(), 405);
}

#[tokio::test]
async fn admin_pending_names_what_a_reload_or_a_restart_would_change() {
    let (_upstream, gateway) = gateway().await;
    let pending = async || get("/config/pending").expect(&gateway, 200).await;
    let read = |name: &str| std::fs::read_to_string(gateway.folder().join(name)).unwrap();
    let nothing = pending().await;
    assert_eq!((&nothing["reload_ok"], &nothing["restart_ok"]), (&json!(true), &json!(true)), "{nothing}");
    assert_eq!(
        (&nothing["changes"], &nothing["files"], &nothing["total"]),
        (&json!([]), &json!([]), &json!(0))
    );

    let (routes, keys, own) = (read("routes.toml"), read("keys.toml"), read("gateway.toml"));
    let changed = routes
        .replace("id = \"fast-gpt\"", "id = \"slow-gpt\"")
        .replace("id = \"gpt\"\n", "id = \"gpt\"\ncontext_window = 98765432\n")
        .replacen(CREDENTIAL, "another-credential-0001", 1);
    assert_ne!(changed, routes);
    gateway.replace("routes.toml", &changed);
    let another = crate::support::setup::key("another", "client-key-of-another-01", "");
    let limited = keys.replacen("name = \"alice\"\n", "name = \"alice\"\nenabled = false\n", 1);
    gateway.replace("keys.toml", &format!("{limited}\n{another}"));
    gateway.replace("gateway.toml", &own.replacen("[server]\n", "[server]\ndrain = \"77s\"\n", 1));
    let found = pending().await;
    let shown = found["changes"].as_array().unwrap().iter().map(|change| {
        let of = |name: &str| change[name].as_str().unwrap().to_owned();
        let members: Vec<_> =
            change["members"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        format!("{} {} {} {} [{}]", of("effect"), of("entry"), of("name"), of("change"), members.join(","))
    });
    let shown: Vec<String> = shown.collect();
    assert_eq!(
        shown,
        [
            "reload provider openai changed [credential]",
            "reload model gpt changed [context_window]",
            "reload model slow-gpt added []",
            "reload model fast-gpt removed []",
            "reload key alice changed [enabled]",
            "reload key another added []",
            "restart setting server.drain changed []",
        ],
        "{found}"
    );
    assert_eq!((&found["total"], found["files"].as_array().unwrap().len()), (&json!(7), 2));
    let text = found.to_string();
    for value in [CREDENTIAL, "another-credential", "98765432", "77s", KEY] {
        assert!(!text.contains(value), "{value}: {text}");
    }
    // Nothing of it is in effect.
    assert_eq!(get("/instance").expect(&gateway, 200).await["last_reload"]["generation"], 1);
    assert_eq!(use_once(&gateway).await.status(), 200);

    gateway.replace("routes.toml", &format!("\n\nnonsense = 1\n{routes}"));
    gateway.replace("gateway.toml", &format!("nonsense = 1\n{own}"));
    let refused = pending().await;
    assert_eq!((&refused["reload_ok"], &refused["restart_ok"]), (&json!(false), &json!(false)));
    let faults: Vec<_> = refused["faults"].as_array().unwrap().iter().collect();
    let lines: Vec<_> = faults.iter().map(|fault| fault["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [3, 1], "{refused}");
    assert!(faults[0]["file"].as_str().unwrap().ends_with("routes.toml"));

    // What is wrong in gateway.toml alone does not keep a reload.
    gateway.replace("routes.toml", &routes);
    let refused = pending().await;
    assert_eq!((&refused["reload_ok"], &refused["restart_ok"]), (&json!(true), &json!(false)), "{refused}");
}

#[tokio::test]
async fn admin_model_has_what_the_catalogue_knows_of_each_target() {
    let mut setup = Setup::new()
        .provider("openai", "openai", "http://127.0.0.1:9/v1", "")
        .provider("aws", "openai-compatible", "http://127.0.0.1:9/v1", "")
        .catalogue(
            "schema = 1\n[[model]]\nid = \"gpt-5.2\"\n[[model.at]]\nprovider = \"openai\"\nretires = 2027-05-01\nsuccessor = \"gpt-5.4\"\n\
             [[model.at.price]]\ninput = 3\noutput = 15\ntiers = { flex = 0.5 }\nregions = { eu = 1.1 }\nsource = \"contract 7\"\nstatus = \"unverified\"\n",
        );
    for (id, price, targets) in [
        (
            "listed",
            "",
            "{ provider = \"openai\", model = \"gpt-5.2-2025-12-11\" }, { provider = \"aws\", model = \"gpt-9\" }",
        ),
        ("own", "price = { input = 9, output = 9 }\n", "{ provider = \"openai\", model = \"gpt-5.2\" }"),
        ("none", "", "{ provider = \"openai\", model = \"house-model\" }"),
    ] {
        setup.routes += &format!("[[model]]\nid = \"{id}\"\n{price}targets = [{targets}]\n");
    }
    let gateway = Gateway::start(&with_tokens(setup)).await;
    let targets =
        async |id: &str| get(&format!("/models/{id}")).expect(&gateway, 200).await["targets"].clone();
    let listed = targets("listed").await;
    let (price, known) = (&listed[0]["price"], &listed[0]["catalogue"]);
    assert_eq!((&price["origin"], &price["rates"]["input"]), (&json!("catalogue"), &json!("3")), "{price}");
    assert_eq!((&price["source"], &price["status"]), (&json!("contract 7"), &json!("unverified")), "{price}");
    assert!(price["file"].as_str().unwrap().ends_with("over.toml"), "{price}");
    assert_eq!(price["service_tiers"], json!([{ "tier": "flex", "factor": "0.5" }]));
    assert_eq!(price["regions"], json!([{ "region": "eu", "factor": "1.1" }]));
    assert_eq!((&known["found"], &known["provider"]), (&json!("listed"), &json!("openai")), "{known}");
    assert_eq!((&known["context_window"], &known["max_output_tokens"]), (&json!(400_000), &json!(128_000)));
    assert_eq!(
        (&known["retires"], &known["successor"]),
        (&json!("2027-05-01"), &json!("gpt-5.4")),
        "{known}"
    );
    assert!(known["facts"]["efforts"].as_str().unwrap().contains("xhigh"), "{known}");
    assert!(
        known["age_days"].is_u64() && known["status"].is_string() && known["source"].is_string(),
        "{known}"
    );
    // A name that only resembles others, at a provider that the catalogue does not know.
    let (price, known) = (&listed[1]["price"], &listed[1]["catalogue"]);
    assert_eq!((&known["found"], &known["provider"]), (&json!("guessed"), &Value::Null), "{known}");
    assert_eq!((&known["context_window"], &known["retires"]), (&Value::Null, &Value::Null), "{known}");
    // The target has no price of its own: that of the model is charged.
    assert_eq!((&price["origin"], &price["rates"]["input"]), (&json!("catalogue"), &json!("3")), "{price}");
    let own = targets("own").await;
    assert_eq!((&own[0]["price"]["origin"], own[0]["price"].get("source")), (&json!("model"), None), "{own}");
    let none = targets("none").await;
    assert_eq!(
        (&none[0]["price"]["origin"], &none[0]["price"]["rates"]),
        (&json!("nowhere"), &json!({})),
        "{none}"
    );
    // Pages of models are lists, and have none of it.
    let page = get("/models").expect(&gateway, 200).await;
    assert_eq!(page["items"][0]["targets"][0].get("catalogue"), None);
}
