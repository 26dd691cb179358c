//! Response heads of HTTP/1 (RFC 9112, section 4).

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType, OrErr as _, Result};

/// Maximum number of header lines in a head. Providers send 20 to 40.
const MAX_HEADERS: usize = 256;
/// Maximum length of a head, in bytes.
pub(super) const MAX_HEAD: usize = 256 * 1024;

/// Takes a complete head off the front of `received`. `None` if it is not complete yet: nothing but empty lines before it
/// is taken then. `seen` is the number of bytes at the front that have no complete head, 0 at first. A head that arrives in
/// many reads is parsed with its first and with its last one: parsing it with each would be quadratic.
///
/// # Errors
/// Returns [`ErrorType::InvalidHTTPHeader`] if the head is invalid or longer than [`MAX_HEAD`].
pub(super) fn take_head(received: &mut BytesMut, seen: &mut usize) -> Result<Option<Box<ResponseHeader>>> {
    if *seen == 0 {
        let empty = received.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        received.advance(empty);
    }
    if received.is_empty() || (*seen > 0 && received.len() <= MAX_HEAD && !has_end(received, *seen)) {
        *seen = received.len();
        return Ok(None);
    }
    let head = parse_head(received)?;
    *seen = if head.is_some() { 0 } else { received.len() };
    Ok(head)
}

/// Whether an empty line, which ends a head, has its last byte at `from` or behind it.
fn has_end(received: &[u8], from: usize) -> bool {
    let ends = received.get(from..).unwrap_or_default();
    memchr::memchr_iter(b'\n', ends).any(|at| {
        let line = received.get(..from + at).unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line).ends_with(b"\n")
    })
}

/// Parses a head, and takes it off if it is complete.
fn parse_head(received: &mut BytesMut) -> Result<Option<Box<ResponseHeader>>> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let mut parser = httparse::ParserConfig::default();
    // As lenient as Pingora's session: providers behind old servers exist.
    parser.allow_spaces_after_header_name_in_responses(true);
    parser.allow_obsolete_multiline_headers_in_responses(true);
    let parsed = parser
        .parse_response_with_uninit_headers(&mut response, received, &mut lines)
        .or_err(ErrorType::InvalidHTTPHeader, "while parsing a response head")?;
    let httparse::Status::Complete(length) = parsed else {
        if received.len() > MAX_HEAD {
            return Error::e_explain(ErrorType::InvalidHTTPHeader, "the response head is too large");
        }
        return Ok(None);
    };
    let mut head = empty_head(&response)?;
    // Places, because the values share a text of their own.
    let start = received.as_ptr() as usize;
    let place = |part: &[u8]| (part.as_ptr() as usize - start, part.len());
    let places: smallvec::SmallVec<[_; 48]> =
        response.headers.iter().map(|line| (place(line.name.as_bytes()), place(line.value))).collect();
    // Copied: values that are forwarded would keep all that arrived with the head for as long as a stream lasts.
    let text = Bytes::copy_from_slice(received.get(..length).unwrap_or_default());
    received.advance(length);
    for (name, value) in places {
        append(&mut head, &text, name, value)?;
    }
    check_lengths(&mut head)?;
    Ok(Some(head))
}

/// Returns a head with the status line of the response, without headers.
fn empty_head(response: &httparse::Response<'_, '_>) -> Result<Box<ResponseHeader>> {
    let status = StatusCode::from_u16(response.code.unwrap_or_default())
        .or_err(ErrorType::InvalidHTTPHeader, "the status is invalid")?;
    let mut head = Box::new(ResponseHeader::build_no_case(status, Some(response.headers.len()))?);
    head.set_version(if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 });
    if status.canonical_reason() != response.reason {
        head.set_reason_phrase(response.reason)?;
    }
    Ok(head)
}

/// Adds a header, given by the places of its name and its value in the text.
fn append(
    head: &mut ResponseHeader,
    text: &Bytes,
    (name_at, name_length): (usize, usize),
    (value_at, value_length): (usize, usize),
) -> Result<()> {
    let name = text.get(name_at..name_at.saturating_add(name_length)).unwrap_or_default();
    let name =
        HeaderName::from_bytes(name).or_err(ErrorType::InvalidHTTPHeader, "a header name is invalid")?;
    let at = value_at..value_at.saturating_add(value_length);
    let value = if at.is_empty() || text.len() < at.end { Bytes::new() } else { text.slice(at) };
    let value = HeaderValue::from_maybe_shared(unfolded(value))
        .or_err(ErrorType::InvalidHTTPHeader, "a header value is invalid")?;
    head.append_header(name, value).map(drop)
}

