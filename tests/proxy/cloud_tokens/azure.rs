//! Azure: client secret, client certificate, managed and workload identity, and Claude in Foundry.

use serde_json::json;

use super::{assert_no_secret, bearer, provider, upstream};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup};
use crate::support::token_server::{Behavior, CERTIFICATE, RSA_KEY, TOKEN, TokenServer, form_field};

/// Lines of an application's settings at a token server.
fn application(tokens: &TokenServer, lines: &str) -> String {
    format!(
        "[provider.azure]\ntenant = \"tenant-1\"\nclient_id = \"client-1\"\nauthority = \"http://{}\"\n{lines}",
        tokens.host()
    )
}

#[tokio::test]
async fn azure_openai_is_called_with_the_token_of_a_client_secret() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let azure = upstream(Form::Chat).await;
    let lines = application(
        &tokens,
        "source = \"client-secret\"\nclient_secret = { value = \"secret-of-the-application\" }",
    );
    let setup = provider(Setup::new(), "azure", "azure", &format!("http://{}/openai/v1", azure.addr), &lines)
        .model("gpt", "azure", "my-gpt");
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Chat.request_for("gpt", false)).await.status(), 200);
    let request = azure.only_request();
    assert_eq!((bearer(&request), request.head.get("api-key")), (&*format!("{TOKEN}1"), None));
    let asked = &tokens.requests()[0];
    assert_eq!(asked.head.target(), "/tenant-1/oauth2/v2.0/token");
    for (name, value) in [
        ("grant_type", "client_credentials"),
        ("client_id", "client-1"),
        ("client_secret", "secret-of-the-application"),
        ("scope", "https://cognitiveservices.azure.com/.default"),
    ] {
        assert_eq!(form_field(asked, name).as_deref(), Some(value));
    }
    assert_no_secret(&gateway, &[TOKEN, "secret-of-the-application"]);
}

#[tokio::test]
async fn claude_in_foundry_is_called_with_a_key_or_with_a_token() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let foundry = upstream(Form::Messages).await;
    let token = application(&tokens, "source = \"client-certificate\"\ncertificate = \"app.pem\"");
    let base = format!("http://{}", foundry.addr);
    let setup =
        provider(Setup::new(), "by-token", "azure-anthropic", &format!("{base}/anthropic/v1"), &token)
            // The base URL of the resource alone leads to the same path.
            .provider("by-key", "azure-anthropic", &base, "")
            .model("claude-token", "by-token", "my-claude")
            .model("claude-key", "by-key", "my-claude")
            .file("app.pem", &format!("{RSA_KEY}{CERTIFICATE}"));
    let gateway = Gateway::start(&setup).await;
    for model in ["claude-token", "claude-key"] {
        for form in [Form::Messages, Form::Chat] {
            let answer = gateway.ask(form.request_for(model, true)).await;
            assert_eq!(answer.status(), 200, "{}", answer.everything());
        }
    }
    let requests = foundry.requests();
    for (index, request) in requests.iter().enumerate() {
        assert_eq!(request.head.target(), "/anthropic/v1/messages");
        assert_eq!(request.head.get("anthropic-version"), Some("2023-06-01"));
        assert_eq!(request.json()["model"], "my-claude");
        assert_eq!(request.json().get("anthropic_version"), None);
        if index < 2 {
            assert_eq!((bearer(request), request.head.get("api-key")), (&*format!("{TOKEN}1"), None));
        } else {
            assert_eq!(
                (request.head.get("authorization"), request.head.get("api-key")),
                (None, Some(CREDENTIAL))
            );
        }
    }
    let asked = &tokens.requests()[0];
    assert_eq!(form_field(asked, "scope").as_deref(), Some("https://ai.azure.com/.default"));
    let kind = form_field(asked, "client_assertion_type").unwrap();
    assert_eq!(kind, "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    assert!(form_field(asked, "client_assertion").unwrap().starts_with("eyJ"));
}

#[tokio::test]
async fn managed_identity_uses_the_endpoint_of_the_environment() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let azure = upstream(Form::Chat).await;
    let base = format!("http://{}/openai/v1", azure.addr);
    let host = tokens.host();
    let machine = format!("export AZURE_POD_IDENTITY_AUTHORITY_HOST=http://{host}\n");
    let app =
        format!("export IDENTITY_ENDPOINT=http://{host}/msi/token IDENTITY_HEADER=header-of-the-identity\n");
    for (exports, target, header) in [
        (machine, "/metadata/identity/oauth2/token?api-version=2018-02-01&", ("metadata", "true")),
        (app, "/msi/token?api-version=2019-08-01&", ("x-identity-header", "header-of-the-identity")),
    ] {
        let lines = "azure = { source = \"managed-identity\" }";
        let setup = provider(Setup::new(), "azure", "azure", &base, lines)
            .model("gpt", "azure", "my-gpt")
            .file("start.sh", &format!("{exports}exec \"$@\"\n"));
        let gateway = Gateway::start(&setup).await;
        assert_eq!(gateway.ask(Form::Chat.request_for("gpt", false)).await.status(), 200);
        let asked = tokens.requests();
        let last = &asked[asked.len() - 1];
        let resource = "resource=https%3A%2F%2Fcognitiveservices.azure.com";
        assert_eq!(last.head.target(), format!("{target}{resource}"));
        assert_eq!(last.head.get(header.0), Some(header.1));
        assert_no_secret(&gateway, &[TOKEN, "header-of-the-identity"]);
    }
}

#[tokio::test]
async fn workload_identity_reads_its_token_file_for_each_token() {
    // Short-lived tokens, so that the second one is requested soon.
    let tokens = TokenServer::start(Behavior::Grant(1)).await;
    let azure = upstream(Form::Chat).await;
    let folder = tempfile::tempdir().unwrap();
    let federated = folder.path().join("token");
    std::fs::write(&federated, "first-token-of-the-platform").unwrap();
    let lines =
        application(&tokens, &format!("source = \"workload-identity\"\ntoken_file = {}", json!(federated)));
    let setup = provider(Setup::new(), "azure", "azure", &format!("http://{}/openai/v1", azure.addr), &lines)
        .model("gpt", "azure", "my-gpt");
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Chat.request_for("gpt", false)).await.status(), 200);
    let assertion = |index: usize| form_field(&tokens.requests()[index], "client_assertion").unwrap();
    assert_eq!(assertion(0), "first-token-of-the-platform");
    std::fs::write(&federated, "second-token-of-the-platform").unwrap();
    let is_last = || tokens.requests().last().is_some_and(|last| last.text().contains("second-token"));
    crate::support::until(is_last).await;
    assert_no_secret(&gateway, &[TOKEN, "token-of-the-platform"]);
}
