//! Image conversion for providers that lack a format: the first frame of a GIF to PNG, and a grayscale mask to one
//! whose white area is transparent. The output is not compressed; it has one byte per pixel.

use bytes::Bytes;

/// Maximum number of pixels of an image that is converted.
pub const MOST_POINTS: usize = 8 << 20;
/// Maximum length of a GIF code in bits.
const LONGEST_CODE: u32 = 12;
/// Size of a GIF code table.
const CODES: usize = 1 << LONGEST_CODE;
/// Maximum length of a stored DEFLATE block in bytes (RFC 1951, section 3.2.4).
const BLOCK: usize = 65_535;
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Converts the first frame of a GIF to PNG. Returns `None` if the file is not a GIF, has no frame or color table, or
/// has more than [`MOST_POINTS`] pixels.
pub fn gif_to_png(gif: &[u8]) -> Option<Bytes> {
    let version = gif.strip_prefix(b"GIF8")?;
    let mut reader = Reader(version.strip_prefix(b"7a").or_else(|| version.strip_prefix(b"9a"))?);
    let (width, height) = (reader.short()?, reader.short()?);
    let [packed, background, _] = reader.array()?;
    // Check before allocating: a header of a few bytes may claim 65,535 x 65,535 pixels.
    if width * height == 0 || width * height > MOST_POINTS {
        return None;
    }
    let mut common = Vec::new();
    if packed & 0x80 != 0 {
        common = reader.take(3 * (2 << (packed & 7)))?.to_vec();
    }
    let mut clear = None;
    loop {
        match reader.byte()? {
            // Extension block. A graphic control extension (0xf9) may give the transparent color of the next frame.
            0x21 => {
                if reader.byte()? == 0xf9 {
                    let [_, flags, _, _, index] = reader.clone().array()?;
                    clear = (flags & 1 != 0).then_some(index);
                }
                reader.blocks(|_| ())?;
            }
            0x2c => break,
            _ => return None,
        }
    }
    let (left, top, wide, high) = (reader.short()?, reader.short()?, reader.short()?, reader.short()?);
    let [packed] = reader.array()?;
    if packed & 0x80 != 0 {
        common = reader.take(3 * (2 << (packed & 7)))?.to_vec();
    }
    if common.is_empty() || wide * high == 0 || wide * high > MOST_POINTS {
        return None;
    }
    let least = u32::from(reader.byte()?);
    let mut data = Vec::new();
    reader.blocks(|block| data.extend_from_slice(block));
    let points = unpack(&data, least, wide * high)?;
    let order = rows(high, packed & 0x40 != 0);
    let mut canvas = vec![clear.unwrap_or(background); width * height];
    for (row, number) in points.chunks(wide).zip(order) {
        let at = (top + number) * width + left;
        let room = width.saturating_sub(left).min(row.len());
        if let (true, Some(line)) = (top + number < height, canvas.get_mut(at..at + room)) {
            line.copy_from_slice(row.get(..room)?);
        }
    }
    // Pixels whose color index is beyond the table become black.
    common.resize(3 * 256, 0);
    let alpha = clear.map(|index| {
        let mut alpha = vec![255; usize::from(index) + 1];
        alpha.iter_mut().rev().take(1).for_each(|alpha| *alpha = 0);
        alpha
    });
    Some(png(width, height, &common, alpha.as_deref(), &canvas))
}

/// Converts a black-and-white PNG mask to one that is transparent where it is white. A mask with an alpha channel is
/// returned unchanged. Returns `None` for other files.
pub fn mask(bytes: &Bytes) -> Option<Bytes> {
    let mut reader = Reader(bytes.strip_prefix(SIGNATURE)?);
    let mut out = SIGNATURE.to_vec();
    let mut depth = 0;
    loop {
        let length = usize::try_from(u32::from_be_bytes(reader.array()?)).ok()?;
        let name: [u8; 4] = reader.array()?;
        let data = reader.take(length)?;
        reader.take(4)?;
        match &name {
            b"IHDR" => {
                let mut head: [u8; 13] = data.try_into().ok()?;
                let [.., bits, kind, _, _, _] = &mut head;
                depth = match (*kind, *bits) {
                    (4 | 6, _) => return Some(bytes.clone()),
                    (0, 1 | 2 | 4 | 8) => *bits,
                    _ => return None,
                };
                // A grayscale sample serves unchanged as the index of a palette of grays.
                *kind = 3;
                chunk(&mut out, b"IHDR", &head);
                let last = (1_usize << depth) - 1;
                let greys: Vec<u8> =
                    (0..=last).filter_map(|grey| u8::try_from(grey * 255 / last).ok()).collect();
                let colours: Vec<u8> = greys.iter().flat_map(|grey| [*grey; 3]).collect();
                let alpha: Vec<u8> = greys.iter().map(|grey| if *grey < 128 { 255 } else { 0 }).collect();
                chunk(&mut out, b"PLTE", &colours);
                chunk(&mut out, b"tRNS", &alpha);
            }
            b"IDAT" if depth > 0 => chunk(&mut out, b"IDAT", data),
            b"IEND" if depth > 0 => {
                chunk(&mut out, b"IEND", &[]);
                return Some(out.into());
            }
            _ => {}
        }
    }
}

