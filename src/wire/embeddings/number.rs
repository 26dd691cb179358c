//! Vectors as JSON numbers and as base64 of little-endian 32-bit floats, and one from the other.
//!
//! A number is read as the nearest 32-bit float and written with as few digits as tell it from its neighbours, so that
//! nothing is lost on the way there and back.

use base64_simd::{AsOut as _, STANDARD};
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
    let mut rest = inside.trim_ascii().as_bytes();
    while !rest.is_empty() {
        let (number, after) = leading_float(rest).ok_or(Broken::NoVector)?;
        if let Some(slot) = part.get_mut(filled..filled + SIZE) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        filled += SIZE;
        if filled == part.len() {
            push_encoded(&part, out);
            filled = 0;
        }
        rest = after;
    }
    push_encoded(part.get(..filled).unwrap_or_default(), out);
    Ok(())
}

/// The number that a text begins with, and what follows the comma behind it.
fn leading_float(text: &[u8]) -> Option<(f32, &[u8])> {
    let text = text.trim_ascii_start();
    let end = memchr::memchr(b',', text).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    let number = number.trim_ascii_end();
    if !matches!(number.first(), Some(b'-' | b'0'..=b'9')) {
        return None;
    }
    let float = match short_float(number) {
        Some(float) => float,
        None => std::str::from_utf8(number).ok()?.parse().ok()?,
    };
    // A comma at the end promises a number that is not there.
    let ends_well = rest.is_empty() || rest.len() > 1;
    (float.is_finite() && ends_well).then(|| (float, rest.get(1..).unwrap_or_default()))
}

/// Reads what most embeddings consist of, a few digits around a point, in a quarter of the time that any number takes;
/// nothing for what is longer, or so near to the middle of two floats that one rounding might not be as good as another.
fn short_float(number: &[u8]) -> Option<f32> {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    /// Bits that a 32-bit float has not, and the middle between two of them.
    const LOW: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    let (negative, digits) = match number.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, number),
    };
    let (mut mantissa, mut point, mut fraction) = (0u64, false, 0usize);
    // More than 15 digits may not fit exactly; and with fewer, nothing can overflow.
    if digits.len() > 17 {
        return None;
    }
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa * 10 + u64::from(byte - b'0');
                fraction += usize::from(point);
            }
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    // Both are exact, so that the quotient is rounded once.
    if mantissa >= 1 << 53 || (point && fraction == 0) {
        return None;
    }
    let value = mantissa as f64 / POWERS.get(fraction)?;
    let from_middle = (value.to_bits() & LOW).abs_diff(MIDDLE);
    if from_middle <= 1 || (mantissa != 0 && value < f64::from(f32::MIN_POSITIVE)) {
        return None;
    }
    let float = value as f32;
    Some(if negative { -float } else { float })
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
    let written = STANDARD.encode(bytes, room.as_out()).len();
    out.truncate(start + written);
}

/// The floats that a base64 text holds; nothing where it holds something else.
pub fn floats(base64: &str) -> Option<Vec<f32>> {
    let bytes = STANDARD.decode_to_vec(base64).ok()?;
    let (whole, rest) = bytes.as_chunks::<SIZE>();
    if whole.is_empty() || !rest.is_empty() {
        return None;
    }
    let floats: Vec<f32> = whole.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    // Without a way out in the middle: vector instructions have none.
    let sound = floats.iter().fold(true, |sound, float| sound & (float.abs() < LARGEST));
    sound.then_some(floats)
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
    fn numbers_are_read_as_the_nearest_floats() {
        for number in [
            "0",
            "-0",
            "0.0",
            "-0.0",
            "7",
            "0.1",
            "-0.022186279296875",
            "0.716894992759484",
            "1e-7",
            "1.5E+3",
            "16777217",
            "16777217.0000001",
            "0.00000000000001",
            "3.4028235e38",
            "1e-45",
            "1e-50",
            "123456789012345",
            "0.5000000298023224",
            "9007199254740993",
            "33554435",
            "33554433",
            "0.10000000149011612",
        ] {
            let (float, rest) = leading_float(number.as_bytes()).unwrap();
            assert_eq!(float.to_bits(), number.parse::<f32>().unwrap().to_bits(), "{number}");
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_is_no_vector_is_none() {
        for wrong in [
            "[1,]",
            "[,1]",
            "[--1]",
            "[+1]",
            "[1.2.3]",
            "[inf]",
            "[1 2]",
            "[1,\"2\"]",
            "[1,,2]",
            "[null]",
            "[1e99]",
            "[[1]]",
            "{}",
            "[NaN]",
        ] {
            assert!(base64(wrong).is_err(), "{wrong}");
        }
        // Bytes of another kind: odd in number, or of sizes that no vector has.
        for wrong in ["AAAA", "!", "", "9sYAAzzy/vfgDQAeOgD2/w=="] {
            assert!(floats(wrong).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_decimals_are_read_as_the_standard_library_does(mantissa in -99_999_999_999_999_999i64.., places in 0usize..16) {
            let text = format!("{mantissa:018}");
            let (sign, digits) = text.strip_prefix('-').map_or(("", &*text), |digits| ("-", digits));
            let (whole, fraction) = digits.split_at(digits.len() - places);
            let whole = whole.trim_start_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            let number = format!("{sign}{}{point}{fraction}", if whole.is_empty() { "0" } else { whole });
            let (float, _) = leading_float(number.as_bytes()).unwrap();
            prop_assert_eq!(float.to_bits(), number.parse::<f32>().unwrap().to_bits());
        }

        #[test]
        fn there_and_back(vector in prop::collection::vec(-2.0f32..2.0, 1..2_000)) {
            let text = numbers(&vector);
            let packed = base64(&text).unwrap();
            let mut direct = BytesMut::new();
            push_floats(&vector, &mut direct);
            prop_assert_eq!(packed.as_bytes(), &direct[..]);
            prop_assert_eq!(&floats(&packed).unwrap(), &vector);
            // As few digits as can be, which is what the standard library prints.
            let digits = |text: &str| {
                let mantissa = text.split('e').next().unwrap().replace(['-', '.'], "");
                mantissa.trim_matches('0').len()
            };
            for (short, float) in text.trim_matches(['[', ']']).split(',').zip(&vector) {
                prop_assert_eq!(short.parse::<f32>().unwrap(), *float);
                prop_assert_eq!(digits(short), digits(&format!("{float:?}")), "{}", short);
            }
        }
    }
}
