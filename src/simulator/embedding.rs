//! Embeddings: unit vectors derived from a hash of the text.

use base64_simd::STANDARD;
use serde_json::{Value, json};

use super::ids::{Ids, hash};

/// Returns the number of dimensions of a known model (from the providers' model pages), and 1,536 for others.
pub(super) fn dimension(model: &str) -> usize {
    match model {
        "text-embedding-3-large" => 3072,
        "text-embedding-004" | "embedding-001" => 768,
        name if name.starts_with("gemini-embedding") => 3072,
        _ => 1536,
    }
}

/// Returns the unit vector of a text, deterministically. A shorter vector is the start of a longer one, normalized
/// again.
pub(super) fn vector(text: &[u8], dimensions: usize) -> Vec<f32> {
    let mut numbers = Ids::seeded(hash(text));
    // The upper 24 bits, which an `f32` represents exactly.
    let mut vector: Vec<f32> =
        (0..dimensions).map(|_| (numbers.next() >> 40) as f32 / 8_388_608.0 - 1.0).collect();
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
    vector
}

/// Returns the vector as a JSON array of the shortest decimals that identify the 32-bit floats.
pub(super) fn numbers(vector: &[f32]) -> Value {
    vector.iter().map(|x| x.to_string().parse::<f64>().map_or(json!(0.0), |x| json!(x))).collect()
}

/// Returns the vector in OpenAI's `encoding_format: base64`: little-endian 32-bit floats.
pub(super) fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    STANDARD.encode_to_string(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedding_vector_has_unit_length_and_is_deterministic() {
        for (text, dimensions) in [("", 8), ("a", 1536), ("a", 256), ("b", 1)] {
            let v = vector(text.as_bytes(), dimensions);
            assert_eq!(v.len(), dimensions);
            assert!((v.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-3);
        }
        assert_eq!(vector(b"a", 16), vector(b"a", 16));
        assert_ne!(vector(b"a", 16), vector(b"b", 16));
        assert_eq!(base64(&[1.0]), "AACAPw==");
    }
}
