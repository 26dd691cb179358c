//! The admin API: from a request to its answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Body;
use tokio::sync::Semaphore;

use super::PREFIX;
use super::audit::{AuditEntry, AuditLog};
use super::body::{AnswerBody, PieceWriter, pieces};
use super::caller::{Caller, CallerSource, Callers, Peer};
use super::control::GatewayControl;
use super::drain_state::DrainState;
use super::error::{AdminApiError, ErrorCode};
use super::events::{EventFilter, EventStream, Topics};
use super::exchange::{error_response, page, read_body, redirect, request_id, whole};
use super::fleet::GatewayIdentity;
use super::ledger_pool::LedgerPool;
use super::oidc::OidcClient;
use super::origin;
use super::playground_stream;
use super::request::{ApiRequest, Link, match_path};
use super::resources::playground;
use super::resources::session::sign_in_cookie;
use super::response::{AnswerContent, ApiResponse, WritePieces};
use super::route_table::{AdminRoute, ROUTES};
use super::schema;
use super::session::{check_csrf, cookie, cookie_name};
use super::tls::AdminTls;
use crate::config::{
    self, AdminAccess, ConfigWriter, Environment, Reloader, Report, Settings, StoreSettings,
};
use crate::metrics::Metrics;
use crate::metrics::live::LiveRequests;

/// Concurrent operations; further ones get a 503. Operations run on threads of their own, of which there are fewer.
const OPERATIONS: usize = 32;
/// Concurrent streams of events.
const STREAMS: usize = 32;
/// Concurrent requests of the playground.
const PLAYGROUND: usize = 4;
/// Concurrent exports of usage.
const EXPORTS: usize = 2;

/// Constituents of the admin API.
pub struct AdminApiParts {
    /// Running gateway.
    pub control: Arc<dyn GatewayControl>,
    /// Reloads of the configuration.
    pub reloader: Arc<Reloader>,
    /// Settings of gateway.toml.
    pub settings: Settings,
    /// Path of gateway.toml.
    pub config_file: PathBuf,
    /// Who may use the API.
    pub access: AdminAccess,
    /// Events of requests.
    pub live: Arc<LiveRequests>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Certificate of the admin port. `None` for plain HTTP.
    pub tls: Option<Arc<AdminTls>>,
}

/// Admin API of a running gateway.
pub struct AdminApi {
    control: Arc<dyn GatewayControl>,
    writer: ConfigWriter,
    settings: Settings,
    config_file: PathBuf,
    callers: Callers,
    ledger: Arc<LedgerPool>,
    audit: AuditLog,
    live: Arc<LiveRequests>,
    metrics: Arc<Metrics>,
    /// Start of the process in Unix seconds.
    started: i64,
    playground: Arc<Semaphore>,
    tls: Option<Arc<AdminTls>>,
    oidc: OidcClient,
    drained: DrainState,
    identity: GatewayIdentity,
    operations: Semaphore,
    streams: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

impl std::fmt::Debug for AdminApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminApi")
    }
}

type Answered = Result<Response<AnswerBody>, AdminApiError>;

fn busy() -> AdminApiError {
    AdminApiError::new(ErrorCode::Unavailable, "too many requests at a time").retry_after(1)
}

impl AdminApi {
    /// Creates the API.
    pub fn new(parts: AdminApiParts) -> Self {
        let state = &parts.settings.admin_api.state;
        let drained = DrainState::load(state);
        for (provider, model) in drained.all() {
            parts.control.set_drained(&provider, &model, true);
        }
        let is_shared = matches!(parts.settings.store, StoreSettings::Valkey(_));
        let api = AdminApi {
            drained,
            identity: GatewayIdentity::of(state, is_shared),
            ledger: Arc::new(LedgerPool::new(parts.control.clone())),
            control: parts.control,
            writer: ConfigWriter::new(parts.reloader, state, parts.settings.admin_api.writes),
            audit: AuditLog::new(state),
            settings: parts.settings,
            config_file: parts.config_file,
            callers: Callers::new(parts.access),
            live: parts.live,
            metrics: parts.metrics,
            started: unix_now(),
            playground: Arc::new(Semaphore::new(PLAYGROUND)),
            tls: parts.tls,
            oidc: OidcClient::new(),
            operations: Semaphore::new(OPERATIONS),
            streams: Arc::new(Semaphore::new(STREAMS)),
            exports: Arc::new(Semaphore::new(EXPORTS)),
        };
        api.show_certificate();
        api
    }

