//! Google: service accounts, users, the metadata server, workload identity federation, and Claude on Vertex AI.

use base64_simd::URL_SAFE_NO_PAD;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::{assert_no_secret, bearer, provider, upstream};
use crate::support::client::post_with;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup};
use crate::support::token_server::{Behavior, RSA_KEY, TOKEN, TokenServer, form_field};
use crate::support::upstream::Upstream;

/// Path of a project below a Vertex AI host.
const PROJECT: &str = "/v1/projects/p/locations/global";
const CLAUDE: &str = "claude-sonnet-4-5@20250929";

/// Returns the claims of an assertion whose signature is valid.
fn verified(assertion: &str) -> Value {
    let (message, signature) = assertion.rsplit_once('.').unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(RSA_KEY.as_bytes()).unwrap();
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    public.verify(message.as_bytes(), &URL_SAFE_NO_PAD.decode_to_vec(signature).unwrap()).unwrap();
    let claims = message.split_once('.').unwrap().1;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode_to_vec(claims).unwrap()).unwrap()
}

#[tokio::test]
async fn claude_on_vertex_is_called_with_the_token_of_a_service_account() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let vertex = upstream(Form::Messages).await;
    let base = format!("http://{}{PROJECT}", vertex.addr);
    let setup =
        provider(Setup::new(), "vertex", "vertex-anthropic", &base, "google = { file = \"sa.json\" }")
            .model("claude", "vertex", CLAUDE)
            .file("sa.json", &tokens.service_account());
    let gateway = Gateway::start(&setup).await;

    // Same format: whole and streamed. Another format: translated.
    let headers = [("x-api-key", KEY), ("anthropic-beta", "context-1m-2025-08-07")];
    let body = |stream: bool| {
        json!({"model": "claude", "max_tokens": 64, "stream": stream,
            "thinking": {"type": "enabled", "budget_tokens": 1_024},
            "messages": [{"role": "user", "content": "Hi"}]})
        .to_string()
    };
    for stream in [false, true] {
        let request = post_with("/v1/messages", &headers, body(stream));
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
    }
    assert_eq!(gateway.ask(Form::Chat.request_for("claude", true)).await.status(), 200);
    // A client that was written for the platform sends a version of its own.
    let versioned = [
        r#"{"anthropic_version":"2023-06-01","model":"claude","max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#,
        r#"{"model":"claude","max_tokens":64,"messages":[{"role":"user","content":"Hi"}], "anthropic_version" : "vertex-2023-10-16"}"#,
    ];
    for body in versioned {
        let answer = gateway.ask(post_with("/v1/messages", &headers, body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
    }

    let requests = vertex.requests();
    let models = format!("{PROJECT}/publishers/anthropic/models/{CLAUDE}");
    let targets: Vec<&str> = requests.iter().map(|request| request.head.target()).collect();
    let (whole, stream) = (format!("{models}:rawPredict"), format!("{models}:streamRawPredict"));
    assert_eq!(targets, [&*whole, &*stream, &*stream, &*whole, &*whole]);
    for request in &requests {
        assert_eq!(bearer(request), format!("{TOKEN}1"));
        assert_eq!(request.head.get("x-api-key"), None);
        let body = request.json();
        assert_eq!(body["anthropic_version"], "vertex-2023-10-16", "{body}");
        assert_eq!(request.text().matches("anthropic_version").count(), 1, "{}", request.text());
        assert_eq!(body.get("model"), None, "{body}");
    }
    let first = requests[0].json();
    assert_eq!(first["thinking"], json!({"type": "enabled", "budget_tokens": 1_024}));
    assert_eq!(requests[0].head.get("anthropic-beta"), Some("context-1m-2025-08-07"));

    let asked = tokens.requests();
    assert_eq!(asked.len(), 1, "one token for all requests");
    let assertion = form_field(&asked[0], "assertion").unwrap();
    let claims = verified(&assertion);
    assert_eq!(claims["iss"], "gateway@p.iam.gserviceaccount.com");
    assert_eq!(claims["aud"], format!("http://{}/token", tokens.host()));
    assert!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap() <= 3_600);
    assert_no_secret(&gateway, &[TOKEN, &assertion]);
}

#[tokio::test]
async fn gemini_on_vertex_is_called_with_the_token_and_quota_project_of_a_user() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let vertex = upstream(Form::Generate).await;
    let base = format!("http://{}{PROJECT}", vertex.addr);
    let file = "google = { file = \"user.json\" }";
    let setup = provider(Setup::new(), "vertex", "vertex", &base, file)
        .model("gemini", "vertex", "gemini-2.5-flash")
        .file("user.json", &tokens.authorized_user("billing-project"));
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Generate.request_for("gemini", false)).await.status(), 200);
    let request = vertex.only_request();
    assert_eq!(bearer(&request), format!("{TOKEN}1"));
    assert_eq!(request.head.get("x-goog-user-project"), Some("billing-project"));
    let asked = &tokens.requests()[0];
    assert_eq!(form_field(asked, "grant_type").as_deref(), Some("refresh_token"));
    assert_eq!(form_field(asked, "refresh_token").as_deref(), Some("refresh-token-of-the-user"));
    assert_no_secret(&gateway, &[TOKEN, "refresh-token-of-the-user", "secret-of-the-client"]);
}

