use std::path::Path;

use proptest::prelude::*;

use super::document::{Field, SourceNode, SourceValue};
use super::report::FieldOutcome;
use super::{Imported, bifrost, check, json, litellm, portkey, texts, yaml};

/// Variables of the environment while importing.
fn env(name: &str) -> Option<String> {
    match name {
        "AZURE_API_BASE" => Some("https://example.openai.azure.com".to_owned()),
        "LITELLM_MASTER_KEY" => Some("sk-master".to_owned()),
        _ => None,
    }
}

/// Asserts that every leaf is in the report, and that the result is a valid configuration.
fn assert_sound(document: &SourceNode, mut imported: Imported) {
    let mut paths: Vec<String> = Vec::new();
    Field::root(document).walk(&mut |field, leaf| paths.extend(leaf.then(|| field.path.clone())));
    let reported: std::collections::HashSet<&str> =
        imported.report.fields.iter().map(|entry| entry.path.as_str()).collect();
    for path in paths {
        assert!(reported.contains(path.as_str()), "{path} is not in the report");
    }
    imported.draft.separate_names();
    let files = texts(&imported.draft, "a test");
    if let Err(error) = check(Path::new("/nonexistent"), &imported.draft, &files) {
        let text: String = files.iter().map(|file| file.text.as_str()).collect();
        panic!("{error}\n{text}");
    }
}

fn import_yaml(text: &str) -> Imported {
    litellm::read(&yaml::read(text).unwrap(), &env).unwrap()
}

fn outcome(imported: &Imported, path: &str) -> FieldOutcome {
    let entry = imported.report.fields.iter().find(|entry| entry.path == path);
    entry.unwrap_or_else(|| panic!("{path} is not in the report")).outcome
}

/// Parts of configurations, which are combined at random.
fn scalar() -> impl Strategy<Value = SourceValue> {
    prop_oneof![
        Just(SourceValue::Null),
        any::<bool>().prop_map(SourceValue::Bool),
        prop_oneof![Just("0"), Just("1"), Just("0.5"), Just("1e-6"), Just("600"), Just("1e300")]
            .prop_map(|number| SourceValue::Number(number.to_owned())),
        prop_oneof![
            Just("a"),
            Just("b"),
            Just("*"),
            Just("openai/gpt-4o"),
            Just("azure/x"),
            Just("anthropic/claude-3"),
            Just("cohere/rerank-v3.5"),
            Just("bedrock/x"),
            Just("vertex_ai/gemini-2"),
            Just("ollama/llama3"),
            Just("os.environ/AZURE_API_BASE"),
            Just("os.environ/NOT SET"),
            Just("env.KEY"),
            Just("https://h.example/v1"),
            Just("http://u:p@h"),
            Just("30d"),
            Just("1h"),
            Just("fallback"),
            Just("loadbalance"),
            Just("openai"),
            Just("ollama"),
            Just("least-busy"),
            Just("x\n# y\u{7}\"'"),
        ]
        .prop_map(|text| SourceValue::Text(text.to_owned())),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "model_list",
        "model_name",
        "litellm_params",
        "model",
        "api_key",
        "api_base",
        "api_version",
        "rpm",
        "tpm",
        "weight",
        "order",
        "timeout",
        "stream_timeout",
        "input_cost_per_token",
        "model_info",
        "mode",
        "headers",
        "litellm_settings",
        "general_settings",
        "router_settings",
        "environment_variables",
        "credential_list",
        "credential_name",
        "credential_values",
        "litellm_credential_name",
        "fallbacks",
        "default_fallbacks",
        "context_window_fallbacks",
        "model_group_alias",
        "master_key",
        "num_retries",
        "cooldown_time",
        "port",
        "routing_strategy",
        "drop_params",
        "cache",
        "unknown.key",
        "",
        "a",
        "b",
        "providers",
        "openai",
        "azure",
        "keys",
        "models",
        "value",
        "governance",
        "virtual_keys",
        "provider_configs",
        "provider",
        "allowed_models",
        "budget_id",
        "budgets",
        "id",
        "max_limit",
        "azure_key_config",
        "endpoint",
        "deployments",
        "network_config",
        "strategy",
        "targets",
        "override_params",
        "custom_host",
        "azure_deployment_id",
        "request_timeout",
        "retry",
        "attempts",
        "integrations",
        "slug",
        "rate_limits",
        "credentials",
        "apiKey",
        "teams",
        "customers",
        "team_id",
        "customer_id",
        "reset_duration",
    ])
    .prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = SourceValue> {
    scalar().prop_recursive(5, 48, 6, |inner| {
        let node = inner.prop_map(|value| SourceNode { line: 1, column: 1, value });
        prop_oneof![
            prop::collection::vec(node.clone(), 0..5).prop_map(SourceValue::List),
            prop::collection::vec((key(), node), 0..6).prop_map(SourceValue::Map),
        ]
    })
}

