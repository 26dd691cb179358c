//! Connection acceptor: limits downstream connections, makes TLS handshakes, and selects HTTP/1 or HTTP/2.
//!
//! Pingora bounds neither the number of connections nor the time in which a request head must arrive. Both bounds are
//! enforced here, one layer below: every connection is counted, sends the header of the PROXY protocol and makes its TLS
//! handshake if its listener requires them, and is wrapped in a [`HeaderTimeoutStream`]. Then `http1` or `http2` serves it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use prometheus::IntGauge;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::listeners::{ListenerPolicy, ListenerTable};
use super::proxy_header::ProxyHeaderReader;
use super::tls::TlsEndpoint;
use crate::Gateway;
use config::{Limits, ProxyProtocol};
use driver::descriptors;
use driver::header_timeout::HeaderTimeoutStream;
use driver::hooks::HookFuture;
use driver::http1;
use driver::http2::Http2Server;
use observe::metrics::Metrics;
use routing::account::TrustedProxies;

/// Error body for a connection beyond the limit. The client's format is not known at that point.
const FULL: &str = "{\"error\":{\"message\":\"Too many connections.\",\"type\":\"service_unavailable\",\
                    \"param\":null,\"code\":\"server_is_overloaded\"}}";

/// Write time-out of that refusal.
const REFUSAL: Duration = Duration::from_secs(1);

/// Connection acceptor: counts and times downstream connections and TLS handshakes, then hands them to HTTP.
pub(crate) struct Acceptor {
    gateway: Gateway,
    http2: Arc<Http2Server<Gateway>>,
    listeners: ListenerTable,
    proxies: TrustedProxies,
    permits: Arc<Semaphore>,
    limits: Limits,
    metrics: Arc<Metrics>,
}

impl Acceptor {
    pub(crate) fn new(
        gateway: Gateway,
        http2: Http2Server<Gateway>,
        listeners: ListenerTable,
        proxies: TrustedProxies,
        limits: Limits,
        metrics: Arc<Metrics>,
    ) -> Self {
        Acceptor {
            gateway,
            http2: Arc::new(http2),
            listeners,
            proxies,
            // Tokio panics above `MAX_PERMITS`.
            permits: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            limits,
            metrics,
        }
    }

