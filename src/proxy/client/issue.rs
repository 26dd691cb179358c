//! Exchanges with token servers: carries out the steps by which a credential is issued.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::UpstreamClient;
use super::body::BodyError;
use super::send::{CallLog, RequestDestination, SendError, UpstreamRequest};
use crate::credentials::renewer::unix_now;
use crate::upstream_route::USER_AGENT;
use cloud::sigv4::ClockSkew;
use cloud::token::{
    CredentialSource, Grant, MAX_FILE, MAX_RESPONSE, MAX_STEPS, Step, StepResult, TokenError, TokenRequest,
};
use codec::provider::Timeouts;
use config::{Environment, Vault as _};
use driver::peer::Upstream;

/// Result of a step, which the next step borrows.
enum Outcome {
    Begin,
    Response { status: u16, body: Bytes },
    Challenge(String),
    Unreachable(String),
    File(String),
    Unreadable(String),
}

impl Outcome {
    fn as_result(&self) -> StepResult<'_> {
        match self {
            Outcome::Begin => StepResult::Begin,
            Outcome::Response { status, body } => StepResult::Response { status: *status, body },
            Outcome::Challenge(challenge) => StepResult::Challenge(challenge),
            Outcome::Unreachable(reason) => StepResult::Unreachable(reason),
            Outcome::File(text) => StepResult::File(text),
            Outcome::Unreadable(reason) => StepResult::Unreadable(reason),
        }
    }
}

/// Response of a token server.
struct TokenAnswer {
    status: u16,
    body: Bytes,
    /// `date`, in Unix seconds.
    date: Option<i64>,
    /// `www-authenticate`.
    challenge: Option<String>,
}

impl TokenAnswer {
    fn into_outcome(self, reads_challenge: bool) -> Outcome {
        match self.challenge.filter(|_| reads_challenge && self.status == 401) {
            Some(challenge) => Outcome::Challenge(challenge),
            None => Outcome::Response { status: self.status, body: self.body },
        }
    }
}

/// Reason why a token server has not answered, for the log.
#[derive(Debug, thiserror::Error)]
enum RequestFault {
    #[error("its URL is not valid")]
    Url,
    #[error("{0}")]
    Resolve(String),
    #[error("{0}")]
    Send(#[from] SendError),
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("its response is larger than {MAX_RESPONSE} bytes")]
    TooLarge,
    #[error("no response in time")]
    Slow,
}

impl UpstreamClient {
    /// Requests a credential of its source. Returns it with the Unix time of the server in seconds, or that of this
    /// machine if the server states none. Signatures and assertions are dated by the clock with `skew`, which also
    /// learns from token servers that refuse.
    ///
    /// # Errors
    /// Returns [`TokenError`] if no credential is issued.
    pub(crate) async fn issue(
        &self,
        source: &dyn CredentialSource,
        skew: &ClockSkew,
    ) -> Result<(Grant, i64), TokenError> {
        let signed_with = skew.seconds();
        match self.exchange(source, skew).await {
            // The same request with the time of the server may be accepted.
            Err(TokenError::Refused { .. }) if skew.differs(signed_with) => self.exchange(source, skew).await,
            issued => issued,
        }
    }

    async fn exchange(
        &self,
        source: &dyn CredentialSource,
        skew: &ClockSkew,
    ) -> Result<(Grant, i64), TokenError> {
        let mut exchange = source.begin();
        let (mut outcome, mut date) = (Outcome::Begin, None);
        for _ in 0..MAX_STEPS {
            outcome = match exchange.advance(outcome.as_result(), skew.signing_time(unix_now()))? {
                Step::Done(grant) => return Ok((grant, date.unwrap_or_else(unix_now))),
                Step::Read(path) => read(path).await,
                Step::Send(request) => {
                    let sent = unix_now();
                    match self.request_token(&request).await {
                        Ok(answer) => {
                            date = answer.date;
                            if matches!(answer.status, 400 | 401 | 403) {
                                skew.observe(answer.date, false, sent, unix_now());
                            }
                            answer.into_outcome(request.reads_challenge)
                        }
                        Err(fault) => Outcome::Unreachable(fault.to_string()),
                    }
                }
            };
        }
        Err(TokenError::Configuration(format!("the exchange of {} does not end", source.name())))
    }

