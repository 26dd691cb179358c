//! Sessions of browsers: a cookie stands for a caller who has signed in with a token or at an issuer of identities.
//!
//! The table is in memory: a session ends with the process, when it idles, after a working day, and when the file of
//! tokens changes. The cookie has a random id, of which only the hash is kept.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, Method, header};
use parking_lot::Mutex;
use rand::TryRng as _;

use super::error::{AdminApiError, ErrorCode};
use routing::account::{AdminRole, KeyHash};

/// Time without a request after which a session ends.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Time after which a session ends in any case.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// Maximum number of sessions. Beyond it, one of the holder with the most sessions ends.
const MAX_SESSIONS: usize = 1_024;
/// Maximum number of sessions of one token or person. Beyond it, the one that has idled longest ends: who signs in all the time
/// ends no session of others.
const SESSIONS_OF_HOLDER: usize = 16;
/// Longest cookie value that is hashed, in bytes.
const LONGEST_ID: usize = 128;
/// Header with the CSRF value of the session, which a page of another origin cannot know.
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");

/// Name of the session's cookie. With `__Host-`, browsers accept it over TLS only, and never from another host.
pub(super) const fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-mgw_session" } else { "mgw_session" }
}

/// Holder of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionHolder {
    /// Holder of the token with this hash, which must stay usable.
    Token(KeyHash),
    /// Person whom an issuer of identities has named, with the role that the claims gave.
    Identity {
        /// Name in the audit log.
        name: String,
        /// Role.
        role: AdminRole,
    },
}

impl SessionHolder {
    /// Returns whether two sessions have the same holder. A person whose role has changed stays the same one.
    fn is_same(&self, other: &SessionHolder) -> bool {
        match (self, other) {
            (SessionHolder::Token(one), SessionHolder::Token(other)) => one == other,
            (SessionHolder::Identity { name, .. }, SessionHolder::Identity { name: other, .. }) => {
                name == other
            }
            _ => false,
        }
    }
}

/// Session as its caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionView {
    /// Hash of its id.
    pub(super) id: KeyHash,
    /// Value that requests which change something must have in a header.
    pub(super) csrf: String,
    /// Time until the session ends in any case.
    pub(super) expires_in: Duration,
    /// Time until the session ends without a request.
    pub(super) idle_in: Duration,
}

#[derive(Debug)]
struct Session {
    id: KeyHash,
    holder: SessionHolder,
    csrf: String,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn view(&self, now: Instant) -> SessionView {
        let left = |since: Instant, most: Duration| most.saturating_sub(now.saturating_duration_since(since));
        let expires_in = left(self.begun, LIFETIME);
        SessionView {
            id: self.id,
            csrf: self.csrf.clone(),
            expires_in,
            idle_in: left(self.used, IDLE).min(expires_in),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.view(now).idle_in.is_zero()
    }
}

/// Table of sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Vec<Session>>);

impl Sessions {
    /// Begins a session. Returns the value of its cookie.
    ///
    /// # Errors
    /// Returns an error if the operating system provides no random numbers.
    pub(super) fn begin(
        &self,
        holder: SessionHolder,
        now: Instant,
    ) -> Result<(String, SessionView), AdminApiError> {
        let id = random_text()?;
        let session = Session { id: KeyHash::of(&id), holder, csrf: random_text()?, begun: now, used: now };
        let view = session.view(now);
        let mut all = self.0.lock();
        all.retain(|session| !session.is_over(now));
        if count(&all, &session.holder) >= SESSIONS_OF_HOLDER {
            end_idlest(&mut all, &session.holder.clone());
        } else if all.len() >= MAX_SESSIONS
            && let Some(holder) = most_sessions(&all).cloned()
        {
            end_idlest(&mut all, &holder);
        }
        all.push(session);
        Ok((id, view))
    }

