//! `model-gateway check --credentials`: says what is wrong with a credential, and requests each one once.

use std::process::{Command, Output};

use serde_json::json;

use super::{assert_no_secret, provider};
use crate::support::gateway::free_ports;
use crate::support::setup::Setup;
use crate::support::token_server::{Behavior, TOKEN, TokenServer};

/// Runs the command on a worker of its own, because the token server needs this thread.
async fn check(setup: Setup) -> Output {
    let run = move || {
        let folder = tempfile::tempdir().unwrap();
        let conf = setup.write(folder.path(), &free_ports());
        let mut command = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
        command.args(["check", "--credentials", "--conf"]).arg(conf).output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn setup(tokens: &TokenServer) -> Setup {
    let google = "google = { file = \"user.json\" }";
    let azure = format!(
        "[provider.azure]\nsource = \"client-secret\"\ntenant = \"t\"\nclient_id = \"c\"\nauthority = \"http://{}\"\n\
         client_secret = {{ value = \"secret-of-the-application\" }}",
        tokens.host()
    );
    let setup = provider(Setup::new(), "vertex", "vertex", "https://vertex.invalid/v1", google);
    provider(setup, "azure", "azure", "https://azure.invalid/openai/v1", &azure)
        .model("gemini", "vertex", "gemini")
        .model("gpt", "azure", "gpt")
        .file("user.json", &tokens.authorized_user("p"))
}

#[tokio::test]
async fn credentials_that_are_valid_are_named_with_their_life() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let output = check(setup(&tokens)).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("vertex (authorized user)") && text.contains("azure (client secret)"), "{text}");
    assert_eq!(tokens.granted(), 2);
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn credentials_that_are_refused_are_explained_without_secrets() {
    let quoted = "The grant refresh-token-of-the-user with secret-of-the-application has been revoked.";
    let body = json!({"error": "invalid_grant", "error_description": quoted});
    let tokens = TokenServer::start(Behavior::Send(400, body.to_string())).await;
    let output = check(setup(&tokens)).await;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{text}");
    for part in [
        "Google's token server refuses with status 400: invalid_grant",
        "Microsoft Entra ID refuses with status 400",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Each server may repeat what it was sent: that is left out.
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("refuses")).collect();
    assert!(lines.iter().all(|line| line.contains("has been revoked")), "{text}");
    assert!(!lines[0].contains("refresh-token-of-the-user"), "{text}");
    assert!(!lines[1].contains("secret-of-the-application"), "{text}");
}

#[tokio::test]
async fn credentials_whose_server_is_away_or_whose_file_is_wrong_are_explained() {
    let tokens = TokenServer::start(Behavior::Dead).await;
    let output = check(setup(&tokens)).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("Google's token server does not answer"), "{text}");

    let broken = setup(&tokens).file("user.json", r#"{"type":"authorized_user","client_id":"c"}"#);
    let output = check(broken).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("routes.toml:") && text.contains("the field `client_secret` is missing"), "{text}");
}

#[tokio::test]
async fn api_key_with_an_end_is_warned_of() {
    let vectors: serde_json::Value = serde_json::from_str(include_str!("../../vectors/sigv4.json")).unwrap();
    let vectors = vectors["vectors"].as_array().unwrap();
    let vector = vectors.iter().find(|vector| vector["name"] == "bedrock-short-term-api-key").unwrap();
    let key = vector["token"].as_str().unwrap();
    let lines = format!("credential = {{ value = \"{key}\" }}\naws = {{ region = \"us-east-1\" }}");
    let setup = || {
        provider(Setup::new(), "aws", "bedrock", "http://127.0.0.1:1", &lines).model(
            "m",
            "aws",
            "amazon.nova-lite-v1:0",
        )
    };
    let output = check(setup()).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    let said = "the API key is a short-term one, which has ended at 2026-11-21T22:11:12Z and is not renewed";
    assert!(text.contains(said) && !text.contains(key), "{text}");
    // The running gateway says so too, and its metric has the end.
    let gateway = crate::support::gateway::Gateway::start(&setup()).await;
    let end = gateway.metrics().await.sum("gateway_credential_end_timestamp_seconds", &[("provider", "aws")]);
    assert_eq!(end, 1_795_299_072.0);
    assert!(gateway.log().contains("has ended at 2026-11-21T22:11:12Z"), "{}", gateway.log());
    assert_no_secret(&gateway, &[key]);
}
