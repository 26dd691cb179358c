//! Requests to Claude through Bedrock's InvokeModel: beta features are a member of the body, not a header.
//!
//! Source: Amazon Bedrock User Guide, "Anthropic Claude Messages API", November 2026.

use bytes::Bytes;
use http::HeaderMap;

use super::attempt::Attempt;
use crate::json::Writer;
use crate::proxy::names;

/// Beginnings of the names of beta features that Bedrock refuses with "invalid beta flag": they concern functions of
/// Anthropic's own service.
const REFUSED: [&str; 9] = [
    "oauth-",
    "claude-code-",
    "prompt-caching-scope-",
    "extended-cache-ttl-",
    "fast-mode-",
    "redact-thinking-",
    "mcp-",
    "advanced-tool-use-",
    "files-api-",
];
/// Largest number of beta features, and longest name of one in bytes.
const MAX_BETAS: usize = 32;
const MAX_NAME: usize = 128;
/// Member of the body.
const MEMBER: &[u8] = b"\"anthropic_beta\":";

/// Moves the client's beta features from the header into the body. A body that has the member already stays as it is.
pub(super) fn move_betas(attempt: &mut Attempt, headers: &HeaderMap) {
    let values = headers.get_all(&names::ANTHROPIC_BETA);
    let named = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut betas: Vec<&str> = Vec::new();
    let own = attempt.betas.context.then_some("context-management-2025-06-27");
    for beta in named.map(str::trim).chain(own) {
        let is_sound =
            !beta.is_empty() && beta.len() <= MAX_NAME && beta.bytes().all(|byte| byte.is_ascii_graphic());
        let is_refused = REFUSED.iter().any(|refused| beta.starts_with(refused));
        if is_sound && !is_refused && betas.len() < MAX_BETAS && !betas.contains(&beta) {
            betas.push(beta);
        }
    }
    if betas.is_empty() || attempt.betas.in_body {
        return;
    }
    let Some(first) = attempt.body.first_mut() else { return };
    let Some(at) = first.iter().position(|byte| *byte == b'{') else { return };
    let mut text = Vec::with_capacity(64 + betas.len() * 40);
    text.push(b'{');
    text.extend_from_slice(MEMBER);
    let mut json = Writer::new(&mut text);
    json.begin_array();
    betas.iter().for_each(|beta| _ = json.string(beta));
    json.end_array();
    text.push(b',');
    // The body of a request to a model has other members, so that the comma is right.
    *first = first.slice(at + 1..);
    attempt.body_len = (attempt.body_len + text.len()).saturating_sub(at + 1);
    attempt.body.insert(0, Bytes::from(text));
    // The attempt may be sent once more, with a renewed credential.
    attempt.betas.in_body = true;
}