#[tokio::test]
async fn default_credentials_are_the_named_file_or_the_metadata_server() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let vertex = upstream(Form::Generate).await;
    let base = format!("http://{}{PROJECT}", vertex.addr);
    let file = "export GOOGLE_APPLICATION_CREDENTIALS=\"$(dirname \"$0\")/user.json\"";
    let metadata = format!("export HOME=/nonexistent GCE_METADATA_HOST={}", tokens.host());
    for (exports, is_metadata) in [(file, false), (&*metadata, true)] {
        let script =
            format!("unset GOOGLE_APPLICATION_CREDENTIALS CLOUDSDK_CONFIG\n{exports}\nexec \"$@\"\n");
        let google = "google = { source = \"default\" }";
        let setup = provider(Setup::new(), "vertex", "vertex", &base, google)
            .model("gemini", "vertex", "gemini-2.5-flash")
            .file("user.json", &tokens.authorized_user("billing-project"))
            .file("start.sh", &script);
        let gateway = Gateway::start(&setup).await;
        assert_eq!(gateway.ask(Form::Generate.request_for("gemini", false)).await.status(), 200);
        let asked = tokens.requests();
        let last = &asked[asked.len() - 1];
        if is_metadata {
            let path = "/computeMetadata/v1/instance/service-accounts/default/token?scopes=";
            assert!(last.head.target().starts_with(path), "{}", last.head.target());
            assert_eq!(last.head.get("metadata-flavor"), Some("Google"));
        } else {
            assert_eq!(form_field(last, "grant_type").as_deref(), Some("refresh_token"));
        }
    }
}

#[tokio::test]
async fn federated_identity_exchanges_the_token_of_a_file() {
    let tokens = TokenServer::start(Behavior::Grant(3_600)).await;
    let vertex = upstream(Form::Generate).await;
    let base = format!("http://{}{PROJECT}", vertex.addr);
    let folder = tempfile::tempdir().unwrap();
    let subject = folder.path().join("token");
    std::fs::write(&subject, "subject-token-of-the-platform\n").unwrap();
    let file = json!({
        "type": "external_account", "audience": "//iam.googleapis.com/projects/1/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("http://{}/sts", tokens.host()),
        "service_account_impersonation_url": format!("http://{}/a:generateAccessToken", tokens.host()),
        "credential_source": {"file": subject},
    });
    let setup = provider(Setup::new(), "vertex", "vertex", &base, "google = { file = \"external.json\" }")
        .model("gemini", "vertex", "gemini-2.5-flash")
        .file("external.json", &file.to_string());
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Generate.request_for("gemini", false)).await.status(), 200);
    // The first token is that of the pool, the second one that of the service account.
    assert_eq!(bearer(&vertex.only_request()), format!("{TOKEN}2"));
    let asked = tokens.requests();
    assert_eq!(form_field(&asked[0], "subject_token").as_deref(), Some("subject-token-of-the-platform"));
    assert_eq!(bearer(&asked[1]), format!("{TOKEN}1"));
    assert_no_secret(&gateway, &[TOKEN, "subject-token-of-the-platform"]);
}

/// Starts Vertex AI's embedding methods. A vector is the length of its text.
async fn embedding_upstream() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let body = request.json();
            let answer = match request.head.target().rsplit_once(':').unwrap().1 {
                "predict" => {
                    let predict = |instance: &Value| {
                        let length = instance["content"].as_str().unwrap().len();
                        json!({"embeddings": {"values": [length], "statistics": {"truncated": false, "token_count": 2}}})
                    };
                    let instances = body["instances"].as_array().unwrap();
                    json!({"predictions": instances.iter().map(predict).collect::<Vec<_>>()})
                }
                "embedContent" => {
                    let length = body["content"]["parts"][0]["text"].as_str().unwrap().len();
                    json!({"embedding": {"values": [length]}, "usageMetadata": {"promptTokenCount": 2}})
                }
                // There is no method for several contents.
                _ => json!({"error": {"code": 404, "message": "no such method", "status": "NOT_FOUND"}}),
            };
            let status = if answer.get("error").is_some() { 404 } else { 200 };
            conn.send(reply::json(status, answer.to_string())).await;
        }
    })
    .await
}

