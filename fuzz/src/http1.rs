//! Targets for HTTP/1 heads and chunked bodies, compared with the parser that runs after the gateway's own checks.

use bytes::BytesMut;
use httparse::{EMPTY_HEADER, Request, Status, parse_chunk_size, parse_headers};
use model_gateway::proxy::{Chunks, HeadFault, HeadScan};

use crate::{choose, pieces};

const LIMIT: usize = 4096;

/// Returns the result of scanning a head that arrives in these pieces.
fn scanned(pieces: &[&[u8]]) -> (Result<Option<usize>, HeadFault>, HeadScan) {
    let (mut scan, mut read) = (HeadScan::default(), Vec::new());
    for piece in pieces {
        read.extend_from_slice(piece);
        match scan.advance(&read, LIMIT) {
            Ok(None) => {}
            found => return (found, scan),
        }
    }
    (Ok(None), scan)
}

/// Invariants of the head scan:
/// * A head ends at the same byte however it arrives, and the verdict is the same.
/// * If httparse accepts an accepted head, it finds the same end and the same transfer encoding, and at most one
///   `Host`.
/// * A target in absolute form becomes a path, its authority becomes the only `Host`, and the bytes after the head
///   stay.
pub fn head(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    let (found, scan) = scanned(&[data]);
    let (split, of_split) = scanned(&pieces(data, seed));
    assert_eq!(found.ok(), split.ok());
    let Ok(Some(length)) = found else { return };
    assert_eq!(scan.is_chunked(), of_split.is_chunked());
    assert!(data[..length].ends_with(b"\r\n\r\n"));
    agrees(&data[..length], &scan);
    let mut rewritten = BytesMut::from(data);
    let new_length = scan.to_origin_form(&mut rewritten, length);
    assert_eq!(rewritten[new_length..], data[length..]);
    agrees(&rewritten[..new_length], &scan);
}

fn agrees(head: &[u8], scan: &HeadScan) {
    let mut headers = [EMPTY_HEADER; 256];
    let mut request = Request::new(&mut headers);
    let Ok(status) = request.parse(head) else { return };
    assert_eq!(status, Status::Complete(head.len()));
    let count = |name: &str| request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).count();
    assert_eq!(count("transfer-encoding") > 0, scan.is_chunked());
    assert!(count("host") <= 1);
    assert!(count("host") == 1 || request.version == Some(0));
}

/// Invariants of the chunk decoder:
/// * The verdict on the framing does not depend on how the body arrives.
/// * No byte after the end of the body is examined.
/// * For valid framing, httparse finds the end at the same byte, if it finds one.
pub fn chunks(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    let mut whole = Chunks::default();
    let fed = whole.feed(data);
    let mut split = Chunks::default();
    let fed_split = pieces(data, seed).into_iter().try_for_each(|piece| split.feed(piece));
    assert_eq!(fed, fed_split);
    if fed.is_err() {
        return;
    }
    assert_eq!(whole.is_complete(), split.is_complete());
    let (mut bytes, mut end) = (Chunks::default(), None);
    for (at, byte) in data.iter().enumerate() {
        bytes.feed(&[*byte]).unwrap();
        if bytes.is_complete() {
            end = Some(at + 1);
            break;
        }
    }
    assert_eq!(end.is_some(), whole.is_complete());
    if let Some(found) = end_by_httparse(data) {
        assert_eq!(found, end, "the parsers disagree");
    }
}

/// Returns the end of a chunked body, or `Some(None)` if it is incomplete. `None` if httparse refuses it.
fn end_by_httparse(data: &[u8]) -> Option<Option<usize>> {
    let mut at = 0;
    loop {
        let Status::Complete((line, size)) = parse_chunk_size(data.get(at..)?).ok()? else {
            return Some(None);
        };
        at += line;
        if size == 0 {
            let mut trailers = [EMPTY_HEADER; 64];
            return match parse_headers(&data[at..], &mut trailers).ok()? {
                Status::Complete((length, _)) => Some(Some(at + length)),
                Status::Partial => Some(None),
            };
        }
        let Some(after) = usize::try_from(size).ok().and_then(|size| at.checked_add(size)?.checked_add(2))
        else {
            return Some(None);
        };
        let Some(chunk) = data.get(at..after) else { return Some(None) };
        if !chunk.ends_with(b"\r\n") {
            return None;
        }
        at = after;
    }
}
