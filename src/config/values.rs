//! Parsers of text values: sizes, durations, addresses, policies.

use std::net::SocketAddr;
use std::time::Duration;

use super::routes::one_of;
use codec::canonical::CachePolicy;

/// Parses a size in bytes: `"64MiB"`, `"512KiB"`, `"1GiB"`, `"1000B"`. The error is a hint for the user.
pub(super) fn size(text: &str) -> Result<usize, String> {
    const HINT: &str = "write a number of bytes with its unit, such as \"64MiB\", \"512KiB\" or \"100B\"";
    let (number, unit) = split(text).ok_or(HINT)?;
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(HINT.to_owned()),
    };
    number.checked_mul(factor).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(|| HINT.to_owned())
}

/// Parses a duration: `"250ms"`, `"30s"`, `"5m"`, `"1h"`, `"1d"`. The error is a hint for the user.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const HINT: &str = "write a time span with its unit, such as \"250ms\", \"30s\", \"5m\" or \"1h\"";
    let (number, unit) = split(text).ok_or(HINT)?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" | "min" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    };
    millis.map(Duration::from_millis).ok_or_else(|| HINT.to_owned())
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Parses a prompt-cache policy: `"off"`, `"auto"`, `"5m"` or `"1h"`. The error is a hint for the user.
pub(super) fn cache_policy(text: &str) -> Result<CachePolicy, String> {
    CachePolicy::from_name(text).ok_or_else(|| one_of(text, &CachePolicy::ALL.map(CachePolicy::name)))
}

/// Parses an IP address with a port: `"127.0.0.1:8080"`, `"[::]:8080"`. Host names are rejected because they are not
/// resolved at startup.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address with its port, such as \"127.0.0.1:8080\" or \"[::]:8080\"".to_owned()
    })
}
