//! Paths and credentials of each platform.

use model_gateway::provider::{Provider, ProviderKind};
use model_gateway::wire::path::Action;
use model_gateway::wire::{Api, Format};
use serde_json::json;

use crate::provider;

const STREAM: Option<Action> = Some(Action::Stream { sse: true });

fn header(provider: &mut Provider, api: Api) -> (String, String) {
    provider.set_credential("secret").unwrap();
    let (name, value) = provider.credential(api).unwrap();
    (name.to_string(), value.to_str().unwrap().to_owned())
}

#[test]
fn platform_azure_has_deployment_in_path_and_version_in_query() {
    let mut azure = provider(ProviderKind::Azure, "https://res.openai.azure.com");
    assert_eq!(
        azure.path(Api::Chat, "my-gpt", None),
        "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
    );
    azure.api_version = Some("2025-04-01-preview".into());
    assert_eq!(
        azure.path(Api::Embeddings, "emb", None),
        "/openai/deployments/emb/embeddings?api-version=2025-04-01-preview"
    );
    assert_eq!(
        azure.path(Api::Responses, "my-gpt", None),
        "/openai/responses?api-version=2025-04-01-preview"
    );
    assert_eq!(header(&mut azure, Api::Chat), ("api-key".to_owned(), "secret".to_owned()));
}

#[test]
fn platform_azure_v1_equals_openai() {
    let azure = provider(ProviderKind::Azure, "https://res.openai.azure.com/openai/v1");
    assert_eq!(azure.path(Api::Chat, "my-gpt", None), "/openai/v1/chat/completions");
    assert_eq!(azure.path(Api::Responses, "my-gpt", None), "/openai/v1/responses");
    // Its models have the capabilities that they have at OpenAI.
    assert!(azure.dialect(Api::Chat, "gpt-5.2").max_completion_tokens);
}

#[test]
fn platform_foundry_claude_has_its_own_path_and_an_ordinary_body() {
    for base in ["https://res.services.ai.azure.com/anthropic/v1", "https://res.services.ai.azure.com"] {
        let mut foundry = provider(ProviderKind::AzureAnthropic, base);
        assert_eq!(foundry.path(Api::Messages, "my-claude", STREAM), "/anthropic/v1/messages");
        assert_eq!(foundry.path(Api::CountTokens, "my-claude", None), "/anthropic/v1/messages/count_tokens");
        assert_eq!(header(&mut foundry, Api::Messages), ("api-key".to_owned(), "secret".to_owned()));
        let dialect = foundry.dialect(Api::Messages, "claude-sonnet-4-5");
        let chat = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
        let sent = crate::translated(&dialect, Format::Chat, Format::Messages, chat);
        assert_eq!((&sent["model"], sent.get("anthropic_version")), (&json!("claude-sonnet-4-5"), None));
    }
}

const VERTEX: &str = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1";

#[test]
fn platform_vertex_gemini_has_publisher_in_path_and_no_call_ids() {
    let mut vertex = provider(ProviderKind::Vertex, VERTEX);
    assert_eq!(
        vertex.path(Api::Generate, "gemini-2.5-pro", STREAM),
        "/v1/projects/p/locations/europe-west1/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    );
    assert_eq!(header(&mut vertex, Api::Generate), ("authorization".to_owned(), "Bearer secret".to_owned()));
    assert!(!vertex.dialect(Api::Generate, "gemini-2.5-pro").call_ids);
    let gemini = provider(ProviderKind::Gemini, "https://generativelanguage.googleapis.com/v1beta");
    assert!(gemini.dialect(Api::Generate, "gemini-2.5-pro").call_ids);
}

#[test]
fn platform_vertex_claude_has_model_in_path_and_version_in_body() {
    let mut vertex = provider(ProviderKind::VertexAnthropic, VERTEX);
    let models = "/v1/projects/p/locations/europe-west1/publishers/anthropic/models/";
    let model = "claude-sonnet-4-5@20250929";
    assert_eq!(vertex.path(Api::Messages, model, STREAM), format!("{models}{model}:streamRawPredict"));
    let whole = Some(Action::Generate);
    assert_eq!(vertex.path(Api::Messages, model, whole), format!("{models}{model}:rawPredict"));
    assert_eq!(vertex.path(Api::CountTokens, model, None), format!("{models}count-tokens:rawPredict"));
    assert_eq!(header(&mut vertex, Api::Messages), ("authorization".to_owned(), "Bearer secret".to_owned()));

    let dialect = vertex.dialect(Api::Messages, model);
    let sent = crate::translated(
        &dialect,
        Format::Chat,
        Format::Messages,
        r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#,
    );
    assert_eq!(sent["anthropic_version"], "vertex-2023-10-16");
    assert!(sent.get("model").is_none());
    assert_eq!(sent["messages"][0]["content"], json!([{"type": "text", "text": "Hi"}]));
    // The version of a model is recognized although a date follows it.
    assert_eq!(dialect.max_output, 64_000);
}

#[test]
fn platform_ark_and_others_have_their_own_paths() {
    let ark = provider(ProviderKind::Ark, ProviderKind::Ark.default_base_url().unwrap());
    assert_eq!(ark.path(Api::Chat, "ep-1", None), "/api/v3/chat/completions");
    let mut qwen = provider(ProviderKind::DashScope, ProviderKind::DashScope.default_base_url().unwrap());
    assert_eq!(qwen.path(Api::Chat, "qwen-plus", None), "/compatible-mode/v1/chat/completions");
    assert_eq!(header(&mut qwen, Api::Chat).1, "Bearer secret");
    // DeepSeek also has the messages format, below another path.
    let deepseek = provider(ProviderKind::Anthropic, "https://api.deepseek.com/anthropic/v1");
    assert_eq!(deepseek.path(Api::Messages, "deepseek-chat", None), "/anthropic/v1/messages");
}
