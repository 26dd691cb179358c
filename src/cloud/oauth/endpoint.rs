//! Addresses of token servers and metadata servers.

use core::net::IpAddr;
use std::fmt;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Bytes that stand unencoded in a query or a form (RFC 3986, section 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest address, in bytes.
const MAX_LENGTH: usize = 2_048;

/// Reason why a text is not the address of a token server, as the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenEndpointError(&'static str);

/// Address of a token server: an `https` URL, or a plain one on this machine or its link (loopback and link-local
/// addresses, and the names of the metadata servers). A secret never leaves the machine unencrypted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TokenEndpoint(Uri);

impl TokenEndpoint {
    /// Parses an address.
    ///
    /// # Errors
    /// Returns [`TokenEndpointError`] with the violated rule.
    pub fn parse(text: &str) -> Result<Self, TokenEndpointError> {
        if text.len() > MAX_LENGTH || text.contains('#') {
            return Err(TokenEndpointError("must be a URL of at most 2048 bytes without a fragment"));
        }
        let uri: Uri =
            text.parse().map_err(|_| TokenEndpointError("must be a URL, such as https://host/path"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(TokenEndpointError("must be a URL, such as https://host/path"));
        };
        if authority.as_str().contains('@') {
            return Err(TokenEndpointError("must not contain a user name or password"));
        }
        let host = authority.host();
        // `Authority` has no port if it is too large for one: look at the text.
        let port = authority.as_str().get(host.len()..).unwrap_or_default();
        let is_port = |port: &str| {
            port.strip_prefix(':').is_some_and(|port| port.parse().is_ok_and(|port: u16| port > 0))
        };
        if host.is_empty() || !(port.is_empty() || is_port(port)) {
            return Err(TokenEndpointError("must have a host name and, if any, a port from 1 to 65535"));
        }
        match scheme {
            "https" => Ok(TokenEndpoint(uri)),
            "http" if is_local(host) => Ok(TokenEndpoint(uri)),
            "http" => Err(TokenEndpointError(
                "must start with https://, unless the host is a loopback or link-local address or a metadata server",
            )),
            _ => Err(TokenEndpointError("must start with https://")),
        }
    }

    /// Returns the same address with further parameters of the query.
    pub(crate) fn with_query(&self, parameters: &[(&str, &str)]) -> Self {
        let mut text = self.0.to_string();
        let mut separator = if self.0.query().is_some() { '&' } else { '?' };
        for (name, value) in parameters {
            text.push(separator);
            text.push_str(name);
            text.push('=');
            text.extend(utf8_percent_encode(value, UNRESERVED));
            separator = '&';
        }
        text.parse().map_or_else(|_| self.clone(), TokenEndpoint)
    }

    /// Returns the host with its port if the address names one, as error messages show it.
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", http::uri::Authority::as_str)
    }
}

impl fmt::Display for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may have a secret in it.
        write!(f, "{}{}", self.authority(), self.0.path())
    }
}

/// Returns whether a host is this machine, on its link, or one of the names of a metadata server.
fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            let metadata = ["fd00:ec2::254", "fd20:ce::254"];
            ip.is_loopback()
                || ip.is_unicast_link_local()
                || metadata.iter().any(|known| known.parse() == Ok(ip))
        }
        Err(_) => host == "localhost" || host == "metadata.google.internal",
    }
}