fn node(value: SourceValue) -> SourceNode {
    SourceNode { line: 1, column: 1, value }
}

fn map(members: Vec<(&str, SourceValue)>) -> SourceValue {
    SourceValue::Map(members.into_iter().map(|(key, value)| (key.to_owned(), node(value))).collect())
}

/// Deployment with random members beside those that it must have.
fn deployment() -> impl Strategy<Value = SourceValue> {
    let text = |choices: &[&'static str]| {
        prop::sample::select(choices.to_vec()).prop_map(|text| SourceValue::Text(text.to_owned()))
    };
    let name = text(&["a", "b", "c"]);
    let models =
        ["openai/x", "azure/x", "anthropic/y", "cohere/rerank-z", "jina_ai/e", "ollama/l", "gpt-4o", "xai/g"];
    let base =
        prop::option::of(text(&["https://h.example", "http://h:1/v1/", "os.environ/AZURE_API_BASE", "x"]));
    let weight = prop::option::of(prop::sample::select(vec!["0", "1", "0.25", "60", "1e12"]));
    let order = prop::option::of(0_u8..20);
    (name, text(&models), base, weight, order).prop_map(|(name, model, base, weight, order)| {
        let mut params =
            vec![("model", model), ("input_cost_per_token", SourceValue::Number("1e-6".to_owned()))];
        params.extend(base.map(|base| ("api_base", base)));
        params.extend(weight.map(|weight| ("weight", SourceValue::Number(weight.to_owned()))));
        params.extend(order.map(|order| ("order", SourceValue::Number(order.to_string()))));
        map(vec![("model_name", name), ("litellm_params", map(params))])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn yaml_never_panics(text in "[ \\na-c:\\-\\[\\]{}&*<!|>'\"#,0-9.]{0,80}") {
        let _ = yaml::read(&text);
        let _ = json::read(&text);
    }

    #[test]
    fn litellm_reports_every_leaf_of_any_document(value in value()) {
        let document = node(value);
        if let Ok(imported) = litellm::read(&document, &env) {
            assert_sound(&document, imported);
        }
    }

    #[test]
    fn litellm_deployments_become_a_valid_configuration(
        list in prop::collection::vec(deployment(), 0..12),
        fallbacks in prop::collection::vec((prop::sample::select(vec!["a", "b", "c", "*"]), prop::sample::select(vec!["a", "b", "c", "d"])), 0..6),
        rest in value(),
    ) {
        let list = SourceValue::List(list.into_iter().map(node).collect());
        let fallback = |(from, to): (&str, &str)| {
            node(map(vec![(from, SourceValue::List(vec![node(SourceValue::Text(to.to_owned()))]))]))
        };
        let fallbacks = SourceValue::List(fallbacks.into_iter().map(fallback).collect());
        let document = node(map(vec![
            ("model_list", list),
            ("router_settings", map(vec![("fallbacks", fallbacks)])),
            ("general_settings", map(vec![("master_key", SourceValue::Text("sk-1".to_owned()))])),
            ("other", rest),
        ]));
        let imported = litellm::read(&document, &env).unwrap();
        assert_sound(&document, imported);
    }

    #[test]
    fn bifrost_reports_every_leaf_of_any_document(value in value(), keys in value()) {
        for value in [value.clone(), map(vec![("providers", map(vec![("openai", value), ("azure", keys)]))])] {
            let document = node(value);
            if let Ok(imported) = bifrost::read(&document, &env) {
                assert_sound(&document, imported);
            }
        }
    }
}

/// Config of Portkey with random strategies.
fn portkey_config() -> impl Strategy<Value = SourceValue> {
    let text = |text: &str| SourceValue::Text(text.to_owned());
    let providers = ["openai", "anthropic", "ollama", "azure-openai", "jina", "nowhere"];
    let leaf = (prop::sample::select(providers.to_vec()), prop::option::of(0_u8..3), any::<bool>());
    let leaf = leaf.prop_map(move |(provider, weight, has_model)| {
        let mut members = vec![("provider", text(provider)), ("api_key", text("sk-1"))];
        members.extend(weight.map(|weight| ("weight", SourceValue::Number(weight.to_string()))));
        if has_model {
            members.push(("override_params", map(vec![("model", text("m"))])));
        }
        map(members)
    });
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let mode = prop::sample::select(vec!["single", "loadbalance", "fallback", "conditional"]);
        (mode, prop::collection::vec(inner, 0..5)).prop_map(move |(mode, targets)| {
            let targets = SourceValue::List(targets.into_iter().map(node).collect());
            map(vec![("strategy", map(vec![("mode", text(mode))])), ("targets", targets)])
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn portkey_reports_every_leaf_of_any_document(value in value(), config in portkey_config(), is_given in any::<bool>()) {
        let name = portkey::ModelName { text: "chat", is_given };
        for value in [value.clone(), map(vec![("integrations", value)]), config] {
            let document = node(value);
            if let Ok(imported) = portkey::read(&document, &name) {
                assert_sound(&document, imported);
            }
        }
    }
}

#[test]
fn unknown_field_is_reported_with_its_line() {
    let text = "model_list:\n- model_name: a\n  litellm_params:\n    model: openai/gpt-4o\n    brand_new: [1, {x: 2}]\n";
    let imported = import_yaml(text);
    let entry = imported.report.fields.iter().find(|entry| entry.path.ends_with("brand_new[1].x")).unwrap();
    assert_eq!((entry.line, entry.outcome), (Some(5), FieldOutcome::Impossible));
    assert_sound(&yaml::read(text).unwrap(), imported);
}

#[test]
fn wrong_type_names_line_and_field() {
    for (text, path, line) in [
        ("model_list: 7\n", "model_list", 1),
        ("model_list:\n- model_name: a\n", "model_list[0]", 2),
        (
            "model_list:\n- model_name: a\n  litellm_params: {model: gpt-4o, rpm: many}\n",
            "model_list[0].litellm_params.rpm",
            3,
        ),
        ("model_list: []\ngeneral_settings:\n  master_key: [x]\n", "general_settings.master_key", 3),
    ] {
        let Err(fault) = litellm::read(&yaml::read(text).unwrap(), &env) else { panic!("{text}") };
        assert_eq!((fault.path.as_str(), fault.line), (path, line), "{text}");
    }
}

#[test]
fn no_secret_is_in_the_configuration_or_the_report() {
    let text = "model_list:\n- model_name: a\n  litellm_params:\n    model: openai/x\n    api_base: http://h/v1\n    api_key: sk-secret-1\n    \
                extra_headers: {X-Api-Key: sk-secret-2}\n- model_name: b\n  litellm_params: {model: azure/x, api_key: sk-secret-3}\n\
                general_settings: {master_key: sk-secret-4, database_url: \"postgres://u:sk-secret-5@h/d\"}\n\
                environment_variables: {TOKEN: sk-secret-6}\n";
    let imported = import_yaml(text);
    let files = texts(&imported.draft, "a test");
    let shown: String =
        files.iter().filter(|file| file.mode != 0o600).map(|file| file.text.as_str()).collect();
    let shown = shown + &imported.report.text() + &serde_json::to_string(&imported.report).unwrap();
    assert!(!shown.contains("sk-secret"), "{shown}");
    let secrets: String =
        files.iter().filter(|file| file.mode == 0o600).map(|file| file.text.as_str()).collect();
    assert!(secrets.contains("sk-secret-1") && secrets.contains("sk-secret-3"), "{secrets}");
    assert!(!secrets.contains("sk-secret-4"), "{secrets}");
}

#[test]
fn text_of_the_source_cannot_leave_a_comment_or_a_string() {
    let text = "model_list:\n- model_name: \"a\\\"\\n[[key]]\\nname = 'x'\"\n  litellm_params: {model: \"openai/x\\\"\\n[x]\", api_key: k}\n";
    let imported = import_yaml(text);
    assert_eq!(imported.draft.models.len(), 1);
    assert_sound(&yaml::read(text).unwrap(), imported);
}

#[test]
fn fallbacks_that_form_a_cycle_are_cut() {
    let text = "model_list:\n- {model_name: a, litellm_params: {model: openai/x}}\n- {model_name: b, litellm_params: {model: anthropic/y}}\n\
                - {model_name: v, litellm_params: {model: cohere/rerank-x}}\n\
                router_settings:\n  fallbacks: [{a: [b]}, {b: [a]}, {b: [v]}, {a: [missing]}]\n";
    let imported = import_yaml(text);
    assert_eq!(outcome(&imported, "router_settings.fallbacks[0].a[0]"), FieldOutcome::Taken);
    for path in ["[1].b[0]", "[2].b[0]", "[3].a[0]"] {
        assert_eq!(
            outcome(&imported, &format!("router_settings.fallbacks{path}")),
            FieldOutcome::Impossible,
            "{path}"
        );
    }
    assert_sound(&yaml::read(text).unwrap(), imported);
}
