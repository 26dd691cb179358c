//! Request bodies of InvokeModel for Claude: messages requests whose model and choice of a stream are in the path.

use bytes::Bytes;

use json::Writer;

/// Inserts members at the beginning of an object that arrives in pieces, without copying it.
#[derive(Debug)]
pub(super) struct MemberInserter {
    members: Bytes,
    place: Place,
}

/// Where the received bytes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the opening brace.
    Before,
    /// Behind the opening brace and the inserted members, before the first member of the body.
    Opened,
    /// Behind the comma between the two.
    Inserted,
}

impl MemberInserter {
    /// Creates an inserter of the members `model` and, if it is true, `stream`.
    pub(super) fn new(model: &str, stream: bool) -> Self {
        let mut members = Vec::with_capacity(model.len() + 32);
        members.extend_from_slice(b"\"model\":");
        Writer::new(&mut members).string(model);
        if stream {
            members.extend_from_slice(b",\"stream\":true");
        }
        MemberInserter { members: Bytes::from(members), place: Place::Before }
    }

    /// Returns the number of bytes that are inserted.
    pub(super) fn inserted(&self) -> usize {
        self.members.len() + ",".len()
    }

    /// Calls `push` for the parts of a piece of the body and for the inserted members, in their order. A body that is no
    /// object stays as it is.
    ///
    /// # Errors
    /// Returns the error of `push`.
    pub(super) fn feed<E>(
        &mut self,
        mut piece: Bytes,
        mut push: impl FnMut(Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.place != Place::Inserted {
            let Some(at) = piece.iter().position(|byte| !byte.is_ascii_whitespace()) else { break };
            let first = piece.get(at).copied();
            match (self.place, first) {
                (Place::Before, Some(b'{')) => {
                    self.place = Place::Opened;
                    push(piece.split_to(at + 1))?;
                    push(std::mem::take(&mut self.members))?;
                }
                (Place::Opened, Some(b'"')) => {
                    self.place = Place::Inserted;
                    // The same text, wherever the pieces are cut.
                    push(piece.split_to(at))?;
                    push(Bytes::from_static(b","))?;
                }
                _ => self.place = Place::Inserted,
            }
        }
        if piece.is_empty() { Ok(()) } else { push(piece) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(text: &str, step: usize) -> String {
        let mut inserter = MemberInserter::new("a\"b", true);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(step) {
            let fed = inserter.feed(Bytes::copy_from_slice(piece), |part| {
                out.extend_from_slice(&part);
                Ok::<(), ()>(())
            });
            fed.unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn members_of_the_path_come_first_in_pieces_of_any_size() {
        let members = r#""model":"a\"b","stream":true"#;
        for (text, expected) in [
            (r#"{"max_tokens":1}"#, format!(r#"{{{members},"max_tokens":1}}"#)),
            (" { \n\"x\":{}} ", format!(" {{{members} \n,\"x\":{{}}}} ")),
            ("{ }", format!("{{{members} }}")),
            // Not JSON, which the scanner says.
            ("{,\"x\":1}", format!("{{{members},\"x\":1}}")),
            ("{}", format!("{{{members}}}")),
            ("[{}]", "[{}]".to_owned()),
            ("", String::new()),
            ("  ", "  ".to_owned()),
        ] {
            for step in [1, 2, 100] {
                assert_eq!(insert(text, step), expected, "{text} {step}");
            }
        }
    }
}