/// Replaces each line fold by spaces (RFC 9112, section 5.2). A value without one is returned as it is.
fn unfolded(value: Bytes) -> Bytes {
    if memchr::memchr2(b'\r', b'\n', &value).is_none() {
        return value;
    }
    value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// Checks what tells the length of the body: a wrong one would take a part of the body for the next response, or the
/// next response for a part of the body.
fn check_lengths(head: &mut ResponseHeader) -> Result<()> {
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        // It precedes `content-length` (RFC 9112, section 6.3).
        head.remove_header(&header::CONTENT_LENGTH);
        return Ok(());
    }
    match content_length(head) {
        Some(Err(())) => Error::e_explain(ErrorType::InvalidHTTPHeader, "`content-length` is invalid"),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// Returns the length of the body in bytes; `None` without `content-length`. Several equal values are one (RFC 9110,
/// section 8.6); `Err` if they differ, or one is no number.
pub(super) fn content_length(head: &ResponseHeader) -> Option<Result<u64, ()>> {
    let mut length = None;
    for value in head.headers.get_all(header::CONTENT_LENGTH) {
        for part in value.as_bytes().split(|byte| *byte == b',') {
            let number = digits(part.trim_ascii());
            if number.is_none() || length.is_some_and(|length| Some(length) != number) {
                return Some(Err(()));
            }
            length = number;
        }
    }
    length.map(Ok)
}

/// Parses a number that consists of digits alone. `None` for anything else, and if it does not fit.
fn digits(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Whether the body is framed in chunks: `chunked` is the last transfer coding.
pub(super) fn is_chunked(head: &ResponseHeader) -> bool {
    let last = head.headers.get_all(header::TRANSFER_ENCODING).into_iter().next_back();
    let last = last.and_then(|value| value.as_bytes().rsplit(|byte| *byte == b',').next());
    last.is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// Whether the provider keeps the connection open after this response (RFC 9112, section 9.3).
pub(super) fn keeps_alive(head: &ResponseHeader) -> bool {
    let old = head.version == Version::HTTP_10;
    // Chunks in a response of HTTP/1.0 are a sign of a wrong server (RFC 9112, section 6.1).
    if head.status == StatusCode::SWITCHING_PROTOCOLS
        || (old && head.headers.contains_key(header::TRANSFER_ENCODING))
    {
        return false;
    }
    let mut kept = !old;
    for value in head.headers.get_all(header::CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            kept |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Box<ResponseHeader>>> {
        take_head(&mut BytesMut::from(text), &mut 0)
    }

    fn head(lines: &str) -> Box<ResponseHeader> {
        parsed(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).unwrap().unwrap()
    }

    #[test]
    fn head_is_taken_when_it_is_complete() {
        let text = "HTTP/1.1 529 Overloaded\r\nX-Id: a\r\nx-id:  b \r\n\r\nrest";
        let (mut received, mut seen) = (BytesMut::new(), 0);
        for (index, byte) in text.bytes().enumerate() {
            received.extend_from_slice(&[byte]);
            let complete = index + 1 == text.len() - "rest".len();
            let head = take_head(&mut received, &mut seen).unwrap();
            assert_eq!(head.is_some(), complete, "{index}");
            if let Some(head) = head {
                assert_eq!((head.status.as_u16(), head.get_reason_phrase()), (529, Some("Overloaded")));
                let values: Vec<_> = head.headers.get_all("x-id").iter().collect();
                assert_eq!(values, ["a", "b"]);
                break;
            }
        }
        assert!(received.is_empty());
    }

    #[test]
    fn head_leaves_what_is_behind_it() {
        let mut received = BytesMut::from("HTTP/1.1 200 OK\r\n\r\nbody");
        assert_eq!(take_head(&mut received, &mut 0).unwrap().unwrap().version, Version::HTTP_11);
        assert_eq!(&received[..], b"body");
    }

    /// Parsed with each byte, this one would take minutes.
    #[test]
    fn head_that_arrives_byte_by_byte_is_parsed_twice() {
        let lines = "a: b\n".repeat(MAX_HEADERS - 1) + "c: " + &"d".repeat(MAX_HEAD - 4_096) + "\n";
        for (before, end) in [("", "\n"), ("\r\n\r\n", "\r\n")] {
            let (mut received, mut seen) = (BytesMut::new(), 0);
            let text = format!("{before}HTTP/1.1 200 OK\r\n{lines}{end}");
            let (last, rest) = text.as_bytes().split_last().unwrap();
            for byte in rest {
                received.extend_from_slice(&[*byte]);
                assert!(take_head(&mut received, &mut seen).unwrap().is_none());
            }
            received.extend_from_slice(&[*last]);
            let head = take_head(&mut received, &mut seen).unwrap().unwrap();
            assert_eq!((head.headers.get_all("a").iter().count(), seen), (MAX_HEADERS - 1, 0));
            assert_eq!(head.headers["c"].len(), MAX_HEAD - 4_096);
        }
    }

    #[test]
    fn head_with_a_folded_line_has_spaces() {
        assert_eq!(head("a: b\r\n c\r\n").headers["a"], "b   c");
    }

    #[test]
    fn head_that_is_invalid_is_refused() {
        for text in
            ["HTTP/2 200\r\n\r\n", "SSH-2.0\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n: a\r\n\r\n"]
        {
            let error = parsed(text).unwrap_err();
            assert_eq!(*error.etype(), ErrorType::InvalidHTTPHeader, "{text:?}");
        }
        let large = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MAX_HEAD));
        assert_eq!(*parsed(&large).unwrap_err().etype(), ErrorType::InvalidHTTPHeader);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(*parsed(&many).unwrap_err().etype(), ErrorType::InvalidHTTPHeader);
    }

    #[test]
    fn length_of_several_equal_values_is_one() {
        assert_eq!(content_length(&head("")), None);
        assert_eq!(content_length(&head("content-length: 7\r\ncontent-length: 7, 7\r\n")), Some(Ok(7)));
        for wrong in ["7, 8", "", "-1", "+1", "1x", "99999999999999999999"] {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {wrong}\r\n\r\n");
            assert!(parsed(&text).is_err(), "{wrong:?}");
        }
        // The chunks precede it.
        let both = head("content-length: 7, 8\r\ntransfer-encoding: gzip, Chunked\r\n");
        assert!(is_chunked(&both));
        assert_eq!(content_length(&both), None);
        assert!(!is_chunked(&head("transfer-encoding: chunked, gzip\r\n")));
    }

    #[test]
    fn connection_is_kept_as_the_head_says() {
        for (text, kept) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nconnection: keep-alive, close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n\r\n", true),
            ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n", false),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", false),
        ] {
            assert_eq!(keeps_alive(&parsed(text).unwrap().unwrap()), kept, "{text:?}");
        }
    }
}
