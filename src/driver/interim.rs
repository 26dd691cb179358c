//! Upstream response heads, with a bound on the interim responses (1xx, RFC 9110 section 15.2) before them.

use http::StatusCode;
use pingora::{Error, ErrorType};

use super::provider_session::ProviderSession;

/// Interim responses (100, 102, 103) that may precede one final response. A server sends one or two.
const INTERIM_HEADS: usize = 8;
/// Total length of their header names and values, in bytes.
const INTERIM_BYTES: usize = 64 * 1024;

/// Reads the head of the final upstream response and skips interim responses.
///
/// # Errors
/// Returns [`ErrorType::InvalidHTTPHeader`] for 101 and for interim responses above the bounds.
pub async fn read_response_head(upstream: &mut ProviderSession) -> pingora::Result<()> {
    let (mut heads, mut bytes) = (0, 0);
    loop {
        upstream.read_response_head().await?;
        // 100 and 103 precede the final response. 101 answers an `Upgrade` header, which the gateway never sends.
        let Some(head) = upstream.response_head().filter(|head| head.status.is_informational()) else {
            return Ok(());
        };
        heads += 1;
        bytes += head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
        let switching = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if switching || heads > INTERIM_HEADS || bytes > INTERIM_BYTES {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "interim responses without an end"));
        }
    }
}
