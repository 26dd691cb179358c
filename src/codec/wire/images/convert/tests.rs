//! Tests of image conversion: an independent reader checks the output, and random bytes cause no panic.

use proptest::prelude::*;

use super::*;
use crate::canonical::image::ImageFormat;
use crate::wire::images::file;

/// Returns uncompressed LZW data: nine-bit codes with a clear code before each.
fn plain(points: &[u8]) -> Vec<u8> {
    let codes = points.iter().flat_map(|point| [256, u32::from(*point)]).chain([257]);
    let (mut out, mut bits, mut have) = (Vec::new(), 0_u32, 0);
    for code in codes {
        bits |= code << have;
        have += 9;
        while have >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            have -= 8;
        }
    }
    out.push(bits as u8);
    out
}

/// Returns a GIF of a canvas with one frame: canvas sides, frame position and sides, color table, packed codes.
fn gif(canvas: (u16, u16), place: [u16; 4], flags: u8, extension: &[u8], least: u8, data: &[u8]) -> Vec<u8> {
    let mut out = b"GIF89a".to_vec();
    out.extend([canvas.0.to_le_bytes(), canvas.1.to_le_bytes()].concat());
    out.extend([0x81, 0, 0]);
    out.extend([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255]);
    out.extend_from_slice(extension);
    out.push(0x2c);
    place.iter().for_each(|number| out.extend(number.to_le_bytes()));
    out.extend([flags, least]);
    for block in data.chunks(255) {
        out.push(block.len() as u8);
        out.extend_from_slice(block);
    }
    out.extend([0, 0x3b]);
    out
}

/// Returns the pixels of a palette PNG without filters, and its chunks.
fn read(png: &[u8]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let mut chunks = Vec::new();
    let mut rest = png.strip_prefix(SIGNATURE).unwrap();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let sum = u32::from_be_bytes(rest[8 + length..12 + length].try_into().unwrap());
        assert_eq!(crc(&rest[4..8 + length]), sum);
        chunks.push((String::from_utf8(rest[4..8].to_vec()).unwrap(), rest[8..8 + length].to_vec()));
        rest = &rest[12 + length..];
    }
    let data: Vec<u8> =
        chunks.iter().filter(|(name, _)| name == "IDAT").flat_map(|(_, data)| data.clone()).collect();
    let head = &chunks[0].1;
    let width = u32::from_be_bytes(head[..4].try_into().unwrap()) as usize;
    let lines = inflated(&data);
    let points = lines.chunks(width + 1).flat_map(|line| {
        assert_eq!(line[0], 0);
        line[1..].to_vec()
    });
    (points.collect(), chunks)
}

/// Returns the content of a zlib stream of stored blocks (RFC 1950; RFC 1951, section 3.2.4), after checking lengths
/// and checksum.
fn inflated(data: &[u8]) -> Vec<u8> {
    assert_eq!(data[0] & 0x0f, 8);
    assert_eq!(u16::from_be_bytes([data[0], data[1]]) % 31, 0);
    let (mut out, mut rest) = (Vec::new(), &data[2..]);
    loop {
        let length = u16::from_le_bytes([rest[1], rest[2]]);
        assert_eq!(u16::from_le_bytes([rest[3], rest[4]]), !length);
        let (block, behind) = rest[5..].split_at(usize::from(length));
        out.extend_from_slice(block);
        if rest[0] == 1 {
            let step = |(a, b): (u32, u32), byte: &u8| {
                let a = (a + u32::from(*byte)) % 65_521;
                (a, (b + a) % 65_521)
            };
            let (a, b) = out.iter().fold((1, 0), step);
            assert_eq!(behind, (b << 16 | a).to_be_bytes());
            return out;
        }
        assert_eq!(rest[0], 0);
        rest = behind;
    }
}

#[test]
fn gif_first_frame_becomes_a_png() {
    let points: Vec<u8> = (0..300u32 * 300).map(|at| (at % 4) as u8).collect();
    let made = gif_to_png(&gif((300, 300), [0, 0, 300, 300], 0, b"", 8, &plain(&points))).unwrap();
    let found = file(&made).unwrap();
    assert_eq!((found.picture, found.points), (ImageFormat::Png, Some((300, 300))));
    let (read, chunks) = read(&made);
    assert_eq!(read, points);
    assert_eq!(chunks[1].1[..12], [0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255]);
    let names: Vec<&str> = chunks.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["IHDR", "PLTE", "IDAT", "IEND"]);
}

#[test]
fn gif_lzw_codes_are_unpacked() {
    // Index 1, then ever longer runs of it; each code is defined by the one before: 4, 5, 6, ...
    let runs = [(1_u32, 3), (6, 3), (7, 3), (8, 4), (9, 4)];
    let (mut bits, mut have, mut data) = (4_u32, 3, Vec::new());
    for (code, width) in runs {
        bits |= code << have;
        have += width;
    }
    bits |= 5 << have;
    data.extend(bits.to_le_bytes());
    assert_eq!(unpack(&data, 2, 15).unwrap(), [1; 15]);
    // Missing pixels have index 0; an invalid code is an error.
    assert_eq!(unpack(&data, 2, 20).unwrap(), [vec![1; 15], vec![0; 5]].concat());
    assert_eq!(unpack(&[0xff, 0xff], 2, 4), None);
    assert_eq!(unpack(&[], 9, 4), None);
}