#[tokio::test]
async fn embeddings_of_vertex_are_predicted_or_embedded_one_by_one() {
    let vertex = embedding_upstream().await;
    // Express mode: an API key, and no project.
    let base = format!("http://{}/v1", vertex.addr);
    let models = ["text-embedding-005", "gemini-embedding-001", "gemini-embedding-2-preview"];
    let mut setup = Setup::new().provider("vertex", "vertex", &base, "");
    for model in models {
        setup = setup.model(model, "vertex", model);
    }
    let gateway = Gateway::start(&setup).await;
    for (model, method, calls) in
        [(models[0], "predict", 1), (models[1], "predict", 2), (models[2], "embedContent", 2)]
    {
        let before = vertex.count();
        let body = json!({"model": model, "input": ["a", "bbb"], "dimensions": 8});
        let answer = gateway.ask(post_with("/v1/embeddings", &[("x-api-key", KEY)], body.to_string())).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.everything());
        let answer: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(
            (&answer["data"][0]["embedding"], &answer["data"][1]["embedding"]),
            (&json!([1]), &json!([3]))
        );
        assert_eq!(answer["usage"]["prompt_tokens"], 4, "{answer}");
        // A client of Gemini's batches reaches the same methods.
        let batch = json!({"requests": [
            {"model": format!("models/{model}"), "content": {"parts": [{"text": "cc"}]}, "taskType": "RETRIEVAL_QUERY"}]});
        let path = format!("/v1beta/models/{model}:batchEmbedContents");
        let answer = gateway.ask(post_with(&path, &[("x-goog-api-key", KEY)], batch.to_string())).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.everything());
        let requests = vertex.requests();
        let sent = &requests[before..];
        assert_eq!(sent.len(), calls + 1, "{model}");
        for request in sent {
            assert_eq!(request.head.target(), format!("/v1/publishers/google/models/{model}:{method}"));
            assert_eq!(request.head.get("x-goog-api-key"), Some(CREDENTIAL));
            assert_eq!((request.head.get("authorization"), request.json().get("model")), (None, None));
        }
        let last = sent[calls].json();
        let task = if method == "predict" { &last["instances"][0]["task_type"] } else { &last["taskType"] };
        assert_eq!(task, "RETRIEVAL_QUERY", "{last}");
    }
}

#[tokio::test]
async fn service_account_of_google_needs_no_token_server() {
    let vertex = upstream(Form::Generate).await;
    let base = format!("http://{}{PROJECT}", vertex.addr);
    let file = json!({
        "type": "service_account", "private_key": RSA_KEY, "client_email": "gateway@p.iam.gserviceaccount.com",
    });
    let setup = provider(Setup::new(), "vertex", "vertex", &base, "google = { file = \"sa.json\" }")
        .model("gemini", "vertex", "gemini-2.5-flash")
        .file("sa.json", &file.to_string());
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(Form::Generate.request_for("gemini", false)).await.status(), 200);
    let claims = verified(bearer(&vertex.only_request()));
    assert_eq!(claims["sub"], "gateway@p.iam.gserviceaccount.com");
    assert_eq!(
        (&claims["scope"], claims.get("aud")),
        (&json!("https://www.googleapis.com/auth/cloud-platform"), None)
    );
    let life = gateway.metrics().await.sum("gateway_credential_end_timestamp_seconds", &[]);
    assert!(life > claims["iat"].as_f64().unwrap() + 3_500.0);
    assert_no_secret(&gateway, &["PRIVATE KEY"]);
}

/// The clock of the machine is an hour slow: the first token is refused, and the next one has the time of the provider.
#[tokio::test]
async fn service_account_signs_with_the_time_of_the_provider() {
    let ahead = 3_600;
    let vertex = Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let now = std::time::SystemTime::now() + std::time::Duration::from_secs(ahead);
            let seconds = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            let claims = verified(bearer(&request));
            let date = httpdate::fmt_http_date(now);
            let headers = [("content-type", "application/json"), ("date", &*date)];
            let is_valid = claims["exp"].as_u64().unwrap() > seconds + 60;
            conn.send(match is_valid {
                true => reply::whole(200, &headers, Form::Generate.whole("m")),
                false => reply::whole(401, &headers, provider_error(Form::Generate, 401, "expired")),
            })
            .await;
        }
    })
    .await;
    let base = format!("http://{}{PROJECT}", vertex.addr);
    let file = json!({
        "type": "service_account", "private_key": RSA_KEY, "client_email": "gateway@p.iam.gserviceaccount.com",
    });
    let setup = provider(Setup::new(), "vertex", "vertex", &base, "google = { file = \"sa.json\" }")
        .model("gemini", "vertex", "gemini-2.5-flash")
        .file("sa.json", &file.to_string());
    let gateway = Gateway::start(&setup).await;
    for _ in 0..2 {
        let answer = gateway.ask(Form::Generate.request_for("gemini", false)).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
    }
    assert_eq!(vertex.count(), 3, "one request is sent again");
}
