//! Small valid images, each in the color that its seed determines, and links to them.

use std::io::Write as _;

use base64_simd::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::super::clock;
use super::super::http::{Reply, Request};
use super::super::ids::hash;

/// Length of a side in pixels.
const SIDE: u32 = 8;
/// Lifetime of a link in seconds.
const LIFE: u64 = 86_400;

/// Returns a PNG of at least `least` bytes. An ancillary chunk, which viewers ignore, fills it up.
pub(crate) fn png(seed: u64, least: usize) -> Vec<u8> {
    let [red, green, blue, ..] = seed.to_be_bytes();
    let row: Vec<u8> = std::iter::once(0).chain((0..SIDE).flat_map(|_| [red, green, blue])).collect();
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector does not fail.
    let _ = packed.write_all(&row.repeat(SIDE as usize));
    let packed = packed.finish().unwrap_or_default();
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let head = [SIDE.to_be_bytes().as_slice(), &SIDE.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    chunk(&mut out, b"IHDR", &head);
    let size = out.len() + packed.len() + 24 + 12;
    if least > size {
        // Bytes without a short period, so that neither base64 nor compression shows a pattern.
        let filler: Vec<u8> = (0..least - size).map(|at| (hash(&at.to_be_bytes()) >> 24) as u8).collect();
        chunk(&mut out, b"sEed", &filler);
    }
    chunk(&mut out, b"IDAT", &packed);
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend_from_slice(&u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    let at = out.len();
    out.extend_from_slice(name);
    out.extend_from_slice(data);
    let sum = crc32fast::hash(out.get(at..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
}

/// Returns a PNG of at least `least` bytes in base64.
pub(crate) fn base64(seed: u64, least: usize) -> String {
    STANDARD.encode_to_string(png(seed, least))
}

/// Returns true if bytes start like an image of a format that providers accept.
pub(crate) fn is_image(bytes: &[u8]) -> bool {
    let starts: [&[u8]; 6] = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"GIF8", b"BM", b"II*\0"];
    starts.iter().any(|start| bytes.starts_with(start))
}

fn signature(name: &str, expires: u64) -> String {
    format!("{:016x}", hash(format!("{name} {expires}").as_bytes()))
}

/// Returns a signed link to an image at this server.
pub(crate) fn link(request: &Request, seed: u64, least: usize) -> String {
    let host = request.header("host").unwrap_or("127.0.0.1");
    let expires = clock::unix() + LIFE;
    let name = format!("{seed:016x}-{least}.png");
    let signature = signature(&name, expires);
    format!("http://{host}/pictures/{name}?Expires={expires}&Signature={signature}")
}

/// Returns the response to a link. `None` if the path is not one.
pub(super) fn linked(path: &str, expires: Option<&str>, signed: Option<&str>) -> Option<Reply> {
    let name = path.strip_prefix("/pictures/")?;
    let refuse = |code: &str, message: &str| {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        Some(Reply::new(403, "application/xml", body))
    };
    let expires: u64 = expires.unwrap_or_default().parse().unwrap_or(0);
    if signed != Some(&*signature(name, expires)) {
        return refuse("SignatureDoesNotMatch", "The request signature we calculated does not match.");
    }
    if expires < clock::unix() {
        return refuse("AccessDenied", "Request has expired.");
    }
    let (seed, least) = name.strip_suffix(".png")?.split_once('-')?;
    let seed = u64::from_str_radix(seed, 16).ok()?;
    Some(Reply::new(200, "image/png", png(seed, least.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn png_is_valid_and_padded_to_the_requested_size() {
        let plain = png(7, 0);
        assert!(plain.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08"));
        assert!(plain.ends_with(b"IEND\xae\x42\x60\x82"));
        assert_ne!(plain, png(7 << 40, 0), "another seed is another colour");
        let large = png(7, 100_000);
        assert!((100_000..100_100).contains(&large.len()), "{}", large.len());
    }

    #[test]
    fn link_must_be_signed_and_not_expired() {
        let name = "0000000000000007-0.png";
        let path = format!("/pictures/{name}");
        let status = |expires: u64, signed: &str| {
            linked(&path, Some(&expires.to_string()), Some(signed)).map(|reply| reply.status)
        };
        let later = clock::unix() + 60;
        assert_eq!(status(later, &signature(name, later)), Some(200));
        assert_eq!(status(later + 1, &signature(name, later)), Some(403), "not signed");
        assert_eq!(status(1, &signature(name, 1)), Some(403), "over");
        assert!(linked("/v1/models", None, None).is_none());
    }
}
