//! Vectors as JSON numbers and as base64 of little-endian 32-bit floats, and one from the other.
//!
//! A number is read as the nearest 32-bit float and written with as few digits as tell it from its neighbours, so that
//! nothing is lost on the way there and back.

use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, BytesMut};

use super::Broken;
use crate::json::RawJson;

/// Bytes of a float.
const SIZE: usize = 4;
/// Floats that are read before they are encoded: a multiple of three, so that no part but the last is padded.
const PART: usize = 3 * 256;
/// No embedding has a number as large; what is read as floats and has one is something else.
const LARGEST: f32 = 1e6;

/// Appends the base64 of an array of numbers.
///
/// # Errors
/// It holds something else, or a number that is no 32-bit float.
pub fn push_base64(numbers: RawJson<'_>, out: &mut BytesMut) -> Result<(), Broken> {
    let inside =
        numbers.text().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or(Broken::NoVector)?;
    let mut part = [0; PART * SIZE];
    let mut filled = 0;
    let mut rest = inside.trim_ascii();
    while !rest.is_empty() {
        let end = memchr::memchr(b',', rest.as_bytes()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f32 = number.trim_ascii().parse().map_err(|_| Broken::NoVector)?;
        if !number.is_finite() {
            return Err(Broken::NoVector);
        }
        if let Some(slot) = part.get_mut(filled..filled + SIZE) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        filled += SIZE;
        if filled == part.len() {
            push_encoded(&part, out);
            filled = 0;
        }
        rest = after.get(1..).unwrap_or_default();
    }
    push_encoded(part.get(..filled).unwrap_or_default(), out);
    Ok(())
}

/// Appends the base64 of floats.
pub fn push_floats(floats: &[f32], out: &mut BytesMut) {
    let mut part = [0; PART * SIZE];
    for floats in floats.chunks(PART) {
        for (slot, float) in part.chunks_exact_mut(SIZE).zip(floats) {
            slot.copy_from_slice(&float.to_le_bytes());
        }
        push_encoded(part.get(..floats.len() * SIZE).unwrap_or_default(), out);
    }
}

fn push_encoded(bytes: &[u8], out: &mut BytesMut) {
    let start = out.len();
    out.put_bytes(0, bytes.len().div_ceil(3) * 4);
    let room = out.get_mut(start..).unwrap_or_default();
    let written = base64::Engine::encode_slice(&STANDARD, bytes, room).unwrap_or(0);
    out.truncate(start + written);
}

/// The floats that a base64 text holds; nothing where it holds something else.
pub fn floats(base64: &str) -> Option<Vec<f32>> {
    let bytes = base64::Engine::decode(&STANDARD, base64).ok()?;
    if bytes.is_empty() || !bytes.len().is_multiple_of(SIZE) {
        return None;
    }
    let floats: Vec<f32> = bytes
        .chunks_exact(SIZE)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or_default()))
        .collect();
    floats.iter().all(|float| float.abs() < LARGEST).then_some(floats)
}

/// Appends floats as a JSON array.
pub fn push_numbers(floats: &[f32], out: &mut BytesMut) {
    let mut text = zmij::Buffer::new();
    out.reserve(floats.len() * 13 + 2);
    out.put_u8(b'[');
    for (index, float) in floats.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(text.format_finite(*float).as_bytes());
    }
    out.put_u8(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn base64(numbers: &str) -> Result<String, Broken> {
        let mut out = BytesMut::new();
        push_base64(RawJson::from_text(numbers), &mut out)?;
        Ok(String::from_utf8(out.to_vec()).unwrap())
    }

    fn numbers(floats: &[f32]) -> String {
        let mut out = BytesMut::new();
        push_numbers(floats, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn known_vectors() {
        assert_eq!(base64("[0.25, -0.5,1.0]").unwrap(), "AACAPgAAAL8AAIA/");
        assert_eq!(base64(" [ ] ".trim()).unwrap(), "");
        assert_eq!(floats("AACAPgAAAL8AAIA/").unwrap(), [0.25, -0.5, 1.0]);
        assert_eq!(numbers(&[0.25, -0.5, 1.0, 1e-7, 0.1, 3.4e5]), "[0.25,-0.5,1.0,1e-7,0.1,340000.0]");
    }

    #[test]
    fn what_is_no_vector_is_none() {
        for wrong in ["[1,\"2\"]", "[1,,2]", "[null]", "[1e99]", "[[1]]", "{}", "[NaN]"] {
            assert!(base64(wrong).is_err(), "{wrong}");
        }
        // Bytes of another kind: odd in number, or of sizes that no vector has.
        for wrong in ["AAAA", "!", "", "9sYAAzzy/vfgDQAeOgD2/w=="] {
            assert!(floats(wrong).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(vector in prop::collection::vec(-2.0f32..2.0, 1..2_000)) {
            let text = numbers(&vector);
            let packed = base64(&text).unwrap();
            let mut direct = BytesMut::new();
            push_floats(&vector, &mut direct);
            prop_assert_eq!(packed.as_bytes(), &direct[..]);
            prop_assert_eq!(&floats(&packed).unwrap(), &vector);
            // As short as can be: what the standard library prints is the shortest, too.
            for (short, float) in text.trim_matches(['[', ']']).split(',').zip(&vector) {
                prop_assert_eq!(short.parse::<f32>().unwrap(), *float);
                prop_assert!(short.len() <= format!("{float:?}").len().max(3), "{short}");
            }
        }
    }
}
