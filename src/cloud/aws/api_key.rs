//! Short-term API keys of Bedrock: a presigned URL in base64, whose end can be read from it (Amazon Bedrock User Guide,
//! "Generate Amazon Bedrock API keys"). Long-term keys state no end.

use crate::sigv4::SigningDate;

/// Beginning of a short-term key.
const PREFIX: &str = "bedrock-api-key-";
/// Longest key that is read, in bytes. Keys with a session token have some thousand.
const MAX_KEY: usize = 16 * 1_024;

/// Returns when an API key ends, as Unix time in seconds; `None` for a key that states no end.
///
/// The key also ends with the session whose credentials have signed it, which may be earlier.
pub fn api_key_end(key: &str) -> Option<i64> {
    let encoded = key.trim().strip_prefix(PREFIX).filter(|encoded| encoded.len() <= MAX_KEY)?;
    let url = base64_simd::STANDARD.decode_to_vec(encoded).ok()?;
    let url = std::str::from_utf8(&url).ok()?;
    let (_, query) = url.split_once('?')?;
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let begin = SigningDate::parse(parameter("X-Amz-Date")?)?.unix();
    let life: u32 = parameter("X-Amz-Expires")?.parse().ok()?;
    begin.checked_add(i64::from(life))
}
