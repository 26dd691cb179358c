//! HTTP/1 request head scanner: finds the end of a head and rejects one that parsers could read differently.
//!
//! Pingora's parser accepts more than RFC 9112 permits (bare line feeds, several spaces in the request line), has a
//! limit of 1 MiB, and rejects a target in absolute form whose authority differs from `Host`. A head is checked here
//! before Pingora parses it. Each byte is scanned once, however the bytes arrive.

use bytes::BytesMut;

use super::authority::is_authority;

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
    /// The target has a fragment, which is never sent (RFC 9112, section 3.2).
    #[error("its target has a fragment")]
    Fragment,
    /// The method asks for a tunnel to another host.
    #[error("it asks for a tunnel")]
    Tunnel,
    /// An HTTP/1.1 head has no `Host`.
    #[error("it has no Host header")]
    NoHost,
    /// `Host` is given more than once.
    #[error("it has more than one Host header")]
    Hosts,
    /// `Host` is not a host with an optional port.
    #[error("its Host header is not a host with an optional port")]
    Host,
    /// The body has a transfer coding besides `chunked`.
    #[error("its Transfer-Encoding names a coding other than chunked, which is not supported")]
    Coding,
    /// `Transfer-Encoding` is given more than once, or is no list that ends with the only `chunked`.
    #[error("its Transfer-Encoding is not the one coding chunked")]
    Codings,
    /// The length of the body is given in two ways.
    #[error("it has both a Content-Length and a Transfer-Encoding header")]
    Lengths,
}

impl HeadFault {
    /// Returns the HTTP status of the response, if it is another one than for other malformed heads.
    pub fn status(&self) -> Option<u16> {
        // RFC 9112, section 6.1.
        (*self == HeadFault::Coding).then_some(501)
    }
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
    codings: usize,
    sized: bool,
    closes: bool,
}

/// Form of the request target (RFC 9112, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Origin,
    Absolute,
    Asterisk,
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
                    self.check_target(line)?;
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

    /// Whether the body is chunked.
    pub fn is_chunked(&self) -> bool {
        self.codings > 0
    }

    /// Whether the client closes the connection after this request: one of its `Connection` headers, which are one list,
    /// has the option `close` (RFC 9110, section 7.6.1). Pingora reads the first of them.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Returns the target of the request with its query, in any form. `None` as long as the request line is not complete
    /// or if it is malformed.
    pub fn target<'b>(&self, buf: &'b [u8]) -> Option<&'b str> {
        let line = buf.get(self.request?..)?.split(|byte| *byte == b'\r').next()?;
        std::str::from_utf8(line.split(|byte| *byte == b' ').nth(1)?).ok()
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
        Ok(())
    }

    /// Checks the target of a request line that is well-formed otherwise.
    fn check_target(&mut self, line: &[u8]) -> Result<(), HeadFault> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if method == b"CONNECT" {
            // What follows may be of another protocol, so that the connection cannot stay open (RFC 9110, section 9.3.6). A
            // path names an endpoint, which does not have the method.
            self.closes = true;
            if !target.starts_with(b"/") {
                return Err(HeadFault::Tunnel);
            }
        }
        if memchr::memchr(b'#', target).is_some() {
            return Err(HeadFault::Fragment);
        }
        self.form = match target {
            [b'/', ..] => Form::Origin,
            // Section 3.2.4 of RFC 9112.
            b"*" if method == b"OPTIONS" => Form::Asterisk,
            _ if absolute(target).is_some() => Form::Absolute,
            _ => return Err(HeadFault::Target),
        };
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), HeadFault> {
        if let Some(value) = value_of(line, b"host") {
            self.hosts += 1;
            if !value.is_empty() && !is_authority(value) {
                return Err(HeadFault::Host);
            }
        } else if let Some(value) = value_of(line, b"transfer-encoding") {
            self.codings += 1;
            if self.codings > 1 {
                return Err(HeadFault::Codings);
            }
            check_codings(value)?;
        } else if let Some(value) = value_of(line, b"connection") {
            self.closes |= value
                .split(|byte| *byte == b',')
                .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if value_of(line, b"content-length").is_some() {
            self.sized = true;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), HeadFault> {
        if self.codings > 0 && self.sized {
            return Err(HeadFault::Lengths);
        }
        if self.codings > 0 && !self.version11 {
            // HTTP/1.0 has no transfer codings: the framing is faulty (RFC 9112, section 6.1).
            return Err(HeadFault::Codings);
        }
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
    is_authority(authority).then_some((authority, path))
}

/// Checks the list of transfer codings: only `chunked` can be decoded.
fn check_codings(value: &[u8]) -> Result<(), HeadFault> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let codings = || value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_chunked = |coding: &[u8]| {
        let name = coding.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"chunked")
    };
    let others = codings().take_while(|coding| !is_chunked(coding)).count();
    // Without `chunked` as the last coding, the length of the body is unknown (RFC 9112, section 6.3).
    let last = codings().next_back().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    let known = codings().all(|coding| !coding.is_empty()) && last && codings().count() == others + 1;
    Err(if known { HeadFault::Coding } else { HeadFault::Codings })
}

/// Returns the value of a header line; `None` if it has another name.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (begun, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    begun.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Characters of a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