    /// Shows the end of the certificate in the metrics.
    fn show_certificate(&self) {
        let Some(tls) = &self.tls else { return };
        let listen = self.settings.admin.to_string();
        self.metrics.certificate_not_after.with_label_values(&[&listen]).set(tls.not_after());
    }

    /// Returns the running gateway.
    pub fn control(&self) -> &Arc<dyn GatewayControl> {
        &self.control
    }

    pub(super) fn writer(&self) -> &ConfigWriter {
        &self.writer
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn config_file(&self) -> &Path {
        &self.config_file
    }

    pub(super) fn ledger(&self) -> &Arc<LedgerPool> {
        &self.ledger
    }

    pub(super) fn audit(&self) -> &AuditLog {
        &self.audit
    }

    pub(super) fn live(&self) -> &Arc<LiveRequests> {
        &self.live
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the start of the process in Unix seconds.
    pub(super) fn started(&self) -> i64 {
        self.started
    }

    /// Returns whether the console is served.
    pub(super) fn has_console(&self) -> bool {
        self.settings.admin_api.console
    }

    pub(super) fn callers(&self) -> &Callers {
        &self.callers
    }

    pub(super) fn oidc(&self) -> &OidcClient {
        &self.oidc
    }

    pub(super) fn drained(&self) -> &DrainState {
        &self.drained
    }

    pub(super) fn identity(&self) -> &GatewayIdentity {
        &self.identity
    }

    /// Returns whether the store is one that a fleet shares.
    pub(super) fn is_in_fleet(&self) -> bool {
        matches!(self.settings.store, StoreSettings::Valkey(_))
    }

    pub(super) fn tls(&self) -> Option<&Arc<AdminTls>> {
        self.tls.as_ref()
    }

    /// Counts an attempt to sign in.
    pub(super) fn count_login(&self, method: &str, result: &str) {
        self.metrics.admin_logins.with_label_values(&[method, result]).inc();
    }

    /// Reads the tokens, the rules of sign-in and the certificate again. Blocks.
    ///
    /// # Errors
    /// Returns [`Report`] if a file is not valid; what it has stays as it was.
    pub fn reload_access(&self) -> Result<(), Report> {
        let mut report = Report::default();
        match config::load_admin_access(&self.settings.admin_api.tokens, &Environment) {
            Ok(access) => self.callers.set_access(access),
            Err(faults) => report.merge(faults),
        }
        if let Some(Err(error)) = self.tls.as_ref().map(|tls| tls.reload()) {
            report.merge(Report::of_file(&error.path, error.reason));
        }
        self.show_certificate();
        report.into_result()
    }

    /// Begins the line of the audit log for a request.
    pub(super) fn audit_entry(
        &self,
        request: &ApiRequest,
        action: &'static str,
        object: String,
    ) -> AuditEntry {
        AuditEntry {
            actor: request.caller.name.clone(),
            role: request.caller.role.name(),
            client: request.caller.address.map(|address| address.to_string()),
            request_id: request.id.clone(),
            action,
            object,
            ..AuditEntry::default()
        }
    }

    /// Appends a line to the audit log. Returns its number.
    ///
    /// # Errors
    /// Returns an error if the log cannot be written: the change must not take place then.
    pub(super) fn record(&self, entry: &AuditEntry) -> Result<u64, AdminApiError> {
        self.audit.append(entry).map_err(|error| {
            AdminApiError::new(ErrorCode::Unavailable, format!("the audit log cannot be written: {error}"))
        })
    }

    /// Answers a request.
    pub(super) async fn serve<B>(
        self: Arc<Self>,
        request: Request<B>,
        peer: Peer,
        secure: bool,
    ) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let id = request_id(request.headers());
        let is_head = request.method() == http::Method::HEAD;
        let answered = self.answer(request, (peer, secure), &id).await;
        let mut response = answered.unwrap_or_else(|error| error_response(&error, &id));
        if is_head {
            *response.body_mut() = AnswerBody::Whole(Bytes::new());
        }
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert("x-request-id", id);
        }
        response
    }

