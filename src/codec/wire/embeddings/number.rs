//! Conversion of vectors between JSON numbers and base64 of little-endian 32-bit floats.
//!
//! A number is rounded to the nearest 32-bit float and written with the fewest digits that identify that float, so a
//! round trip loses nothing.

use base64_simd::{AsOut as _, STANDARD};
use bytes::{BufMut, BytesMut};

use super::Broken;
use json::RawJson;

/// Size of a float in bytes.
const SIZE: usize = 4;
/// Floats per encoded part. A multiple of three, so that only the last part is padded.
const PART: usize = 3 * 256;
/// Upper bound of a plausible vector component. Bytes that decode to a larger one are not floats.
const LARGEST: f32 = 1e6;

/// Appends a JSON array of numbers as base64, without quotes.
///
/// # Errors
/// Returns [`Broken::NoVector`] if the value is not an array of numbers, or a number is not finite as a 32-bit float.
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
        // Encode part by part, so that a large vector needs no second buffer of its size.
        if filled == part.len() {
            push_encoded(&part, out);
            filled = 0;
        }
        rest = after;
    }
    push_encoded(part.get(..filled).unwrap_or_default(), out);
    Ok(())
}

/// Parses the number at the start of a text. Returns it and the text behind the following comma, or `None` if it is not
/// a finite number.
fn leading_float(text: &[u8]) -> Option<(f32, &[u8])> {
    let text = text.trim_ascii_start();
    if !matches!(text.first(), Some(b'-' | b'0'..=b'9')) {
        return None;
    }
    let (float, rest) = match short_float(text) {
        Some((float, length)) => (float, text.get(length..)?),
        None => {
            let end = memchr::memchr(b',', text).unwrap_or(text.len());
            let (number, rest) = text.split_at_checked(end)?;
            (std::str::from_utf8(number.trim_ascii_end()).ok()?.parse().ok()?, rest)
        }
    };
    // A trailing comma is an error: no number follows it.
    let ends_well = rest.is_empty() || rest.len() > 1;
    (float.is_finite() && ends_well).then(|| (float, rest.get(1..).unwrap_or_default()))
}

/// Parses a decimal number without an exponent at the start of a text, the usual form in embeddings, in a fraction of
/// the time of the general parser. Returns it and its length, which ends at a comma or at the end of the text. Returns
/// `None` if the number is written in another way, has too many digits, or is so close to the middle of two floats that
/// rounding twice (to `f64`, then to `f32`) could give another result than rounding once.
#[inline]
fn short_float(text: &[u8]) -> Option<(f32, usize)> {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    /// Bits of an `f64` mantissa that an `f32` lacks, and their value in the middle between two `f32` values.
    const LOW: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    const NEAR: u64 = 4;
    /// Largest mantissa that takes one more digit without overflow.
    const LARGEST_MANTISSA: u64 = (u64::MAX - 9) / 10;
    let negative = text.first() == Some(&b'-');
    let begin = usize::from(negative);
    let (mut mantissa, mut point, mut at) = (0u64, None, begin);
    while let Some(byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                if mantissa > LARGEST_MANTISSA {
                    return None;
                }
                mantissa = mantissa * 10 + u64::from(byte - b'0');
            }
            b'.' if point.is_none() && at > begin => {
                point = Some(at);
                // Most digits stand behind the point: the first sixteen are read eight at a time.
                for _ in 0..2 {
                    let Some(digits) = text.get(at + 1..at + 9).and_then(eight_digits) else { break };
                    if mantissa > LARGEST_MANTISSA / 10_000_000 {
                        return None;
                    }
                    mantissa = mantissa * 100_000_000 + digits;
                    at += 8;
                }
            }
            b',' => break,
            _ => return None,
        }
        at += 1;
    }
    let fraction = point.map_or(0, |point| at - point - 1);
    if at == begin || (point.is_some() && fraction == 0) {
        return None;
    }
    let value = mantissa as f64 / POWERS.get(fraction)?;
    // The power of ten is exact. The mantissa and the quotient are rounded, so `value` is at most two units in its last
    // place off. It rounds again to `f32` below: near a tie between two floats the first error could tip that rounding,
    // and subnormal floats have fewer bits than `LOW` assumes. Both are left to the general parser.
    let from_middle = (value.to_bits() & LOW).abs_diff(MIDDLE);
    if from_middle <= NEAR || (mantissa != 0 && value < f64::from(f32::MIN_POSITIVE)) {
        return None;
    }
    let float = value as f32;
    Some((if negative { -float } else { float }, at))
}

