//! Networks that a key may be used from.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Network: an address and its prefix length in bits. IPv4-mapped IPv6 addresses (`::ffff:10.0.0.1`) count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

impl Network {
    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address. Returns `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Network> {
        // Not the parser of `IpNet`: it reads leading zeros as decimal, which other programs read as octal.
        let net = match text.split_once('/') {
            None => IpNet::from(text.parse::<IpAddr>().ok()?),
            // Digits only, because `parse` accepts a sign; a leading zero is a typo.
            Some((address, prefix))
                if prefix.bytes().all(|byte| byte.is_ascii_digit())
                    && (prefix == "0" || !prefix.starts_with('0')) =>
            {
                IpNet::new(address.parse().ok()?, prefix.parse().ok()?).ok()?
            }
            Some(_) => return None,
        };
        let mapped = match net {
            IpNet::V6(net) => net.addr().to_ipv4_mapped().map(|address| (address, net.prefix_len())),
            IpNet::V4(_) => None,
        };
        Some(Network(match mapped {
            // The prefix of an IPv4-mapped address counts from the start of the IPv6 address.
            Some((address, prefix)) => Ipv4Net::new(address, prefix.checked_sub(96)?).ok()?.into(),
            None => net,
        }))
    }

    /// Returns true if all addresses of a family are in the network.
    pub fn is_everything(&self) -> bool {
        self.0.prefix_len() == 0
    }

    /// Returns true if an address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
        for (text, shown) in [
            ("10.1.2.3/8", "10.1.2.3/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            assert_eq!(Network::parse(text).unwrap().to_string(), shown);
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