    async fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
        (peer, secure): (Peer, bool),
        id: &str,
    ) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let found = find(head.method.as_str(), head.uri.path());
        let is_page = matches!(&found, Ok((route, _)) if route.is_page());
        origin::check(&head.uri, &head.headers, &self.settings.admin_api.hosts, is_page)?;
        let (route, names) = found?;
        let caller = self.identify(route, &head, peer, secure)?;
        if caller.role < route.role {
            let message = format!(
                "the operation needs the role {}; yours is {}",
                route.role.name(),
                caller.role.name()
            );
            return Err(AdminApiError::new(ErrorCode::Forbidden, message));
        }
        let query = head.uri.query().map(str::to_owned);
        check_query(route, query.as_deref())?;
        let body = read_body(route, &head.headers, body).await?;
        schema::check(&body, route.body)?;
        let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let if_match =
            text(header::IF_MATCH).map(|etag| etag.trim().trim_start_matches("W/").trim_matches('"'));
        let request = ApiRequest {
            route,
            names,
            query,
            body,
            caller,
            id: id.to_owned(),
            link: Link {
                peer,
                secure,
                session: cookie(&head.headers, cookie_name(secure)).map(str::to_owned),
                sign_in: cookie(&head.headers, sign_in_cookie(secure)).map(str::to_owned),
            },
            if_match: if_match.filter(|etag| *etag != "*").map(str::to_owned),
            idempotency_key: text(header::HeaderName::from_static("idempotency-key")).map(str::to_owned),
        };
        match route.answer {
            Some(answer) => {
                let _permit = self.operations.try_acquire().map_err(|_| busy())?;
                let api = self.clone();
                let answered = tokio::task::spawn_blocking(move || answer(&api, &request)).await;
                let failed = |_| AdminApiError::new(ErrorCode::Internal, "the operation failed");
                self.respond(answered.map_err(failed)??)
            }
            None if route.id == playground::ID => self.play(&request),
            None => self.listen(&request),
        }
    }

    /// Returns the caller of a request, and checks what a session needs.
    fn identify(
        &self,
        route: &AdminRoute,
        head: &http::request::Parts,
        peer: Peer,
        secure: bool,
    ) -> Result<Caller, AdminApiError> {
        let caller = match self.callers.identify(&head.headers, peer, secure)? {
            Some(caller) => caller,
            None if route.is_open => Caller::unknown(peer),
            None => {
                let message = "send a token of admin.toml: authorization: Bearer mga_...";
                return Err(AdminApiError::new(ErrorCode::Unauthenticated, message));
            }
        };
        // Signing in begins a session of its own, with the token in the body.
        if let (CallerSource::Session(session), false) = (&caller.source, route.id == "signIn") {
            check_csrf(&head.method, &head.headers, session)?;
        }
        Ok(caller)
    }

    /// Turns an answer into HTTP.
    fn respond(&self, answer: ApiResponse) -> Answered {
        let mut response = match answer.content {
            AnswerContent::Json(value) => {
                let mut text = value.to_string();
                text.push('\n');
                whole("application/json", text)
            }
            AnswerContent::Text(media, text) => whole(media, text),
            AnswerContent::Page(status, text) => page(status, text),
            AnswerContent::Redirect(address) => redirect(&address)?,
            AnswerContent::Pieces(media, name, write) => self.export(media, &name, write)?,
        };
        if let Some(etag) = answer.etag.and_then(|etag| HeaderValue::from_str(&format!("\"{etag}\"")).ok()) {
            response.headers_mut().insert(header::ETAG, etag);
        }
        for cookie in answer.cookies {
            let cookie = HeaderValue::try_from(cookie);
            let wrong = |_| AdminApiError::new(ErrorCode::Internal, "a cookie cannot be sent");
            response.headers_mut().append(header::SET_COOKIE, cookie.map_err(wrong)?);
        }
        Ok(response)
    }

    /// Starts a thread that writes an export as fast as its client reads.
    fn export(&self, media: &'static str, name: &str, write: WritePieces) -> Answered {
        let permit = self.exports.clone().try_acquire_owned().map_err(|_| busy())?;
        let (sender, body) = pieces();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut out = PieceWriter::new(sender);
            let written = write(&mut out).and_then(|()| std::io::Write::flush(&mut out));
            if let Err(error) = written
                && error.kind() != std::io::ErrorKind::BrokenPipe
            {
                tracing::warn!(%error, "an export ended early");
            }
        });
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
            headers.insert(header::CONTENT_DISPOSITION, value);
        }
        Ok(response)
    }

    /// Runs a request of the playground, whose response is a stream of events.
    fn play(&self, request: &ApiRequest) -> Answered {
        let asked = playground::read(request)?;
        let permit = self.playground.clone().try_acquire_owned().map_err(|_| busy())?;
        let unavailable = |reason| AdminApiError::new(ErrorCode::Unavailable, reason);
        let parts = self.control.submit(asked).map_err(unavailable)?;
        let (sender, body) = pieces();
        tokio::spawn(async move {
            let _permit = permit;
            playground_stream::run(parts, sender).await;
        });
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(response)
    }

    /// Starts a stream of events.
    fn listen(&self, request: &ApiRequest) -> Answered {
        let topics = Topics::of(request)?;
        let filter = EventFilter::of(request)?;
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| busy())?;
        let (sender, body) = pieces();
        let totals = Some((self.metrics.clone(), self.started));
        let stream = EventStream::new(self.control.clone(), &self.live, totals, topics, filter);
        tokio::spawn(async move {
            let _permit = permit;
            stream.run(sender).await;
        });
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(response)
    }
}

