//! DNS resolver: resolves host names of providers and of remote media asynchronously, and bounds their TTL.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::net::runtime::TokioRuntimeProvider;

/// Lower bound of the TTL: a TTL of 0 would mean a look-up per request.
const MIN_TTL: Duration = Duration::from_secs(5);
/// Upper bound of the TTL: providers change their addresses.
const MAX_TTL: Duration = Duration::from_secs(300);
/// Time-out of a look-up, over all servers and search domains.
const LOOKUP: Duration = Duration::from_secs(20);

/// Resolution error: why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct DnsError {
    host: String,
    reason: String,
}

impl DnsError {
    /// The name has no address.
    pub fn nothing(host: &str) -> Self {
        DnsError { host: host.to_owned(), reason: "no address".to_owned() }
    }

    /// All addresses of the name are such that no name may lead to.
    pub fn metadata(host: &str) -> Self {
        let reason = "its addresses are link-local or those of a metadata service, to which no name may lead; \
                      write the address itself if a provider is there";
        DnsError { host: host.to_owned(), reason: reason.to_owned() }
    }

    /// No server answered in time.
    pub fn slow(host: &str) -> Self {
        DnsError { host: host.to_owned(), reason: "no response in time".to_owned() }
    }
}

/// Resolver of the process, configured like the system (`/etc/resolv.conf`, `/etc/hosts`). Clones share its state.
#[derive(Clone)]
pub struct Resolver {
    resolver: TokioResolver,
}

impl Resolver {
    /// Creates the resolver from the system's configuration.
    ///
    /// # Errors
    /// Returns [`DnsError`] if a resolver cannot be built of it.
    pub fn new() -> Result<Self, DnsError> {
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

    /// Resolver that queries this server only.
    #[cfg(test)]
    pub fn asking(server: std::net::SocketAddr) -> Self {
        use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
        let mut connection = ConnectionConfig::udp();
        connection.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![connection]);
        let config = ResolverConfig::from_name_servers(vec![server]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Resolver { resolver: builder.build().unwrap() }
    }

    /// Resolves a name. Returns its addresses, and the time for which they may be used: the TTL within [`MIN_TTL`] and
    /// [`MAX_TTL`].
    ///
    /// # Errors
    /// Returns [`DnsError`] if the look-up fails, times out or finds no address.
    pub async fn lookup(&self, host: &str) -> Result<(Vec<IpAddr>, Duration), DnsError> {
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
