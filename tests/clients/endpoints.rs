//! Official Python SDKs at the endpoints other than conversations. `endpoints.py` has the requests and the expected
//! results. Its models are those of the demo, so that it can be run against the demo too.

use std::process::Stdio;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};

use crate::sdks::python;
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, KEY, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sdks_work_at_the_endpoints_other_than_conversations() {
    let Some(python) = python("import openai, anthropic, cohere\nfrom google import genai") else { return };
    let mut simulators = Vec::new();
    let mut setup = Setup::new().limits("fetch_allow = [\"127.0.0.0/8\"]");
    for (provider, kind) in [
        (SimulatedProvider::OpenAi, "openai"),
        (SimulatedProvider::Anthropic, "anthropic"),
        (SimulatedProvider::Google, "gemini"),
        (SimulatedProvider::Cohere, "cohere"),
        (SimulatedProvider::Ark, "ark"),
        (SimulatedProvider::DashScope, "dashscope"),
    ] {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        let simulator = Simulator::start(provider, options).await.unwrap();
        setup = setup.provider(kind, kind, &simulator.base_url(), "");
        simulators.push(simulator);
    }
    for (model, provider) in [
        ("gpt-4o", "openai"),
        ("claude-sonnet-4-6", "anthropic"),
        ("gemini-2.5-flash", "gemini"),
        ("text-embedding-3-small", "openai"),
        ("gemini-embedding-001", "gemini"),
        ("embed-v4.0", "cohere"),
        ("rerank-v3.5", "cohere"),
        ("gpt-image-1", "openai"),
        ("gemini-2.5-flash-image", "gemini"),
        ("imagen-4.0-generate-001", "gemini"),
        ("doubao-seedream-4-5-251128", "ark"),
        ("qwen-image-plus", "dashscope"),
        ("sora-2", "openai"),
        ("veo-3.1-fast-generate-preview", "gemini"),
        ("wan2.5-t2v-preview", "dashscope"),
        ("doubao-seedance-1-5-pro-251215", "ark"),
    ] {
        setup = setup.model(model, provider, model);
    }
    let gateway = Gateway::start(&setup).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/endpoints.py");
    let run = tokio::process::Command::new(&python)
        .args([script, &format!("http://{}", gateway.addr), KEY])
        .env("no_proxy", "*")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(300), run).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    assert!(told.contains("42 passed, 0 failed"), "{told}");
}
