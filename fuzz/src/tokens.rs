//! Answers of token servers and credential files of cloud platforms.

use std::sync::Arc;

use cloud::aws::{InstanceMetadata, WebIdentity};
use cloud::azure::{AzureCredential, AzureIdentity, IdentityEndpoint, ManagedIdentity, SCOPE_OPENAI};
use cloud::google::GoogleCredential;
use cloud::oauth::{AssertionAlgorithm, AssertionSigner};
use cloud::token::{Credential, CredentialSource, Grant, MAX_STEPS, Step, StepResult, TokenRequest};

/// Token that a refused request carries, in the subject token file.
const SUBJECT: &str = "subject-token-of-the-fuzz-target";

struct Empty;

impl AssertionSigner for Empty {
    fn sign(&self, _: AssertionAlgorithm, _: &[u8]) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn key_hash(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// Input: a credential file, a zero byte, and the body of every answer.
///
/// A file is a credential or has an error without control characters. An exchange ends within the number of steps that
/// the gateway allows, its requests go to encrypted addresses or to this machine, and its end is a token that can be
/// sent in a header, or an error of one bounded line without the subject token.
pub fn tokens(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (file, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Ok(grant) = cloud::oauth::parse_token(body) {
        check_grant(&grant);
    }
    for source in other_sources() {
        drive(&*source, body);
    }
    let Ok(text) = std::str::from_utf8(file) else { return };
    let signer = |_: &str| Ok(Arc::new(Empty) as Arc<dyn AssertionSigner>);
    let credential = match GoogleCredential::parse(text, &signer, &|_| None) {
        Ok(credential) => credential,
        Err(error) => return check_message(&error.to_string()),
    };
    let _ = credential.fingerprint();
    drive(&credential, body);
}

/// Returns sources at AWS and Azure, whose answers have other forms.
fn other_sources() -> Vec<Box<dyn CredentialSource>> {
    let web = WebIdentity {
        token_file: "/token".into(),
        role_arn: "role".into(),
        session_name: "session".into(),
        region: "us-east-1".into(),
        sts_url: None,
    };
    let mut sources: Vec<Box<dyn CredentialSource>> =
        vec![Box::new(web), Box::new(InstanceMetadata::new(None))];
    let endpoint = IdentityEndpoint::Arc("http://localhost:40342/token".into());
    if let Ok(identity) = ManagedIdentity::new(endpoint, None)
        && let Ok(azure) = AzureCredential::new(SCOPE_OPENAI, AzureIdentity::Managed(identity))
    {
        sources.push(Box::new(azure));
    }
    sources
}

/// Carries out an exchange in which every answer has the same body.
fn drive(source: &dyn CredentialSource, body: &[u8]) {
    let challenge = std::str::from_utf8(body).unwrap_or_default();
    for status in [200, 400] {
        let mut exchange = source.begin();
        let mut result = StepResult::Begin;
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps <= MAX_STEPS, "the exchange does not end");
            result = match exchange.advance(result, 1_700_000_000) {
                Ok(Step::Send(request)) => {
                    check_request(&request);
                    if request.reads_challenge && status != 200 {
                        StepResult::Challenge(challenge)
                    } else {
                        StepResult::Response { status, body }
                    }
                }
                Ok(Step::Read(_)) => StepResult::File(SUBJECT),
                Ok(Step::Done(grant)) => break check_grant(&grant),
                Err(error) => break check_message(&error.to_string()),
            };
        }
    }
}

fn check_request(request: &TokenRequest) {
    let local =
        ["http://127.", "http://169.254.", "http://[", "http://localhost", "http://metadata.google.internal"];
    let url = request.url.to_ascii_lowercase();
    assert!(url.starts_with("https://") || local.iter().any(|known| url.starts_with(known)), "{url}");
}

fn check_grant(grant: &Grant) {
    let is_sound = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    match &grant.credential {
        Credential::Bearer(token) => assert!(is_sound(token), "{token:?}"),
        Credential::Aws(keys) => {
            let token = keys.session_token.as_deref();
            assert!(is_sound(&keys.access_key_id) && is_sound(&keys.secret_access_key), "{keys:?}");
            assert!(token.is_none_or(is_sound), "{token:?}");
        }
    }
}

fn check_message(message: &str) {
    assert!(message.len() < 8_192, "{} bytes", message.len());
    assert!(!message.contains(SUBJECT), "{message}");
}
