//! Image file type and dimensions, from the first bytes of the file.

use crate::canonical::image::ImageFormat;

/// Properties of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// File format.
    pub picture: ImageFormat,
    /// Width and height in pixels. `None` if they cannot be found.
    pub points: Option<(u32, u32)>,
}

/// Maximum number of TIFF directory entries that are read.
const TIFF_ENTRIES: usize = 256;

/// Identifies an image file. Returns `None` if its format is unknown.
pub fn file(bytes: &[u8]) -> Option<ImageFile> {
    let (picture, points) = match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => (ImageFormat::Png, png(bytes)),
        [0xff, 0xd8, 0xff, ..] => (ImageFormat::Jpeg, jpeg(bytes)),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => (ImageFormat::Gif, gif(bytes)),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => (ImageFormat::Webp, webp(bytes)),
        [b'B', b'M', ..] => (ImageFormat::Bmp, Some(bmp(bytes)?)),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => (ImageFormat::Tiff, tiff(bytes)),
        _ => return None,
    };
    Some(ImageFile { picture, points: points.filter(|(width, height)| *width > 0 && *height > 0) })
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn big_16(bytes: &[u8], at: usize) -> Option<u32> {
    take(bytes, at).map(u16::from_be_bytes).map(u32::from)
}

fn little_16(bytes: &[u8], at: usize) -> Option<u32> {
    take(bytes, at).map(u16::from_le_bytes).map(u32::from)
}

fn little_24(bytes: &[u8], at: usize) -> Option<u32> {
    take(bytes, at).map(|[a, b, c]: [u8; 3]| u32::from_le_bytes([a, b, c, 0]))
}

/// Reads the dimensions from `IHDR`, which must be the first chunk.
fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    (take(bytes, 12)? == *b"IHDR").then_some(())?;
    Some((u32::from_be_bytes(take(bytes, 16)?), u32::from_be_bytes(take(bytes, 20)?)))
}

