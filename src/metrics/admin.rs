//! The admin port: `/healthz`, `/readyz`, `/metrics` and `/status`.
//!
//! It is served beside Pingora, because Pingora closes all its listeners in the moment in which a stop begins, and a
//! stopping gateway must still say that it is stopping.

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
use tokio::net::{TcpListener, TcpSocket};

use super::Metrics;

/// Longest wait for a request on the admin port.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the admin port says about the process.
pub trait Status: Send + Sync + 'static {
    /// Whether new requests are welcome.
    fn ready(&self) -> Result<(), Cow<'static, str>>;
    /// What is loaded, how the last reload went, and how the targets are, as JSON.
    fn json(&self) -> String;
    /// Brings the series up to date that are not counted as things happen.
    fn refresh(&self) {}
}

/// Binds the admin port. A new process may bind it while the old one still has it, so that an upgrade hands it over
/// without a gap.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

/// Serves the admin port until it is cancelled.
pub async fn serve(listener: &TcpListener, metrics: Arc<Metrics>, status: Arc<dyn Status>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: they come back when connections end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (metrics, status) = (metrics.clone(), status.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &metrics, &*status);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // A scraper that goes away in the middle is no event.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, status: &dyn Status) -> Response<Full<Bytes>> {
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
