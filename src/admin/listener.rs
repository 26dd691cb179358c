//! Listeners of the admin port: `/healthz`, `/readyz`, `/metrics`, `/status`, the admin API and the console, over TCP
//! and a Unix socket.
//!
//! It is served outside of Pingora: Pingora closes all its listeners as soon as a shutdown begins, but `/readyz` must
//! report the shutdown while the gateway drains.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::PREFIX;
use super::api::AdminApi;
use super::body::AnswerBody;
use super::caller::Peer;
use super::connection::{FIRST_REQUEST, Place, Places};
use super::console;
use super::fleet::announce;
use super::origin::check_browser;
use super::resources::targets;
use observe::metrics::Metrics;

/// Time-out for a request head on the admin port.
const HEADER_TIMEOUT: Duration = FIRST_REQUEST;
/// Concurrent TCP connections. Each has at most a head and a body in memory.
const CONNECTIONS: usize = 256;
/// Concurrent connections to the Unix socket, which those over TCP do not take away.
const SOCKET_CONNECTIONS: usize = 64;
/// Further TCP connections, for health and metrics only, while all others are being answered.
const RESERVED: usize = 16;
/// Time between two pings of an HTTP/2 connection, and for the answer.
const PING: Duration = Duration::from_secs(20);
/// Time for a connection that ends to send what is left.
const GOODBYE: Duration = Duration::from_secs(1);
/// Time between two looks at drained targets that are to be resumed.
const RESUME_EVERY: Duration = Duration::from_secs(1);
/// Paths that are served on a reserved connection.
const HEALTH: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/status"];
/// Concurrent streams of an HTTP/2 connection.
const H2_STREAMS: u32 = 32;
/// Mode of the Unix socket: its user and group may connect. Others of the group need a token.
const SOCKET_MODE: u32 = 0o660;

/// Listeners of the admin port.
#[derive(Debug)]
pub struct AdminListener {
    /// TCP listener.
    pub tcp: TcpListener,
    /// Unix socket. `None` if none is configured.
    pub socket: Option<UnixListener>,
}

/// Binds the admin port. Another process that listens there is an error, unless this one takes over from it.
///
/// `SO_REUSEPORT` is set when the socket listens already: so a process that binds without it is refused, and one that takes over
/// binds with it.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub fn bind(address: SocketAddr, takes_over: bool) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(takes_over)?;
    socket.bind(address).map_err(taken)?;
    let listener = socket.listen(128).map_err(taken)?;
    rustix::net::sockopt::set_socket_reuseport(&listener, true)?;
    Ok(listener)
}

/// Says of an address that is in use who may use it.
fn taken(error: std::io::Error) -> std::io::Error {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return error;
    }
    let message = "another process listens there; each gateway needs an admin address of its own (server.admin), and one that \
                   takes over from a running one starts with --upgrade";
    std::io::Error::new(std::io::ErrorKind::AddrInUse, message)
}

