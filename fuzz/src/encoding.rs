//! Target for compressed request bodies.

use bytes::Bytes;
use model_gateway::proxy::{ContentCoding, RequestDecoder};

use crate::{choose, pieces};

const CODINGS: [ContentCoding; 4] =
    [ContentCoding::Gzip, ContentCoding::Deflate, ContentCoding::Brotli, ContentCoding::Zstd];
/// Maximum decoded size in bytes.
const LIMIT: usize = 1 << 20;

/// Invariants of the request decoder, for each content coding:
/// * The decoded bytes, or the refusal, do not depend on how the body arrives.
/// * No more than the limit is decoded, and the memory that is counted covers each piece.
pub fn request_encoding(mut data: &[u8]) {
    let coding = CODINGS[choose(&mut data, 4)];
    let seed = choose(&mut data, 256);
    let whole = decode(coding, &[data]);
    assert_eq!(decode(coding, &pieces(data, seed)), whole, "{coding:?}, split by {seed}");
    if data.len() < 512 {
        let bytes: Vec<&[u8]> = data.chunks(1).collect();
        assert_eq!(decode(coding, &bytes), whole, "{coding:?}, byte by byte");
    }
}

/// Returns the decoded bytes; `None` if the body is refused.
fn decode(coding: ContentCoding, pieces: &[&[u8]]) -> Option<Vec<u8>> {
    let mut decoder = RequestDecoder::new(coding, LIMIT).ok()??;
    let mut out = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(decoded) = decoder.next_piece().ok()? {
            out.extend_from_slice(&decoded);
            assert!(out.len() <= LIMIT && decoder.memory() >= decoded.len());
        }
        assert!(decoder.decoded() <= LIMIT);
    }
    out.extend_from_slice(&decoder.finish().ok()?);
    assert_eq!(out.len(), decoder.decoded());
    Some(out)
}
