//! Sessions of browsers: who the caller is, signing in with a token or at an issuer of identities, and signing out.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde_json::{Value, json};

use super::time;
use crate::PREFIX;
use crate::api::AdminApi;
use crate::caller::{Caller, CallerSource};
use crate::error::{AdminApiError, ErrorCode};
use crate::request::ApiRequest;
use crate::response::{AnswerContent, ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use crate::session::{SessionHolder, SessionView, cookie_name, session_cookie, set_cookie};
use routing::account::KeyHash;

/// Page that a browser goes to after it has signed in.
const HOME: &str = "/console/";
/// Time in seconds that a person may take to sign in at the issuer.
const SIGN_IN_SECONDS: u64 = 600;
/// Ways to sign in.
const METHODS: [&str; 2] = ["token", "oidc"];

/// Name of the cookie that ties the issuer's answer to the browser that has asked.
pub(crate) const fn sign_in_cookie(secure: bool) -> &'static str {
    if secure { "__Host-mgw_signin" } else { "mgw_signin" }
}

/// State of a session.
pub(crate) const SESSION: Record = Record {
    name: "Session",
    text: "Who the caller is, and how one can sign in.",
    members: &[
        member(
            "via",
            MemberType::OneOf(&CallerSource::NAMES),
            "How the caller is known; `none` if it is not.",
        ),
        optional("caller", MemberType::Text, "Name of the caller, as the audit log has it."),
        optional("role", MemberType::OneOf(&["read", "operate", "admin"]), "Role of the caller."),
        optional("csrf", MemberType::Text, "Value for the header `x-csrf-token`; null without a session."),
        optional("expires", MemberType::Time, "Time at which the session ends in any case."),
        optional("idle_expires", MemberType::Time, "Time at which the session ends without a request."),
        member("methods", MemberType::List(&MemberType::OneOf(&METHODS)), "Ways to sign in."),
        optional(
            "oidc_start",
            MemberType::Text,
            "Path at which signing in at an issuer begins; null if there is none.",
        ),
    ],
};

/// Body of signing in.
pub(crate) const SIGN_IN: Record = Record {
    name: "SignIn",
    text: "Token to sign in with.",
    members: &[member("token", MemberType::Text, "Token of admin.toml.")],
};

/// Result of signing out.
pub(crate) const SIGNED_OUT: Record = Record {
    name: "SignedOut",
    text: "Result of signing out.",
    members: &[member("ended", MemberType::Flag, "False if there was no session.")],
};

fn after(left: Duration) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time(i64::try_from(now.saturating_add(left).as_secs()).unwrap_or(i64::MAX)).into()
}

fn show(api: &AdminApi, caller: &Caller) -> Value {
    let has_oidc = api.callers().access().oidc.is_some();
    let session = match &caller.source {
        CallerSource::Session(view) => Some(view),
        _ => None,
    };
    let is_known = caller.source != CallerSource::Unknown;
    json!({
        "via": caller.source.name(),
        "caller": is_known.then_some(&caller.name),
        "role": is_known.then(|| caller.role.name()),
        "csrf": session.map(|view| &view.csrf),
        "expires": session.map(|view| after(view.expires_in)),
        "idle_expires": session.map(|view| after(view.idle_in)),
        "methods": METHODS.iter().filter(|method| **method != "oidc" || has_oidc).collect::<Vec<_>>(),
        "oidc_start": has_oidc.then(|| format!("{PREFIX}/session/oidc")),
    })
}

/// Answers `GET /session`.
pub(crate) fn read(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    Ok(ApiResponse::json(show(api, &request.caller)))
}

/// Begins the session of a caller, and records that it has signed in: a bounded number of lines a minute for each caller. Returns
/// the value of its cookie.
fn begin(
    api: &AdminApi,
    request: &ApiRequest,
    caller: &Caller,
    (holder, method): (SessionHolder, &str),
) -> Result<(String, SessionView), AdminApiError> {
    let (id, view) = api.callers().sessions().begin(holder, Instant::now())?;
    if let Some(skipped) = api.sign_ins().take(&caller.name, Instant::now()) {
        let mut entry = api.audit_entry(request, "session.begin", format!("session/{}", caller.name));
        (entry.actor, entry.role) = (caller.name.clone(), caller.role.name().into());
        if skipped > 0 {
            entry.details.insert("skipped".to_owned(), skipped.into());
        }
        // A session without its line would be one that nothing shows.
        api.record(&entry).inspect_err(|_| _ = api.callers().sessions().end(&id))?;
    }
    if let Some(before) = &request.link.session {
        api.callers().sessions().end(before);
    }
    api.count_login(method, "accepted");
    Ok((id, view))
}

