//! Error objects without an `error` member, which servers of the chat format send in place of a completion or a chunk.
//!
//! One table of the members by which such an object is known. It has no choices, which any answer has, and no usage.

use crate::wire::watch::members;
use json::{Cursor, JsonError, RawJson};

/// What a member says about the object that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BareMember {
    /// It has the message, and no chunk has such a member.
    Error,
    /// It has the message, if another member marks an error or the object has nothing else.
    Message,
    /// It marks an error, whatever its value is.
    Mark,
    /// It marks an error, unless its value says that all is well.
    Code,
    /// It marks an error if it is this value.
    Word(&'static str),
    /// It belongs to an answer or to a notice: the object is more than a message.
    Answer,
}

/// Row of the table.
struct BareErrorRow {
    member: &'static str,
    says: BareMember,
    /// Who documents it, with the date at which that was read, or `unverified`.
    #[allow(dead_code, reason = "it is for readers")]
    source: &'static str,
}

const fn row(member: &'static str, says: BareMember, source: &'static str) -> BareErrorRow {
    BareErrorRow { member, says, source }
}

const FASTAPI: &str =
    "FastAPI, \"Handling Errors\", https://fastapi.tiangolo.com/tutorial/handling-errors, unverified";
const CLOUDFLARE: &str =
    "Cloudflare API, envelope of responses, https://developers.cloudflare.com/fundamentals/api, unverified";
const BAIDU: &str =
    "Baidu Qianfan, \"Error codes\", https://ai.baidu.com/ai-doc/WENXINWORKSHOP/tlmyncueh, 2026-11";
const VLLM: &str = "vLLM and SGLang, ErrorResponse, vllm/entrypoints/openai/protocol.py, unverified";
const DASHSCOPE: &str = "Alibaba Cloud Model Studio, \"Error codes\", https://help.aliyun.com/model-studio/error-code, unverified";
const ZAI: &str = "Z.ai, {\"code\",\"msg\",\"success\"} of its front end, as users report it, unverified";
const SILICONFLOW: &str = "SiliconFlow API reference, {\"code\",\"message\",\"data\"}, unverified";
const OPENAI: &str = "OpenAI API reference, chat completion chunk, 2026-11";

/// Table of the members.
#[rustfmt::skip] // a table reads as a table
const MEMBERS: &[BareErrorRow] = {
    use BareMember::{Answer, Code, Error, Mark, Message, Word};
    &[
        row("detail",     Error,         FASTAPI),
        row("errors",     Error,         CLOUDFLARE),
        row("error_msg",  Error,         BAIDU),
        row("message",    Message,       SILICONFLOW),
        row("msg",        Message,       ZAI),
        row("code",       Code,          SILICONFLOW),
        row("error_code", Code,          BAIDU),
        row("request_id", Mark,          DASHSCOPE),
        row("type",       Mark,          VLLM),
        row("object",     Word("error"), VLLM),
        row("success",    Word("false"), ZAI),
        row("id",         Answer,        OPENAI),
        row("model",      Answer,        OPENAI),
        row("created",    Answer,        OPENAI),
        row("event",      Answer,        "notices of relays"),
        row("status",     Answer,        "notices of relays"),
    ]
};

/// Values of a code that mean success.
const SUCCESS: [&str; 6] = ["0", "200", "ok", "OK", "success", "Success"];

/// Returns the message of an error object without an `error` member; `None` if the members that identify one are absent.
/// For objects without choices and usage.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object.
#[cold]
pub(super) fn bare_error(text: &str) -> Result<Option<RawJson<'_>>, JsonError> {
    let (mut message, mut is_error, mut is_lone, mut is_fine) = (None, false, true, false);
    members(&mut Cursor::new(text), |key, json| {
        let value = json.raw()?;
        let word = value.as_str().map_or(value.text(), |word| word.escaped());
        is_fine |= key.is("success") && word == "true";
        let Some(row) = MEMBERS.iter().find(|row| row.member == key.escaped()) else { return Ok(()) };
        match row.says {
            BareMember::Word(marks) => {
                is_error |= word == marks;
                is_lone &= word == marks;
            }
            _ if value.is_void() => {}
            BareMember::Error | BareMember::Message => {
                is_error |= row.says == BareMember::Error;
                is_lone &= value.text().starts_with('"');
                message = message.or(Some(value));
            }
            BareMember::Mark => is_error = true,
            BareMember::Code if SUCCESS.contains(&word) => is_fine = true,
            BareMember::Code => is_error = true,
            BareMember::Answer => is_lone = false,
        }
        Ok(())
    })?;
    Ok(message.filter(|_| !is_fine && (is_error || is_lone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_by_their_members() {
        for (text, message) in [
            (r#"{"success":false,"code":400,"msg":"no"}"#, Some("no")),
            (r#"{"code":500,"msg":"no","data":null}"#, Some("no")),
            (r#"{"code":20015,"message":"no","data":null}"#, Some("no")),
            (r#"{"detail":"no"}"#, Some("no")),
            (r#"{"error_code":336,"error_msg":"no"}"#, Some("no")),
            (r#"{"message":"no"}"#, Some("no")),
            (r#"{"object":"error","message":"no"}"#, Some("no")),
            (r#"{"choices":null,"code":"1113","message":"no","id":"x"}"#, Some("no")),
            // Answers and notices.
            (r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m"}"#, None),
            (r#"{"code":0,"message":"Success","sid":"s"}"#, None),
            (r#"{"code":"200","msg":"ok","success":true}"#, None),
            (r#"{"success":true,"message":"queued","code":7}"#, None),
            (r#"{"event":"ping","message":"still there"}"#, None),
            (r#"{"model":"m","created_at":"2026","message":{"role":"assistant","content":"a"}}"#, None),
            (r#"{"message":{"role":"assistant","content":"a"}}"#, None),
            (r#"{"type":"ping"}"#, None),
            ("{}", None),
        ] {
            let found =
                bare_error(text).unwrap().and_then(RawJson::as_str).map(|said| said.decode().into_owned());
            assert_eq!(found.as_deref(), message, "{text}");
        }
        assert!(bare_error(r#"{"detail":[{"msg":"no"}]}"#).unwrap().is_some());
        assert!(bare_error(r#"{"errors":[{"message":"no"}],"success":false}"#).unwrap().is_some());
    }
}
