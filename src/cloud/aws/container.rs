//! Credentials of a container: Amazon ECS, and EKS Pod Identity
//! (<https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>).

use std::path::PathBuf;
use std::time::Duration;

use http::{Method, header};

use super::document;
use crate::token::{CredentialSource, Step, StepResult, TokenError, TokenExchange, TokenRequest, excerpt};

/// Server of the relative URI.
const ECS: &str = "http://169.254.170.2";
/// Hosts that a full URI may name without TLS: loopback, and the addresses of ECS and EKS.
const PLAIN_HOSTS: [&str; 5] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "[::1]", "localhost"];
/// Name in messages.
const SERVER: &str = "the container credentials service";
/// Time limit of a request. AWS SDKs wait 2 s.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Token that the request presents in the header `authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerToken {
    /// None: the path of the URI is the secret (ECS).
    None,
    /// A text.
    Text(Box<str>),
    /// A file, which is read anew for each request, because it is replaced (EKS).
    File(PathBuf),
}

/// Container credentials service.
#[derive(Clone)]
pub struct Container {
    url: String,
    token: ContainerToken,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path of the URL is a secret at ECS.
        f.write_str("Container")
    }
}

impl Container {
    /// Creates the source for a relative URI (`AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`).
    ///
    /// # Errors
    /// Returns the violated rule.
    pub fn relative(path: &str, token: ContainerToken) -> Result<Self, String> {
        if !path.starts_with('/') {
            return Err("a relative URI must begin with a slash".to_owned());
        }
        Ok(Container { url: format!("{ECS}{path}"), token })
    }

    /// Creates the source for a full URI (`AWS_CONTAINER_CREDENTIALS_FULL_URI`): https, or http to this machine and to
    /// the addresses of ECS and EKS.
    ///
    /// # Errors
    /// Returns the violated rule.
    pub fn full(url: &str, token: ContainerToken) -> Result<Self, String> {
        let plain = url.strip_prefix("http://");
        let authority = plain.map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
        let host = authority.map(|authority| match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        });
        let is_safe = match host {
            Some(host) => PLAIN_HOSTS.contains(&host) || is_loopback(host),
            None => url.starts_with("https://"),
        };
        if !is_safe {
            return Err("a full URI must be https, or http to this machine or to ECS or EKS".to_owned());
        }
        Ok(Container { url: url.to_owned(), token })
    }
}

/// Returns whether a host is an IPv4 address of this machine.
fn is_loopback(host: &str) -> bool {
    let mut parts = host.split('.');
    parts.next() == Some("127") && parts.clone().count() == 3 && parts.all(|part| part.parse::<u8>().is_ok())
}

impl CredentialSource for Container {
    fn name(&self) -> &'static str {
        "container"
    }

    fn fingerprint(&self) -> [u8; 32] {
        let (kind, token) = match &self.token {
            ContainerToken::None => ("none", String::new()),
            ContainerToken::Text(text) => ("text", text.to_string()),
            ContainerToken::File(path) => ("file", path.display().to_string()),
        };
        super::fingerprint("container", &[&self.url, kind, &token])
    }

    fn begin(&self) -> Box<dyn TokenExchange> {
        Box::new(ContainerExchange(self.clone()))
    }
}

struct ContainerExchange(Container);

impl ContainerExchange {
    fn request(&self, token: Option<&str>) -> Step {
        let request = TokenRequest::new(Method::GET, &*self.0.url, TIMEOUT);
        Step::Send(match token {
            Some(token) => request.with_header(header::AUTHORIZATION, token.trim()),
            None => request,
        })
    }
}

impl TokenExchange for ContainerExchange {
    fn advance(&mut self, result: StepResult<'_>, _now: i64) -> Result<Step, TokenError> {
        match result {
            StepResult::Begin => Ok(match &self.0.token {
                ContainerToken::None => self.request(None),
                ContainerToken::Text(token) => self.request(Some(token)),
                ContainerToken::File(path) => Step::Read(path.clone()),
            }),
            StepResult::File(token) => Ok(self.request(Some(token))),
            StepResult::Unreadable(reason) => Err(TokenError::Configuration(format!(
                "the token file of the container cannot be read: {reason}"
            ))),
            StepResult::Unreachable(reason) => {
                Err(TokenError::Unreachable { server: SERVER, reason: reason.to_owned() })
            }
            StepResult::Challenge(_) => Err(TokenError::Refused {
                server: SERVER,
                status: 401,
                reason: "it demands another proof".to_owned(),
            }),
            StepResult::Response { status: 200, body } => document::parse(SERVER, body).map(Step::Done),
            StepResult::Response { status, body } => {
                Err(TokenError::Refused { server: SERVER, status, reason: excerpt(body) })
            }
        }
    }
}