    /// Sends a request to a token server.
    async fn request_token(&self, token: &TokenRequest) -> Result<TokenAnswer, RequestFault> {
        let until = Instant::now() + token.timeout;
        let url = Url::parse(&token.url).map_err(|_| RequestFault::Url)?;
        // The name of a provider is part of the configuration, as is that of its token server: any network is fine.
        let peer = timeout_at(until, self.token_peer(&url)).await.map_err(|_| RequestFault::Slow)??;
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = token.method.clone();
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        parts.uri = path.parse().map_err(|_| RequestFault::Url)?;
        parts.headers = token.headers.clone();
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_owned(),
        };
        let host = HeaderValue::try_from(host).map_err(|_| RequestFault::Url)?;
        parts.headers.insert(header::HOST, host);
        parts.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let has_body = !token.body.is_empty() || !token.method.is_safe();
        if has_body {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(token.body.len()));
        }
        let request = UpstreamRequest {
            destination: RequestDestination::Address(Arc::new(peer)),
            series: None,
            parts,
            body: has_body.then(|| Bytes::copy_from_slice(&token.body)),
            timeouts: Timeouts {
                connect: token.timeout,
                first_byte: token.timeout,
                idle: token.timeout,
                ..Timeouts::default()
            },
            until,
            repeatable: false,
        };
        let exchange = async {
            let mut response = Box::pin(self.send(&request, &mut CallLog::default())).await?;
            let status = response.status;
            let challenge = response.text(&header::WWW_AUTHENTICATE).map(str::to_owned);
            let date = response.text(&header::DATE).and_then(|text| httpdate::parse_http_date(text).ok());
            let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
            let date = date.and_then(|date| i64::try_from(date.as_secs()).ok());
            let body = response.collect::<CollectFault>(0, usize::MAX, |collected, piece| {
                if collected + piece > MAX_RESPONSE { Err(CollectFault::TooLarge) } else { Ok(()) }
            });
            let body = body.await.map_err(|fault| match fault {
                CollectFault::Body(error) => RequestFault::Body(error),
                CollectFault::TooLarge => RequestFault::TooLarge,
            })?;
            Ok(TokenAnswer { status, body, date, challenge })
        };
        timeout_at(until, exchange).await.unwrap_or(Err(RequestFault::Slow))
    }

    /// Resolves the host of a token server.
    async fn token_peer(&self, url: &Url) -> Result<Upstream, RequestFault> {
        let (ip, name) = match url.host() {
            Some(Host::Ipv4(ip)) => (ip.into(), ip.to_string()),
            Some(Host::Ipv6(ip)) => (ip.into(), ip.to_string()),
            Some(Host::Domain(name)) => {
                let found = self.resolver.lookup(name).await;
                let (found, _) = found.map_err(|error| RequestFault::Resolve(error.to_string()))?;
                (found.into_iter().next().ok_or(RequestFault::Url)?, name.to_owned())
            }
            None => return Err(RequestFault::Url),
        };
        let port = url.port_or_known_default().ok_or(RequestFault::Url)?;
        Ok(Upstream::for_remote_media((ip, port).into(), url.scheme() == "https", name))
    }
}

/// Reason why the body of a token server was not collected.
enum CollectFault {
    Body(BodyError),
    TooLarge,
}

impl From<BodyError> for CollectFault {
    fn from(error: BodyError) -> Self {
        CollectFault::Body(error)
    }
}

/// Time within which a file must be read: a file on a network may hang.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a file on another thread, because a worker must not wait for a disk.
async fn read(path: PathBuf) -> Outcome {
    let reading = tokio::task::spawn_blocking(move || read_small(&path));
    match tokio::time::timeout(FILE_TIMEOUT, reading).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) | Err(_) => Outcome::Unreadable("it was not read in time".to_owned()),
    }
}

fn read_small(path: &Path) -> Outcome {
    match Environment.file(path) {
        Ok(text) if text.len() <= MAX_FILE => Outcome::File(text),
        Ok(_) => Outcome::Unreadable(format!("it is larger than {MAX_FILE} bytes")),
        Err(error) => Outcome::Unreadable(error.to_string()),
    }
}
