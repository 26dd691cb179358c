//! Tests of the scanner of request heads.

use super::*;
use proptest::prelude::*;

const LIMIT: usize = 1024;

/// Scans a head in pieces of this size.
fn scanned(head: &[u8], size: usize) -> (Result<Option<usize>, HeadFault>, HeadScan) {
    let mut scan = HeadScan::default();
    let mut end = 0;
    while end < head.len() {
        end = head.len().min(end + size);
        match scan.advance(&head[..end], LIMIT) {
            Ok(None) => {}
            found => return (found, scan),
        }
    }
    (Ok(None), scan)
}

#[test]
fn head_end_is_found_at_every_split() {
    let head = b"\r\nPOST /v1/x?y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let with_body = [&head[..], b"{\n\n}"].concat();
    for size in 1..=with_body.len() {
        let (found, scan) = scanned(&with_body, size);
        assert_eq!(found, Ok(Some(head.len())), "{size}");
        assert!(scan.is_chunked());
    }
}

#[test]
fn head_faults_are_found_at_every_split() {
    let large = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(LIMIT));
    let lines = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(LIMIT));
    for (head, fault) in [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", HeadFault::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", HeadFault::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", HeadFault::BareLineFeed),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::BareLineFeed),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        ("GET /\r\n\r\n", HeadFault::RequestLine),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", HeadFault::RequestLine),
        ("\u{16}\u{3}\u{1}", HeadFault::RequestLine),
        ("GET v1/models HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET http://u:p@a/x HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET http://a\\b/x HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET / HTTP/1.1\r\naccept: a\r\n\r\n", HeadFault::NoHost),
        ("GET http://a/ HTTP/1.1\r\naccept: a\r\n\r\n", HeadFault::NoHost),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", HeadFault::Hosts),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HeadFault::Host),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HeadFault::Host),
        ("GET / HTTP/1.1\r\nHost: x:abc\r\n\r\n", HeadFault::Host),
        ("GET / HTTP/1.1\r\nHost: x:1:2\r\n\r\n", HeadFault::Host),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", HeadFault::Host),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", HeadFault::Host),
        ("GET http://x:abc/ HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("GET http://a/ HTTP/1.1\r\nHost: x:abc\r\n\r\n", HeadFault::Host),
        ("GET /x#y HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Fragment),
        ("GET /x?y#z HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Fragment),
        ("GET # HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Fragment),
        ("GET http://a#b HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Fragment),
        ("GET http://a/#b HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Fragment),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("POST * HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n", HeadFault::Target),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", HeadFault::Tunnel),
        ("CONNECT http://a/ HTTP/1.1\r\nHost: a:443\r\n\r\n", HeadFault::Tunnel),
        ("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", HeadFault::Codings),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            HeadFault::Lengths,
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            HeadFault::Lengths,
        ),
        (&large, HeadFault::TooLarge(LIMIT)),
        (&lines, HeadFault::TooLarge(LIMIT)),
    ] {
        for size in [1, 2, 7, head.len()] {
            assert_eq!(scanned(head.as_bytes(), size).0, Err(fault), "{head:?} {size}");
        }
    }
}

proptest! {
    #[test]
    fn head_scan_result_is_the_same_at_every_split(
        parts in prop::collection::vec(prop::sample::select(&[
            "GET ", "/", " ", "HTTP/1.1", "\r\n", "\n", "\r", "host: a", "Host:", "x: y", ":", "http://a", "\0", "\t",
            "GET / HTTP/1.1\r\n", "host: a\r\n", "\r\n\r\n", "Transfer-Encoding: chunked\r\n", "#",
            "transfer-encoding: gzip, chunked\r\n", "Connection: x, close\r\n", "content-length: 1\r\n", "[::1]", ":80",
        ][..]), 0..14),
        size in 1usize..20,
    ) {
        let head = parts.concat();
        let (whole, of_whole) = scanned(head.as_bytes(), head.len().max(1));
        let (cut, of_cut) = scanned(head.as_bytes(), size);
        prop_assert_eq!(whole.ok(), cut.ok());
        prop_assert!(whole.is_err() || of_whole.is_chunked() == of_cut.is_chunked());
        prop_assert!(whole.is_err() || of_whole.closes() == of_cut.closes());
    }
}

#[test]
fn head_unusual_valid_forms_are_accepted() {
    for head in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nhost:[::1]:8080\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\nTRANSFER-ENCODING: \t Chunked \t\r\n\r\n",
        "GET HTTPS://a:1/x?y=/ HTTP/1.1\r\nhost: b\r\n\r\n",
    ] {
        assert_eq!(scanned(head.as_bytes(), 3).0, Ok(Some(head.len())), "{head:?}");
    }
}

#[test]
fn head_transfer_codings_other_than_chunked_are_refused() {
    for (values, fault) in [
        (&["gzip, chunked"][..], HeadFault::Coding),
        (&["identity, chunked"], HeadFault::Coding),
        (&["deflate;q=1,gzip,CHUNKED"], HeadFault::Coding),
        (&["xchunked, chunked"], HeadFault::Coding),
        (&["gzip"], HeadFault::Codings),
        (&["identity"], HeadFault::Codings),
        (&["xchunked"], HeadFault::Codings),
        (&["chunked x"], HeadFault::Codings),
        (&["chunked;x=1"], HeadFault::Codings),
        (&["chunked, gzip"], HeadFault::Codings),
        (&["chunked, identity"], HeadFault::Codings),
        (&["chunked, chunked"], HeadFault::Codings),
        (&["chunked, gzip, chunked"], HeadFault::Codings),
        (&["chunked,"], HeadFault::Codings),
        (&[",chunked"], HeadFault::Codings),
        (&[""], HeadFault::Codings),
        (&["\"chunked\""], HeadFault::Codings),
        (&["chunked\u{b}"], HeadFault::Codings),
        (&["chunked", "chunked"], HeadFault::Codings),
        (&["chunked", "identity"], HeadFault::Codings),
    ] {
        let lines: String = values.iter().map(|value| format!("transfer-encoding: {value}\r\n")).collect();
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
        assert_eq!(scanned(head.as_bytes(), 5).0, Err(fault), "{values:?}");
    }
}

#[test]
fn head_connection_headers_are_one_list() {
    for (lines, closes) in [
        ("", false),
        ("connection: close\r\n", true),
        ("connection: keep-alive\r\nConnection: Close\r\n", true),
        ("connection: close\r\nconnection: keep-alive\r\n", true),
        ("connection: te, close ,x\r\n", true),
        ("connection: ,,close\r\n", true),
        ("connection: keep-alive, te\r\nconnection: upgrade\r\n", false),
        ("connection: closed\r\nproxy-connection: close\r\n", false),
    ] {
        let (found, scan) = scanned(format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n").as_bytes(), 7);
        assert!(found.is_ok());
        assert_eq!(scan.closes(), closes, "{lines:?}");
    }
}

#[test]
fn head_absolute_form_is_rewritten_to_origin_form() {
    for (target, path, authority) in [
        ("http://gateway.test/v1/models?x=1", "/v1/models?x=1", "gateway.test"),
        ("HTTPS://gateway.test:8443", "/", "gateway.test:8443"),
        ("http://gateway.test?x=http://b/", "/?x=http://b/", "gateway.test"),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\naccept: a\r\nHost: other\r\nx: host: y\r\n\r\n");
        for before in ["", "\r\n"] {
            let whole = format!("{before}{head}body\r\n");
            let (found, scan) = scanned(whole.as_bytes(), whole.len());
            let mut buf = BytesMut::from(whole.as_bytes());
            let length = scan.to_origin_form(&mut buf, found.unwrap().unwrap());
            let expected =
                format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\naccept: a\r\nx: host: y\r\n\r\n");
            assert_eq!(std::str::from_utf8(&buf[..length]).unwrap(), expected);
            assert_eq!(&buf[length..], b"body\r\n");
        }
    }
    let head = b"GET /x HTTP/1.1\r\nHost: other\r\n\r\n";
    let (found, scan) = scanned(head, head.len());
    let mut buf = BytesMut::from(&head[..]);
    assert_eq!(scan.to_origin_form(&mut buf, found.unwrap().unwrap()), head.len());
    assert_eq!(&buf[..], head);
}
