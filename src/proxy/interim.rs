//! The head of a provider's answer, and the interim responses (1xx) that may come before it.

use http::StatusCode;
use pingora::protocols::http::client::HttpSession;
use pingora::{Error, ErrorType};

/// Interim responses (100, 102, 103) that one answer may begin with: a server sends one or two.
const INTERIM_HEADS: usize = 8;
/// And the length of their headers together.
const INTERIM_BYTES: usize = 64 * 1024;

/// Waits for the head of the answer.
pub(super) async fn listen(upstream: &mut HttpSession) -> pingora::Result<()> {
    let (mut heads, mut bytes) = (0, 0);
    loop {
        upstream.read_response_header().await?;
        // 100 and 103 come before the answer; 101 would be an answer to what is never asked for.
        let Some(head) = upstream.response_header().filter(|head| head.status.is_informational()) else {
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
