//! Conversation fingerprint: a hash of the beginning of a prompt, which stays the same from turn to turn.
//!
//! A conversation grows at its end. The messages up to the first user message stay the same, except for the cache marks
//! that clients move along (`cache_control`). Therefore only the text of the messages is hashed, not the JSON around
//! it.

use bytes::Bytes;

use super::request::Body;
use json::{JsonRope, Member, ValueKind};

/// Bytes of a prompt that are read to recognize its conversation, per attempt. Most beginnings fit into the first size;
/// the second is larger than the system prompts of coding agents.
const READ: [usize; 2] = [4 * 1024, 64 * 1024];
/// Bytes that are hashed at each end of a text. The middle of a longer text is skipped.
const ENDS: usize = 2 * 1024;
/// Hash function: the hash of a text, given the hash of the texts before it.
pub type Fingerprint = fn(u64, &[u8]) -> u64;

/// Bytes that are hashed of content other than text (an image, a file).
const BINARY: usize = 256;

/// Returns a word with the highest bit set in each byte that equals `byte` (SWAR). Only the first match is reliable:
/// bytes above it may be set wrongly.
fn places(word: u64, byte: u8) -> u64 {
    let unlike = word ^ u64::from_ne_bytes([byte; 8]);
    unlike.wrapping_sub(0x0101_0101_0101_0101) & !unlike & 0x8080_8080_8080_8080
}

/// Returns the fingerprint of a conversation: a hash of its name and of the beginning of its prompt. `None` if the
/// request has neither. The result does not depend on how much of the prompt was read, because text after the beginning
/// is ignored.
///
/// The name alone does not identify a conversation: all users of an application may share one, and an agent's session
/// has several prompts. If the provider stores the conversation, the beginning is not in the request, and the name or
/// the stored id is used alone.
pub fn conversation(body: &Body, fingerprint: Fingerprint) -> Option<u64> {
    let named = body.label().map(|label| fingerprint(0, &label));
    if let Some(kept) = body.stored_id() {
        return named.or_else(|| Some(fingerprint(0, &kept)));
    }
    let seed = named.unwrap_or(0);
    let mut hash = seed;
    // Most beginnings fit into the first size; only others cost the second read.
    for most in READ {
        let Some(text) = body.beginning(most) else { return named };
        let mut said = false;
        hash = seed;
        let whole = beginning(&text, &mut |piece| {
            said = true;
            hash = both_ends(fingerprint, hash, piece);
        });
        // The beginning is complete, or the whole content was read.
        if whole || text.len() < most {
            return Some(hash);
        }
        if !said {
            // The first message is longer than the part that is read: hash that part.
            hash = both_ends(fingerprint, seed, &text);
        }
    }
    Some(hash)
}

fn both_ends(fingerprint: Fingerprint, hash: u64, piece: &[u8]) -> u64 {
    let (first, last) = piece.split_at(piece.len().min(ENDS));
    // The length separates texts with equal ends.
    let hash = fingerprint(hash ^ piece.len() as u64, first);
    if last.is_empty() {
        return hash;
    }
    fingerprint(hash, last.get(last.len().saturating_sub(ENDS)..).unwrap_or_default())
}

/// Calls `each` for every text in the messages up to the first user message. `content` is a string, or the message list
/// of any format or a prefix of it; the scanner has validated it. Returns false if the beginning continues behind the
/// end of `content`.
pub fn beginning(content: &[u8], each: &mut impl FnMut(&[u8])) -> bool {
    Walk { text: content, at: 0 }.messages(each).is_some()
}

/// Returns the name of a conversation in this member of a body, without its quotes: a string, or the member `name`
/// (written with its quotes) of an object. `None` if it is absent or empty.
pub(super) fn name_in(member: &Member, name: &[u8], body: &JsonRope) -> Option<Bytes> {
    if !matches!(member.kind, ValueKind::String | ValueKind::Object) {
        return None;
    }
    let text = body.slice(member.value.clone());
    let called = if member.kind == ValueKind::Object { member_of(&text, name)? } else { &text[..] };
    let called = called.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!called.is_empty()).then(|| text.slice_ref(called))
}