/// Binds the Unix socket. That of a process of the past is replaced, and that of a running one only if this process takes over
/// from it: new connections then come to this one.
///
/// # Errors
/// Returns an error if the path is another file, or cannot be bound.
pub fn bind_socket(path: &Path, takes_over: bool) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt as _;
    match std::fs::symlink_metadata(path) {
        Ok(old) if old.file_type().is_socket() => {
            if !takes_over && std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(taken(std::io::ErrorKind::AddrInUse.into()));
            }
            std::fs::remove_file(path)?;
        }
        Ok(_) => return Err(std::io::Error::other("there is a file that is no socket")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// What all connections share.
struct Shared {
    api: Arc<AdminApi>,
    metrics: Arc<Metrics>,
    /// Held during a scrape.
    scrape: Mutex<()>,
}

/// Serves the admin port until the future is dropped.
pub async fn serve(listener: &AdminListener, metrics: Arc<Metrics>, api: Arc<AdminApi>) {
    let shared = Arc::new(Shared { api, metrics, scrape: Mutex::new(()) });
    // Ends with this function, which may be called again.
    let mut background = tokio::task::JoinSet::new();
    if shared.api.is_in_fleet() {
        background.spawn(announce(shared.api.clone()));
    }
    background.spawn(resume_targets(shared.api.clone()));
    tokio::join!(serve_tcp(&listener.tcp, &shared), async {
        if let Some(socket) = &listener.socket {
            serve_socket(socket, &shared).await;
        }
    });
}

async fn serve_tcp(listener: &TcpListener, shared: &Arc<Shared>) {
    let (places, reserved) = (Places::new(CONNECTIONS), Places::new(RESERVED));
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            pause().await;
            continue;
        };
        let usual = places.take().map(|place| (place, false));
        // Beyond the reserve, the connection is closed.
        let Some((place, is_reserved)) = usual.or_else(|| Some((reserved.take()?, true))) else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let peer = ConnectionPeer { peer: Peer::Address(address.ip()), secure: false, is_reserved };
            match shared.api.tls().cloned() {
                None => connection(stream, peer, place, shared).await,
                Some(tls) => {
                    let stream = tokio::select! {
                        stream = tls.accept(stream) => stream,
                        () = place.activity().is_over() => None,
                    };
                    if let Some(stream) = stream {
                        connection(stream, ConnectionPeer { secure: true, ..peer }, place, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve_socket(listener: &UnixListener, shared: &Arc<Shared>) {
    let places = Places::new(SOCKET_CONNECTIONS);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            pause().await;
            continue;
        };
        let Some(place) = places.take() else { continue };
        let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
        let peer = ConnectionPeer { peer: Peer::User(user), secure: false, is_reserved: false };
        tokio::spawn(connection(stream, peer, place, shared.clone()));
    }
}

/// Resumes drained targets when their time is over.
async fn resume_targets(api: Arc<AdminApi>) {
    let mut look = tokio::time::interval(RESUME_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if api.drained().has_ends() {
            let api = api.clone();
            let _ = tokio::task::spawn_blocking(move || targets::resume_over(&api)).await;
        }
    }
}

/// Out of file descriptors: waits until other connections end instead of spinning.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Who is at the other end of a connection, and what the connection is for.
#[derive(Clone, Copy)]
struct ConnectionPeer {
    peer: Peer,
    /// Whether the connection has TLS.
    secure: bool,
    /// Whether it has a reserved place, for health and metrics only.
    is_reserved: bool,
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: ConnectionPeer,
    place: Place,
    shared: Arc<Shared>,
) {
    let activity = place.activity().clone();
    let service = service_fn(move |request| {
        let (shared, guard) = (shared.clone(), activity.request());
        async move {
            let response = answer(request, peer, &shared).await;
            Ok::<_, Infallible>(response.map(|body| guard.answer(body)))
        }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS);
    server.http2().keep_alive_interval(PING).keep_alive_timeout(PING);
    // A client that disconnects early needs no handling.
    let mut served = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = served.as_mut() => return,
        () = place.activity().is_over() => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(GOODBYE, served).await;
}

async fn answer(
    request: Request<Incoming>,
    ConnectionPeer { peer, secure, is_reserved }: ConnectionPeer,
    shared: &Shared,
) -> Response<AnswerBody> {
    let path = request.uri().path();
    if is_reserved && !HEALTH.contains(&path) {
        let busy = "too many connections are being answered\n".to_owned();
        return text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", busy);
    }
    if path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return shared.api.clone().serve(request, peer, secure).await;
    }
    if let Err(error) = check_browser(request.uri(), request.headers(), shared.api.hosts()) {
        return text(error.code.row().1, "text/plain", format!("{error}\n"));
    }
    if shared.api.has_console()
        && let Some(response) = console::answer(&request)
    {
        return response;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned());
    }
    let control = shared.api.control();
    match path {
        "/healthz" => text(StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/readyz" => match control.ready() {
            Ok(()) => text(StatusCode::OK, "text/plain", "ready\n".to_owned()),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{reason}\n")),
        },
        "/metrics" => {
            // A refresh removes series and sets them again: another scrape in between would lack them.
            let _alone = shared.scrape.lock();
            control.refresh();
            text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", shared.metrics.render())
        }
        "/status" => text(StatusCode::OK, "application/json", control.status_json()),
        // A browser was sent to the console already.
        other => {
            let console = if shared.api.has_console() { " /console/" } else { "" };
            let paths = format!("/healthz /readyz /metrics /status {PREFIX}{console}\n");
            let status = if other == "/" { StatusCode::OK } else { StatusCode::NOT_FOUND };
            text(status, "text/plain", paths)
        }
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Whole(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