/// Byte reader. Its methods return `None` at the end of the input.
#[derive(Clone)]
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn short(&mut self) -> Option<usize> {
        self.array().map(|bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    /// Reads data sub-blocks, each preceded by its length, up to the empty one.
    fn blocks(&mut self, mut each: impl FnMut(&[u8])) -> Option<()> {
        loop {
            match usize::from(self.byte()?) {
                0 => return Some(()),
                length => each(self.take(length)?),
            }
        }
    }
}

/// Returns the order in which the rows of a frame are stored.
fn rows(high: usize, interlaced: bool) -> Vec<usize> {
    if !interlaced {
        return (0..high).collect();
    }
    let passes = [(0, 8), (4, 8), (2, 4), (1, 2)];
    passes.into_iter().flat_map(|(from, step)| (from..high).step_by(step)).collect()
}

/// Decompresses LZW data to color indices. Missing pixels at the end have index 0. Returns `None` if a code is invalid.
fn unpack(data: &[u8], least: u32, points: usize) -> Option<Vec<u8>> {
    if !(1..=8).contains(&least) {
        return None;
    }
    let (clear, end) = (1_usize << least, (1_usize << least) + 1);
    // Table entry: the prefix code, one more byte, and the length, which tells where to write when the chain is
    // followed from its end.
    let mut before = vec![0_u16; CODES];
    let mut bytes = vec![0_u8; CODES];
    let mut lengths = vec![1_usize; CODES];
    for (code, byte) in bytes.iter_mut().enumerate().take(clear) {
        *byte = u8::try_from(code).unwrap_or_default();
    }
    let mut out: Vec<u8> = Vec::with_capacity(points);
    let (mut width, mut next, mut last) = (least + 1, end + 1, None::<usize>);
    let (mut bits, mut have) = (0_u32, 0);
    let mut input = data.iter();
    while out.len() < points {
        while have < width {
            let Some(byte) = input.next() else {
                out.resize(points, 0);
                return Some(out);
            };
            bits |= u32::from(*byte) << have;
            have += 8;
        }
        let code = usize::try_from(bits & ((1 << width) - 1)).ok()?;
        bits >>= width;
        have -= width;
        if code == clear {
            (width, next, last) = (least + 1, end + 1, None);
            continue;
        }
        if code == end {
            break;
        }
        let known = code < clear || (end + 1..next).contains(&code);
        let whole = match last {
            _ if known => code,
            // The code that this step defines (KwKwK case): the previous string and its own first byte.
            Some(last) if code == next => last,
            _ => return None,
        };
        let start = out.len();
        let length = *lengths.get(whole)?;
        out.resize(start + length, 0);
        let mut at = whole;
        for slot in out.get_mut(start..)?.iter_mut().rev() {
            *slot = *bytes.get(at)?;
            at = usize::from(*before.get(at)?);
        }
        let first = *out.get(start)?;
        if whole != code {
            out.push(first);
        }
        // A full table stays unchanged until the next clear code.
        if let Some(last) = last.filter(|_| next < CODES) {
            *before.get_mut(next)? = u16::try_from(last).ok()?;
            *bytes.get_mut(next)? = first;
            *lengths.get_mut(next)? = lengths.get(last)? + 1;
            next += 1;
            if next == 1 << width && width < LONGEST_CODE {
                width += 1;
            }
        }
        last = Some(code);
    }
    out.resize(points, 0);
    Some(out)
}

/// Writes a PNG of 8-bit palette indices, compressed by stored blocks only.
fn png(width: usize, height: usize, colours: &[u8], alpha: Option<&[u8]>, points: &[u8]) -> Bytes {
    let length = (width + 1) * height;
    let mut raw = Vec::with_capacity(length + 6 + 5 * (length / BLOCK + 1));
    raw.extend_from_slice(&[0x78, 0x01]);
    let mut lines = Vec::with_capacity(length);
    for line in points.chunks(width) {
        lines.push(0);
        lines.extend_from_slice(line);
    }
    let mut blocks = lines.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let size = u16::try_from(block.len()).unwrap_or(u16::MAX);
        raw.push(u8::from(blocks.peek().is_none()));
        raw.extend_from_slice(&size.to_le_bytes());
        raw.extend_from_slice(&(!size).to_le_bytes());
        raw.extend_from_slice(block);
    }
    raw.extend_from_slice(&adler(&lines).to_be_bytes());
    let mut out = Vec::with_capacity(raw.len() + 1_024);
    out.extend_from_slice(SIGNATURE);
    let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX).to_be_bytes();
    chunk(&mut out, b"IHDR", &[&side(width)[..], &side(height), &[8, 3, 0, 0, 0]].concat());
    chunk(&mut out, b"PLTE", colours);
    if let Some(alpha) = alpha {
        chunk(&mut out, b"tRNS", alpha);
    }
    chunk(&mut out, b"IDAT", &raw);
    chunk(&mut out, b"IEND", &[]);
    out.into()
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    let at = out.len();
    out.extend_from_slice(name);
    out.extend_from_slice(data);
    let sum = crc(out.get(at..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
}

/// Computes the Adler-32 checksum of a zlib stream (RFC 1950).
fn adler(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut a, mut b) = (1, 0);
    // 5,552 bytes is the largest part for which the sums cannot overflow 32 bits.
    for part in bytes.chunks(5_552) {
        for byte in part {
            a += u32::from(*byte);
            b += a;
        }
        (a, b) = (a % MODULUS, b % MODULUS);
    }
    b << 16 | a
}

/// Computes the CRC-32 of a chunk (PNG specification, annex D).
fn crc(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |sum: u32, byte: &u8| {
        let [low, ..] = sum.to_le_bytes();
        TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default() ^ (sum >> 8)
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[allow(clippy::indexing_slicing, reason = "a place beyond the table would not compile")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut number = 0;
    while number < 256 {
        let mut sum = number as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
            bit += 1;
        }
        table[number] = sum;
        number += 1;
    }
    table
}

#[cfg(test)]
mod tests;
