//! Callers of the admin API: who sends a request, and what it may do.

use std::net::IpAddr;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};
use parking_lot::RwLock;

use super::error::{AdminApiError, ErrorCode};
use super::throttle::Throttle;
use crate::account::{AdminRole, AdminToken, KeyHash};

/// Longest token that is hashed, in bytes.
const LONGEST_TOKEN: usize = 256;
/// Headers of reverse proxies. Behind one, every client has the proxy's address, which may be that of this machine.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Peer of a connection to the admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// TCP connection from an address.
    Address(IpAddr),
    /// Unix socket; the user id of the process. `None` if the operating system does not tell it.
    User(Option<u32>),
}

impl Peer {
    /// Returns the address; `None` for a Unix socket.
    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Peer::Address(address) => Some(address),
            Peer::User(_) => None,
        }
    }
}

/// Caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Name in the audit log: `token:NAME`, `uid:NUMBER` or `local`.
    pub(super) name: String,
    /// Role.
    pub(super) role: AdminRole,
    /// Address; `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
}

/// Authentication of callers.
#[derive(Debug)]
pub(super) struct Callers {
    tokens: RwLock<Vec<AdminToken>>,
    throttle: Throttle,
    /// User id of this process.
    user: u32,
}

impl Callers {
    pub(super) fn new(tokens: Vec<AdminToken>) -> Self {
        let user = rustix::process::geteuid().as_raw();
        Callers { tokens: RwLock::new(tokens), throttle: Throttle::default(), user }
    }

    /// Replaces the tokens.
    pub(super) fn set_tokens(&self, tokens: Vec<AdminToken>) {
        *self.tokens.write() = tokens;
    }

    /// Returns the caller of a request: by its token; without one, a process of the same user or of root on the Unix
    /// socket is an administrator, and a process on this machine may read.
    ///
    /// # Errors
    /// Returns the error of a request that has no valid token and needs one.
    pub(super) fn identify(&self, headers: &HeaderMap, peer: Peer) -> Result<Caller, AdminApiError> {
        let address = peer.address();
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return self.without_token(headers, peer).ok_or_else(|| {
                AdminApiError::new(
                    ErrorCode::Unauthenticated,
                    "send a token of admin.toml: authorization: Bearer mga_...",
                )
            });
        };
        // A Unix socket has no address: its processes share one limit.
        let counted = address.unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let now = Instant::now();
        if let Some(seconds) = self.throttle.refused_for(counted, now) {
            let message = "too many requests with wrong tokens";
            return Err(AdminApiError::new(ErrorCode::RateLimited, message).retry_after(seconds));
        }
        let token = value.to_str().ok().and_then(|text| text.split_once(' '));
        let token =
            token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let found =
            token.filter(|token| token.len() <= LONGEST_TOKEN).and_then(|token| self.find(token, address));
        found.ok_or_else(|| {
            self.throttle.count(counted, now);
            AdminApiError::new(ErrorCode::Unauthenticated, "the token is not valid")
        })
    }

    fn without_token(&self, headers: &HeaderMap, peer: Peer) -> Option<Caller> {
        let caller = |name: String, role| Caller { name, role, address: peer.address() };
        match peer {
            Peer::User(Some(user)) if user == self.user || user == 0 => {
                Some(caller(format!("uid:{user}"), AdminRole::Admin))
            }
            Peer::Address(address)
                if address.to_canonical().is_loopback()
                    && !FORWARDED.iter().any(|name| headers.contains_key(*name)) =>
            {
                Some(caller("local".to_owned(), AdminRole::Read))
            }
            _ => None,
        }
    }

    /// Returns the holder of a token. The comparison is one of SHA-256 hashes, whose timing tells nothing of the token.
    fn find(&self, token: &str, address: Option<IpAddr>) -> Option<Caller> {
        let hash = KeyHash::of(token);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(unix).unwrap_or(i64::MAX);
        let tokens = self.tokens.read();
        let token = tokens.iter().find(|token| token.hash == hash)?;
        token.is_usable(now, address).then(|| Caller {
            name: format!("token:{}", token.name),
            role: token.role,
            address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn caller_without_a_token_reads_from_this_machine_only() {
        let callers = Callers::new(Vec::new());
        let local = Peer::Address("127.0.0.1".parse().unwrap());
        let identify = |pairs: &[(&'static str, &str)], peer| callers.identify(&headers(pairs), peer);
        assert_eq!(identify(&[], local).unwrap().role, AdminRole::Read);
        assert_eq!(identify(&[], Peer::Address("::1".parse().unwrap())).unwrap().name, "local");
        for (pairs, peer) in [
            (&[("x-forwarded-for", "192.0.2.1")][..], local),
            (&[("forwarded", "for=192.0.2.1")], local),
            (&[], Peer::Address("192.0.2.1".parse().unwrap())),
            (&[], Peer::User(None)),
            (&[], Peer::User(Some(callers.user + 1))),
            // A wrong token is not ignored.
            (&[("authorization", "Bearer x")], local),
            (&[("authorization", "Basic x")], local),
        ] {
            assert_eq!(
                identify(pairs, peer).unwrap_err().code,
                ErrorCode::Unauthenticated,
                "{pairs:?} {peer:?}"
            );
        }
        let own = identify(&[], Peer::User(Some(callers.user))).unwrap();
        assert_eq!((own.role, own.name), (AdminRole::Admin, format!("uid:{}", callers.user)));
    }

    #[test]
    fn caller_with_wrong_tokens_is_refused_for_a_while() {
        let token = AdminToken {
            name: "ops".to_owned(),
            hash: KeyHash::of("right"),
            role: AdminRole::Operate,
            enabled: true,
            expires: None,
            networks: None,
        };
        let callers = Callers::new(vec![token]);
        let peer = Peer::Address("192.0.2.1".parse().unwrap());
        let with =
            |token: &str| callers.identify(&headers(&[("authorization", &format!("Bearer {token}"))]), peer);
        let caller = with("right").unwrap();
        assert_eq!((&*caller.name, caller.role), ("token:ops", AdminRole::Operate));
        for _ in 0..10 {
            assert_eq!(with("wrong").unwrap_err().code, ErrorCode::Unauthenticated);
        }
        let refused = with("right").unwrap_err();
        assert_eq!((refused.code, refused.retry_after.is_some()), (ErrorCode::RateLimited, true));
        callers.set_tokens(Vec::new());
    }
}
