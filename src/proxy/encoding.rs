//! Content encodings of providers that compress although they were asked not to.

use std::io::Write;

use bytes::Bytes;

/// A decoder for one answer.
pub(super) enum Decoder {
    Gzip(Box<flate2::write::MultiGzDecoder<Vec<u8>>>),
    Deflate(Box<flate2::write::ZlibDecoder<Vec<u8>>>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Vec<u8>>>),
}

/// Why an answer cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("the content encoding {0:?} is not supported")]
    Unknown(String),
    #[error("the compressed answer is broken: {0}")]
    Broken(#[from] std::io::Error),
}

/// Decoded window of a brotli stream that is kept, in bytes.
const BROTLI_BUFFER: usize = 16 * 1024;

impl Decoder {
    /// The decoder for a `content-encoding` header; nothing for `identity`.
    pub(super) fn new(encoding: &str) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => return Ok(None),
            "gzip" | "x-gzip" => Decoder::Gzip(Box::new(flate2::write::MultiGzDecoder::new(Vec::new()))),
            "deflate" => Decoder::Deflate(Box::new(flate2::write::ZlibDecoder::new(Vec::new()))),
            "br" => Decoder::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), BROTLI_BUFFER))),
            "zstd" => Decoder::Zstd(Box::new(zstd::stream::write::Decoder::new(Vec::new())?)),
            other => return Err(DecodeError::Unknown(other.chars().take(32).collect())),
        }))
    }

    /// Decodes a piece; what a provider has flushed comes out at once.
    pub(super) fn decode(&mut self, piece: &[u8]) -> Result<Bytes, DecodeError> {
        fn step(writer: &mut dyn Write, piece: &[u8]) -> std::io::Result<()> {
            writer.write_all(piece)?;
            writer.flush()
        }
        let out = match self {
            Decoder::Gzip(decoder) => {
                step(decoder, piece)?;
                std::mem::take(decoder.get_mut())
            }
            Decoder::Deflate(decoder) => {
                step(decoder, piece)?;
                std::mem::take(decoder.get_mut())
            }
            Decoder::Brotli(decoder) => {
                step(decoder, piece)?;
                std::mem::take(decoder.get_mut())
            }
            Decoder::Zstd(decoder) => {
                step(decoder, piece)?;
                std::mem::take(decoder.get_mut())
            }
        };
        Ok(Bytes::from(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compress(encoding: &str, frames: &[&str]) -> Vec<Vec<u8>> {
        match encoding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                let mut out = Vec::new();
                for frame in frames {
                    encoder.write_all(frame.as_bytes()).unwrap();
                    encoder.flush().unwrap();
                    out.push(std::mem::take(encoder.get_mut()));
                }
                out.push(encoder.finish().unwrap());
                out
            }
            "br" => {
                let mut out = Vec::new();
                let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
                for frame in frames {
                    encoder.write_all(frame.as_bytes()).unwrap();
                    encoder.flush().unwrap();
                    out.push(std::mem::take(encoder.get_mut()));
                }
                out.push(encoder.into_inner());
                out
            }
            "zstd" => vec![zstd::encode_all(frames.concat().as_bytes(), 3).unwrap()],
            _ => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(frames.concat().as_bytes()).unwrap();
                vec![encoder.finish().unwrap()]
            }
        }
    }

    #[test]
    fn all_encodings_are_decoded_however_they_are_cut() {
        let frames = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
        for encoding in ["gzip", "br", "zstd", "deflate"] {
            let whole = compress(encoding, &frames).concat();
            for size in [1, 7, whole.len()] {
                let mut decoder = Decoder::new(encoding).unwrap().unwrap();
                let mut out = Vec::new();
                for piece in whole.chunks(size) {
                    out.extend_from_slice(&decoder.decode(piece).unwrap());
                }
                assert_eq!(out, frames.concat().as_bytes(), "{encoding} {size}");
            }
        }
    }

    #[test]
    fn a_flushed_frame_comes_out_at_once() {
        for encoding in ["gzip", "br"] {
            let frames = ["data: one\n\n", "data: two\n\n"];
            let pieces = compress(encoding, &frames);
            let mut decoder = Decoder::new(encoding).unwrap().unwrap();
            assert_eq!(&decoder.decode(&pieces[0]).unwrap()[..], frames[0].as_bytes(), "{encoding}");
            assert_eq!(&decoder.decode(&pieces[1]).unwrap()[..], frames[1].as_bytes(), "{encoding}");
        }
    }

    #[test]
    fn what_is_not_compressed_or_unknown_is_an_error() {
        let mut decoder = Decoder::new("gzip").unwrap().unwrap();
        assert!(decoder.decode(b"plain text, not gzip").is_err());
        assert!(Decoder::new("identity").unwrap().is_none());
        assert!(matches!(Decoder::new("x-unknown"), Err(DecodeError::Unknown(_))));
    }
}
