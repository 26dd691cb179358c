//! Issue of an access token, step by step: the subject token if there is one, the token, and the token of the service
//! account that is impersonated.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, header};
use serde::Serialize;

use super::aws_subject::{AwsSubjectExchange, SubjectStep};
use super::external::ExternalAccount;
use super::{AuthorizedUser, BaseCredential, GoogleCredential, SCOPE, ServiceAccount};
use crate::oauth::{Assertion, AssertionAlgorithm, Reply, SERVER_TIMEOUT, SecretText, fingerprint};
use crate::token::{
    Credential, CredentialSource, Grant, Lifetime, Step, StepResult, TokenError, TokenExchange, TokenRequest,
};

/// Life of an assertion in seconds: the longest that the token server accepts.
const ASSERTION_LIFE: i64 = 3_600;
/// Seconds by which an assertion is dated back, for a token server whose clock is slow.
const ASSERTION_SKEW: i64 = 10;

/// Life of an assertion that stands in place of an access token.
const SELF_SIGNED_LIFE: Duration = Duration::from_secs(3_590);

/// Server of the last exchange of an impersonation, in words.
const IAM: &str = "the service account credentials API";

/// Claims of an assertion that stands in place of an access token (AIP-4111).
#[derive(Serialize)]
struct SelfSignedClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    scope: &'a str,
    iat: i64,
    exp: i64,
}

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
        Box::new(GoogleExchange {
            credential,
            stage: Stage::Begin,
            aws: AwsSubjectExchange::default(),
            secrets: Vec::new(),
        })
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
    /// Progress towards a subject token of AWS; unused for other sources.
    aws: AwsSubjectExchange,
    /// Secrets of the last request.
    secrets: Vec<SecretText>,
}

impl TokenExchange for GoogleExchange {
    fn advance(&mut self, result: StepResult<'_>, now: i64) -> Result<Step, TokenError> {
        let credential = self.credential.clone();
        let reply = Reply { server: credential.base.server(), secrets: &self.secrets };
        match self.stage {
            Stage::Begin => match &credential.base {
                BaseCredential::ServiceAccount(account)
                    if account.self_signs && credential.impersonation.is_none() =>
                {
                    account.self_signed(now).map(Step::Done)
                }
                base => self.begin(base, now),
            },
            Stage::Subject => {
                let BaseCredential::ExternalAccount(account) = &credential.base else {
                    return Err(reply.invalid("none was requested"));
                };
                self.subject(account, result, now)
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
                self.subject(account, StepResult::Begin, now)?
            }
            BaseCredential::Metadata(server) => self.send(Stage::Token, server.request(), Vec::new()),
        })
    }

    /// Takes a result on the way to the subject token, which is exchanged once it is there.
    fn subject(
        &mut self,
        account: &ExternalAccount,
        result: StepResult<'_>,
        now: i64,
    ) -> Result<Step, TokenError> {
        Ok(match account.advance(&mut self.aws, result, now)? {
            SubjectStep::Next(step) => step,
            SubjectStep::Token(subject) => {
                let request = account.request(&subject);
                self.send(Stage::Token, request, account.secrets(subject))
            }
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

    /// Returns an assertion in place of an access token.
    fn self_signed(&self, now: i64) -> Result<Grant, TokenError> {
        let issued = now.saturating_sub(ASSERTION_SKEW);
        let claims = SelfSignedClaims {
            iss: &self.email,
            sub: &self.email,
            scope: SCOPE,
            iat: issued,
            exp: issued.saturating_add(ASSERTION_LIFE),
        };
        let key_id = self.key_id.as_deref();
        let assertion = Assertion { algorithm: AssertionAlgorithm::Rs256, key_id, thumbprint: None, claims };
        let token = assertion.sign(&self.signer)?;
        Ok(Grant {
            credential: Credential::Bearer(token.expose().into()),
            lifetime: Lifetime::For(SELF_SIGNED_LIFE),
        })
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
        let request = TokenRequest::new(Method::POST, self.token_url.to_string(), SERVER_TIMEOUT);
        let mut form = vec![("grant_type", "refresh_token"), ("refresh_token", self.refresh_token.expose())];
        if self.is_basic {
            let pair = format!("{}:{}", self.client_id, self.client_secret.expose());
            let basic = format!("Basic {}", base64_simd::STANDARD.encode_to_string(pair));
            return request.with_form(&form).with_header(header::AUTHORIZATION, &basic);
        }
        form.extend([("client_id", &*self.client_id), ("client_secret", self.client_secret.expose())]);
        request.with_form(&form)
    }
}
