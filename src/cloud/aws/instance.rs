//! Credentials of an instance: the instance metadata service of EC2, version 2
//! (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html>).

use std::time::Duration;

use http::{HeaderName, Method};

use super::document;
use crate::token::{CredentialSource, Step, StepResult, TokenError, TokenExchange, TokenRequest, excerpt};

/// Default endpoint.
pub const ENDPOINT: &str = "http://169.254.169.254";
/// Endpoint in a network with IPv6 only.
pub const ENDPOINT_IPV6: &str = "http://[fd00:ec2::254]";
/// Path of the session token.
const TOKEN_PATH: &str = "/latest/api/token";
/// Path of the roles, and with a role's name behind it of its credentials.
const ROLE_PATH: &str = "/latest/meta-data/iam/security-credentials/";
/// Name in messages.
const SERVER: &str = "the instance metadata service";
/// Time limit of a request. The service is on the same machine; in a container whose hop limit is too low, its answer
/// never arrives.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Life of a session token, in seconds. Each renewal takes a new one.
const TOKEN_LIFE: &str = "300";
/// Longest session token and role name that are accepted, in bytes.
const MAX_TEXT: usize = 1024;

const X_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
const X_TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// Instance metadata service.
#[derive(Clone, Debug)]
pub struct InstanceMetadata {
    endpoint: String,
}

impl InstanceMetadata {
    /// Creates the source. `endpoint` is `AWS_EC2_METADATA_SERVICE_ENDPOINT`; `None` for the address of EC2.
    pub fn new(endpoint: Option<&str>) -> Self {
        InstanceMetadata { endpoint: endpoint.unwrap_or(ENDPOINT).trim_end_matches('/').to_owned() }
    }
}

impl CredentialSource for InstanceMetadata {
    fn name(&self) -> &'static str {
        "instance metadata"
    }

    fn fingerprint(&self) -> [u8; 32] {
        super::fingerprint("instance", &[&self.endpoint])
    }

    // AWS, "static stability": while the service has no new credentials, the old ones are accepted.
    fn outlives_expiry(&self) -> bool {
        true
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(InstanceExchange { endpoint: self.endpoint.clone(), token: None, role: None })
    }
}

/// Exchange of three requests: for a session token, for the name of the role, and for its credentials.
struct InstanceExchange {
    endpoint: String,
    token: Option<String>,
    role: Option<String>,
}

impl InstanceExchange {
    fn get(&self, path: &str, token: &str) -> Step {
        let request = TokenRequest::new(Method::GET, format!("{}{path}", self.endpoint), TIMEOUT);
        Step::Send(request.with_header(X_TOKEN, token))
    }
}

impl TokenExchange for InstanceExchange {
    fn advance(&mut self, result: StepResult<'_>, _now: i64) -> Result<Step, TokenError> {
        let invalid = |reason: &str| TokenError::Invalid {
            what: format!("the response of {SERVER}"),
            reason: reason.to_owned(),
        };
        let (status, body) = match result {
            StepResult::Begin => {
                let url = format!("{}{TOKEN_PATH}", self.endpoint);
                let request = TokenRequest::new(Method::PUT, url, TIMEOUT);
                return Ok(Step::Send(request.with_header(X_TOKEN_TTL, TOKEN_LIFE)));
            }
            StepResult::Response { status, body } => (status, body),
            StepResult::Unreachable(reason) => {
                return Err(TokenError::Unreachable { server: SERVER, reason: reason.to_owned() });
            }
            StepResult::Challenge(_) | StepResult::File(_) | StepResult::Unreadable(_) => {
                return Err(invalid("only responses were requested"));
            }
        };
        if status != 200 {
            let reason = match (status, &self.token, &self.role) {
                (404, Some(_), None) => "the instance has no role".to_owned(),
                _ => excerpt(body),
            };
            return Err(TokenError::Refused { server: SERVER, status, reason });
        }
        let text = std::str::from_utf8(body).map_err(|_| invalid("it is not UTF-8"));
        let Some(token) = &self.token else {
            let token = text?.trim();
            let is_sound = !token.is_empty()
                && token.len() <= MAX_TEXT
                && token.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_sound {
                return Err(invalid("the session token is malformed"));
            }
            self.token = Some(token.to_owned());
            return Ok(self.get(ROLE_PATH, token));
        };
        if self.role.is_some() {
            return document::parse(SERVER, body).map(Step::Done);
        }
        // A list with one line for each role; there is at most one. IAM: letters, digits and `+=,.@_-`.
        let role = text?.lines().next().unwrap_or_default().trim();
        let is_sound = !role.is_empty()
            && role.len() <= MAX_TEXT
            && role.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte));
        if !is_sound {
            return Err(invalid("the name of the role is malformed"));
        }
        let step = self.get(&format!("{ROLE_PATH}{role}"), token);
        self.role = Some(role.to_owned());
        Ok(step)
    }
}
