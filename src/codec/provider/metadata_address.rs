//! Addresses under which clouds serve the metadata of a machine, with its credentials. No provider is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata service of Alibaba Cloud (Alibaba Cloud documentation, "Instance metadata", November 2026).
const ALIBABA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
/// Metadata service of Oracle Cloud Classic (Oracle documentation, "Instance metadata", November 2026).
const ORACLE: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 192);
/// Metadata service of AWS over IPv6 (Amazon EC2 user guide, "Instance metadata service", November 2026).
const AWS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Returns whether an address is link-local, where most metadata services are, one of the others, or unspecified.
pub fn is_metadata_address(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip == ALIBABA || ip == ORACLE || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip == AWS || ip.is_unspecified(),
    }
}
