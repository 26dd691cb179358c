//! Compression of request bodies, by the names of the content codings.

use std::io::Write as _;

/// Content codings that the gateway accepts.
pub(crate) const CODINGS: [&str; 4] = ["zstd", "gzip", "deflate", "br"];

/// Compresses a text.
pub(crate) fn compress(coding: &str, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding {
        "zstd" => zstd::encode_all(text, 3).unwrap(),
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            encoder.write_all(text).unwrap();
            encoder.into_inner()
        }
    }
}
