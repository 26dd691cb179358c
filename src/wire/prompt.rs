//! How the prompt of a conversation begins: what stays the same from turn to turn.
//!
//! A conversation grows at its end. Its messages up to the first one of the user stay as they are, but for the marks that
//! clients move along (`cache_control`), which is why what is said is read and not the text around it.

use super::request::Body;

/// What of a prompt is read to know its conversation again, in bytes. Most begin within the first of these; the other
/// one is more than the system prompts of coding agents.
const READ: [usize; 2] = [4 * 1024, 64 * 1024];
/// Of a longer text, both ends of so many bytes are enough.
const ENDS: usize = 2 * 1024;
/// What stands for a text, given what stands for those before it.
pub type Fingerprint = fn(u64, &[u8]) -> u64;

/// Of what is no text (an image, a file), so much is enough to know it again.
const BINARY: usize = 256;

/// What stands for the conversation that begins as this prompt does. How much of it had to be read makes no difference:
/// what lies behind its beginning is not looked at.
pub fn conversation(body: &mut Body, fingerprint: Fingerprint) -> Option<u64> {
    let mut hash = 0;
    for most in READ {
        let text = body.beginning(most)?;
        let mut said = false;
        hash = 0;
        let whole = beginning(&text, &mut |piece| {
            said = true;
            hash = both_ends(fingerprint, hash, piece);
        });
        if whole || text.len() < most {
            return Some(hash);
        }
        if !said {
            // A first message that is longer than all that is read.
            hash = both_ends(fingerprint, 0, &text);
        }
    }
    Some(hash)
}

fn both_ends(fingerprint: Fingerprint, hash: u64, piece: &[u8]) -> u64 {
    let (first, last) = piece.split_at(piece.len().min(ENDS));
    let hash = fingerprint(hash ^ piece.len() as u64, first);
    fingerprint(hash, last.get(last.len().saturating_sub(ENDS)..).unwrap_or_default())
}

/// Gives what is said in the messages up to the first of the user. `content` is the list of them in any format, or its
/// beginning; or a text. It has been found to be sound where the body was read. False when what is looked for goes on
/// behind what was given.
pub fn beginning(content: &[u8], each: &mut impl FnMut(&[u8])) -> bool {
    Walk { text: content, at: 0 }.messages(each).is_some()
}

/// Walks over a sound document, or the beginning of one: what was checked before is not checked again, so that a long
/// text costs no more than looking for the quote at its end. Nothing where the text ends too early.
struct Walk<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Walk<'t> {
    fn messages(&mut self, each: &mut impl FnMut(&[u8])) -> Option<()> {
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
            let mut user = true;
            while self.another(b'}')? {
                match self.key()? {
                    b"\"role\"" => user = self.value()? == b"\"user\"",
                    // In the responses format, what is no message has no role.
                    b"\"type\"" => user &= self.value()? == b"\"message\"",
                    b"\"content\"" | b"\"parts\"" => self.said(each)?,
                    _ => _ = self.value()?,
                }
            }
            if user {
                break;
            }
        }
        Some(())
    }

    /// The content of a message: a text, or parts.
    fn said(&mut self, each: &mut impl FnMut(&[u8])) -> Option<()> {
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
            while self.another(b'}')? {
                match self.key()? {
                    b"\"text\"" => each(self.value()?),
                    b"\"image_url\"" | b"\"source\"" | b"\"inlineData\"" | b"\"inline_data\""
                    | b"\"fileData\"" | b"\"file\"" | b"\"input_audio\"" => {
                        let value = self.value()?;
                        each(value.get(..BINARY).unwrap_or(value));
                    }
                    _ => _ = self.value()?,
                }
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
        self.look()?;
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.text.get(self.at)? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                _ if depth > 0 => self.at += 1,
                _ => {
                    // A number or a word, and at least a byte of it.
                    let end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                    self.at += self.text.get(self.at..)?.iter().position(end)?.max(1);
                }
            }
            if depth == 0 {
                return self.text.get(start..self.at);
            }
        }
    }

    /// Over a string. A quote ends it unless an odd number of backslashes stands before it.
    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
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
    use bytes::Bytes;

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

    fn key(messages: &str, piece: usize) -> u64 {
        let body = format!("{{\"model\":\"m\",\"messages\":[{messages}]}}");
        let mut reader = BodyReader::new(Api::Chat, false);
        for piece in body.as_bytes().chunks(piece) {
            reader.push(Bytes::copy_from_slice(piece)).unwrap();
        }
        conversation(&mut reader.finish().unwrap(), fingerprint).unwrap()
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
