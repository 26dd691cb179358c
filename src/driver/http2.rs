//! HTTP/2 connections of clients: Pingora frames them and controls their flow, and each stream is a request.
//!
//! `HttpProxy` would keep state for a cache, compression and subrequests in every stream, and bring a proxy of its own
//! into the program, whose exchanges no request runs (docs/decisions/002).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::HOST;
use http::{HeaderValue, Method};
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;

use super::authority::is_authority;
use super::hooks::ExchangeHooks;
use super::request::{handle_request, refuse_request, session_of};
use codec::error::{ApiError, ErrorKind};

/// Server of HTTP/2 connections. Pingora's `ServerApp` for it makes the HTTP/2 handshake, accepts the streams of a
/// connection and closes it when it is idle or the process drains.
pub struct Http2Server<P> {
    proxy: P,
    options: HttpServerOptions,
    h2_options: H2Options,
}

impl<P> Http2Server<P> {
    /// `h2_options` are the limits of a connection; `keepalive` is the time for which it may be idle.
    pub fn new(proxy: P, h2_options: H2Options, keepalive: Duration) -> Self {
        let mut options = HttpServerOptions::default();
        // The acceptor passes connections of HTTP/2 only. Over plaintext Pingora looks for the preface once more.
        options.h2c = true;
        options.h2_idle_timeout = Some(keepalive);
        Http2Server { proxy, options, h2_options }
    }
}

/// Returns why a request is malformed, of what the frames may hold but a request must not. h2 has checked the names of
/// headers, pseudo-headers and headers of the connection.
fn fault_of(head: &RequestHeader) -> Option<&'static str> {
    if head.method == Method::CONNECT {
        // It asks for a tunnel to a host and has no path (RFC 9113, section 8.5).
        return Some("it asks for a tunnel");
    }
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let mut values = head.headers.values().map(HeaderValue::as_bytes);
    // RFC 9113, section 8.2.1.
    let spaced = values.any(|value| is_space(value.first()) || is_space(value.last()));
    if spaced {
        return Some("the value of a header begins or ends with white space");
    }
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut named = host.filter(|host| !host.is_empty()).into_iter().chain(authority);
    if !named.all(is_authority) {
        return Some("its authority is not a host with an optional port");
    }
    None
}

#[async_trait]
impl<P: ExchangeHooks + 'static> HttpServerApp for Http2Server<P> {
    async fn process_new_http(
        self: &Arc<Self>,
        client: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let mut session = session_of(&self.proxy, client);
        if let Some(fault) = fault_of(session.req_header()) {
            let error =
                ApiError::new(ErrorKind::InvalidHead, format!("The request head is not valid: {fault}."));
            let target = session.req_header().uri.path_and_query().map(|target| target.as_str().to_owned());
            refuse_request(&self.proxy, &mut session, &error, target.as_deref()).await;
            return None;
        }
        let reusable = {
            let mut ctx = self.proxy.new_ctx();
            handle_request(&self.proxy, &mut session, &mut ctx).await
        };
        // A stream that is dropped before its end is reset, which tells the client that its response is not complete.
        if reusable {
            let _ = session.downstream_session.finish().await;
        }
        None
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(self.h2_options.clone())
    }
}
