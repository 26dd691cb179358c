//! Values that are written as text in a form of their own: sizes, time spans, points in time, addresses.

use std::net::SocketAddr;
use std::time::Duration;

/// `"64MiB"`, `"512KiB"`, `"1GiB"`, `"1000B"`.
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

/// `"250ms"`, `"30s"`, `"5m"`, `"1h"`.
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

/// `"127.0.0.1:8080"`, `"[::]:8080"`: an address, not a name, because names are not resolved at start.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address with its port, such as \"127.0.0.1:8080\" or \"[::]:8080\"".to_owned()
    })
}

/// Unix seconds of an RFC 3339 time with an offset.
pub fn unix_seconds(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', ' ', 't'])?;
    let mut parts = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let (time, offset) = match rest.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = rest.rfind(['+', '-'])?;
            let (time, offset) = rest.split_at(at);
            let (hours, minutes) = offset.get(1..)?.split_once(':')?;
            let seconds = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
            (time, if offset.starts_with('-') { -seconds } else { seconds })
        }
    };
    let mut clock = time.split('.').next()?.splitn(3, ':').map(str::parse::<i64>);
    let (hour, minute) = (clock.next()?.ok()?, clock.next()?.ok()?);
    let second = clock.next().and_then(Result::ok).unwrap_or(0);
    // Days from civil date: Howard Hinnant's algorithm.
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let month_index = (month + 9) % 12;
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}
