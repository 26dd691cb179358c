//! Networks that a key may be used from.

use std::fmt;
use std::net::IpAddr;

/// Network: an address and its prefix length in bits. IPv4-mapped IPv6 addresses (`::ffff:10.0.0.1`) count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address. Returns `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().ok()?;
        let address = written.to_canonical();
        let width = bits(address);
        let prefix = match prefix {
            None => width,
            // Digits only, because `parse` accepts a sign; a leading zero is a typo.
            Some(digits)
                if digits.bytes().all(|byte| byte.is_ascii_digit())
                    && (digits == "0" || !digits.starts_with('0')) =>
            {
                // The prefix of an IPv4-mapped address counts from the start of the IPv6 address.
                digits.parse::<u8>().ok()?.checked_sub(bits(written) - width)?
            }
            Some(_) => return None,
        };
        (prefix <= width).then_some(Network { address, prefix })
    }

    /// Returns true if an address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differing = match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => (ours.to_bits() ^ theirs.to_bits()).leading_zeros(),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits() ^ theirs.to_bits()).leading_zeros(),
            _ => return false,
        };
        differing >= u32::from(self.prefix)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_its_addresses_and_invalid_text_is_refused() {
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "203.0.113.9", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("2001:db8::1", "2001:db8::1", true),
        ] {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network} {address}");
        }
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0.0/00",
            "010.0.0.0/8",
            "2001:db8::/032",
            "::/129",
            "x/8",
            "10.0.0/8",
            "::ffff:1.2.3.4/95",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