/// Parses eight decimal digits in one register. `None` if one of the bytes is not a digit.
#[inline]
fn eight_digits(text: &[u8]) -> Option<u64> {
    const NIBBLES: u64 = 0xF0F0_F0F0_F0F0_F0F0;
    const DIGITS: u64 = 0x3030_3030_3030_3030;
    let word = u64::from_le_bytes(text.try_into().ok()?);
    // The high half of a digit is 3, also after 6 is added to its low half.
    if word & NIBBLES != DIGITS || word.wrapping_add(0x0606_0606_0606_0606) & NIBBLES != DIGITS {
        return None;
    }
    // Neighbors are joined to pairs, pairs to fours, and fours to eight digits. No step carries into the next lane.
    let ones = word - DIGITS;
    let pairs = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF)
}

/// Appends floats as base64, without quotes.
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

/// Decodes base64 into floats. Returns `None` if the text is not base64, the length is not a multiple of four bytes, or
/// a component is implausibly large.
pub fn floats(base64: &str) -> Option<Vec<f32>> {
    let bytes = STANDARD.decode_to_vec(base64).ok()?;
    let (whole, rest) = bytes.as_chunks::<SIZE>();
    if whole.is_empty() || !rest.is_empty() {
        return None;
    }
    let floats: Vec<f32> = whole.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    // No early exit: the loop then compiles to vector instructions.
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
    fn vector_known_examples_convert_both_ways() {
        assert_eq!(base64("[0.25, -0.5,1.0]").unwrap(), "AACAPgAAAL8AAIA/");
        assert_eq!(base64(" [ ] ".trim()).unwrap(), "");
        assert_eq!(floats("AACAPgAAAL8AAIA/").unwrap(), [0.25, -0.5, 1.0]);
        assert_eq!(numbers(&[0.25, -0.5, 1.0, 1e-7, 0.1, 3.4e5]), "[0.25,-0.5,1.0,1e-7,0.1,340000.0]");
    }

    #[test]
    fn number_is_parsed_as_the_nearest_float() {
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
    fn vector_invalid_text_is_refused() {
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
        // Bytes that are not floats: an odd number of them, or implausible values.
        for wrong in ["AAAA", "!", "", "9sYAAzzy/vfgDQAeOgD2/w=="] {
            assert!(floats(wrong).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn number_parsing_agrees_with_the_standard_library(mantissa in -99_999_999_999_999_999i64.., places in 0usize..16) {
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
        fn number_parsing_of_doubles_agrees_with_the_standard_library(value in -2.0f64..2.0) {
            let number = value.to_string();
            let (float, _) = leading_float(number.as_bytes()).unwrap();
            prop_assert_eq!(float.to_bits(), number.parse::<f32>().unwrap().to_bits());
        }

        /// Decimals next to the middle of two floats, where rounding twice would show.
        #[test]
        fn number_parsing_near_ties_agrees_with_the_standard_library(bits in 0x3000_0000u32..0x4000_0000, off in -6i64..7) {
            let middle = (f64::from(f32::from_bits(bits)) + f64::from(f32::from_bits(bits + 1))) / 2.0;
            let number = f64::from_bits(middle.to_bits().wrapping_add_signed(off)).to_string();
            let (float, _) = leading_float(number.as_bytes()).unwrap();
            prop_assert_eq!(float.to_bits(), number.parse::<f32>().unwrap().to_bits());
        }

        #[test]
        fn vector_round_trips_with_shortest_digits(vector in prop::collection::vec(-2.0f32..2.0, 1..2_000)) {
            let text = numbers(&vector);
            let packed = base64(&text).unwrap();
            let mut direct = BytesMut::new();
            push_floats(&vector, &mut direct);
            prop_assert_eq!(packed.as_bytes(), &direct[..]);
            prop_assert_eq!(&floats(&packed).unwrap(), &vector);
            // Shortest digits, as printed by the standard library.
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
