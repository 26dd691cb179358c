//! The admin API: from a request to its answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Body;
use parking_lot::Mutex;

use super::PREFIX;
use super::audit::AuditLog;
use super::body::AnswerBody;
use super::caller::{Caller, CallerSource, Callers, Peer};
use super::capacity::{Capacity, CheckPlace};
use super::control::GatewayControl;
use super::drain_state::DrainState;
use super::error::{AdminApiError, ErrorCode};
use super::exchange::{error_response, read_body, request_id, whole};
use super::fleet::GatewayIdentity;
use super::ledger_pool::LedgerPool;
use super::oidc::OidcClient;
use super::origin;
use super::repeats::Repeats;
use super::request::{ApiRequest, Link, match_path};
use super::resources::playground;
use super::resources::session::sign_in_cookie;
use super::route::OperationFn;
use super::route_table::{AdminRoute, ROUTES};
use super::schema;
use super::session::{check_csrf, cookie, cookie_name};
use super::throttle::{LineLimit, LineLimits};
use super::tls::AdminTls;
use config::{
    self, AdminAccess, ConfigWriter, Environment, FileHash, ReloadOutcome, Reloader, Report, Settings,
    StoreSettings, WorkLimit,
};
use observe::metrics::Metrics;
use observe::metrics::live::LiveRequests;

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
    tls: Option<Arc<AdminTls>>,
    oidc: OidcClient,
    drained: DrainState,
    identity: GatewayIdentity,
    capacity: Capacity,
    refusals: LineLimit,
    sign_ins: LineLimits,
    repeats: Repeats,
    /// Versions of gateway.toml and admin.toml that are in effect. `None` for a file that does not exist.
    fixed: Mutex<[Option<FileHash>; 2]>,
}

impl std::fmt::Debug for AdminApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminApi")
    }
}

/// Time after which an operation is answered with an error. Those of large files take seconds.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Answer of the API as HTTP.
pub(super) type Answered = Result<Response<AnswerBody>, AdminApiError>;

