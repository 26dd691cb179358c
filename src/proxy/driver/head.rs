//! HTTP/1 request head scanner: finds the end of a head and rejects one that parsers could read differently.
//!
//! Pingora's parser accepts more than RFC 9112 permits (bare line feeds, several spaces in the request line), has a
//! limit of 1 MiB, and rejects a target in absolute form whose authority differs from `Host`. A head is checked here
//! before Pingora parses it. Each byte is scanned once, however the bytes arrive.

use bytes::BytesMut;

/// Longest prefix of an incomplete request line that is checked for a method, in bytes.
const METHOD: usize = 32;

/// Reason why a head is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// The head is larger than this limit, in bytes.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    /// A line ends with a line feed alone.
    #[error("it has a line feed without a carriage return")]
    BareLineFeed,
    /// The request line is malformed.
    #[error("its request line is not a method, a target and a version with one space between them")]
    RequestLine,
    /// The target is neither a path nor an address.
    #[error("its target is neither a path nor an http address")]
    Target,
    /// An HTTP/1.1 head has no `Host`.
    #[error("it has no Host header")]
    NoHost,
    /// `Host` is given more than once.
    #[error("it has more than one Host header")]
    Hosts,
    /// `Host` contains invalid characters.
    #[error("its Host header is not the name of a host")]
    Host,
}

/// Incremental scanner of one head.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// Offset at which scanning continues.
    at: usize,
    /// Offset of the current line.
    line: usize,
    /// Offset of the request line, once it is complete. Empty lines before it are skipped (RFC 9112, section 2.2).
    request: Option<usize>,
    form: Form,
    version11: bool,
    hosts: usize,
    chunked: bool,
}

/// Form of the request target (RFC 9112, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Origin,
    Absolute,
    Other,
}

impl HeadScan {
    /// Scans the bytes that were appended to `buf`. Returns the length of the head in bytes; `None` if it is
    /// incomplete.
    ///
    /// # Errors
    /// Returns [`HeadFault`] if the head is larger than `limit` bytes, malformed or ambiguous.
    pub fn advance(&mut self, buf: &[u8], limit: usize) -> Result<Option<usize>, HeadFault> {
        while let Some(found) = memchr::memchr(b'\n', buf.get(self.at..).unwrap_or_default()) {
            let end = self.at + found;
            if end >= limit {
                return Err(HeadFault::TooLarge(limit));
            }
            let line = buf.get(self.line..end).and_then(|line| line.strip_suffix(b"\r"));
            let line = line.ok_or(HeadFault::BareLineFeed)?;
            let start = self.line;
            self.at = end + 1;
            self.line = self.at;
            match self.request {
                None if line.is_empty() => {}
                None => {
                    self.request_line(line)?;
                    self.request = Some(start);
                }
                Some(_) if line.is_empty() => {
                    self.check()?;
                    return Ok(Some(self.at));
                }
                Some(_) => self.field(line)?,
            }
        }
        self.at = buf.len();
        if self.at >= limit {
            return Err(HeadFault::TooLarge(limit));
        }
        if self.request.is_none() {
            // Reject input that cannot be HTTP, such as a TLS handshake, before a line feed arrives.
            let begun = buf.get(self.line..).unwrap_or_default();
            let method = begun.split(|byte| *byte == b' ').next().unwrap_or_default();
            let method = method.strip_suffix(b"\r").unwrap_or(method);
            if !method.iter().take(METHOD).copied().all(is_token) {
                return Err(HeadFault::RequestLine);
            }
        }
        Ok(None)
    }

