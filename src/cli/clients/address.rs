//! Address and key of the gateway, as the user gives them.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use super::error::ClientSetupError;

/// Maximum length of a key (bytes): longer than any access token in use.
const MAX_KEY: usize = 8 * 1024;

/// Base address of a gateway, without the version of the API and without a slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayAddress {
    base: String,
    loopback: bool,
}

impl GatewayAddress {
    /// Parses an address. A trailing `/v1` is accepted and dropped.
    ///
    /// # Errors
    /// Returns [`ClientSetupError::Url`] if it is no http or https address, or if the key would cross a network in
    /// plain text and `insecure` is not set.
    pub(super) fn parse(text: &str, insecure: bool) -> Result<Self, ClientSetupError> {
        let fault = |what: &str| ClientSetupError::Url(format!("{what}, such as http://127.0.0.1:8080"));
        let url = Url::parse(text.trim()).map_err(|error| fault(&format!("{error}; write an address")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(fault("write an http or https address"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault("write an address without a user name"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(fault("write an address without a query"));
        }
        let loopback = match url.host() {
            Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
            Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
            Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
            None => return Err(fault("write an address with a host")),
        };
        if url.scheme() == "http" && !loopback && !insecure {
            return Err(ClientSetupError::Url(
                "the key would cross the network in plain text; use https, or allow it with --insecure"
                    .to_owned(),
            ));
        }
        let base = url.as_str().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/').to_owned();
        Ok(GatewayAddress { base, loopback })
    }

    /// Returns the address without the version of the API.
    pub(super) fn root(&self) -> &str {
        &self.base
    }

    /// Returns the address with `/v1`.
    pub(super) fn v1(&self) -> String {
        format!("{}/v1", self.base)
    }

    /// Whether requests stay on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        self.loopback
    }
}

/// Key of the gateway. Its text is shown by no formatter.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ClientKey {
    text: String,
    /// Place that it was read from, for errors.
    from: String,
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientKey({})", self.from)
    }
}

impl ClientKey {
    /// Checks a key.
    ///
    /// # Errors
    /// Returns [`ClientSetupError::Key`] if it cannot be the token of an `Authorization` header (RFC 6750 section 2.1).
    pub(super) fn new(text: &str, from: &str) -> Result<Self, ClientSetupError> {
        let text = text.trim();
        let fault = |what| ClientSetupError::Key { from: from.to_owned(), what };
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if text.is_empty() {
            return Err(fault("it is empty"));
        }
        if text.len() > MAX_KEY {
            return Err(fault("it is longer than 8 KiB"));
        }
        if !text.bytes().all(token) {
            return Err(fault("it has characters other than letters, digits and -._~+/="));
        }
        Ok(ClientKey { text: text.to_owned(), from: from.to_owned() })
    }

    /// Returns the text of the key.
    pub(super) fn expose(&self) -> &str {
        &self.text
    }

    /// Returns the place that the key was read from.
    pub(super) fn from(&self) -> &str {
        &self.from
    }

    /// Replaces the key in a text that is shown.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.text, "<key>")
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientKey, GatewayAddress};

    #[test]
    fn address_is_normalized() {
        for (text, base) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            (" http://localhost:8080/ ", "http://localhost:8080"),
            ("http://[::1]:8080/v1/", "http://[::1]:8080"),
            ("https://gateway.example/llm/v1", "https://gateway.example/llm"),
            ("https://gateway.example", "https://gateway.example"),
        ] {
            assert_eq!(GatewayAddress::parse(text, false).unwrap().root(), base);
        }
    }

    #[test]
    fn address_is_refused_with_a_reason() {
        for (text, word) in [
            ("127.0.0.1:8080", "address"),
            ("ftp://localhost", "http or https"),
            ("http://gateway.example", "plain text"),
            ("http://10.0.0.1:8080", "plain text"),
            ("https://me@gateway.example", "user name"),
            ("https://gateway.example/?a=b", "query"),
        ] {
            let error = GatewayAddress::parse(text, false).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(GatewayAddress::parse("http://gateway.example", true).is_ok());
    }

    #[test]
    fn key_is_checked_and_not_shown() {
        let key = ClientKey::new("mgw_abc\n", "MODEL_GATEWAY_KEY").unwrap();
        assert_eq!(key.expose(), "mgw_abc");
        assert!(!format!("{key:?}").contains("abc"));
        assert_eq!(key.redact("x mgw_abc y"), "x <key> y");
        for bad in ["", "  ", "a b", "a\"b", "$(x)", "é"] {
            assert!(ClientKey::new(bad, "a file").is_err(), "{bad}");
        }
    }
}