/// Reads the dimensions from the frame header (SOF marker), which follows any number of other segments.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let [0xff, marker] = take(bytes, at)? else { return None };
        match marker {
            // Fill bytes, and markers without a segment.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // SOF markers. The numbers left out of these ranges are DHT, JPG and DAC, which are not frames.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big_16(bytes, at + 7)?, big_16(bytes, at + 5)?));
            }
            // Image data or the end of the image, without a frame header before it.
            0xd9 | 0xda => return None,
            _ => at += 2 + (big_16(bytes, at + 2)? as usize).max(2),
        }
    }
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((little_16(bytes, 6)?, little_16(bytes, 8)?))
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match &take::<4>(bytes, 12)? {
        b"VP8X" => Some((little_24(bytes, 24)? + 1, little_24(bytes, 27)? + 1)),
        b"VP8L" => {
            let bits = u32::from_le_bytes(take(bytes, 21)?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => {
            (take(bytes, 23)? == [0x9d, 0x01, 0x2a]).then_some(())?;
            Some((little_16(bytes, 26)? & 0x3fff, little_16(bytes, 28)? & 0x3fff))
        }
        _ => None,
    }
}

/// Checks the size of the information header as well: the two-byte signature `BM` alone occurs in other files.
fn bmp(bytes: &[u8]) -> Option<(u32, u32)> {
    match u32::from_le_bytes(take(bytes, 14)?) {
        12 => Some((little_16(bytes, 18)?, little_16(bytes, 20)?)),
        16 | 40 | 52 | 56 | 64 | 108 | 124 => {
            let height = i32::from_le_bytes(take(bytes, 22)?);
            Some((u32::from_le_bytes(take(bytes, 18)?), height.unsigned_abs()))
        }
        _ => None,
    }
}

/// Reads the dimensions from the first directory, which may lie anywhere in the file.
fn tiff(bytes: &[u8]) -> Option<(u32, u32)> {
    let little = bytes.first() == Some(&b'I');
    let short = |at| if little { little_16(bytes, at) } else { big_16(bytes, at) };
    let long = |at| {
        let bytes = take(bytes, at)?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = long(4)? as usize;
    let entries = (short(directory)? as usize).min(TIFF_ENTRIES);
    let (mut width, mut height) = (None, None);
    for entry in 0..entries {
        let at = directory.checked_add(2 + entry * 12)?;
        let value = || match short(at + 2)? {
            3 => short(at + 8),
            4 => long(at + 8),
            _ => None,
        };
        match short(at)? {
            256 => width = value(),
            257 => height = value(),
            _ => {}
        }
    }
    Some((width?, height?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(bytes: &[u8], picture: ImageFormat, points: (u32, u32)) {
        assert_eq!(file(bytes), Some(ImageFile { picture, points: Some(points) }), "{}", picture.name());
        // A truncated file gives no dimensions, or the true ones.
        for end in 0..bytes.len() {
            let part = file(&bytes[..end]).and_then(|file| file.points);
            assert!(part.is_none_or(|part| part == points), "{} {end}", picture.name());
        }
    }

    #[test]
    fn image_type_and_size_are_read_from_the_bytes() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend([0, 0, 4, 0, 0, 0, 3, 0, 8, 6, 0, 0, 0]);
        known(&png, ImageFormat::Png, (1024, 768));
        let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe1, 0, 6, 1, 2, 3, 4, 0xff, 0xff, 0xc4, 0, 3, 9];
        jpeg.extend([0xff, 0xc2, 0, 17, 8, 3, 0, 4, 0, 3]);
        known(&jpeg, ImageFormat::Jpeg, (1024, 768));
        known(b"GIF89a\x00\x04\x00\x03", ImageFormat::Gif, (1024, 768));
        let webp = |rest: &[u8]| [b"RIFF\0\0\0\0WEBP".as_slice(), rest].concat();
        known(&webp(b"VP8X\x0a\0\0\0\0\0\0\0\xff\x03\x00\xff\x02\x00"), ImageFormat::Webp, (1024, 768));
        let bits = (1023u32 | 767 << 14).to_le_bytes();
        known(&webp(&[b"VP8L\0\0\0\0\x2f".as_slice(), &bits].concat()), ImageFormat::Webp, (1024, 768));
        known(&webp(b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x00\x04\x00\x03"), ImageFormat::Webp, (1024, 768));
        let mut bmp = b"BM".to_vec();
        bmp.extend([0; 12]);
        bmp.extend([40, 0, 0, 0, 0, 4, 0, 0, 0, 0xfd, 0xff, 0xff]);
        known(&bmp, ImageFormat::Bmp, (1024, 768));
        for (order, little) in [(b"II", true), (b"MM", false)] {
            let short = |n: u16| if little { n.to_le_bytes() } else { n.to_be_bytes() };
            let long = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
            let mut tiff = [order.as_slice(), &short(42), &long(8), &short(2)].concat();
            tiff.extend([&short(256)[..], &short(4), &long(1), &long(1024)].concat());
            tiff.extend([&short(257)[..], &short(3), &long(1), &short(768), &short(0)].concat());
            known(&tiff, ImageFormat::Tiff, (1024, 768));
        }
    }

    #[test]
    fn image_type_of_other_bytes_is_none() {
        for none in [
            &b""[..],
            b"<html>",
            b"%PDF-1.7",
            b"BMW is a car, and this is a text",
            b"RIFF\0\0\0\0WAVE",
            b"{}",
        ] {
            assert_eq!(file(none), None);
        }
        let empty = file(b"GIF89a\0\0\0\0").unwrap();
        assert_eq!(empty.points, None, "an image without points");
    }

    proptest! {
        #[test]
        fn image_type_of_arbitrary_bytes_never_panics(
            kind in 0usize..7,
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let heads: [&[u8]; 7] =
                [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBP", b"BM", b"II*\0", b"MM\0*"];
            let _ = file(&rest);
            let _ = file(&[heads[kind], &rest].concat());
        }
    }
}
