//! Response body in pieces, so that large media is held in memory once and encoded as base64 only while it is sent.

use base64_simd::STANDARD;
use bytes::Bytes;

/// Input bytes per base64 step: a multiple of three, so that the encoded steps can be concatenated.
const STEP: usize = 48 * 1024;

/// Piece of a response body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that is sent unchanged.
    Text(Bytes),
    /// Bytes that are sent as base64. The encoding happens while the body is sent.
    Base64(Bytes),
}

/// Response body as a list of pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyPieces(Vec<Piece>);

impl BodyPieces {
    /// Creates an empty body.
    pub fn new() -> Self {
        BodyPieces::default()
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    /// Returns the length of the encoded body in bytes.
    pub fn len(&self) -> usize {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.len(),
                Piece::Base64(bytes) => STANDARD.encoded_length(bytes.len()),
            })
            .sum()
    }

    /// Returns whether the encoded body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the encoded body in chunks of at most 64 KiB for base64 pieces; a text piece is one chunk.
    pub fn into_steps(self) -> impl Iterator<Item = Bytes> + Send {
        self.0.into_iter().flat_map(|piece| Steps { piece }).filter(|step| !step.is_empty())
    }

    /// Returns the encoded body as one buffer.
    pub fn into_bytes(self) -> Bytes {
        match <[Piece; 1]>::try_from(self.0) {
            Ok([Piece::Text(text)]) => text,
            Ok([piece]) => BodyPieces(vec![piece]).joined(),
            Err(pieces) => BodyPieces(pieces).joined(),
        }
    }

    fn joined(self) -> Bytes {
        let mut out = Vec::with_capacity(self.len());
        self.into_steps().for_each(|step| out.extend_from_slice(&step));
        out.into()
    }
}

impl From<Bytes> for BodyPieces {
    fn from(text: Bytes) -> Self {
        BodyPieces(vec![Piece::Text(text)])
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
    fn pieces_are_encoded_as_one_text_of_the_announced_length() {
        for length in [0, 1, 2, 3, STEP - 1, STEP, STEP + 1, 3 * STEP + 2] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 7 % 251) as u8).collect();
            let mut body = BodyPieces::new();
            body.push(Piece::Text(Bytes::from_static(b"{\"x\":\"")));
            body.push(Piece::Base64(bytes.clone().into()));
            body.push(Piece::Text(Bytes::from_static(b"\"}")));
            let expected = format!("{{\"x\":\"{}\"}}", STANDARD.encode_to_string(&bytes));
            assert_eq!(body.len(), expected.len());
            assert!(body.clone().into_steps().all(|step| step.len() <= STEP / 3 * 4));
            assert_eq!(body.into_bytes(), expected);
        }
        assert_eq!(BodyPieces::from(Bytes::from_static(b"abc")).into_bytes(), "abc");
        assert!(BodyPieces::new().is_empty());
    }
}
