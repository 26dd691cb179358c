//! Counts of tokens, as each format tells them; and the request whose tokens are counted.

use bytes::BytesMut;

use super::Format;
use crate::error::{ApiError, Source};
use crate::json::{Cursor, JsonError, Writer};

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All of it.
    pub total: u64,
    /// What pictures are of it.
    pub images: u64,
}

/// The request whose tokens are to be counted: the body, or the whole request that stands in it (Gemini's
/// `generateContentRequest`).
///
/// # Errors
/// The body is not a JSON object.
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

/// Writes an answer.
///
/// Sources: Anthropic API, "Count tokens in a Message"; OpenAI API, "Get input token counts"; Gemini API,
/// "models.countTokens".
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

/// An error of `/v1/messages/count_tokens`, which has one word for all that is wrong with a request or its key
/// (specification, section 7); nothing for errors that are told as everywhere.
pub fn error(error: &ApiError, request_id: &str) -> Option<BytesMut> {
    if error.kind.row().source != Source::Downstream || !matches!(error.status, 400 | 401) {
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
    use crate::error::Kind;

    fn encoded(format: Format, total: u64, images: u64) -> String {
        let mut out = BytesMut::new();
        encode(format, Count { total, images }, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn each_format_has_its_own_words() {
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
    fn a_whole_request_may_stand_in_the_body() {
        let inner = r#"{"contents":[]}"#;
        for name in ["generateContentRequest", "generate_content_request"] {
            let body = format!(r#"{{"{name}":{inner}}}"#);
            assert_eq!(request(Format::Generate, &body).unwrap(), inner);
            assert_eq!(request(Format::Messages, &body).unwrap(), body);
        }
        assert_eq!(request(Format::Generate, inner).unwrap(), inner);
    }

    #[test]
    fn one_word_for_all_that_is_wrong_with_a_request() {
        let told = |kind| {
            error(&ApiError::new(kind, "no"), "r1").map(|out| String::from_utf8(out.to_vec()).unwrap())
        };
        let wrong =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"r1"}"#;
        for kind in [Kind::InvalidField, Kind::InvalidJson, Kind::InvalidKey, Kind::DisabledKey] {
            assert_eq!(told(kind).as_deref(), Some(wrong));
        }
        for kind in [Kind::UnknownModel, Kind::ModelNotPermitted, Kind::Internal] {
            assert_eq!(told(kind), None);
        }
    }
}
