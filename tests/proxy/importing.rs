//! Imported configurations serve the same models, under the same names, with the same keys.

use std::net::SocketAddr;
use std::process::Command;

use model_gateway::simulator::{AwsAccessKey, Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::{ask, post_with};
use super::support::gateway::Gateway;
use super::support::setup::Setup;

const MASTER_KEY: &str = "sk-master-key-of-the-test";

/// Imports a configuration of LiteLLM, and starts a gateway with the result, in the environment that was written.
async fn gateway(config: &str, keys: Option<&str>) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
    command.args(["import", "litellm", "config.yaml"]).env_clear().current_dir(folder.path());
    if let Some(keys) = keys {
        std::fs::write(folder.path().join("keys.jsonl"), keys).unwrap();
        command.args(["--keys", "keys.jsonl"]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A file without contents is not written.
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let mut setup = Setup::new();
    (setup.routes, setup.keys) = (read("routes.toml"), read("keys.toml"));
    // The variables that only the environment of LiteLLM has are not needed for the models of this test.
    let secrets: String =
        read("secrets.env").lines().fold(String::new(), |text, line| match line.strip_prefix('#') {
            Some(name) if name.ends_with('=') => format!("{text}{name}not-needed\n"),
            _ => format!("{text}{line}\n"),
        });
    let setup = setup
        .file("prices.toml", &read("prices.toml"))
        .file("secrets.env", &secrets)
        .file("start.sh", "set -a\n. \"$(dirname \"$0\")/secrets.env\"\nset +a\nexec \"$@\"\n");
    Gateway::start(&setup).await
}

/// Sends a chat request and returns what the model said.
async fn said(addr: SocketAddr, path: &str, model: &str, key: &str) -> (u16, Value) {
    let body =
        json!({ "model": model, "messages": [{ "role": "user", "content": "hello from an application" }] });
    let headers =
        [("authorization", format!("Bearer {key}")), ("content-type", "application/json".to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = ask(addr, post_with(path, &headers, body.to_string())).await;
    let message =
        if answer.status() == 200 { answer.json()["choices"][0]["message"].clone() } else { Value::Null };
    (answer.status(), message)
}

async fn simulator(credential: Option<&str>) -> Simulator {
    let options = Options { credential: credential.map(str::to_owned), ..Options::default() };
    Simulator::start(SimulatedProvider::OpenAi, options).await.unwrap()
}

#[tokio::test]
async fn imported_litellm_serves_its_models_with_its_keys() {
    let simulator = simulator(Some("sk-upstream")).await;
    let base = simulator.base_url();
    let config = format!(
        "model_list:\n- model_name: team-chat\n  litellm_params: {{model: openai/gpt-4o-2024-11-20, api_base: {base}, api_key: sk-upstream}}\n\
         - model_name: secret-model\n  litellm_params: {{model: openai/gpt-4.1, api_base: {base}, api_key: sk-upstream}}\n\
         router_settings: {{model_group_alias: {{gpt-4: team-chat}}}}\n\
         general_settings: {{master_key: {MASTER_KEY}}}\n"
    );
    let hash = |key: &str| model_gateway::account::KeyHash::of(key).to_hex();
    let keys = format!(
        "{{\"token\": \"{}\", \"key_alias\": \"ci\", \"models\": [\"team-chat\", \"gpt-4\"]}}\n\
         {{\"token\": \"{}\", \"key_alias\": \"old\", \"blocked\": true}}\n",
        hash("sk-virtual-key-of-ci"),
        hash("sk-blocked-key")
    );
    let gateway = gateway(&config, Some(&keys)).await;
    let before = said(simulator.addr(), "/v1/chat/completions", "gpt-4o-2024-11-20", "sk-upstream").await;
    assert_eq!(before.0, 200);
    for (model, key) in
        [("team-chat", MASTER_KEY), ("team-chat", "sk-virtual-key-of-ci"), ("gpt-4", "sk-virtual-key-of-ci")]
    {
        let after = said(gateway.addr, "/v1/chat/completions", model, key).await;
        assert_eq!(after, before, "{model}");
    }
    for (model, key, status) in [
        ("secret-model", "sk-virtual-key-of-ci", 403),
        ("secret-model", MASTER_KEY, 200),
        ("team-chat", "sk-blocked-key", 401),
        // The hash of a key is no key.
        ("team-chat", &*hash("sk-virtual-key-of-ci"), 401),
    ] {
        let (found, _) = said(gateway.addr, "/v1/chat/completions", model, key).await;
        assert_eq!(found, status, "{model} {key}");
    }
}

#[tokio::test]
async fn imported_litellm_serves_bedrock_and_the_names_that_patterns_fit() {
    let openai = simulator(Some("sk-upstream")).await;
    let bedrock = Simulator::start(SimulatedProvider::Bedrock, Options::default()).await.unwrap();
    bedrock.set_access_keys(vec![AwsAccessKey::new("AKIAIMPORTED", "secret-of-aws")]);
    let (base, endpoint) = (openai.base_url(), bedrock.base_url());
    let config = format!(
        "model_list:\n- model_name: openai/*\n  litellm_params: {{model: openai/*, api_base: {base}, api_key: sk-upstream}}\n\
         - model_name: nova\n  litellm_params:\n    model: bedrock/converse/eu-west-1/amazon.nova-pro-v1:0\n    \
         aws_bedrock_runtime_endpoint: {endpoint}\n    aws_access_key_id: AKIAIMPORTED\n    aws_secret_access_key: secret-of-aws\n\
         router_settings: {{model_group_alias: {{gpt-4: openai/gpt-4o}}}}\n\
         general_settings: {{master_key: {MASTER_KEY}}}\n"
    );
    let hash = model_gateway::account::KeyHash::of("sk-virtual-key").to_hex();
    let keys = format!("{{\"token\": \"{hash}\", \"models\": [\"openai/gpt-4.1\", \"nova\"]}}\n");
    let gateway = gateway(&config, Some(&keys)).await;
    for (model, key, status) in [
        ("gpt-4", MASTER_KEY, 200),
        ("openai/gpt-4o", MASTER_KEY, 200),
        ("openai/gpt-4.1", "sk-virtual-key", 200),
        ("openai/gpt-4o", "sk-virtual-key", 403),
        // Nothing names it: the comment in routes.toml says how to add it.
        ("openai/gpt-4o-mini", MASTER_KEY, 404),
        ("nova", "sk-virtual-key", 200),
    ] {
        let (found, message) = said(gateway.addr, "/v1/chat/completions", model, key).await;
        assert_eq!(found, status, "{model}: {message}");
    }
    assert_eq!((openai.requests(), bedrock.requests()), (3, 1));
    let routes = gateway.read("routes.toml");
    assert!(routes.contains("# id = \"openai/NAME\"\n# targets = ["), "{routes}");
}
