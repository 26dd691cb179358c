//! Prompt-cache key (`prompt_cache_key`) of a body that is forwarded without decoding.

use bytes::Bytes;

use super::Api;
use super::fields::{CONTENT, MODEL, chat, generate, messages, responses};
use super::request::Body;
use json::{Edit, Member, ReverseReader, ValueKind, read_from_end};

/// Number of messages up to which a request without tools counts as a single question: instructions and a user turn.
const SINGLE_QUESTION: usize = 2;

impl Body {
    /// Returns whether a prompt-cache key is useful: the client set none, and the conversation has begun or will go on.
    /// Requests with a single question are left to the provider, which routes them by their common beginning.
    pub fn wants_cache_key(&self) -> bool {
        if self.has_cache_key() {
            return false;
        }
        let tools = match self.api {
            Api::Chat => chat::TOOLS,
            Api::Messages => messages::TOOLS,
            Api::Responses => responses::TOOLS,
            Api::Generate => generate::TOOLS,
            _ => return false,
        };
        let list = |index| self.member(index).filter(|member| member.kind == ValueKind::Array);
        let has_tools = list(tools).is_some_and(|member| member.value.len() > "[]".len());
        has_tools || self.continues_stored() || list(CONTENT).is_some_and(|turns| self.has_more(turns))
    }

    /// Returns the edit that sets the prompt-cache key, which must not need escapes. `None` if the API has no such
    /// member or the client has set it.
    pub fn set_cache_key(&self, key: &str) -> Option<Edit> {
        if self.has_cache_key() || !matches!(self.api, Api::Chat | Api::Responses) {
            return None;
        }
        let at = self.member(MODEL)?.value.end;
        Some(Edit { range: at..at, text: Bytes::from(format!(",\"prompt_cache_key\":\"{key}\"")) })
    }

    /// Returns whether a list has more elements than a single question.
    fn has_more(&self, list: &Member) -> bool {
        let count = |reader: &mut ReverseReader<'_>, _: &[u8], _| {
            reader.enter()?;
            for _ in 0..=SINGLE_QUESTION {
                if !reader.has_previous()? {
                    return Ok(false);
                }
                reader.value()?;
            }
            Ok(true)
        };
        read_from_end(&self.text, list.value.clone(), count).unwrap_or(false)
    }

    fn has_cache_key(&self) -> bool {
        let key = self.fields.label.filter(|_| matches!(self.api, Api::Chat | Api::Responses));
        key.and_then(|index| self.member(index)).is_some()
    }

    fn continues_stored(&self) -> bool {
        let refs = [responses::PREVIOUS_RESPONSE_ID, responses::CONVERSATION];
        let is_there = |index| self.member(index).is_some_and(|member| member.kind != ValueKind::Null);
        self.api == Api::Responses && refs.into_iter().any(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request::BodyReader;

    fn body(api: Api, text: &str, piece: usize) -> Body {
        let mut reader = BodyReader::new(api, false);
        for piece in text.as_bytes().chunks(piece) {
            reader.push(Bytes::copy_from_slice(piece)).unwrap();
        }
        reader.finish().unwrap()
    }

    #[test]
    fn cache_key_is_wanted_for_conversations_without_one() {
        let turn = r#"{"role":"user","content":"a"}"#;
        let three = format!("[{turn},{turn},{turn}]");
        let two = format!("[{turn},{turn}]");
        for (api, members, expected) in [
            (Api::Chat, format!(r#""messages":{three}"#), true),
            (Api::Chat, format!(r#""messages":{two}"#), false),
            (Api::Chat, format!(r#""messages":{two},"tools":[{{"type":"function"}}]"#), true),
            (Api::Chat, format!(r#""messages":{two},"tools":[]"#), false),
            (Api::Chat, format!(r#""messages":{three},"prompt_cache_key":"k""#), false),
            (Api::Responses, r#""input":"a""#.to_owned(), false),
            (Api::Responses, r#""input":"a","previous_response_id":"r""#.to_owned(), true),
            (Api::Responses, r#""input":"a","previous_response_id":null"#.to_owned(), false),
            (Api::Responses, format!(r#""input":{three}"#), true),
            (
                Api::Messages,
                format!(r#""max_tokens":9,"messages":{three},"metadata":{{"user_id":"u"}}"#),
                true,
            ),
            (Api::Messages, format!(r#""max_tokens":9,"messages":[{turn}]"#), false),
        ] {
            let text = format!(r#"{{"model":"m",{members}}}"#);
            for piece in [1, 7, 1000] {
                assert_eq!(body(api, &text, piece).wants_cache_key(), expected, "{api} {members}");
            }
        }
    }

    #[test]
    fn cache_key_is_inserted_once() {
        let text = r#"{"stream":true,"model":"m","messages":[]}"#;
        let one = body(Api::Chat, text, 1000);
        let edit = one.set_cache_key("k-1").unwrap();
        let sent = one.text.clone().edited(&[edit]).into_contiguous();
        let expected = r#"{"stream":true,"model":"m","prompt_cache_key":"k-1","messages":[]}"#;
        assert_eq!(std::str::from_utf8(&sent).unwrap(), expected);
        assert_eq!(body(Api::Chat, expected, 1000).set_cache_key("k-2"), None);
        let other = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}]}"#;
        assert_eq!(body(Api::Messages, other, 1000).set_cache_key("k"), None);
    }
}
