//! Request id, for the log and the `x-request-id` header.

use http::{HeaderMap, HeaderValue};
use rand::Rng as _;
use smallvec::SmallVec;

use codec::wire::Format;
use driver::names;

/// Longest client request id that is adopted, in bytes.
const MAX_CLIENT_ID: usize = 128;

/// Request id: the client's own, or a random one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestId(SmallVec<[u8; 40]>);

impl RequestId {
    /// Adopts the client's `x-request-id` if it has 1 to 128 bytes, all of them letters, digits or `-_.:/+=`. Generates
    /// an id otherwise.
    pub(crate) fn choose(client: Option<&[u8]>) -> Self {
        let harmless = |id: &&[u8]| {
            (1..=MAX_CLIENT_ID).contains(&id.len())
                && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
        };
        match client.filter(harmless) {
            Some(id) => RequestId(SmallVec::from_slice(id)),
            None => RequestId::random(),
        }
    }

    /// Generates `req_` and 24 base-32 digits, 120 random bits.
    pub(super) fn random() -> Self {
        let mut id = SmallVec::from_slice(b"req_");
        let mut number = rand::rng().next_u64();
        let mut more = rand::rng().next_u64();
        for _ in 0..24 {
            let digit = u8::try_from(number & 31).unwrap_or(0);
            // Crockford's base 32 in lower case has no letter that is mistaken for a digit.
            id.push(b"0123456789abcdefghjkmnpqrstvwxyz".get(usize::from(digit)).copied().unwrap_or(b'0'));
            number = number >> 5 | more << 59;
            more >>= 5;
        }
        RequestId(id)
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Adds the request id under the names that the client's SDK reads.
pub(super) fn add_ids(ours: &mut HeaderMap, format: Format, id: &RequestId) {
    let Ok(id) = HeaderValue::from_bytes(id.as_bytes()) else { return };
    // Anthropic's SDKs read `request-id`, OpenAI's `x-request-id`, those of AWS `x-amzn-requestid`.
    if format == Format::Messages {
        ours.insert(names::REQUEST_ID, id.clone());
    }
    if format == Format::Converse {
        ours.insert(names::X_AMZN_REQUESTID, id.clone());
    }
    ours.insert(names::X_REQUEST_ID, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_of_the_client_is_used_if_harmless() {
        assert_eq!(RequestId::choose(Some(b"abc-1.2")).as_str(), "abc-1.2");
        for bad in [&b""[..], b"a b", b"a\"b", b"\xff", &[b'x'; 129]] {
            let id = RequestId::choose(Some(bad));
            assert!(id.as_str().starts_with("req_") && id.as_str().len() == 28, "{}", id.as_str());
        }
        assert_ne!(RequestId::choose(None).as_str(), RequestId::choose(None).as_str());
    }
}
