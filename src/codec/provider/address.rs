//! Base URL of a provider, parsed once.

use std::fmt;
use std::net::IpAddr;

/// URL scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain TCP.
    Http,
    /// TLS with certificate verification.
    Https,
}

/// Reason why a text is not a valid base URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BaseUrlError(&'static str);

/// Base URL: scheme, host, port and path prefix, for example `https://api.openai.com/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    host: Box<str>,
    port: u16,
    prefix: Box<str>,
    authority: Box<str>,
}

impl BaseUrl {
    /// Parses a base URL.
    ///
    /// # Errors
    /// Returns [`BaseUrlError`] with the violated rule, in words that fit an error message.
    pub fn parse(text: &str) -> Result<BaseUrl, BaseUrlError> {
        let (scheme, rest) = if let Some(rest) = text.strip_prefix("https://") {
            (Scheme::Https, rest)
        } else if let Some(rest) = text.strip_prefix("http://") {
            (Scheme::Http, rest)
        } else {
            return Err(BaseUrlError("a URL must start with https:// or http://"));
        };
        if rest.contains(['?', '#', ' ']) || !rest.is_ascii() {
            return Err(BaseUrlError(
                "a URL must not have a query, a fragment, spaces or non-ASCII characters",
            ));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(BaseUrlError("put credentials into `credential`, not into the URL"));
        }
        let default_port = if scheme == Scheme::Https { 443 } else { 80 };
        let (host, port) = split_port(authority, default_port)?;
        let host = host.to_ascii_lowercase();
        if host.is_empty() || host.starts_with('.') || host.contains("..") {
            return Err(BaseUrlError("a URL must have a host name"));
        }
        let shown_host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = if port == default_port { shown_host } else { format!("{shown_host}:{port}") };
        Ok(BaseUrl {
            scheme,
            host: host.into_boxed_str(),
            port,
            prefix: path.trim_end_matches('/').into(),
            authority: authority.into_boxed_str(),
        })
    }

    /// Returns the scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the host name in lower case, or the IP address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the IP address, or `None` if the host is a name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path prefix without a trailing slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the value of the `host` header: the host, and the port unless it is the default of the scheme.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

fn split_port(authority: &str, default: u16) -> Result<(&str, u16), BaseUrlError> {
    const PORT: BaseUrlError = BaseUrlError("the port must be a number from 1 to 65535");
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or(BaseUrlError("an IPv6 address must end with a bracket"))?;
        (host, after.strip_prefix(':'))
    } else {
        match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    match port.map(str::parse::<u16>) {
        None => Ok((host, default)),
        Some(Ok(port)) if port > 0 => Ok((host, port)),
        Some(_) => Err(PORT),
    }
}
