//! Token counting: the request to count, and the response in each format.

use bytes::BytesMut;

use super::Format;
use crate::error::{ApiError, ErrorSource};
use json::{Cursor, JsonError, Writer};

/// Number of input tokens that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Total number of tokens.
    pub total: u64,
    /// Tokens of images, included in `total`.
    pub images: u64,
}

/// Returns the request whose tokens are to be counted: the body, or the request inside it (Gemini's
/// `generateContentRequest`).
///
/// # Errors
/// Returns [`JsonError`] if a generate body is not a JSON object.
pub fn request(format: Format, body: &str) -> Result<&str, JsonError> {
    if format != Format::Generate {
        return Ok(body);
    }
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        let value = json.raw()?;
        if matches!(key.escaped(), "generateContentRequest" | "generate_content_request") && !value.is_null()
        {
            return Ok(value.text());
        }
    }
    Ok(body)
}

/// Writes the response of a token counting endpoint.
///
/// Sources: <https://docs.anthropic.com/en/api/messages-count-tokens>, OpenAI API "Get input token counts",
/// <https://ai.google.dev/api/tokens>.
pub fn encode(format: Format, count: Count, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object();
    match format {
        Format::Chat | Format::Messages => {
            json.key("input_tokens").number(count.total);
        }
        Format::Responses => {
            json.key("object").string("response.input_tokens").key("input_tokens").number(count.total);
        }
        Format::Converse => {
            json.key("inputTokens").number(count.total);
        }
        Format::Generate => {
            json.key("totalTokens").number(count.total).key("promptTokensDetails").begin_array();
            let text = count.total - count.images.min(count.total);
            for (modality, tokens) in [("TEXT", text), ("IMAGE", count.images)] {
                if tokens > 0 {
                    json.begin_object();
                    json.key("modality").string(modality).key("tokenCount").number(tokens);
                    json.end_object();
                }
            }
            json.end_array();
        }
    }
    json.end_object();
}

/// Returns the error body of `/v1/messages/count_tokens` for client errors with status 400 or 401: that endpoint uses
/// the one type `invalid_request_error` for all faults of a request or its key. `None` for errors that are written as
/// on all other endpoints.
pub fn error(error: &ApiError, request_id: &str) -> Option<BytesMut> {
    if error.kind.row().source != ErrorSource::Downstream || !matches!(error.status, 400 | 401) {
        return None;
    }
    let mut out = BytesMut::with_capacity(128 + error.message.len());
    let mut json = Writer::new(&mut out);
    json.begin_object().key("type").string("error").key("error").begin_object();
    json.key("type").string("invalid_request_error").key("message").string(&error.message);
    json.end_object();
    json.key("request_id").string(request_id);
    json.end_object();
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn encoded(format: Format, total: u64, images: u64) -> String {
        let mut out = BytesMut::new();
        encode(format, Count { total, images }, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn count_is_encoded_in_each_format() {
        assert_eq!(encoded(Format::Messages, 8, 0), r#"{"input_tokens":8}"#);
        assert_eq!(
            encoded(Format::Responses, 8, 0),
            r#"{"object":"response.input_tokens","input_tokens":8}"#
        );
        assert_eq!(
            encoded(Format::Generate, 1_008, 1_000),
            r#"{"totalTokens":1008,"promptTokensDetails":[{"modality":"TEXT","tokenCount":8},{"modality":"IMAGE","tokenCount":1000}]}"#
        );
    }

    #[test]
    fn count_request_may_contain_a_whole_generate_request() {
        let inner = r#"{"contents":[]}"#;
        for name in ["generateContentRequest", "generate_content_request"] {
            let body = format!(r#"{{"{name}":{inner}}}"#);
            assert_eq!(request(Format::Generate, &body).unwrap(), inner);
            assert_eq!(request(Format::Messages, &body).unwrap(), body);
        }
        assert_eq!(request(Format::Generate, inner).unwrap(), inner);
    }

    #[test]
    fn count_error_for_a_wrong_request_is_invalid_request_error() {
        let told = |kind| {
            error(&ApiError::new(kind, "no"), "r1").map(|out| String::from_utf8(out.to_vec()).unwrap())
        };
        let wrong =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"r1"}"#;
        for kind in
            [ErrorKind::InvalidField, ErrorKind::InvalidJson, ErrorKind::InvalidKey, ErrorKind::DisabledKey]
        {
            assert_eq!(told(kind).as_deref(), Some(wrong));
        }
        for kind in [ErrorKind::UnknownModel, ErrorKind::ModelNotPermitted, ErrorKind::Internal] {
            assert_eq!(told(kind), None);
        }
    }
}