    /// Whether the head has a `Transfer-Encoding`: the body is chunked or in another transfer coding.
    pub fn is_chunked(&self) -> bool {
        self.chunked
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), HeadFault> {
        let mut parts = line.split(|byte| *byte == b' ');
        // Exactly one space between the parts (RFC 9112, section 3): parsers that accept more may find another target.
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next())
        else {
            return Err(HeadFault::RequestLine);
        };
        let printable = target.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        if method.is_empty() || !method.iter().copied().all(is_token) || target.is_empty() || !printable {
            return Err(HeadFault::RequestLine);
        }
        self.version11 = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            _ => return Err(HeadFault::RequestLine),
        };
        self.form = match target {
            [b'/', ..] => Form::Origin,
            b"*" => Form::Other,
            _ if method == b"CONNECT" => Form::Other,
            _ if absolute(target).is_some() => Form::Absolute,
            _ => return Err(HeadFault::Target),
        };
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), HeadFault> {
        if let Some(value) = value_of(line, b"host") {
            self.hosts += 1;
            if !value.iter().copied().all(is_host) {
                return Err(HeadFault::Host);
            }
        } else if value_of(line, b"transfer-encoding").is_some() {
            self.chunked = true;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), HeadFault> {
        // RFC 9112, section 3.2: HTTP/1.1 requires `Host`, and no request may have it twice. Two could be routed apart.
        match self.hosts {
            0 if self.version11 => Err(HeadFault::NoHost),
            0 | 1 => Ok(()),
            _ => Err(HeadFault::Hosts),
        }
    }

    /// Rewrites a target in absolute form to origin form, and `Host` to the target's authority, which takes precedence
    /// (RFC 9112, section 3.2.2). `length` is the length of the head in bytes; returns the new one.
    pub fn to_origin_form(&self, buf: &mut BytesMut, length: usize) -> usize {
        let start = self.request.unwrap_or_default();
        if self.form != Form::Absolute {
            return length;
        }
        let Some(rewritten) = buf.get(start..length).and_then(origin_form) else { return length };
        let rest = buf.split_off(length);
        let length = rewritten.len();
        *buf = rewritten;
        buf.unsplit(rest);
        length
    }
}

/// Builds the head with its target in origin form. `None` if the head has no target in absolute form.
fn origin_form(head: &[u8]) -> Option<BytesMut> {
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let mut parts = lines.next()?.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    let (authority, path) = absolute(target)?;
    let mut out = BytesMut::with_capacity(head.len() + 8);
    out.extend_from_slice(method);
    // An empty path is sent as `/` (RFC 9112, section 3.2.1).
    out.extend_from_slice(if path.starts_with(b"/") { b" " } else { b" /" });
    out.extend_from_slice(path);
    out.extend_from_slice(b" ");
    out.extend_from_slice(version);
    out.extend_from_slice(b"host: ");
    out.extend_from_slice(authority);
    out.extend_from_slice(b"\r\n");
    for line in lines.filter(|line| value_of(line, b"host").is_none()) {
        out.extend_from_slice(line);
    }
    Some(out)
}

/// Splits a target in absolute form into its authority and its path with query. `None` if it is not an http or https
/// URI with a valid authority.
fn absolute(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let scheme = [&b"http://"[..], b"https://"];
    let rest = scheme.into_iter().find_map(|scheme| {
        let (begun, rest) = target.split_at_checked(scheme.len())?;
        begun.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    (!authority.is_empty() && authority.iter().copied().all(is_host)).then_some((authority, path))
}

/// Returns the value of a header line; `None` if it has another name.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (begun, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    begun.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Characters of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Characters of a host with its port (RFC 3986, section 3.2), without user information.
fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

#[cfg(test)]
mod tests {
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
                "GET / HTTP/1.1\r\n", "host: a\r\n", "\r\n\r\n", "Transfer-Encoding: chunked\r\n",
            ][..]), 0..14),
            size in 1usize..20,
        ) {
            let head = parts.concat();
            let (whole, of_whole) = scanned(head.as_bytes(), head.len().max(1));
            let (cut, of_cut) = scanned(head.as_bytes(), size);
            prop_assert_eq!(whole.ok(), cut.ok());
            prop_assert!(whole.is_err() || of_whole.is_chunked() == of_cut.is_chunked());
        }
    }

    #[test]
    fn head_unusual_valid_forms_are_accepted() {
        for head in [
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nhost:[::1]:8080\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
            "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n",
            "GET HTTPS://a:1/x?y=/ HTTP/1.1\r\nhost: b\r\n\r\n",
        ] {
            assert_eq!(scanned(head.as_bytes(), 3).0, Ok(Some(head.len())), "{head:?}");
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
}
