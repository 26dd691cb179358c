//! A provider's base URL, taken apart once.

use std::fmt;
use std::net::IpAddr;

/// Whether the connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain TCP.
    Http,
    /// TLS, verified.
    Https,
}

/// Why a text is not a base URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BaseUrlError(&'static str);

/// `https://api.openai.com/v1`: scheme, host, port and the path that every resource lies below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    host: Box<str>,
    port: u16,
    prefix: Box<str>,
    authority: Box<str>,
}

impl BaseUrl {
    /// Reads a base URL.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(text: &str) -> Result<BaseUrl, BaseUrlError> {
        let (scheme, rest) = if let Some(rest) = text.strip_prefix("https://") {
            (Scheme::Https, rest)
        } else if let Some(rest) = text.strip_prefix("http://") {
            (Scheme::Http, rest)
        } else {
            return Err(BaseUrlError("it begins with https:// or http://"));
        };
        if rest.contains(['?', '#', ' ']) || !rest.is_ascii() {
            return Err(BaseUrlError("it has no query, fragment, space or character outside of ASCII"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(BaseUrlError("credentials belong into `credential`, not into the URL"));
        }
        let default_port = if scheme == Scheme::Https { 443 } else { 80 };
        let (host, port) = split_port(authority, default_port)?;
        let host = host.to_ascii_lowercase();
        if host.is_empty() || host.starts_with('.') || host.contains("..") {
            return Err(BaseUrlError("it names a host"));
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

    /// Whether the connection is encrypted.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address, where the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path that every resource lies below, without a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The value of the `host` header.
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
    const PORT: BaseUrlError = BaseUrlError("the port is a number from 1 to 65535");
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or(BaseUrlError("an IPv6 address ends with a bracket"))?;
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
