//! Credentials as the metadata services return them: a JSON object.

use serde::Deserialize;

use crate::sigv4::Credentials;
use crate::token::{Credential, Grant, Lifetime, TokenError};

/// Longest key id, secret or token that is accepted, in bytes. Session tokens have at most some thousand.
const MAX_VALUE: usize = 16 * 1024;

/// Response of a metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    /// `Success`, or the reason why there are no credentials. The container service sends none.
    code: Option<String>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    token: Option<String>,
    expiration: Option<String>,
}

/// Reads the response of a metadata service. `what` names it in messages.
///
/// # Errors
/// Returns [`TokenError::Invalid`] if it has no valid credentials.
pub(crate) fn parse(what: &'static str, body: &[u8]) -> Result<Grant, TokenError> {
    let invalid = |reason: String| TokenError::Invalid { what: format!("the response of {what}"), reason };
    let document: Document = serde_json::from_slice(body)
        .map_err(|_| invalid("it is no JSON object of credentials".to_owned()))?;
    if let Some(code) = document.code.filter(|code| code != "Success") {
        return Err(invalid(format!("its code is {}", crate::token::excerpt(code.as_bytes()))));
    }
    grant(document.access_key_id, document.secret_access_key, document.token, document.expiration)
        .map_err(invalid)
}

/// Makes a grant of the four values that all services return under similar names.
///
/// # Errors
/// Returns the violated rule.
pub(super) fn grant(
    id: Option<String>,
    secret: Option<String>,
    token: Option<String>,
    expiration: Option<String>,
) -> Result<Grant, String> {
    let checked = |value: Option<String>, name: &str| {
        let value = value.filter(|value| !value.is_empty()).ok_or_else(|| format!("it has no {name}"))?;
        let is_sound = value.len() <= MAX_VALUE && value.bytes().all(|byte| byte.is_ascii_graphic());
        is_sound.then(|| value.into_boxed_str()).ok_or_else(|| format!("its {name} is malformed"))
    };
    let credentials = Credentials {
        access_key_id: checked(id, "access key id")?,
        secret_access_key: checked(secret, "secret access key")?,
        session_token: token.map(|token| checked(Some(token), "session token")).transpose()?,
    };
    let lifetime = match expiration.as_deref() {
        None | Some("") => Lifetime::Unknown,
        Some(text) => {
            let end: jiff::Timestamp = text.parse().map_err(|_| "its expiration is no time".to_owned())?;
            Lifetime::Until(end.as_second())
        }
    };
    Ok(Grant { credential: Credential::Aws(credentials), lifetime })
}
