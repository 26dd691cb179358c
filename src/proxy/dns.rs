//! Names of providers to addresses: asynchronously, and no longer than the answer says.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::net::runtime::TokioRuntimeProvider;

/// Shortest time that an answer is used: a TTL of 0 would mean a look-up per request.
const MIN_TTL: Duration = Duration::from_secs(5);
/// Longest time: providers move their addresses about.
const MAX_TTL: Duration = Duration::from_secs(300);
/// Longest time that a look-up may take, all servers and domains of search together.
const LOOKUP: Duration = Duration::from_secs(20);

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct DnsError {
    host: String,
    reason: String,
}

impl DnsError {
    pub(super) fn nothing(host: &str) -> Self {
        DnsError { host: host.to_owned(), reason: "no address".to_owned() }
    }

    pub(super) fn slow(host: &str) -> Self {
        DnsError { host: host.to_owned(), reason: "no answer in time".to_owned() }
    }
}

/// The resolver of the process, configured as the system is (`/etc/resolv.conf`, `/etc/hosts`). Clones are the same one.
#[derive(Clone)]
pub(super) struct Resolver {
    resolver: TokioResolver,
}

impl Resolver {
    pub(super) fn new() -> Result<Self, DnsError> {
        let error = |error: &dyn std::fmt::Display| DnsError {
            host: "resolver".to_owned(),
            reason: error.to_string(),
        };
        // A machine without a resolver configuration can still reach providers by address, and localhost by name.
        let builder = TokioResolver::builder(TokioRuntimeProvider::default()).unwrap_or_else(|_| {
            TokioResolver::builder_with_config(Default::default(), TokioRuntimeProvider::default())
        });
        Ok(Resolver { resolver: builder.build().map_err(|reason| error(&reason))? })
    }

    /// Asks this server and no other.
    #[cfg(test)]
    pub(super) fn asking(server: std::net::SocketAddr) -> Self {
        use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
        let mut connection = ConnectionConfig::udp();
        connection.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![connection]);
        let config = ResolverConfig::from_name_servers(vec![server]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Resolver { resolver: builder.build().unwrap() }
    }

    /// All addresses of a name, and how long they may be used.
    pub(super) async fn lookup(&self, host: &str) -> Result<(Vec<IpAddr>, Duration), DnsError> {
        let answer = tokio::time::timeout(LOOKUP, self.resolver.lookup_ip(host))
            .await
            .map_err(|_| DnsError::slow(host))?
            .map_err(|error| DnsError { host: host.to_owned(), reason: error.to_string() })?;
        let mut addresses: Vec<IpAddr> = answer.iter().collect();
        // IPv4 first: a host without IPv6 connectivity would otherwise fail every other connection.
        addresses.sort_by_key(|address| address.is_ipv6());
        if addresses.first().is_some_and(IpAddr::is_ipv4) {
            addresses.retain(IpAddr::is_ipv4);
        }
        if addresses.is_empty() {
            return Err(DnsError::nothing(host));
        }
        let ttl = answer.valid_until().saturating_duration_since(Instant::now());
        Ok((addresses, ttl.clamp(MIN_TTL, MAX_TTL)))
    }
}