/// Returns the raw value of an object's member. `name` includes its quotes. `None` if there is none.
fn member_of<'t>(object: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    let mut walk = Walk { text: object, at: 1 };
    while walk.another(b'}')? {
        let found = walk.key()? == name;
        let value = walk.value()?;
        if found {
            return Some(value);
        }
    }
    None
}

/// Reader of a validated JSON document or a prefix of one. It does not validate again, so that a long text costs only
/// the search for its closing quote. Its methods return `None` where the text ends too early.
struct Walk<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Walk<'t> {
    fn messages(&mut self, each: &mut impl FnMut(&[u8])) -> Option<()> {
        self.list(each, |walk, each| {
            let mut user = true;
            while walk.another(b'}')? {
                match walk.key()? {
                    b"\"role\"" => user = walk.value()? == b"\"user\"",
                    // In the responses format, items other than messages have no role.
                    b"\"type\"" => user &= walk.value()? == b"\"message\"",
                    b"\"content\"" | b"\"parts\"" => walk.message_content(each)?,
                    _ => _ = walk.value()?,
                }
            }
            Some(user)
        })
    }

    /// Reads the content of a message: a text, or parts.
    fn message_content(&mut self, each: &mut impl FnMut(&[u8])) -> Option<()> {
        self.list(each, |walk, each| {
            while walk.another(b'}')? {
                match walk.key()? {
                    b"\"text\"" => each(walk.value()?),
                    b"\"image_url\"" | b"\"source\"" | b"\"inlineData\"" | b"\"inline_data\""
                    | b"\"fileData\"" | b"\"file\"" | b"\"input_audio\"" => {
                        let value = walk.value()?;
                        each(value.get(..BINARY).unwrap_or(value));
                    }
                    _ => _ = walk.value()?,
                }
            }
            Some(false)
        })
    }

    /// Reads a text, or a list of texts and objects. `object` reads the members of one object and returns whether to
    /// stop after it.
    #[inline]
    fn list<E: FnMut(&[u8])>(
        &mut self,
        each: &mut E,
        mut object: impl FnMut(&mut Self, &mut E) -> Option<bool>,
    ) -> Option<()> {
        if self.look()? != b'[' {
            each(self.value()?);
            return Some(());
        }
        self.at += 1;
        while self.another(b']')? {
            if self.look()? != b'{' {
                each(self.value()?);
                continue;
            }
            self.at += 1;
            if object(self, each)? {
                break;
            }
        }
        Some(())
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn look(&mut self) -> Option<u8> {
        while let b' ' | b'\n' | b'\r' | b'\t' = self.text.get(self.at)? {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Returns whether the container has another member or element. Consumes the closing bracket at its end.
    fn another(&mut self, close: u8) -> Option<bool> {
        if self.look()? == b',' {
            self.at += 1;
        }
        let ends = self.look()? == close;
        self.at += usize::from(ends);
        Some(!ends)
    }

    /// Reads the name of a member and returns it with its quotes.
    fn key(&mut self) -> Option<&'t [u8]> {
        let key = self.value()?;
        if self.look()? == b':' {
            self.at += 1;
        }
        Some(key)
    }

    /// Reads a value and returns its text.
    fn value(&mut self) -> Option<&'t [u8]> {
        let first = self.look()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' | b'[' => self.container()?,
            _ => {
                // A number or a literal. Consume at least one byte, so that the reader always advances.
                let end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at += self.text.get(start..)?.iter().position(end)?.max(1);
            }
        }
        self.text.get(start..self.at)
    }

    /// Skips an object or array.
    fn container(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Skips a string. A quote ends it unless an odd number of backslashes precedes it.
    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
        let text = self.text.get(start..)?;
        // Fast path for names and short values: checking eight bytes at once costs less than the call of `memchr`.
        if let Some(word) = text.first_chunk() {
            let word = u64::from_le_bytes(*word);
            let (quotes, escapes) = (places(word, b'"'), places(word, b'\\'));
            if quotes.trailing_zeros() < escapes.trailing_zeros() {
                self.at = start + usize::try_from(quotes.trailing_zeros() / 8).unwrap_or(0) + 1;
                return Some(());
            }
        }
        self.at = start;
        loop {
            self.at += memchr::memchr(b'"', self.text.get(self.at..)?)? + 1;
            let inside = self.text.get(start..self.at - 1)?;
            let escapes = inside.iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes.is_multiple_of(2) {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Api;
    use crate::wire::request::BodyReader;

    fn of(content: &str) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let whole = beginning(content.as_bytes(), &mut |piece| {
            out.extend_from_slice(piece);
            out.push(b'|');
        });
        (out, whole)
    }

    #[test]
    fn fingerprint_is_unchanged_when_the_conversation_grows() {
        for (first, later, other) in [
            (
                r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]"#,
                r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"more"}]"#,
                r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hullo"}]"#,
            ),
            (
                r#"[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}]"#,
                r#"[{"content":[{"text":"hello","type":"text"}],"role":"user"},{"role":"assistant","content":"hi"}]"#,
                r#"[{"role":"user","content":[{"type":"text","text":"hello"},{"type":"image","source":{"data":"AAAA"}}]}]"#,
            ),
            (
                r#"[{"role":"user","parts":[{"text":"hello"}]}]"#,
                r#"[{"parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"hi"}]}]"#,
                r#"[{"role":"user","parts":[{"text":"hello "}]}]"#,
            ),
            (
                r#"[{"type":"message","role":"developer","content":"x"},{"role":"user","content":"a"}]"#,
                r#"[{"type":"message","role":"developer","content":"x"},{"role":"user","content":"a"},{"type":"function_call","name":"f"}]"#,
                r#"[{"type":"message","role":"developer","content":"y"},{"role":"user","content":"a"}]"#,
            ),
            (r#""hello""#, r#""hello""#, r#""hello!""#),
            (
                r#"[{"n":[1,{"a":"]}\\"}],"role":"user","x":null,"content":"say \"}]\" \\"}]"#,
                r#"[ { "role" : "user" , "content" : "say \"}]\" \\" , "n" : 5 } , {"role":"assistant"}]"#,
                r#"[{"role":"user","content":"say \"}]\" \\ "}]"#,
            ),
        ] {
            assert_eq!(of(first), of(later));
            assert!(of(first).1, "{first}");
            assert_ne!(of(first), of(other), "{first}");
        }
    }

    #[test]
    fn fingerprint_is_complete_once_the_first_user_turn_ends() {
        let long = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant"}]"#;
        let end = long.find(r#",{"role":"assistant"#).unwrap();
        for cut in 0..end {
            assert!(!of(&long[..cut]).1, "{}", &long[..cut]);
        }
        for cut in end..=long.len() {
            assert_eq!(of(&long[..cut]), of(long));
        }
    }

    fn fingerprint(seed: u64, text: &[u8]) -> u64 {
        text.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    fn of_body(api: Api, body: &str, piece: usize) -> Option<u64> {
        let mut reader = BodyReader::new(api, false);
        for piece in body.as_bytes().chunks(piece) {
            reader.push(Bytes::copy_from_slice(piece)).unwrap();
        }
        conversation(&reader.finish().unwrap(), fingerprint)
    }

    fn key(messages: &str, piece: usize) -> u64 {
        of_body(Api::Chat, &format!("{{\"model\":\"m\",\"messages\":[{messages}]}}"), piece).unwrap()
    }

    #[test]
    fn fingerprint_depends_on_the_name_and_the_prompt() {
        let chat = |name: &str, said: &str| {
            let body = format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"{said}"}}],"prompt_cache_key":{name}}}"#
            );
            of_body(Api::Chat, &body, 7)
        };
        let messages = |name: &str, said: &str| {
            let body = format!(
                r#"{{"metadata":{name},"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"{said}"}}]}}"#
            );
            of_body(Api::Messages, &body, 7)
        };
        let responses = |name: &str, said: &str| {
            let body = format!(r#"{{"model":"m","prompt_cache_key":{name},"input":"{said}"}}"#);
            of_body(Api::Responses, &body, 7)
        };
        let plain = |name: &str| format!("\"{name}\"");
        let user = |name: &str| format!(r#"{{"other":[1],"user_id":"{name}"}}"#);
        type Of<'o> = &'o dyn Fn(&str, &str) -> Option<u64>;
        type Name<'n> = &'n dyn Fn(&str) -> String;
        let all: [(Of<'_>, Name<'_>); 3] = [(&chat, &plain), (&messages, &user), (&responses, &plain)];
        for (of, name) in all {
            assert!(of(&name("a"), "x").is_some());
            assert_eq!(of(&name("a"), "x"), of(&name("a"), "x"));
            assert_ne!(of(&name("a"), "x"), of(&name("b"), "x"));
            assert_ne!(of(&name("a"), "x"), of(&name("a"), "y"));
            // A value without a name counts as absent.
            for none in ["null", "\"\"", "{}", "[\"a\"]", "{\"user_id\":null}", "5"] {
                assert_eq!(of(none, "x"), of("null", "x"), "{none}");
            }
            assert_ne!(of("null", "x"), of(&name("a"), "x"));
        }
    }

    #[test]
    fn fingerprint_of_a_stored_conversation_ignores_the_new_input() {
        let of = |lines: &str, said: &str| {
            of_body(Api::Responses, &format!(r#"{{"model":"m","input":"{said}"{lines}}}"#), 11).unwrap()
        };
        for lines in [
            r#","conversation":"conv_1""#,
            r#","conversation":{"id":"conv_1"}"#,
            r#","previous_response_id":"resp_1""#,
            r#","previous_response_id":"resp_1","prompt_cache_key":"a""#,
        ] {
            assert_eq!(of(lines, "x"), of(lines, "y"), "{lines}");
        }
        let one = of(r#","conversation":"conv_1""#, "x");
        assert_eq!(one, of(r#","conversation":{"x":{},"id":"conv_1"}"#, "x"));
        assert_ne!(one, of(r#","conversation":"conv_2""#, "x"));
        let named = r#","previous_response_id":"resp_1","prompt_cache_key":"a""#;
        assert_eq!(of(named, "x"), of(&named.replace("resp_1", "resp_2"), "y"));
        let stored = r#"{"model":"m","prompt":{"id":"pmpt_1"},"prompt_cache_key":"a"}"#;
        assert!(of_body(Api::Responses, stored, 5).is_some());
        assert_eq!(of_body(Api::Responses, &stored.replace("prompt_cache_key", "x"), 5), None);
    }

    fn begun(system: &str, user: &str, mark: &str) -> String {
        format!(
            "{{\"role\":\"system\",\"content\":[{{\"type\":\"text\",\"text\":\"{system}\"{mark}}}]}},\
         {{\"role\":\"user\",\"content\":\"{user}\"}}"
        )
    }

    #[test]
    fn fingerprint_is_the_same_for_any_length_and_split() {
        let mark = ",\"cache_control\":{\"type\":\"ephemeral\"}";
        // Lengths around the sizes in which a prompt is read, and where a multi-byte character is cut.
        for length in (0..40).chain(3_900..4_100).step_by(7).chain([16_000, 16_300, 16_384, 40_000, 65_000]) {
            let system = "\u{fc}".repeat(length / 2);
            let first = begun(&system, "hello", "");
            let expected = key(&first, 1 << 20);
            let mut later = begun(&system, "hello", mark);
            for turn in 0..3 {
                later += ",{\"role\":\"assistant\",\"content\":\"yes\"},{\"role\":\"user\",\"content\":\"";
                later += &format!("{turn}{}\"}}", "more ".repeat(2_000));
                assert_eq!(key(&later, 1 << 20), expected, "{length}, turn {turn}");
                assert_eq!(key(&later, 1_000), expected, "{length}, turn {turn}, in pieces");
            }
            assert_ne!(key(&begun(&system, "hullo", ""), 1 << 20), expected, "{length}: another user");
            assert_ne!(
                key(&begun(&format!("{system}!"), "hello", ""), 1 << 20),
                expected,
                "{length}: another system"
            );
        }
    }

    #[test]
    fn fingerprint_of_a_long_prompt_depends_on_its_beginning() {
        let long = "a".repeat(200_000);
        let first = format!("{{\"role\":\"user\",\"content\":\"{long}\"}}");
        let later = format!("{first},{{\"role\":\"assistant\",\"content\":\"yes\"}}");
        assert_eq!(key(&first, 1 << 20), key(&later, 1 << 20));
        let other = first.replacen('a', "b", 1);
        assert_ne!(key(&first, 1 << 20), key(&other, 1 << 20));
    }
}