/// Returns the route of a request, with the parameters of its path. `HEAD` is answered like `GET`.
fn find(method: &str, path: &str) -> Result<(&'static AdminRoute, Vec<String>), AdminApiError> {
    let unknown =
        || AdminApiError::new(ErrorCode::NotFound, format!("the path is unknown; {PREFIX} lists all paths"));
    let below = path.strip_prefix(PREFIX).ok_or_else(unknown)?;
    let below = if below == "/" { "" } else { below };
    let mut allow: Vec<&str> = Vec::new();
    for route in ROUTES {
        let Some(names) = match_path(route.path, below) else { continue };
        if route.method == method || (method == "HEAD" && route.method == "GET") {
            return Ok((route, names));
        }
        allow.push(route.method);
    }
    if allow.is_empty() {
        return Err(unknown());
    }
    let allow = allow.join(", ");
    let error = AdminApiError::new(ErrorCode::MethodNotAllowed, format!("the methods of this path: {allow}"));
    Err(AdminApiError { allow, ..error })
}

/// Refuses unknown parameters: a misspelt filter would otherwise show everything.
fn check_query(route: &AdminRoute, query: Option<&str>) -> Result<(), AdminApiError> {
    // An issuer of identities may add parameters of its own.
    if route.is_page() {
        return Ok(());
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        if !route.query.iter().any(|parameter| parameter.name == name) {
            let known: Vec<&str> = route.query.iter().map(|parameter| parameter.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("unknown parameter; known parameters: {known}");
            return Err(AdminApiError::field(&crate::wire::path::percent_decode(name), message));
        }
    }
    Ok(())
}

fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(0)
}
