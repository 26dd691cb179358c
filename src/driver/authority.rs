//! The authority of a request: host and port (RFC 3986, section 3.2; RFC 9110, section 4.2), without user information.

use std::net::Ipv6Addr;

/// Returns whether this is a host with or without a port. The host must not be empty (RFC 9110, section 4.2.1).
pub(super) fn is_authority(value: &[u8]) -> bool {
    let (host, port) = match value.strip_prefix(b"[") {
        Some(literal) => {
            let Some(end) = memchr::memchr(b']', literal) else { return false };
            let (literal, rest) = literal.split_at(end);
            if !is_ip_literal(literal) {
                return false;
            }
            match rest.strip_prefix(b"]") {
                Some([]) => return true,
                Some([b':', port @ ..]) => return is_port(port),
                _ => return false,
            }
        }
        None => match memchr::memchr(b':', value) {
            Some(colon) => {
                let (host, port) = value.split_at(colon);
                (host, port.strip_prefix(b":").unwrap_or(port))
            }
            None => (value, &[][..]),
        },
    };
    !host.is_empty() && is_registered_name(host) && is_port(port)
}

/// Returns whether this is the number of a port, or empty, which stands for the default.
fn is_port(port: &[u8]) -> bool {
    let number = port.iter().try_fold(0_u32, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        Some(number * 10 + digit).filter(|number| *number <= u32::from(u16::MAX))
    });
    number.is_some()
}

/// Returns whether this is an address in brackets, without them. A zone is for the host itself only (RFC 6874).
fn is_ip_literal(literal: &[u8]) -> bool {
    if let [b'v' | b'V', future @ ..] = literal {
        let mut parts = future.splitn(2, |byte| *byte == b'.');
        let (version, address) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && !address.is_empty()
            && address.iter().all(|byte| *byte == b':' || is_plain(*byte));
    }
    std::str::from_utf8(literal).is_ok_and(|literal| literal.parse::<Ipv6Addr>().is_ok())
}

/// Returns whether this is a registered name or an IPv4 address: a `%` begins an escape of two hexadecimal digits.
fn is_registered_name(host: &[u8]) -> bool {
    let mut rest = host;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            [byte, rest @ ..] if is_plain(*byte) => rest,
            _ => return false,
        };
    }
}

/// Characters that stand for themselves: `unreserved` and `sub-delims` of RFC 3986.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_is_a_host_with_an_optional_port() {
        for valid in [
            "a",
            "a:",
            "a:0",
            "a:80",
            "a:65535",
            "a:00080",
            "gateway.test:8443",
            "127.0.0.1:8080",
            "a_b-c~d",
            "%41b:1",
            "[::1]",
            "[::1]:",
            "[::1]:8080",
            "[2001:db8::7:192.0.2.1]",
            "[::ffff:1.2.3.4]:1",
            "[v1.a:b]",
            "a,b",
        ] {
            assert!(is_authority(valid.as_bytes()), "{valid}");
        }
        for wrong in [
            "",
            ":",
            ":80",
            "x:abc",
            "x:1:2",
            "x:-1",
            "x:+1",
            "x: 1",
            "x:65536",
            "x:99999999999",
            "[",
            "[]",
            "[::1",
            "::1",
            "::1]",
            "[::1]a",
            "[::1]80",
            "[::1]:x",
            "[::1]:1:2",
            "[:::1]",
            "[1.2.3.4]",
            "[::g]",
            "[fe80::1%25eth0]",
            "[v.a]",
            "[v1.]",
            "[vg.a]",
            "a]",
            "a[b]",
            "u@a",
            "a/b",
            "a?b",
            "a#b",
            "a b",
            "a\\b",
            "%",
            "%4",
            "%4g",
            "a\0",
            "\u{e9}",
            "<a>",
            "a\"",
        ] {
            assert!(!is_authority(wrong.as_bytes()), "{wrong}");
        }
    }
}