#[test]
fn gif_uncovered_area_is_transparent_and_rows_are_deinterlaced() {
    let clear = b"\x21\xf9\x04\x01\0\0\x03\0";
    let points = [1, 1, 2, 2];
    let made = gif_to_png(&gif((4, 3), [1, 1, 2, 2], 0, clear, 8, &plain(&points))).unwrap();
    let (read_points, chunks) = read(&made);
    assert_eq!(read_points, [3, 3, 3, 3, 3, 1, 1, 3, 3, 2, 2, 3]);
    assert_eq!(chunks[2], ("tRNS".to_owned(), vec![255, 255, 255, 0]));
    // Interlaced: rows 0, 4, 2, 1, 3.
    let made = gif_to_png(&gif((1, 5), [0, 0, 1, 5], 0x40, b"", 8, &plain(&[0, 1, 2, 3, 3]))).unwrap();
    assert_eq!(read(&made).0, [0, 3, 2, 3, 1]);
    // A frame that extends beyond its canvas is clipped.
    let made = gif_to_png(&gif((2, 1), [1, 0, 2, 2], 0, b"", 8, &plain(&points))).unwrap();
    assert_eq!(read(&made).0, [0, 1]);
    assert_eq!(gif_to_png(&gif((65_535, 65_535), [0, 0, 1, 1], 0, b"", 8, &plain(&[1]))), None);
    assert_eq!(gif_to_png(&gif((1, 1), [0, 0, 65_535, 65_535], 0, b"", 8, &plain(&[1]))), None);
    assert_eq!(gif_to_png(b"GIF89a\x40\0\x40\0"), None);
}

#[test]
fn mask_in_gray_becomes_transparent_where_white() {
    let grey = |kind: u8, depth: u8| {
        let mut png = SIGNATURE.to_vec();
        chunk(&mut png, b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, depth, kind, 0, 0, 0]);
        chunk(&mut png, b"gAMA", &[0, 0, 0, 1]);
        chunk(&mut png, b"IDAT", b"the same points");
        chunk(&mut png, b"IEND", &[]);
        Bytes::from(png)
    };
    for (depth, colours) in [(1, 2), (2, 4), (4, 16), (8, 256)] {
        let made = mask(&grey(0, depth)).unwrap();
        let names = |text: &[u8]| made.windows(4).filter(|part| *part == text).count();
        assert_eq!((names(b"PLTE"), names(b"tRNS"), names(b"gAMA"), names(b"IDAT")), (1, 1, 0, 1));
        assert_eq!(made.get(24..26), Some(&[depth, 3][..]));
        let at = made.windows(4).position(|part| part == b"tRNS").unwrap() + 4;
        let alpha = &made[at..at + colours];
        assert_eq!((alpha[0], alpha[colours - 1]), (255, 0), "{depth}");
        assert!(made.windows(15).any(|part| part == b"the same points"));
    }
    let with_alpha = grey(6, 8);
    assert_eq!(mask(&with_alpha), Some(with_alpha.clone()));
    for other in [grey(2, 8), grey(0, 16), Bytes::from_static(b"GIF89a"), Bytes::from_static(SIGNATURE)] {
        assert_eq!(mask(&other), None);
    }
}

proptest! {
    #[test]
    fn convert_of_arbitrary_bytes_is_valid_or_refused(
        rest in proptest::collection::vec(any::<u8>(), 0..300),
        sides in (1u16..50, 1u16..50),
        flags in any::<u8>(),
        least in 0u8..12,
    ) {
        let _ = gif_to_png(&[b"GIF89a", &rest[..]].concat());
        let place = [0, 0, sides.0, sides.1];
        if let Some(png) = gif_to_png(&gif(sides, place, flags & 0x40, b"", least, &rest)) {
            prop_assert_eq!(file(&png).unwrap().points, Some((u32::from(sides.0), u32::from(sides.1))));
            prop_assert_eq!(read(&png).0.len(), usize::from(sides.0) * usize::from(sides.1));
        }
        let _ = mask(&Bytes::from([SIGNATURE, &rest[..]].concat()));
    }
}

#[test]
fn gif_signature_is_required() {
    let whole = gif((1, 1), [0, 0, 1, 1], 0, &[], 8, &plain(&[1]));
    assert!(gif_to_png(&whole).is_some());
    for other in [&SIGNATURE[..6], b"GIF88a", b"BM\0\0\0\0"] {
        assert_eq!(gif_to_png(&[other, &whole[6..]].concat()), None);
    }
}
