//! Limits of attempts with wrong tokens, by address, and of lines about refused requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Wrong tokens within [`WINDOW`] after which an address is refused without a check.
const ATTEMPTS: u32 = 10;
/// Time for which wrong tokens count.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are known. Beyond it, the oldest is forgotten.
const ADDRESSES: usize = 1_024;

/// Attempts of one address.
#[derive(Clone, Copy, Debug)]
struct Attempts {
    address: IpAddr,
    since: Instant,
    failed: u32,
}

/// Failed attempts of all addresses.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Vec<Attempts>>);

/// Returns the network that counts as one address: for IPv6 64 bits, which one host may have.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

impl Throttle {
    /// Returns the seconds for which an address is refused. `None` if it may try.
    pub(super) fn refused_for(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let (address, all) = (network(address), self.0.lock());
        let attempts = all.iter().find(|attempts| attempts.address == address)?;
        let left = WINDOW.checked_sub(now.saturating_duration_since(attempts.since))?;
        (attempts.failed >= ATTEMPTS).then(|| left.as_secs().saturating_add(1))
    }

    /// Counts a wrong token.
    pub(super) fn count(&self, address: IpAddr, now: Instant) {
        let (address, mut all) = (network(address), self.0.lock());
        all.retain(|attempts| now.saturating_duration_since(attempts.since) < WINDOW);
        match all.iter_mut().find(|attempts| attempts.address == address) {
            Some(attempts) => attempts.failed = attempts.failed.saturating_add(1),
            None => {
                if all.len() >= ADDRESSES {
                    all.remove(0);
                }
                all.push(Attempts { address, since: now, failed: 1 });
            }
        }
    }
}

/// Lines a minute about refused requests in the audit log, which who is refused could otherwise fill, and about accepted sign-ins
/// of one caller.
const LINES: u32 = 20;
/// Maximum number of callers whose sign-ins are counted: more than there are tokens.
const CALLERS: usize = 2_048;

/// Lines of the present minute.
#[derive(Clone, Copy, Debug)]
struct Minute {
    since: Instant,
    lines: u32,
    skipped: u64,
}

/// Limit of lines about refused requests.
#[derive(Debug, Default)]
pub(super) struct LineLimit(Mutex<Option<Minute>>);

/// Limits of lines about accepted sign-ins, by caller: one that signs in all the time does not hide the lines of others.
#[derive(Debug, Default)]
pub(super) struct LineLimits(Mutex<HashMap<String, Option<Minute>>>);

impl LineLimits {
    /// Returns the number of lines of this caller that were skipped before this one. `None` if this one is to be skipped.
    pub(super) fn take(&self, caller: &str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock();
        if all.len() >= CALLERS && !all.contains_key(caller) {
            let is_present =
                |minute: &Minute| now.saturating_duration_since(minute.since) < WINDOW || minute.skipped > 0;
            all.retain(|_, minute| minute.as_ref().is_some_and(is_present));
        }
        // Beyond the bound, callers share a limit.
        let caller = if all.len() >= CALLERS && !all.contains_key(caller) { "" } else { caller };
        Minute::take(all.entry(caller.to_owned()).or_default(), now)
    }
}

impl LineLimit {
    /// Returns the number of lines that were skipped before this one. `None` if this one is to be skipped.
    pub(super) fn take(&self, now: Instant) -> Option<u64> {
        Minute::take(&mut self.0.lock(), now)
    }
}

impl Minute {
    fn take(minute: &mut Option<Minute>, now: Instant) -> Option<u64> {
        let current = minute.filter(|minute| now.saturating_duration_since(minute.since) < WINDOW);
        let skipped = if current.is_none() { minute.map_or(0, |minute| minute.skipped) } else { 0 };
        let mut current = current.unwrap_or(Minute { since: now, lines: 0, skipped: 0 });
        let is_full = current.lines >= LINES;
        if is_full {
            current.skipped = current.skipped.saturating_add(1);
        } else {
            current.lines = current.lines.saturating_add(1);
        }
        *minute = Some(current);
        (!is_full).then_some(skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_refuses_an_address_until_its_window_ends() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        for _ in 0..ATTEMPTS {
            assert_eq!(throttle.refused_for(address, start), None);
            throttle.count(address, start);
        }
        assert_eq!(throttle.refused_for(address, start), Some(61));
        assert_eq!(throttle.refused_for("2001:db8::2".parse().unwrap(), start), Some(61), "the same host");
        assert_eq!(throttle.refused_for("2001:db8:1::2".parse().unwrap(), start), None);
        assert_eq!(throttle.refused_for(address, start + WINDOW + Duration::from_nanos(1)), None);
        for number in 0..2 * ADDRESSES {
            let bits = u128::try_from(number).unwrap() << 64;
            throttle.count(std::net::Ipv6Addr::from_bits(bits).into(), start);
        }
        assert!(throttle.0.lock().len() <= ADDRESSES);
    }

    #[test]
    fn line_limits_of_callers_are_their_own_and_bounded() {
        let (limits, start) = (LineLimits::default(), Instant::now());
        for _ in 0..LINES {
            assert_eq!(limits.take("token:a", start), Some(0));
        }
        assert_eq!((limits.take("token:a", start), limits.take("token:b", start)), (None, Some(0)));
        assert_eq!(limits.take("token:a", start + WINDOW), Some(1));
        for number in 0..2 * CALLERS {
            limits.take(&number.to_string(), start);
        }
        assert!(limits.0.lock().len() <= CALLERS + 1);
    }

    #[test]
    fn line_limit_counts_what_it_skips() {
        let (limit, start) = (LineLimit::default(), Instant::now());
        for _ in 0..LINES {
            assert_eq!(limit.take(start), Some(0));
        }
        assert_eq!((limit.take(start), limit.take(start)), (None, None));
        assert_eq!(limit.take(start + WINDOW), Some(2));
        assert_eq!(limit.take(start + WINDOW), Some(0));
    }
}
