//! Ports of the servers under test.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Port range of the servers under test. It lies below the ephemeral range of the system, whose client ports would
/// otherwise collide with these now and then.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// Returns a loopback address whose port is free now, a different one on each call. No client connection can take the
/// port while its server is down.
pub(crate) fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        // Test programs that run concurrently start at different ports.
        let start = u16::try_from(std::process::id() % 997).unwrap() * 17;
        let turn = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(start);
        let port = PORTS.start + turn % u16::try_from(PORTS.len()).unwrap();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if std::net::TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
}
