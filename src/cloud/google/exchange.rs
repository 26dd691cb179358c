//! Issue of an access token, step by step: the subject token if there is one, the token, and the token of the service
//! account that is impersonated.

use std::sync::Arc;

use http::Method;
use serde::Serialize;

use super::{AuthorizedUser, BaseCredential, GoogleCredential, SCOPE, ServiceAccount};
use crate::cloud::oauth::{Assertion, AssertionAlgorithm, Reply, SERVER_TIMEOUT, SecretText, fingerprint};
use crate::cloud::token::{
    Credential, CredentialSource, Grant, Step, StepResult, TokenError, TokenExchange, TokenRequest,
};

/// Life of an assertion in seconds: the longest that the token server accepts.
const ASSERTION_LIFE: i64 = 3_600;
/// Seconds by which an assertion is dated back, for a token server whose clock is slow.
const ASSERTION_SKEW: i64 = 10;

/// Server of the last exchange of an impersonation, in words.
const IAM: &str = "the service account credentials API";

/// Claims of a service account (RFC 7523; Google Identity, "Using OAuth 2.0 for Server to Server Applications").
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: String,
    iat: i64,
    exp: i64,
}

impl CredentialSource for GoogleCredential {
    fn name(&self) -> &'static str {
        let is_external = matches!(self.base, BaseCredential::ExternalAccount(_));
        match &self.base {
            _ if self.impersonation.is_some() && !is_external => "impersonated service account",
            BaseCredential::ServiceAccount(_) => "service account",
            BaseCredential::AuthorizedUser(_) => "authorized user",
            BaseCredential::ExternalAccount(_) => "workload identity federation",
            BaseCredential::Metadata(_) => "metadata server",
        }
    }

    fn fingerprint(&self) -> [u8; 32] {
        fingerprint("google", self)
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        let credential = Arc::new(self.clone());
        Box::new(GoogleExchange { credential, stage: Stage::Begin, secrets: Vec::new() })
    }
}

/// Step whose result the exchange waits for.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Begin,
    Subject,
    Token,
    Impersonated,
}

struct GoogleExchange {
    credential: Arc<GoogleCredential>,
    stage: Stage,
    /// Secrets of the last request.
    secrets: Vec<SecretText>,
}

impl TokenExchange for GoogleExchange {
    fn advance(&mut self, result: StepResult<'_>, now: i64) -> Result<Step, TokenError> {
        let credential = self.credential.clone();
        let reply = Reply { server: credential.base.server(), secrets: &self.secrets };
        match self.stage {
            Stage::Begin => self.begin(&credential.base, now),
            Stage::Subject => {
                let BaseCredential::ExternalAccount(account) = &credential.base else {
                    return Err(reply.invalid("none was requested"));
                };
                let subject = account.subject(result)?;
                let request = account.request(&subject);
                Ok(self.send(Stage::Token, request, account.secrets(subject)))
            }
            Stage::Token => {
                let grant = reply.grant(result)?;
                match (&credential.impersonation, &grant) {
                    (Some(impersonation), Grant { credential: Credential::Bearer(token), .. }) => {
                        let request = impersonation.request(token);
                        Ok(self.send(Stage::Impersonated, request, vec![SecretText::new(token.clone())]))
                    }
                    _ => Ok(Step::Done(grant)),
                }
            }
            Stage::Impersonated => Reply { server: IAM, ..reply }.grant(result).map(Step::Done),
        }
    }
}

impl GoogleExchange {
    fn begin(&mut self, base: &BaseCredential, now: i64) -> Result<Step, TokenError> {
        Ok(match base {
            BaseCredential::ServiceAccount(account) => {
                let assertion = account.assertion(now)?;
                let request = account.request(&assertion);
                self.send(Stage::Token, request, vec![assertion])
            }
            BaseCredential::AuthorizedUser(user) => {
                let secrets = vec![user.client_secret.clone(), user.refresh_token.clone()];
                self.send(Stage::Token, user.request(), secrets)
            }
            BaseCredential::ExternalAccount(account) => {
                self.stage = Stage::Subject;
                account.first_step()
            }
            BaseCredential::Metadata(server) => self.send(Stage::Token, server.request(), Vec::new()),
        })
    }

    fn send(&mut self, stage: Stage, request: TokenRequest, secrets: Vec<SecretText>) -> Step {
        self.stage = stage;
        self.secrets = secrets;
        Step::Send(request)
    }
}

impl BaseCredential {
    /// Returns the token server in words.
    fn server(&self) -> &'static str {
        match self {
            BaseCredential::ServiceAccount(_) | BaseCredential::AuthorizedUser(_) => "Google's token server",
            BaseCredential::ExternalAccount(_) => "Google's security token service",
            BaseCredential::Metadata(_) => "the metadata server",
        }
    }
}

impl ServiceAccount {
    fn assertion(&self, now: i64) -> Result<SecretText, TokenError> {
        let issued = now.saturating_sub(ASSERTION_SKEW);
        let claims = Claims {
            iss: &self.email,
            scope: SCOPE,
            aud: self.token_url.to_string(),
            iat: issued,
            exp: issued.saturating_add(ASSERTION_LIFE),
        };
        let key_id = self.key_id.as_deref();
        let assertion = Assertion { algorithm: AssertionAlgorithm::Rs256, key_id, thumbprint: None, claims };
        assertion.sign(&self.signer)
    }

    fn request(&self, assertion: &SecretText) -> TokenRequest {
        TokenRequest::new(Method::POST, self.token_url.to_string(), SERVER_TIMEOUT).with_form(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", assertion.expose()),
        ])
    }
}

impl AuthorizedUser {
    fn request(&self) -> TokenRequest {
        TokenRequest::new(Method::POST, self.token_url.to_string(), SERVER_TIMEOUT).with_form(&[
            ("grant_type", "refresh_token"),
            ("client_id", &self.client_id),
            ("client_secret", self.client_secret.expose()),
            ("refresh_token", self.refresh_token.expose()),
        ])
    }
}
