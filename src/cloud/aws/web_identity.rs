//! Web identity: a token of another identity provider, such as that of a Kubernetes service account, is exchanged for
//! the credentials of a role (`AssumeRoleWithWebIdentity`). The request has no signature: the token is the proof.

use std::path::PathBuf;

use super::sts::{self, SERVER, StsEndpoint, VERSION};
use crate::token::{CredentialSource, Step, StepResult, TokenError, TokenExchange};

/// Web identity source.
#[derive(Clone, Debug)]
pub struct WebIdentity {
    /// File of the token. It is read anew for each renewal, because it is replaced before it expires.
    pub token_file: PathBuf,
    /// Role to assume.
    pub role_arn: Box<str>,
    /// Name of the session in the logs of AWS.
    pub session_name: Box<str>,
    /// Region whose token service is used.
    pub region: Box<str>,
    /// URL of the token service; `None` for that of AWS.
    pub sts_url: Option<Box<str>>,
}

impl CredentialSource for WebIdentity {
    fn name(&self) -> &'static str {
        "web identity"
    }

    fn fingerprint(&self) -> [u8; 32] {
        let file = self.token_file.display().to_string();
        let url = self.sts_url.as_deref().unwrap_or_default();
        super::fingerprint("web-identity", &[&file, &self.role_arn, &self.session_name, &self.region, url])
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(WebIdentityExchange(self.clone()))
    }
}

struct WebIdentityExchange(WebIdentity);

impl TokenExchange for WebIdentityExchange {
    fn advance(&mut self, result: StepResult<'_>, _now: i64) -> Result<Step, TokenError> {
        let WebIdentity { token_file, role_arn, session_name, region, sts_url } = &self.0;
        match result {
            StepResult::Begin => Ok(Step::Read(token_file.clone())),
            StepResult::File(token) => {
                let endpoint = StsEndpoint::new(region, sts_url.as_deref());
                Ok(Step::Send(endpoint.request(&[
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", VERSION),
                    ("RoleArn", role_arn),
                    ("RoleSessionName", session_name),
                    ("WebIdentityToken", token.trim()),
                ])))
            }
            StepResult::Unreadable(reason) => Err(TokenError::Configuration(format!(
                "the web identity token {} cannot be read: {reason}",
                token_file.display()
            ))),
            StepResult::Unreachable(reason) => {
                Err(TokenError::Unreachable { server: SERVER, reason: reason.to_owned() })
            }
            StepResult::Challenge(_) => Err(TokenError::Refused {
                server: SERVER,
                status: 401,
                reason: "it demands another proof".to_owned(),
            }),
            StepResult::Response { status, body } => sts::parse(status, body).map(Step::Done),
        }
    }
}
