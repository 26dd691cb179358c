//! Issue of an access token, step by step: the token file if there is one, and the token.

use std::path::Path;
use std::sync::Arc;

use super::entra::{ClientProof, EntraApplication};
use super::{AzureCredential, AzureIdentity, ManagedIdentity};
use crate::oauth::{Reply, SecretText, fingerprint};
use crate::token::{CredentialSource, Step, StepResult, TokenError, TokenExchange, TokenRequest};

impl CredentialSource for AzureCredential {
    fn name(&self) -> &'static str {
        match &self.identity {
            AzureIdentity::Managed(_) => "managed identity",
            AzureIdentity::Application(application) => match application.proof() {
                ClientProof::Secret(_) => "client secret",
                ClientProof::Certificate(_) => "client certificate",
                ClientProof::TokenFile(_) => "workload identity",
            },
        }
    }

    fn fingerprint(&self) -> [u8; 32] {
        fingerprint("azure", self)
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(AzureExchange { credential: Arc::new(self.clone()), is_sent: false, secrets: Vec::new() })
    }
}

struct AzureExchange {
    credential: Arc<AzureCredential>,
    /// Whether the token has been requested.
    is_sent: bool,
    /// Secrets of the request.
    secrets: Vec<SecretText>,
}

impl TokenExchange for AzureExchange {
    fn advance(&mut self, result: StepResult<'_>, now: i64) -> Result<Step, TokenError> {
        let credential = self.credential.clone();
        if self.is_sent {
            let reply = Reply { server: credential.identity.server(), secrets: &self.secrets };
            return match (&credential.identity, result) {
                (AzureIdentity::Managed(_), StepResult::Challenge(challenge)) => {
                    ManagedIdentity::proof_file(challenge)
                        .map(Step::Read)
                        .map_err(|reason| reply.invalid(reason))
                }
                (AzureIdentity::Managed(identity), StepResult::File(proof)) => {
                    let proof = SecretText::new(proof.trim());
                    let request = identity.request_with_proof(&credential.scope, &proof);
                    let request = request.map_err(|reason| reply.invalid(reason))?;
                    Ok(self.send(request, vec![proof]))
                }
                (AzureIdentity::Managed(_), StepResult::Unreadable(reason)) => {
                    Err(TokenError::Configuration(format!(
                        "the file that Azure Arc demands cannot be read ({reason}): the user of the gateway must be in \
                         the group himds"
                    )))
                }
                _ => reply.grant(result).map(Step::Done),
            };
        }
        match &credential.identity {
            AzureIdentity::Managed(identity) => {
                Ok(self.send(identity.request(&credential.scope), identity.secrets()))
            }
            AzureIdentity::Application(application) => {
                self.begin_application(application, &credential.scope, result, now)
            }
        }
    }
}

impl AzureExchange {
    fn begin_application(
        &mut self,
        application: &EntraApplication,
        scope: &str,
        result: StepResult<'_>,
        now: i64,
    ) -> Result<Step, TokenError> {
        let assertion = match (application.proof(), result) {
            (ClientProof::Secret(secret), _) => {
                let request = application.request_with_secret(scope, secret);
                return Ok(self.send(request, vec![secret.clone()]));
            }
            (ClientProof::Certificate(certificate), _) => application.assertion(certificate, now)?,
            (ClientProof::TokenFile(path), StepResult::Begin) => return Ok(Step::Read(path.clone())),
            (ClientProof::TokenFile(path), result) => federated_token(path, result)?,
        };
        let request = application.request_with_assertion(scope, &assertion);
        Ok(self.send(request, vec![assertion]))
    }

    fn send(&mut self, request: TokenRequest, secrets: Vec<SecretText>) -> Step {
        self.is_sent = true;
        self.secrets = secrets;
        Step::Send(request)
    }
}

impl AzureIdentity {
    /// Returns the token server in words.
    fn server(&self) -> &'static str {
        match self {
            AzureIdentity::Application(_) => "Microsoft Entra ID",
            AzureIdentity::Managed(_) => "the managed identity endpoint",
        }
    }
}

/// Returns the token of another platform that a file has.
fn federated_token(path: &Path, result: StepResult<'_>) -> Result<SecretText, TokenError> {
    let shown = path.display();
    match result {
        StepResult::File(text) if !text.trim().is_empty() => Ok(SecretText::new(text.trim())),
        StepResult::File(_) => Err(TokenError::Invalid {
            what: format!("the token file {shown}"),
            reason: "it is empty".to_owned(),
        }),
        StepResult::Unreadable(reason) => {
            Err(TokenError::Configuration(format!("the token file {shown} cannot be read: {reason}")))
        }
        _ => Err(TokenError::Configuration(format!("the token file {shown} was not read"))),
    }
}
