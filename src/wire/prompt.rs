//! How the prompt of a conversation begins: what stays the same from turn to turn.
//!
//! A conversation grows at its end. Its messages up to the first one of the user stay as they are, but for the marks that
//! clients move along (`cache_control`), which is why what is said is read and not the text around it.

/// Of what is no text (an image, a file), so much is enough to know it again.
const BINARY: usize = 256;

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
    use super::*;

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
}