/// Answers `POST /session`.
pub(crate) fn sign_in(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let token = request.text("token").unwrap_or_default();
    let found = api.callers().of_token(Some(token), request.link.peer);
    let caller = found.inspect_err(|error| {
        let limited = error.code == ErrorCode::RateLimited;
        api.count_login("token", if limited { "limited" } else { "refused" });
        if !limited {
            api.record_refused_sign_in(request, error);
        }
    })?;
    let holder = SessionHolder::Token(KeyHash::of(token));
    let (id, view) = begin(api, request, &caller, (holder, "token"))?;
    let caller = Caller { source: CallerSource::Session(view), ..caller };
    Ok(ApiResponse::json(show(api, &caller)).with_cookie(session_cookie(&id, request.link.secure)))
}

/// Answers `DELETE /session`.
pub(crate) fn sign_out(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let ended = match (&request.caller.source, &request.link.session) {
        (CallerSource::Session(_), Some(id)) => api.callers().sessions().end(id),
        _ => false,
    };
    let secure = request.link.secure;
    let removed = set_cookie(cookie_name(secure), "", secure, "Strict", 0);
    Ok(ApiResponse::json(json!({ "ended": ended })).with_cookie(removed))
}

/// Answers `GET /session/oidc`: sends the browser to the issuer.
pub(crate) fn oidc_start(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let access = api.callers().access();
    let Some(settings) = &access.oidc else {
        return Ok(failure(
            StatusCode::NOT_FOUND,
            "Signing in at an issuer of identities is not configured.",
        ));
    };
    match api.oidc().begin(settings) {
        Ok((address, sealed)) => {
            let name = sign_in_cookie(request.link.secure);
            let cookie = set_cookie(name, &sealed, request.link.secure, "Lax", SIGN_IN_SECONDS);
            Ok(ApiResponse::of(AnswerContent::Redirect(address)).with_cookie(cookie))
        }
        Err(error) => {
            tracing::warn!(%error, "signing in at the issuer of identities cannot begin");
            Ok(failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "The issuer of identities cannot be reached at present.",
            ))
        }
    }
}

/// Answers `GET /session/oidc/callback`: the issuer's page has come back.
pub(crate) fn oidc_callback(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let access = api.callers().access();
    let Some(settings) = &access.oidc else {
        return Ok(failure(
            StatusCode::NOT_FOUND,
            "Signing in at an issuer of identities is not configured.",
        ));
    };
    let (secure, peer) = (request.link.secure, request.link.peer);
    let removed = set_cookie(sign_in_cookie(secure), "", secure, "Lax", 0);
    let attempt = match api.callers().check_attempts(peer) {
        Ok(attempt) => attempt,
        Err(error) => {
            api.count_login("oidc", "limited");
            return Err(error);
        }
    };
    let sealed = request.link.sign_in.as_deref().unwrap_or_default();
    let identity = match api.oidc().finish(settings, sealed, request.query.as_deref()) {
        Ok(identity) => identity,
        Err(error) => {
            // The reason is for operators: it may help an attacker.
            tracing::warn!(%error, "a sign-in at the issuer of identities was refused");
            api.callers().count_failure(attempt);
            let refused = AdminApiError::new(ErrorCode::Forbidden, error.public_text());
            api.record_refused_sign_in(request, &refused);
            api.count_login("oidc", "refused");
            let page = failure(StatusCode::FORBIDDEN, error.public_text());
            return Ok(page.with_cookie(removed));
        }
    };
    let caller = Caller {
        name: identity.name.clone(),
        role: identity.role,
        address: peer.address(),
        source: CallerSource::Unknown,
    };
    let holder = SessionHolder::Identity { name: identity.name, role: identity.role };
    let (id, _) = begin(api, request, &caller, (holder, "oidc"))?;
    // Not a redirect: the browser would send no `SameSite=Strict` cookie along the way from another site.
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={HOME}\">\
         <title>Signed in</title><p>Signed in. <a href=\"{HOME}\">Continue</a></p></html>\n"
    );
    let page = ApiResponse::of(AnswerContent::Page(StatusCode::OK, text));
    Ok(page.with_cookie(session_cookie(&id, secure)).with_cookie(removed))
}

/// Returns the page of a failure. The text has nothing from the request.
fn failure(status: StatusCode, text: &str) -> ApiResponse {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Not signed in</title><p>{text} \
         <a href=\"{HOME}\">Back</a></p></html>\n"
    );
    ApiResponse::of(AnswerContent::Page(status, text))
}
