//! The AWS SDK for Python, Anthropic's SDK and LangChain's clients for Bedrock at models of every format, through Converse
//! and InvokeModel: with signatures over plain HTTP, and with a bearer key over TLS, without which the AWS SDK sends none.
//! `aws.py` has the requests and the expected results.

use std::process::Stdio;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};

use crate::sdks::python;
use crate::support::aws::{ACCESS_KEY_ID, SECRET};
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, KEY, Setup, key};
use crate::support::tls;

/// Models of the gateway: ids with a colon, and an ARN, which SDKs encode in the path.
const MODELS: [&str; 5] = [
    "gpt-chat",
    "gpt-responses",
    "arn:aws:bedrock:eu-west-1:000000000000:application-inference-profile/abcdefghijkl",
    "gemini-generate",
    "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
];

async fn setup() -> (Vec<Simulator>, Setup) {
    let [chat, responses, messages, generate, converse] = MODELS;
    let mut simulators = Vec::new();
    for provider in [
        SimulatedProvider::OpenAi,
        SimulatedProvider::Anthropic,
        SimulatedProvider::Google,
        SimulatedProvider::Bedrock,
    ] {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        simulators.push(Simulator::start(provider, options).await.unwrap());
    }
    let urls: Vec<String> = simulators.iter().map(Simulator::base_url).collect();
    let mut setup = Setup::new()
        .provider("at-chat", "openai", &urls[0], "apis = [\"chat\"]")
        .provider("at-responses", "openai", &urls[0], "apis = [\"responses\"]")
        .provider("at-messages", "anthropic", &urls[1], "")
        .provider("at-generate", "gemini", &urls[2], "")
        .provider("at-converse", "bedrock", &urls[3], "")
        .model(chat, "at-chat", "gpt-5.1")
        .model(responses, "at-responses", "gpt-5.1")
        .model(messages, "at-messages", "claude-sonnet-4-6")
        .model(generate, "at-generate", "gemini-3.1-pro-preview")
        .model(converse, "at-converse", converse)
        .file("aws-secret", SECRET);
    let access = format!("access_key = {{ id = \"{ACCESS_KEY_ID}\", secret = {{ file = \"aws-secret\" }} }}");
    setup.keys += &key("ann", "client-key-of-ann-0010", &access);
    (simulators, setup)
}

/// Runs the script with these variables, and returns its output.
async fn run(python: &str, base: &str, credential: &str, variables: &[(&str, &str)]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/aws.py");
    let mut command = tokio::process::Command::new(python);
    command.args([script, base, credential]).args(MODELS).env("no_proxy", "*").stdin(Stdio::null());
    // Neither the user's configuration nor the machine's role.
    for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_CA_BUNDLE"] {
        command.env_remove(name);
    }
    for name in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        command.env(name, "/dev/null");
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true").envs(variables.iter().copied()).kill_on_drop(true);
    let run = command.output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(300), run).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    told
}

const IMPORTS: &str = "import anthropic, boto3, langchain_aws";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_sdk_with_signatures_reaches_every_format() {
    let Some(python) = python(IMPORTS) else { return };
    let (_simulators, setup) = setup().await;
    let gateway = Gateway::start(&setup).await;
    let variables = [("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let told = run(&python, &format!("http://{}", gateway.addr), "signed", &variables).await;
    assert!(told.contains("60 passed, 0 failed"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_sdk_with_a_bearer_key_reaches_every_format() {
    let Some(python) = python(IMPORTS) else { return };
    let (_simulators, setup) = setup().await;
    let authority = tls::Authority::new();
    let identity = authority.identity(&["localhost"]);
    let gateway = Gateway::start(&setup.tls(&identity.chain, &identity.key)).await;
    let bundle = gateway.folder().join("authority.pem");
    std::fs::write(&bundle, authority.pem()).unwrap();
    let bundle = bundle.to_str().unwrap();
    let variables = [("AWS_BEARER_TOKEN_BEDROCK", KEY), ("AWS_CA_BUNDLE", bundle)];
    let base = format!("https://localhost:{}", gateway.tls.port());
    let told = run(&python, &base, "bearer", &variables).await;
    assert!(told.contains("55 passed, 0 failed"), "{told}");
}
