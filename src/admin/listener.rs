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
use tokio::sync::Semaphore;

use super::PREFIX;
use super::api::AdminApi;
use super::body::AnswerBody;
use super::caller::Peer;
use super::console;
use super::fleet::announce;
use crate::metrics::Metrics;

/// Time-out for a request head on the admin port.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent connections. Each has at most a head and a body in memory.
const CONNECTIONS: usize = 256;
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

/// Binds the admin port with `SO_REUSEPORT`: during an upgrade, the new process can bind it while the old one still
/// listens.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

/// Binds the Unix socket. A socket of an earlier process is replaced; during an upgrade, new connections come to the new
/// process.
///
/// # Errors
/// Returns an error if the path is another file, or cannot be bound.
pub fn bind_socket(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt as _;
    match std::fs::symlink_metadata(path) {
        Ok(old) if old.file_type().is_socket() => std::fs::remove_file(path)?,
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
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // Ends with this function, which may be called again.
    let mut background = tokio::task::JoinSet::new();
    if shared.api.is_in_fleet() {
        background.spawn(announce(shared.api.clone()));
    }
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let shared = shared.clone();
        let accepted = tokio::select! {
            tcp = listener.tcp.accept() => match tcp {
                Ok((stream, address)) => {
                    let peer = Peer::Address(address.ip());
                    tokio::spawn(async move {
                        match shared.api.tls().cloned() {
                            None => connection(stream, peer, false, shared).await,
                            Some(tls) => if let Some(stream) = tls.accept(stream).await {
                                connection(stream, peer, true, shared).await;
                            }
                        }
                        drop(place);
                    });
                    true
                }
                Err(_) => false,
            },
            unix = accept(listener.socket.as_ref()) => match unix {
                Ok(stream) => {
                    let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
                    tokio::spawn(async move { connection(stream, Peer::User(user), false, shared).await; drop(place) });
                    true
                }
                Err(_) => false,
            },
        };
        if !accepted {
            // Out of file descriptors: wait until other connections end instead of spinning.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn accept(socket: Option<&UnixListener>) -> std::io::Result<tokio::net::UnixStream> {
    match socket {
        Some(socket) => socket.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    secure: bool,
    shared: Arc<Shared>,
) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(request, peer, secure, &shared).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS);
    // A client that disconnects early needs no handling.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    peer: Peer,
    secure: bool,
    shared: &Shared,
) -> Response<AnswerBody> {
    let path = request.uri().path();
    if path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return shared.api.clone().serve(request, peer, secure).await;
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
        _ => {
            let paths = format!("/healthz /readyz /metrics /status {PREFIX}\n");
            text(StatusCode::NOT_FOUND, "text/plain", paths)
        }
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Whole(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
