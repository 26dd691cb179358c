//! Tests of the parsers of text values.

use std::time::Duration;

use proptest::prelude::*;

use crate::report::closest;
use crate::values::{address, duration, size};

#[test]
fn size_requires_a_unit() {
    for (text, bytes) in [
        ("0B", 0),
        ("100B", 100),
        ("512KiB", 512 << 10),
        ("64 MiB", 64 << 20),
        ("2GiB", 2 << 30),
        ("3kB", 3_000),
        ("3KB", 3_000),
        ("3MB", 3_000_000),
        ("3GB", 3_000_000_000),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in [
        "",
        "64",
        "MiB",
        "-1B",
        "1.5MiB",
        "64mib",
        "64 MiB ",
        "99999999999999999999B",
        "18014398509481984KiB",
    ] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn duration_requires_a_unit() {
    for (text, millis) in [
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("5min", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("0s", 0),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "30", "s", "-1s", "1.5s", "30S", "1w", "18446744073709551615h"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn address_host_name_is_refused() {
    assert!(address("127.0.0.1:8080").is_ok() && address("[::]:80").is_ok());
    for text in ["localhost:80", "127.0.0.1", ":80", "::1:80", "127.0.0.1:66000"] {
        assert!(address(text).is_err(), "{text}");
    }
}

#[test]
fn suggestion_is_the_closest_known_name() {
    let known = ["openai", "anthropic", "gemini"];
    assert_eq!(closest("opneai", known), Some("openai"));
    assert_eq!(closest("gemni", known), Some("gemini"));
    assert_eq!(closest("mistral", known), None);
    assert_eq!(closest("x", []), None);
}

proptest! {
    #[test]
    fn values_arbitrary_text_never_panics(text in "[-+:0-9a-zA-Z .TZ]{0,24}") {
        let _ = (size(&text), duration(&text), address(&text));
    }
}
