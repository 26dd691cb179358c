//! Issue of a short-lived credential: what is requested of a token server, and what it grants.
//!
//! A [`CredentialSource`] is a configured way to a credential. Each renewal begins a new [`TokenExchange`], which says
//! step by step what the caller has to do: send a request, read a file. The caller passes the results back, until the
//! exchange ends with a [`Grant`] or a [`TokenError`]. The exchange itself opens no socket and no file, so that the
//! running gateway and the command line share it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::sigv4::Credentials;

/// Largest response of a token server that is read, in bytes. Tokens have at most some thousand bytes.
pub const MAX_RESPONSE: usize = 128 * 1024;
/// Largest file that is read for a renewal, in bytes.
pub const MAX_FILE: usize = 128 * 1024;
/// Largest number of steps of one exchange: an exchange that needs more goes in circles.
pub const MAX_STEPS: usize = 16;

/// Credential that a token server has issued.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Token of the header `authorization: Bearer`. It has visible ASCII characters only.
    Bearer(Box<str>),
    /// Keys that requests are signed with.
    Aws(Credentials),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token must not get into a log.
        match self {
            Credential::Bearer(_) => f.write_str("Bearer(***)"),
            Credential::Aws(credentials) => credentials.fmt(f),
        }
    }
}

/// Lifetime of a credential, as its issuer states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It does not expire, and is never renewed.
    Unlimited,
    /// The issuer states no end.
    Unknown,
    /// Time from the response on.
    For(Duration),
    /// Unix time at which it ends, in seconds. Compared with the date of the response that granted it, so that the
    /// clock of this machine does not matter; without a date, with the clock.
    Until(i64),
}

/// Credential with its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The credential.
    pub credential: Credential,
    /// Its lifetime.
    pub lifetime: Lifetime,
}

/// Request to a token server.
#[derive(Clone)]
pub struct TokenRequest {
    /// Method.
    pub method: Method,
    /// Absolute URL, `http` or `https`.
    pub url: String,
    /// Headers besides host and content length.
    pub headers: HeaderMap,
    /// Body; empty for none.
    pub body: Vec<u8>,
    /// Time until the whole response must have arrived.
    pub timeout: Duration,
    /// Whether a 401 with a challenge is passed on as [`StepResult::Challenge`].
    pub reads_challenge: bool,
}

impl TokenRequest {
    /// Creates a request without headers and body.
    pub fn new(method: Method, url: impl Into<String>, timeout: Duration) -> Self {
        let (headers, body) = (HeaderMap::new(), Vec::new());
        TokenRequest { method, url: url.into(), headers, body, timeout, reads_challenge: false }
    }

    /// Adds a header, which counts as a secret. A value with other characters than those of a header is left out, and
    /// the server then refuses the request.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets the body to a form (`application/x-www-form-urlencoded`).
    #[must_use]
    pub fn with_form(mut self, members: &[(&str, &str)]) -> Self {
        let mut body = String::new();
        for (name, value) in members {
            if !body.is_empty() {
                body.push('&');
            }
            for (index, part) in [name, value].into_iter().enumerate() {
                if index == 1 {
                    body.push('=');
                }
                body.extend(percent_encoding::utf8_percent_encode(part, FORM));
            }
        }
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
        self.headers.insert(http::header::CONTENT_TYPE, kind);
        self.body = body.into_bytes();
        self
    }
}

/// Characters that a form encodes: all but the unreserved ones (RFC 3986, section 2.3).
const FORM: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body may contain a secret.
        f.debug_struct("TokenRequest")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What the caller of an exchange has to do next.
#[derive(Debug)]
pub enum Step {
    /// Send a request, and pass on its response.
    Send(TokenRequest),
    /// Read a file as UTF-8, and pass on its text.
    Read(PathBuf),
    /// The exchange has ended.
    Done(Grant),
}

/// What the caller of an exchange passes on.
#[derive(Clone, Copy, Debug)]
pub enum StepResult<'a> {
    /// Nothing yet: the exchange begins.
    Begin,
    /// A response has arrived.
    Response {
        /// HTTP status.
        status: u16,
        /// Body, at most [`MAX_RESPONSE`] bytes.
        body: &'a [u8],
    },
    /// The server did not answer: it cannot be reached, or not in time. The text is the reason.
    Unreachable(&'a str),
    /// The server demands a proof: value of `www-authenticate` of a 401, for a request with
    /// [`TokenRequest::reads_challenge`].
    Challenge(&'a str),
    /// Text of a file.
    File(&'a str),
    /// The file cannot be read. The text is the reason.
    Unreadable(&'a str),
}

/// One issue of a credential, from its first request to its grant.
pub trait TokenExchange: Send {
    /// Takes the result of the last step and returns the next one. `now` is the Unix time in seconds.
    ///
    /// # Errors
    /// Returns [`TokenError`] if no credential can be issued.
    fn advance(&mut self, result: StepResult<'_>, now: i64) -> Result<Step, TokenError>;
}

/// Configured way to a credential.
pub trait CredentialSource: Send + Sync + fmt::Debug {
    /// Returns the name in messages, for example `web identity`.
    fn name(&self) -> &'static str;

    /// Returns a hash of all settings, secrets included. Two sources with one hash grant the same credentials, so that
    /// a reload of the configuration keeps what is issued already.
    fn fingerprint(&self) -> [u8; 32];

    /// Returns the credential if it is part of the configuration, so that nothing is to be requested. Otherwise `None`.
    fn fixed(&self) -> Option<Credential> {
        None
    }

    /// Returns whether the provider may accept a credential beyond its stated end, so that an expired one is better
    /// than none while the token server is away (AWS, "static stability" of the instance metadata service).
    fn outlives_expiry(&self) -> bool {
        false
    }

    /// Begins an exchange.
    fn begin(&self) -> Box<dyn TokenExchange>;
}

/// Reason why no credential was issued. The texts are for the administrator, and contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token server cannot be reached, or does not answer in time.
    #[error("{server} does not answer: {reason}")]
    Unreachable {
        /// Token server in words.
        server: &'static str,
        /// Reason.
        reason: String,
    },
    /// The token server refuses.
    #[error("{server} refuses with status {status}: {reason}")]
    Refused {
        /// Token server in words.
        server: &'static str,
        /// HTTP status.
        status: u16,
        /// Message of the server, shortened.
        reason: String,
    },
    /// The response or file has no valid credential.
    #[error("{what} is not valid: {reason}")]
    Invalid {
        /// Response or file in words.
        what: String,
        /// Violated rule.
        reason: String,
    },
    /// A file is missing or cannot be read, or lacks what the configuration names.
    #[error("{0}")]
    Configuration(String),
    /// The granted credential has expired already.
    #[error("the credential that was issued has expired already")]
    Expired,
}

impl TokenError {
    /// Returns the value of the label `outcome` in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            TokenError::Unreachable { .. } => "unreachable",
            TokenError::Refused { .. } => "refused",
            TokenError::Invalid { .. } => "invalid",
            TokenError::Configuration(_) => "configuration",
            TokenError::Expired => "expired",
        }
    }
}

/// Returns the beginning of a server's text for a message: one line of printable ASCII, at most 300 characters.
pub fn excerpt(body: &[u8]) -> String {
    let text = body.iter().take(300).map(|byte| match byte {
        0x21..0x7f => char::from(*byte),
        _ => ' ',
    });
    let text: String = text.collect();
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}
