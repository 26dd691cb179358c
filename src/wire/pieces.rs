//! The body of an answer in pieces, so that what is large in it is held once.

use base64_simd::STANDARD;
use bytes::Bytes;

/// Bytes of a medium that are turned into text at a time: a multiple of three, so that the texts can be joined.
const STEP: usize = 48 * 1024;

/// A piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text as it leaves.
    Text(Bytes),
    /// Bytes that leave as base64, which is made while they leave.
    Base64(Bytes),
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(Vec<Piece>);

impl Body {
    /// An empty body.
    pub fn new() -> Self {
        Body::default()
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    /// How long the body is when it leaves.
    pub fn len(&self) -> usize {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.len(),
                Piece::Base64(bytes) => STANDARD.encoded_length(bytes.len()),
            })
            .sum()
    }

    /// Whether nothing leaves.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What leaves, step by step.
    pub fn into_steps(self) -> impl Iterator<Item = Bytes> + Send {
        self.0.into_iter().flat_map(|piece| Steps { piece }).filter(|step| !step.is_empty())
    }

    /// All of it in one.
    pub fn into_bytes(self) -> Bytes {
        match <[Piece; 1]>::try_from(self.0) {
            Ok([Piece::Text(text)]) => text,
            Ok([piece]) => Body(vec![piece]).joined(),
            Err(pieces) => Body(pieces).joined(),
        }
    }

    fn joined(self) -> Bytes {
        let mut out = Vec::with_capacity(self.len());
        self.into_steps().for_each(|step| out.extend_from_slice(&step));
        out.into()
    }
}

impl From<Bytes> for Body {
    fn from(text: Bytes) -> Self {
        Body(vec![Piece::Text(text)])
    }
}

struct Steps {
    piece: Piece,
}

impl Iterator for Steps {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let step = match &mut self.piece {
            Piece::Text(text) => std::mem::take(text),
            Piece::Base64(bytes) => {
                let step = bytes.split_to(STEP.min(bytes.len()));
                Bytes::from(STANDARD.encode_to_string(&step))
            }
        };
        (!step.is_empty()).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_as_one_text_of_the_length_that_was_said() {
        for length in [0, 1, 2, 3, STEP - 1, STEP, STEP + 1, 3 * STEP + 2] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 7 % 251) as u8).collect();
            let mut body = Body::new();
            body.push(Piece::Text(Bytes::from_static(b"{\"x\":\"")));
            body.push(Piece::Base64(bytes.clone().into()));
            body.push(Piece::Text(Bytes::from_static(b"\"}")));
            let expected = format!("{{\"x\":\"{}\"}}", STANDARD.encode_to_string(&bytes));
            assert_eq!(body.len(), expected.len());
            assert!(body.clone().into_steps().all(|step| step.len() <= STEP / 3 * 4));
            assert_eq!(body.into_bytes(), expected);
        }
        assert_eq!(Body::from(Bytes::from_static(b"abc")).into_bytes(), "abc");
        assert!(Body::new().is_empty());
    }
}
