//! Admin port: `/healthz`, `/readyz`, `/metrics` and `/status`.
//!
//! It is served outside of Pingora: Pingora closes all its listeners as soon as a shutdown begins, but `/readyz` must
//! report the shutdown while the gateway drains.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};

use super::Metrics;

/// Time-out for a request head on the admin port.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// State of the process for the admin port.
pub trait Status: Send + Sync + 'static {
    /// Returns an error with the reason if the process should not get new requests.
    fn ready(&self) -> Result<(), Cow<'static, str>>;
    /// Returns the loaded configuration, the result of the last reload and the state of the targets as JSON.
    fn json(&self) -> String;
    /// Updates the series that are not maintained continuously, before a scrape.
    fn refresh(&self) {}
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

/// Serves the admin port until the future is dropped.
pub async fn serve(listener: &TcpListener, metrics: Arc<Metrics>, status: Arc<dyn Status>) {
    let scrape = Arc::new(Mutex::new(()));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: wait until other connections end instead of spinning.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (metrics, status, scrape) = (metrics.clone(), status.clone(), scrape.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &metrics, &*status, &scrape);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // A client that disconnects early needs no handling.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    metrics: &Metrics,
    status: &dyn Status,
    scrape: &Mutex<()>,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned());
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/readyz" => match status.ready() {
            Ok(()) => text(StatusCode::OK, "text/plain", "ready\n".to_owned()),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{reason}\n")),
        },
        "/metrics" => {
            // A refresh removes series and sets them again: another scrape in between would lack them.
            let _alone = scrape.lock();
            status.refresh();
            text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics.render())
        }
        "/status" => text(StatusCode::OK, "application/json", status.json()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "/healthz /readyz /metrics /status\n".to_owned()),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