    /// Returns the holder of a session, whose idle time begins anew. `None` if there is no such session.
    pub(super) fn touch(&self, id: &str, now: Instant) -> Option<(SessionHolder, SessionView)> {
        let id = hash(id)?;
        let mut all = self.0.lock();
        let session =
            all.iter_mut().find(|session| session.id == id).filter(|session| !session.is_over(now))?;
        session.used = now;
        Some((session.holder.clone(), session.view(now)))
    }

    /// Returns the holder of the session whose id has this hash. `None` if there is no such session.
    pub(super) fn holder(&self, id: KeyHash, now: Instant) -> Option<SessionHolder> {
        let all = self.0.lock();
        let session = all.iter().find(|session| session.id == id).filter(|session| !session.is_over(now))?;
        Some(session.holder.clone())
    }

    /// Ends a session. Returns false if there was none.
    pub(super) fn end(&self, id: &str) -> bool {
        let Some(id) = hash(id) else { return false };
        let mut all = self.0.lock();
        let before = all.len();
        all.retain(|session| session.id != id);
        all.len() < before
    }

    /// Ends all sessions.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

fn count(all: &[Session], holder: &SessionHolder) -> usize {
    all.iter().filter(|session| session.holder.is_same(holder)).count()
}

/// Returns the holder with the most sessions.
fn most_sessions(all: &[Session]) -> Option<&SessionHolder> {
    all.iter().map(|session| &session.holder).max_by_key(|holder| count(all, holder))
}

/// Ends the session of a holder that has idled longest.
fn end_idlest(all: &mut Vec<Session>, holder: &SessionHolder) {
    let own = all.iter().enumerate().filter(|(_, session)| session.holder.is_same(holder));
    if let Some((at, _)) = own.min_by_key(|(_, session)| session.used) {
        all.swap_remove(at);
    }
}

fn hash(id: &str) -> Option<KeyHash> {
    (id.len() <= LONGEST_ID).then(|| KeyHash::of(id))
}

/// Returns 256 random bits as text that needs no quoting in cookies, headers and URLs.
///
/// # Errors
/// Returns an error if the operating system provides no random numbers.
pub(super) fn random_text() -> Result<String, AdminApiError> {
    let mut bytes = [0u8; 32];
    let filled = rand::rngs::SysRng.try_fill_bytes(&mut bytes);
    filled.map_err(|_| AdminApiError::new(ErrorCode::Internal, "random numbers are not available"))?;
    Ok(base64_simd::URL_SAFE_NO_PAD.encode_to_string(bytes))
}

/// Returns the value of a cookie (RFC 6265, section 4.2). `None` if there is none, or several: a page on another port of
/// the same host can add one of the same name.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value.trim_matches('"'));
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Returns the header that sets a cookie. `same_site` is `Strict`, or `Lax` for one that the page of an issuer of
/// identities must bring along.
pub(super) fn set_cookie(name: &str, value: &str, secure: bool, same_site: &str, seconds: u64) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}; Max-Age={seconds}{secure}")
}

/// Returns the header that sets the cookie of a session.
pub(super) fn session_cookie(id: &str, secure: bool) -> String {
    set_cookie(cookie_name(secure), id, secure, "Strict", LIFETIME.as_secs())
}