    /// Counts a connection. `None` if the limit is reached.
    fn admit(&self) -> Option<Admitted> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        let open = self.metrics.connections.clone();
        open.inc();
        Some(Admitted { _permit: permit, open })
    }

    /// Serves a connection. Returns what serves it from then on, if it was upgraded to another protocol.
    async fn serve(
        &self,
        session: Stream,
        policy: ListenerPolicy,
        shutdown: &ShutdownWatch,
    ) -> Option<HookFuture<'static, ()>> {
        // An accepted connection may carry a request that was sent before the drain began: shutdown waits for it, but
        // no longer than `NEW_CONNECTION_GRACE`.
        let held = self.gateway.shutdown.guard();
        let stopping = async {
            self.gateway.shutdown.draining().await;
            tokio::time::sleep(http1::NEW_CONNECTION_GRACE).await;
        };
        let mut stopping = pin!(stopping);
        let ListenerPolicy { proxy_protocol, tls } = policy;
        let session = if proxy_protocol == ProxyProtocol::Off && tls.is_none() {
            session
        } else {
            // Boxed: otherwise the large state of a handshake would stay allocated for the life of the connection.
            let prepared = tokio::select! {
                biased;
                prepared = Box::pin(self.prepare(proxy_protocol, tls, session)) => prepared,
                () = stopping.as_mut() => return None,
            };
            prepared?
        };
        let mut stream = Box::new(HeaderTimeoutStream::new(session, self.limits.header_timeout));
        let http2 = tokio::select! {
            biased;
            http2 = stream.is_http2() => http2,
            () = stopping.as_mut() => return None,
            // A client that sends nothing would hold its permit for ever.
            () = tokio::time::sleep(self.limits.keepalive) => return None,
        };
        let Ok(http2) = http2 else { return None };
        if http2 {
            let settings = tokio::select! {
                biased;
                // Boxed: only the first moment of a connection needs it.
                settings = Box::pin(stream.begins_with_settings()) => settings,
                () = stopping => return None,
            };
            if !matches!(settings, Ok(true)) {
                return None;
            }
            // HTTP/2 interleaves heads and bodies of many streams, so the head time-out cannot apply to the connection.
            stream.head_complete();
            drop(held);
            Box::pin(self.serve_http2(stream, shutdown)).await;
            None
        } else {
            let first = stream.take_first();
            http1::serve(&self.gateway, stream, first, held).await
        }
    }

    /// Serves an HTTP/2 connection. Its client is told to connect anew (GOAWAY) when the process is about to stop: at
    /// once, or after [`http1::NEW_CONNECTION_GRACE`] if it has connected since, so that it can send its first request.
    async fn serve_http2(&self, stream: Stream, shutdown: &ShutdownWatch) {
        let state = &self.gateway.shutdown;
        let (leave, leaving) = watch::channel(false);
        let is_new = state.is_stopping();
        let tell = async {
            let mut shutdown = shutdown.clone();
            let announced = async {
                state.stopping().await;
                if is_new {
                    tokio::time::sleep(http1::NEW_CONNECTION_GRACE).await;
                }
            };
            tokio::select! {
                () = announced => {}
                _ = shutdown.changed() => {}
            }
            let _ = leave.send(true);
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = tell => {}
            _ = self.http2.process_new(stream, &leaving) => {}
        }
    }

    /// Reads what precedes HTTP on a connection: the header of the PROXY protocol, and the TLS handshake. `None` if the
    /// connection must be closed.
    async fn prepare(
        &self,
        proxy_protocol: ProxyProtocol,
        tls: Option<Arc<TlsEndpoint>>,
        session: Stream,
    ) -> Option<Stream> {
        let session = match proxy_protocol {
            ProxyProtocol::Off => session,
            mode => self.read_proxy_header(mode, session).await?,
        };
        match tls {
            None => Some(session),
            Some(endpoint) => self.encrypt(&endpoint, session).await,
        }
    }

    /// Reads the header of the PROXY protocol. `None` if the connection must be closed.
    async fn read_proxy_header(&self, mode: ProxyProtocol, session: Stream) -> Option<Stream> {
        let reader = ProxyHeaderReader {
            mode,
            proxies: &self.proxies,
            timeout: self.limits.header_timeout,
            idle: self.limits.keepalive,
        };
        match reader.read(session).await {
            Ok(session) => Some(session),
            Err(refusal) => {
                if let Some(reason) = refusal.label() {
                    tracing::debug!(
                        reason,
                        "a connection without a valid header of the PROXY protocol was closed"
                    );
                    self.metrics.proxy_headers_refused.with_label_values(&[reason]).inc();
                }
                None
            }
        }
    }

    /// Makes the TLS handshake of a connection. `None` if it fails or exceeds `limits.header_timeout`.
    async fn encrypt(&self, endpoint: &TlsEndpoint, session: Stream) -> Option<Stream> {
        let made = tokio::time::timeout(self.limits.header_timeout, endpoint.handshake(session)).await;
        let reason = match made {
            Ok(Ok(session)) => return session,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                "failed"
            }
            Err(_) => "timeout",
        };
        self.metrics.handshakes_failed.with_label_values(&[reason]).inc();
        None
    }
}

#[async_trait]
impl ServerApp for Acceptor {
    async fn process_new(self: &Arc<Self>, session: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let policy = self.listeners.of(&session).ok()?;
        let admitted = if descriptors::is_reserved(&session) { None } else { self.admit() };
        let Some(admitted) = admitted else {
            self.metrics.connections_refused.inc();
            // A refusal over TLS would need a handshake first: too much work for excess connections.
            if policy.tls.is_none() {
                let _ = tokio::time::timeout(REFUSAL, refuse(session)).await;
            }
            return None;
        };
        let (front, shutdown) = (self.clone(), shutdown.clone());
        // A task of its own: Pingora's task keeps space for the state of a TLS handshake for the life of the
        // connection.
        tokio::spawn(async move {
            if let Some(upgraded) = front.serve(session, policy, &shutdown).await {
                // A further task: this one keeps space for the phases of a request, which an idle WebSocket has no use
                // for.
                tokio::spawn(async move {
                    upgraded.await;
                    drop(admitted);
                });
            }
        });
        None
    }
}

/// Connection count; released on drop.
struct Admitted {
    _permit: OwnedSemaphorePermit,
    open: IntGauge,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.open.dec();
    }
}

async fn refuse(mut stream: Stream) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{FULL}",
        FULL.len(),
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await?;
    AsyncWriteExt::shutdown(&mut stream).await
}
