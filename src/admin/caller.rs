//! Callers of the admin API: who sends a request, and what it may do.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};
use parking_lot::RwLock;

use super::error::{AdminApiError, ErrorCode};
use super::session::{SessionHolder, SessionView, Sessions, cookie, cookie_name};
use super::throttle::Throttle;
use config::AdminAccess;
use routing::account::{AdminRole, KeyHash};

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

/// How a caller is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallerSource {
    /// By the token of the request, which has this hash.
    Token(KeyHash),
    /// By the cookie of a session.
    Session(SessionView),
    /// By the user of the process on the Unix socket.
    Socket,
    /// By its address: a process of this machine.
    Local,
    /// Not at all.
    Unknown,
}

impl CallerSource {
    /// Names of all sources.
    pub(super) const NAMES: [&str; 5] = ["token", "session", "socket", "local", "none"];

    /// Returns the name.
    pub(super) fn name(&self) -> &'static str {
        match self {
            CallerSource::Token(_) => "token",
            CallerSource::Session(_) => "session",
            CallerSource::Socket => "socket",
            CallerSource::Local => "local",
            CallerSource::Unknown => "none",
        }
    }
}

/// Caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Name in the audit log: `token:NAME`, `oidc:NAME`, `uid:NUMBER` or `local`.
    pub(super) name: String,
    /// Role.
    pub(super) role: AdminRole,
    /// Address; `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// How it is known.
    pub(super) source: CallerSource,
}

impl Caller {
    /// Returns a caller who has not signed in, for the operations that need no role.
    pub(super) fn unknown(peer: Peer) -> Self {
        let source = CallerSource::Unknown;
        Caller { name: "none".to_owned(), role: AdminRole::Read, address: peer.address(), source }
    }
}

/// Authentication of callers.
#[derive(Debug)]
pub(super) struct Callers {
    access: RwLock<Arc<AdminAccess>>,
    sessions: Sessions,
    throttle: Throttle,
    /// User id of this process.
    user: u32,
}