/// Refuses a request of a session that changes something, unless it comes from a page of this origin that knows the
/// session's CSRF value. That pages of other origins are refused is checked before ([`super::origin`]); here a request
/// must say where it comes from.
///
/// # Errors
/// Returns the error of a request that is refused.
pub(super) fn check_csrf(
    method: &Method,
    headers: &HeaderMap,
    session: &SessionView,
) -> Result<(), AdminApiError> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let refused = |message| Err(AdminApiError::new(ErrorCode::Forbidden, message));
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes() == b"same-origin");
    if !site.unwrap_or_else(|| headers.contains_key(header::ORIGIN)) {
        return refused("a request of a session must come from a page of this origin");
    }
    // The comparison is one of hashes, whose timing tells nothing.
    let given = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    if !given.is_some_and(|given| KeyHash::of(given) == KeyHash::of(&session.csrf)) {
        return refused("send the value csrf of GET /admin/v1/session as header x-csrf-token");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn session_ends_when_it_idles_and_after_a_working_day() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let holder = SessionHolder::Token(KeyHash::of("x"));
        let (id, view) = sessions.begin(holder.clone(), start).unwrap();
        assert_eq!((view.expires_in, view.idle_in), (LIFETIME, IDLE));
        assert!(sessions.touch("other", start).is_none());
        let mut now = start;
        while now + IDLE / 2 < start + LIFETIME {
            now += IDLE / 2;
            assert_eq!(sessions.touch(&id, now).unwrap().0, holder);
        }
        assert!(sessions.touch(&id, start + LIFETIME).is_none());
        let (id, _) = sessions.begin(holder.clone(), start).unwrap();
        assert!(sessions.touch(&id, start + IDLE).is_none());
        let (id, _) = sessions.begin(holder, start).unwrap();
        assert!(sessions.end(&id) && !sessions.end(&id));
        assert!(sessions.touch(&id, start).is_none());
    }

    #[test]
    fn session_table_is_bounded_by_holder_and_ends_the_idlest() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let of = |holder: &str, at| sessions.begin(SessionHolder::Token(KeyHash::of(holder)), at).unwrap().0;
        let admin = of("admin", start);
        let (first, second) = (of("reader", start), of("reader", start));
        sessions.touch(&first, start + Duration::from_secs(2));
        for _ in 2..=SESSIONS_OF_HOLDER {
            of("reader", start + Duration::from_secs(1));
        }
        assert_eq!(sessions.0.lock().len(), SESSIONS_OF_HOLDER + 1);
        let now = start + Duration::from_secs(3);
        assert!(sessions.touch(&first, now).is_some() && sessions.touch(&second, now).is_none());
        for _ in 0..2 * MAX_SESSIONS {
            of("reader", now);
        }
        assert!(sessions.touch(&admin, now).is_some(), "a reader ends its own sessions only");
        for number in 0..2 * MAX_SESSIONS {
            of(&number.to_string(), now);
        }
        assert_eq!(sessions.0.lock().len(), MAX_SESSIONS);
    }

    #[test]
    fn cookie_is_read_once_or_not_at_all() {
        let of = |pairs: &[(&'static str, &str)]| cookie(&headers(pairs), "a").map(str::to_owned);
        assert_eq!(of(&[("cookie", "b=1; a=2")]).as_deref(), Some("2"));
        assert_eq!(of(&[("cookie", "b=1"), ("cookie", "a=\"2\"")]).as_deref(), Some("2"));
        for none in ["", "aa=1", "b=a=1", "a=1; a=2", "A=1"] {
            assert_eq!(of(&[("cookie", none)]), None, "{none}");
        }
    }

    #[test]
    fn csrf_requests_without_value_or_origin_are_refused() {
        let view = SessionView {
            id: KeyHash::of("x"),
            csrf: "value".to_owned(),
            expires_in: LIFETIME,
            idle_in: IDLE,
        };
        let post = |pairs: &[(&'static str, &str)]| check_csrf(&Method::POST, &headers(pairs), &view).is_ok();
        let same = ("sec-fetch-site", "same-origin");
        assert!(post(&[same, ("x-csrf-token", "value")]));
        assert!(post(&[("origin", "http://127.0.0.1"), ("x-csrf-token", "value")]));
        for refused in [
            &[same][..],
            &[same, ("x-csrf-token", "")],
            &[same, ("x-csrf-token", "other")],
            &[("x-csrf-token", "value")],
            &[("sec-fetch-site", "none"), ("x-csrf-token", "value")],
            &[("sec-fetch-site", "none"), ("origin", "http://127.0.0.1"), ("x-csrf-token", "value")],
        ] {
            assert!(!post(refused), "{refused:?}");
        }
        assert!(check_csrf(&Method::GET, &headers(&[]), &view).is_ok());
    }
}
