//! How the prompt of a conversation begins: what stays the same from turn to turn.
//!
//! A conversation grows at its end. Its messages up to the first one of the user stay as they are, but for the marks
//! that clients move along (`cache_control`), which is why what is said is read and not the text around it.

use bytes::Bytes;

use super::request::Body;
use crate::json::{Kind, Member, Rope};

/// What of a prompt is read to know its conversation again, in bytes. Most begin within the first of these; the other
/// one is more than the system prompts of coding agents.
const READ: [usize; 2] = [4 * 1024, 64 * 1024];
/// Of a longer text, both ends of so many bytes are enough.
const ENDS: usize = 2 * 1024;
/// What stands for a text, given what stands for those before it.
pub type Fingerprint = fn(u64, &[u8]) -> u64;

/// Of what is no text (an image, a file), so much is enough to know it again.
const BINARY: usize = 256;

/// The highest bit of each byte that is this one. Behind the first of them there may be more that are not.
fn places(word: u64, byte: u8) -> u64 {
    let unlike = word ^ u64::from_ne_bytes([byte; 8]);
    unlike.wrapping_sub(0x0101_0101_0101_0101) & !unlike & 0x8080_8080_8080_8080
}

/// What stands for the conversation that is named so and begins as this prompt does. How much of it had to be read
/// makes no difference: what lies behind its beginning is not looked at.
///
/// A name alone does not tell conversations apart: one may stand for all users of an application, and an agent's
/// session has several prompts. A conversation that its provider has, and whose beginning is not said again, has
/// only its name.
pub fn conversation(body: &mut Body, fingerprint: Fingerprint) -> Option<u64> {
    let named = body.label().map(|label| fingerprint(0, &label));
    if let Some(kept) = body.kept() {
        return named.or_else(|| Some(fingerprint(0, &kept)));
    }
    let seed = named.unwrap_or(0);
    let mut hash = seed;
    for most in READ {
        let Some(text) = body.beginning(most) else { return named };
        let mut said = false;
        hash = seed;
        let whole = beginning(&text, &mut |piece| {
            said = true;
            hash = both_ends(fingerprint, hash, piece);
        });
        if whole || text.len() < most {
            return Some(hash);
        }
        if !said {
            // A first message that is longer than all that is read.
            hash = both_ends(fingerprint, seed, &text);
        }
    }
    Some(hash)
}

fn both_ends(fingerprint: Fingerprint, hash: u64, piece: &[u8]) -> u64 {
    let (first, last) = piece.split_at(piece.len().min(ENDS));
    let hash = fingerprint(hash ^ piece.len() as u64, first);
    if last.is_empty() {
        return hash;
    }
    fingerprint(hash, last.get(last.len().saturating_sub(ENDS)..).unwrap_or_default())
}

/// Gives what is said in the messages up to the first of the user. `content` is the list of them in any format, or its
/// beginning; or a text. It has been found to be sound where the body was read. False when what is looked for goes on
/// behind what was given.
pub fn beginning(content: &[u8], each: &mut impl FnMut(&[u8])) -> bool {
    Walk { text: content, at: 0 }.messages(each).is_some()
}

/// What a conversation is called by this member of a body, without its quotes: a string, or the member `name` (written
/// with its quotes) of an object. Nothing where there is none, or an empty one.
pub(super) fn name_in(member: &Member, name: &[u8], body: &mut Rope) -> Option<Bytes> {
    if !matches!(member.kind, Kind::String | Kind::Object) {
        return None;
    }
    let text = body.slice(member.value.clone());
    let called = if member.kind == Kind::Object { member_of(&text, name)? } else { &text[..] };
    let called = called.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!called.is_empty()).then(|| text.slice_ref(called))
}

/// The value of an object's member, as it is written. The name has its quotes.
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

/// Walks over a sound document, or the beginning of one: what was checked before is not checked again, so that a long
/// text costs no more than looking for the quote at its end. Nothing where the text ends too early.
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
                    // In the responses format, what is no message has no role.
                    b"\"type\"" => user &= walk.value()? == b"\"message\"",
                    b"\"content\"" | b"\"parts\"" => walk.said(each)?,
                    _ => _ = walk.value()?,
                }
            }
            Some(user)
        })
    }

    /// The content of a message: a text, or parts.
    fn said(&mut self, each: &mut impl FnMut(&[u8])) -> Option<()> {
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

    /// A text, or a list of texts and objects. `object` takes the members of one, and says whether it was the last.
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

    /// The next byte that is not white space, without taking it.
    fn look(&mut self) -> Option<u8> {
        while let b' ' | b'\n' | b'\r' | b'\t' = self.text.get(self.at)? {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Whether the container has another member or element; at its end it is left.
    fn another(&mut self, close: u8) -> Option<bool> {
        if self.look()? == b',' {
            self.at += 1;
        }
        let ends = self.look()? == close;
        self.at += usize::from(ends);
        Some(!ends)
    }

    /// The name of a member, quotes included.
    fn key(&mut self) -> Option<&'t [u8]> {
        let key = self.value()?;
        if self.look()? == b':' {
            self.at += 1;
        }
        Some(key)
    }

    /// A value as it is written.
    fn value(&mut self) -> Option<&'t [u8]> {
        let first = self.look()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' | b'[' => self.container()?,
            _ => {
                // A number or a word, and at least a byte of it.
                let end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at += self.text.get(start..)?.iter().position(end)?.max(1);
            }
        }
        self.text.get(start..self.at)
    }

    /// Over an object or a list.
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

    /// Over a string. A quote ends it unless an odd number of backslashes stands before it.
    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
        let text = self.text.get(start..)?;
        // Names and most values are short: looking for their end costs less than a call.
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
    fn a_conversation_that_grows_begins_as_before() {
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
    fn what_is_cut_off_is_told_from_what_is_whole() {
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
        conversation(&mut reader.finish().unwrap(), fingerprint)
    }

    fn key(messages: &str, piece: usize) -> u64 {
        of_body(Api::Chat, &format!("{{\"model\":\"m\",\"messages\":[{messages}]}}"), piece).unwrap()
    }

    #[test]
    fn a_name_tells_apart_what_begins_alike_and_does_not_join_what_begins_otherwise() {
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
            // What is no name counts as none.
            for none in ["null", "\"\"", "{}", "[\"a\"]", "{\"user_id\":null}", "5"] {
                assert_eq!(of(none, "x"), of("null", "x"), "{none}");
            }
            assert_ne!(of("null", "x"), of(&name("a"), "x"));
        }
    }

    #[test]
    fn what_its_provider_has_of_a_conversation_is_known_by_its_name_whatever_is_said_next() {
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
    fn a_conversation_has_one_key_whatever_its_length() {
        let mark = ",\"cache_control\":{\"type\":\"ephemeral\"}";
        // Around the sizes in which a prompt is read, and where letters are cut through.
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
    fn a_beginning_that_is_longer_than_what_is_read_is_known_by_what_is_read() {
        let long = "a".repeat(200_000);
        let first = format!("{{\"role\":\"user\",\"content\":\"{long}\"}}");
        let later = format!("{first},{{\"role\":\"assistant\",\"content\":\"yes\"}}");
        assert_eq!(key(&first, 1 << 20), key(&later, 1 << 20));
        let other = first.replacen('a', "b", 1);
        assert_ne!(key(&first, 1 << 20), key(&other, 1 << 20));
    }
}