impl Callers {
    pub(super) fn new(access: AdminAccess) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let (sessions, throttle) = (Sessions::default(), Throttle::default());
        Callers { access: RwLock::new(Arc::new(access)), sessions, throttle, user }
    }

    /// Replaces the tokens and the rules of sign-in. If they are others than before, all sessions end.
    pub(super) fn set_access(&self, access: AdminAccess) {
        let mut current = self.access.write();
        if **current != access {
            *current = Arc::new(access);
            self.sessions.clear();
        }
    }

    /// Returns the tokens and the rules of sign-in.
    pub(super) fn access(&self) -> Arc<AdminAccess> {
        self.access.read().clone()
    }

    /// Returns the sessions.
    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns the caller of a request: by its token, or by its session; without them, a process of the same user or of
    /// root on the Unix socket is an administrator, and a process on this machine may read. `None` if the request has
    /// neither and needs one.
    ///
    /// # Errors
    /// Returns the error of a request with a wrong token, or after too many of them.
    pub(super) fn identify(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        secure: bool,
    ) -> Result<Option<Caller>, AdminApiError> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            let session = || self.of_session(cookie(headers, cookie_name(secure))?, peer);
            return Ok(session().or_else(|| self.without_token(headers, peer)));
        };
        let token = value.to_str().ok().and_then(|text| text.split_once(' '));
        let token =
            token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        self.of_token(token, peer).map(Some)
    }

    /// Returns the holder of a token; `None` stands for a header that has none.
    ///
    /// # Errors
    /// Returns the error of a wrong token, or of an address that has sent too many of them.
    pub(super) fn of_token(&self, token: Option<&str>, peer: Peer) -> Result<Caller, AdminApiError> {
        let hash = token.filter(|token| token.len() <= LONGEST_TOKEN).map(KeyHash::of);
        let found = hash.and_then(|hash| self.find(hash, peer.address(), CallerSource::Token(hash)));
        // Only wrong tokens are limited: others at the same address would else lock out who has a right one. It cannot be
        // guessed, with a limit or without.
        match found {
            Some(caller) => Ok(caller),
            None => {
                let attempt = self.check_attempts(peer)?;
                self.count_failure(attempt);
                Err(AdminApiError::new(ErrorCode::Unauthenticated, "the token is not valid"))
            }
        }
    }

    /// Returns the address as which attempts of a peer count.
    ///
    /// # Errors
    /// Returns the error of an address that has made too many wrong ones.
    pub(super) fn check_attempts(&self, peer: Peer) -> Result<(IpAddr, Instant), AdminApiError> {
        // A Unix socket has no address: its processes share one limit.
        let (counted, now) = (peer.address().unwrap_or(IpAddr::from([0, 0, 0, 0])), Instant::now());
        match self.throttle.refused_for(counted, now) {
            None => Ok((counted, now)),
            Some(seconds) => {
                let message = "too many wrong tokens or attempts to sign in";
                Err(AdminApiError::new(ErrorCode::RateLimited, message).retry_after(seconds))
            }
        }
    }

    /// Counts a failed attempt to sign in.
    pub(super) fn count_failure(&self, (counted, now): (IpAddr, Instant)) {
        self.throttle.count(counted, now);
    }

    /// Returns whether a caller still has a role, for an answer that goes on: a token may have expired or been disabled, a
    /// session may have ended. This is no request of a session, whose idle time goes on.
    pub(super) fn still_has(&self, caller: &Caller, role: AdminRole) -> bool {
        let of_token =
            |hash| self.find(hash, caller.address, caller.source.clone()).map(|caller| caller.role);
        let current = match &caller.source {
            CallerSource::Token(hash) => of_token(*hash),
            CallerSource::Session(view) => match self.sessions.holder(view.id, Instant::now()) {
                Some(SessionHolder::Token(hash)) => of_token(hash),
                Some(SessionHolder::Identity { role, .. }) => Some(role),
                None => None,
            },
            CallerSource::Socket | CallerSource::Local => Some(caller.role),
            CallerSource::Unknown => None,
        };
        current.is_some_and(|current| current >= role)
    }

    fn of_session(&self, id: &str, peer: Peer) -> Option<Caller> {
        let (holder, view) = self.sessions.touch(id, Instant::now())?;
        let source = CallerSource::Session(view);
        match holder {
            SessionHolder::Token(hash) => self.find(hash, peer.address(), source),
            SessionHolder::Identity { name, role } => {
                Some(Caller { name, role, address: peer.address(), source })
            }
        }
    }

    fn without_token(&self, headers: &HeaderMap, peer: Peer) -> Option<Caller> {
        let caller = |name: String, role, source| Caller { name, role, address: peer.address(), source };
        match peer {
            Peer::User(Some(user)) if user == self.user || user == 0 => {
                Some(caller(format!("uid:{user}"), AdminRole::Admin, CallerSource::Socket))
            }
            Peer::Address(address)
                if address.to_canonical().is_loopback()
                    && !FORWARDED.iter().any(|name| headers.contains_key(*name)) =>
            {
                Some(caller("local".to_owned(), AdminRole::Read, CallerSource::Local))
            }
            _ => None,
        }
    }

    /// Returns the holder of a token. The comparison is one of SHA-256 hashes, whose timing tells nothing of the token.
    fn find(&self, hash: KeyHash, address: Option<IpAddr>, source: CallerSource) -> Option<Caller> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(unix).unwrap_or(i64::MAX);
        let access = self.access();
        let token = access.tokens.iter().find(|token| token.hash == hash)?;
        token.is_usable(now, address).then(|| Caller {
            name: format!("token:{}", token.name),
            role: token.role,
            address,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use routing::account::AdminToken;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn caller_without_a_token_reads_from_this_machine_only() {
        let callers = Callers::new(AdminAccess::default());
        let local = Peer::Address("127.0.0.1".parse().unwrap());
        let identify = |pairs: &[(&'static str, &str)], peer| {
            let unknown = || AdminApiError::new(ErrorCode::Unauthenticated, "unknown");
            callers.identify(&headers(pairs), peer, false)?.ok_or_else(unknown)
        };
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
        let callers = Callers::new(AdminAccess { tokens: vec![token], oidc: None });
        let peer = Peer::Address("192.0.2.1".parse().unwrap());
        let with = |token: &str| {
            callers.identify(&headers(&[("authorization", &format!("Bearer {token}"))]), peer, false)
        };
        let caller = with("right").unwrap().unwrap();
        assert_eq!((&*caller.name, caller.role), ("token:ops", AdminRole::Operate));
        for _ in 0..10 {
            assert_eq!(with("wrong").unwrap_err().code, ErrorCode::Unauthenticated);
        }
        let refused = with("wrong").unwrap_err();
        assert_eq!((refused.code, refused.retry_after.is_some()), (ErrorCode::RateLimited, true));
        assert!(with("right").is_ok(), "wrong tokens at an address lock out no right one");
    }

    #[test]
    fn caller_of_a_session_is_known_until_the_token_or_the_file_changes() {
        let token = |name: &str| AdminToken {
            name: name.to_owned(),
            hash: KeyHash::of("right"),
            role: AdminRole::Operate,
            enabled: true,
            expires: None,
            networks: None,
        };
        let access = |name: &str| AdminAccess { tokens: vec![token(name)], oidc: None };
        let callers = Callers::new(access("ops"));
        let peer = Peer::Address("192.0.2.1".parse().unwrap());
        let begin = |holder| callers.sessions().begin(holder, Instant::now()).unwrap().0;
        let of = |id: &str, secure| {
            let cookie = format!("{}={id}", cookie_name(secure));
            callers.identify(&headers(&[("cookie", &cookie)]), peer, false).unwrap()
        };
        let id = begin(SessionHolder::Token(KeyHash::of("right")));
        assert_eq!(of(&id, false).unwrap().name, "token:ops");
        assert_eq!(of(&id, true), None, "the cookie of TLS counts over TLS only");
        callers.set_access(access("ops"));
        assert!(of(&id, false).is_some(), "nothing has changed");
        let caller = of(&id, false).unwrap();
        assert!(callers.still_has(&caller, AdminRole::Operate));
        assert!(!callers.still_has(&caller, AdminRole::Admin));
        callers.set_access(access("other"));
        assert_eq!(of(&id, false), None);
        assert!(!callers.still_has(&caller, AdminRole::Read), "the session has ended");
        let person = SessionHolder::Identity { name: "oidc:anna".to_owned(), role: AdminRole::Read };
        assert_eq!(of(&begin(person), false).unwrap().name, "oidc:anna");
        assert_eq!(of(&begin(SessionHolder::Token(KeyHash::of("unknown"))), false), None);
    }
}