impl AdminApi {
    /// Creates the API.
    pub fn new(parts: AdminApiParts) -> Self {
        let state = &parts.settings.admin_api.state;
        let drained = DrainState::load(state);
        for (provider, model) in drained.all() {
            parts.control.set_drained(&provider, &model, true);
        }
        let is_shared = matches!(parts.settings.store, StoreSettings::Valkey(_));
        let files = [&parts.config_file, &parts.settings.admin_api.tokens];
        let fixed = files.map(|path| config::file_hash(path));
        let api = AdminApi {
            drained,
            identity: GatewayIdentity::of(state, is_shared),
            ledger: Arc::new(LedgerPool::new(parts.control.clone())),
            control: parts.control,
            writer: ConfigWriter::new(parts.reloader, &parts.settings.admin_api),
            audit: AuditLog::new(state),
            settings: parts.settings,
            config_file: parts.config_file,
            callers: Callers::new(parts.access),
            live: parts.live,
            metrics: parts.metrics,
            started: unix_now(),
            tls: parts.tls,
            oidc: OidcClient::new(),
            capacity: Capacity::new(),
            refusals: LineLimit::default(),
            sign_ins: LineLimits::default(),
            repeats: Repeats::default(),
            fixed: Mutex::new(fixed),
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

    pub(super) fn shared_metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns gateway.toml and admin.toml with the versions that are in effect. `None` for a file that does not exist.
    pub(super) fn fixed_files(&self) -> [(&'static str, &Path, Option<FileHash>); 2] {
        let [gateway, tokens] = *self.fixed.lock();
        [("gateway", &self.config_file, gateway), ("admin", &self.settings.admin_api.tokens, tokens)]
    }

    pub(super) fn refusals(&self) -> &LineLimit {
        &self.refusals
    }

    pub(super) fn sign_ins(&self) -> &LineLimits {
        &self.sign_ins
    }

    pub(super) fn repeats(&self) -> &Repeats {
        &self.repeats
    }

    pub(super) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Returns the host names under which pages may use the port.
    pub(super) fn hosts(&self) -> &[String] {
        &self.settings.admin_api.hosts
    }

    /// Returns the start of the process in Unix seconds.
    pub(super) fn started(&self) -> i64 {
        self.started
    }

    /// Returns whether a key that is created here is unknown to the other gateways that share the store.
    pub(super) fn has_local_keys(&self) -> bool {
        matches!(self.settings.store, StoreSettings::Valkey(_))
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
            Ok(access) => {
                self.callers.set_access(access);
                let [_, tokens] = &mut *self.fixed.lock();
                *tokens = config::file_hash(&self.settings.admin_api.tokens);
            }
            Err(faults) => report.merge(faults),
        }
        if let Some(Err(error)) = self.tls.as_ref().map(|tls| tls.reload()) {
            report.merge(Report::of_file(&error.path, error.reason));
        }
        self.show_certificate();
        report.into_result()
    }

    /// Reads routes, keys, tokens and certificate again. Blocks.
    pub fn reload(&self) -> ReloadOutcome {
        let reloader = self.writer.reloader();
        let outcome = reloader.reload();
        match self.reload_access() {
            Ok(()) => outcome,
            Err(report) => reloader.refuse_access(outcome, report),
        }
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
        let route = find(request.method().as_str(), request.uri().path()).map_or("", |(route, _)| route.id);
        let answered = self.clone().answer(request, (peer, secure), &id).await;
        let mut response = answered.unwrap_or_else(|error| error_response(&error, &id));
        let status = response.status();
        self.metrics.admin_requests.with_label_values(&[route, status.as_str()]).inc();
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
        origin::check(&head.uri, &head.headers, self.hosts(), is_page)?;
        let (route, names) = match found {
            Err(error) if head.method == http::Method::OPTIONS && !error.allow.is_empty() => {
                return options(&error.allow);
            }
            found => found?,
        };
        let caller = self.identify(route, &head, peer, secure).inspect_err(|error| {
            let is_attempt = head.headers.contains_key(header::AUTHORIZATION);
            if is_attempt && error.code == ErrorCode::Unauthenticated {
                self.record_refused((head.uri.path(), route.id), Caller::unknown(peer), id, error);
            }
        })?;
        if caller.role < route.role {
            let message = format!(
                "the operation needs the role {}; yours is {}",
                route.role.name(),
                caller.role.name()
            );
            let error = AdminApiError::new(ErrorCode::Forbidden, message);
            self.record_refused((head.uri.path(), route.id), caller, id, &error);
            return Err(error);
        }
        let query = head.uri.query().map(str::to_owned);
        check_query(route, query.as_deref())?;
        // Before the body, which may be large.
        let check = if route.is_check() { Some(self.capacity.check()?) } else { None };
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
            limit: WorkLimit::new(OPERATION_TIMEOUT),
        };
        match route.answer {
            Some(answer) => self.run(answer, request, check).await,
            None if route.id == playground::ID => self.play(&request),
            None => self.listen(&request),
        }
    }

    /// Runs an operation on a thread that may block. `check` is the place of a check of a whole configuration.
    async fn run(
        self: Arc<Self>,
        answer: OperationFn,
        request: ApiRequest,
        check: Option<CheckPlace>,
    ) -> Answered {
        // An issuer of identities may be slow, which must not hold up other operations.
        let place = match check {
            Some(check) => check.thread().await?,
            None if request.route.is_page() => self.capacity.sign_in()?,
            None => self.capacity.operation().await?,
        };
        let watched = request.limit.watch();
        let api = self.clone();
        let work = move || {
            // Work that cannot be ended goes on without its caller, and so does its place.
            let _place = place;
            answer(&api, &request)
        };
        let answered = tokio::time::timeout(OPERATION_TIMEOUT, tokio::task::spawn_blocking(work)).await;
        drop(watched);
        let error = |code, message| AdminApiError::new(code, message);
        let answered = answered.map_err(|_| error(ErrorCode::TimedOut, "the operation took too long"))?;
        self.respond(answered.map_err(|_| error(ErrorCode::Internal, "the operation failed"))??)
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
    if allow.contains(&"GET") {
        allow.push("HEAD");
    }
    allow.push("OPTIONS");
    let allow = allow.join(", ");
    let error = AdminApiError::new(ErrorCode::MethodNotAllowed, format!("the methods of this path: {allow}"));
    Err(AdminApiError { allow, ..error })
}

/// Answers `OPTIONS` with the methods of a path. Pages of other origins are permitted none.
fn options(allow: &str) -> Answered {
    let mut response = whole("application/json", String::new());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    response.headers_mut().remove(header::CONTENT_TYPE);
    if let Ok(allow) = HeaderValue::from_str(allow) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    Ok(response)
}

/// Refuses unknown parameters, and values that a parameter does not have: a misspelt filter would otherwise show
/// everything, or nothing.
fn check_query(route: &AdminRoute, query: Option<&str>) -> Result<(), AdminApiError> {
    // An issuer of identities may add parameters of its own.
    if route.is_page() {
        return Ok(());
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let parameter = route.query.iter().find(|parameter| parameter.name == name);
        if let Some(parameter) = parameter {
            let value = codec::wire::path::percent_decode(value);
            let is_known = parameter.values.is_empty() || parameter.values.contains(&&*value);
            if !is_known {
                let message = format!("{value:?} is no value; write one of {}", parameter.values.join(", "));
                return Err(AdminApiError::field(name, message));
            }
        } else {
            let known: Vec<&str> = route.query.iter().map(|parameter| parameter.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("unknown parameter; known parameters: {known}");
            return Err(AdminApiError::field(&codec::wire::path::percent_decode(name), message));
        }
    }
    Ok(())
}

fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(0)
}
