//! What the driver asks of a proxy beyond Pingora's `ProxyHttp`. Each hook says why Pingora has no phase for it.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::modules::http::HttpModules;
use pingora::protocols::http::ServerSession;
use pingora::proxy::{ProxyHttp, Session};

use super::connection::Connections;
use super::header_timeout::HeaderTimeoutStream;
use super::offload::Offload;
use super::outcome::{DrainDeadline, ExchangeOutcome};
use super::shutdown::Shutdown;
use codec::error::ApiError;
use codec::provider::Timeouts;

/// Future of a hook that few requests run. Boxed, so that its state does not enlarge every exchange.
pub type HookFuture<'h, T> = Pin<Box<dyn Future<Output = T> + Send + 'h>>;

/// Continuation of an HTTP/1 connection in another protocol: takes the connection and the bytes that were read beyond the
/// request head.
pub type Upgrade =
    Box<dyn FnOnce(Box<HeaderTimeoutStream>, BytesMut) -> HookFuture<'static, ()> + Send + Sync>;

/// How a response is forwarded, once its head has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Piece by piece, as it arrives.
    Stream,
    /// As a stream that is made of one document, which is parsed at its end.
    StreamOfDocument,
    /// As one document, when it is complete.
    Document,
    /// Not at all: an error response, whose body is collected and converted.
    Error,
}

/// What a stream has shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The provider has sent a frame with content.
    pub content: bool,
    /// The provider has ended the stream with an error frame.
    pub failed: bool,
    /// The last piece ended inside a frame.
    pub partial: bool,
}

/// Bytes that the driver writes to the client, for the proxy's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A response head with this status.
    Head(u16),
    /// This many bytes of the body of a response.
    Body(usize),
    /// An early head with this status: no byte of a response has arrived.
    EarlyHead(u16),
    /// This many bytes of filler after an early head.
    EarlyFiller(usize),
    /// The whole request was written to the provider.
    Request,
}

/// Settings of the driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverSettings {
    /// Time between two keep-alive fillers of a silent stream. Zero: none is sent.
    pub heartbeat: Duration,
    /// Time for which a connection may stay idle between two requests.
    pub keepalive: Duration,
    /// Maximum length of a request head, in bytes.
    pub head: usize,
    /// Maximum length of a frame of a stream, in bytes.
    pub frame: usize,
}

/// A proxy that the driver can run: Pingora's phases, and the hooks that Pingora does not have.
pub trait ExchangeHooks: ProxyHttp<CTX: Send + Sync> + Send + Sync {
    /// Returns the settings of the next exchange.
    fn settings(&self) -> DriverSettings;
    /// Returns the state of the process's end.
    fn shutdown(&self) -> &Shutdown;
    /// Returns the connections to providers.
    fn connections(&self) -> &Connections;
    /// Returns the threads for long computations.
    fn offload(&self) -> &Offload;
    /// Modules that Pingora builds for every request.
    fn modules(&self) -> &HttpModules;

    /// Counts a request whose head is not valid, and returns the response to it. `target` is the target of the request, if
    /// that much could be read. Pingora closes the connection instead.
    fn refuse_head(&self, error: &ApiError, target: Option<&str>) -> (Box<ResponseHeader>, Bytes);

    /// Takes the upgrade that a request was accepted for; `None` for nearly all. Nothing was written to the client yet.
    /// Pingora forwards upgrades to an upstream, and has no phase that serves one.
    fn take_upgrade(&self, ctx: &mut Self::CTX) -> Option<Upgrade>;

    /// Time-outs of the selected target. Pingora has them in `HttpPeer`, without one for the first byte, the whole
    /// exchange or a minimum rate.
    fn timeouts(&self, ctx: &Self::CTX) -> Timeouts;

    /// Whether the response is made out of several calls instead of one exchange.
    fn is_job(&self, ctx: &Self::CTX) -> bool;

    /// Makes these calls and writes the response.
    fn run_job<'h>(
        &'h self,
        client: &'h mut ServerSession,
        ctx: &'h mut Self::CTX,
        ended: &'h mut DrainDeadline<'_>,
    ) -> HookFuture<'h, ExchangeOutcome>;

    /// The name of the provider, if the attempt may go over a WebSocket; `None` for nearly all. Pingora opens none to a
    /// provider.
    fn websocket_provider(&self, ctx: &Self::CTX) -> Option<Box<str>>;

    /// An attempt at the selected target begins: a new exchange, or a resend on a new connection.
    fn begin_attempt(&self, ctx: &mut Self::CTX);

    /// Resolves the address of the selected target, after `upstream_peer` has returned [`UNRESOLVED`](super::fault::UNRESOLVED). Separate from
    /// `upstream_peer`, because the driver watches the client meanwhile, and that phase borrows the session.
    fn resolve<'h>(&'h self, ctx: &Self::CTX, within: Duration) -> HookFuture<'h, pingora::Result<()>>;

    /// The attempt has a connection.
    fn on_connected(&self, ctx: &mut Self::CTX, reused: bool);

    /// The request is sent to the same target again, for this reason (a metric label).
    fn on_resend(&self, ctx: &mut Self::CTX, reason: &'static str);

    /// Gives a failure its meaning for the client: attaches a `Fault` as its cause. The connection of the client has
    /// failed, or the address of the target could not be resolved; `fail_to_connect` and `error_while_proxy` do the
    /// same for a connection to a provider.
    fn on_failure(&self, ctx: &mut Self::CTX, error: Box<Error>) -> Box<Error>;

    /// How the response is forwarded, after `upstream_response_filter`.
    fn delivery(&self, ctx: &Self::CTX) -> Delivery;

    /// How long the first frames of a stream may be held back, so that their failure can be hidden from the client.
    /// `None` if nothing could hide it. Pingora writes every frame at once.
    fn hold(&self, ctx: &Self::CTX) -> Option<Duration>;

    /// What the stream has shown so far.
    fn stream_state(&self, ctx: &Self::CTX) -> StreamState;

    /// Whether these frames only open a message, without content.
    fn is_opening(&self, ctx: &Self::CTX, frames: &[u8]) -> bool;

    /// The error that an error frame at the end of `frames` is for the client.
    fn error_of_frames(&self, ctx: &Self::CTX, frames: &[u8]) -> ApiError;

    /// Frees what only a fallback needs, once no fallback is possible any more.
    fn release_retry_state(&self, ctx: &mut Self::CTX);

    /// Frames that were held back for a fallback are forwarded from now on.
    fn on_hold_released(&self, _ctx: &mut Self::CTX) {}

    /// Runs before bytes are written to the client, with `end` before the last ones: what must be recorded before the
    /// client may act on them. `None` if there is nothing to wait for, as for nearly every piece.
    fn before_write<'h>(&'h self, ctx: &'h mut Self::CTX, end: bool) -> Option<HookFuture<'h, ()>>;

    /// Bytes are about to be written, or the request was.
    fn on_written(&self, ctx: &mut Self::CTX, written: Written);

    /// The response of the target is a success: its first content is about to be written.
    fn on_success(&self, ctx: &mut Self::CTX);

    /// The whole response was written.
    fn on_complete(&self, ctx: &mut Self::CTX);

    /// Keep-alive filler of a stream whose frames have begun. Empty if its format has none at this point.
    fn filler(&self, ctx: &mut Self::CTX) -> Bytes;

    /// Time until a waiting client gets an early head. `None` if it must not get one.
    fn slow_start(&self, ctx: &Self::CTX) -> Option<Duration>;

    /// Head of a stream whose provider has not answered. It is followed by [`Self::early_filler`].
    fn early_head(&self, session: &Session, ctx: &mut Self::CTX) -> Box<ResponseHeader>;

    /// Keep-alive filler of a stream before its first frame.
    fn early_filler(&self, ctx: &Self::CTX) -> Bytes;

    /// Prepares the next attempt after a failure that the client has not seen. `body` is the provider's error in the
    /// client's format.
    ///
    /// # Errors
    /// Returns the outcome for the client if no other target is tried.
    fn fall_back<'h>(
        &'h self,
        ctx: &'h mut Self::CTX,
        error: ApiError,
        body: Option<Bytes>,
    ) -> HookFuture<'h, Result<(), ExchangeOutcome>>;

    /// Prepares the next attempt after a failure in the middle of a stream.
    ///
    /// # Errors
    /// Returns the outcome for the client if no other target continues the stream.
    fn resume<'h>(
        &'h self,
        client: &'h mut ServerSession,
        ctx: &'h mut Self::CTX,
        error: ApiError,
    ) -> HookFuture<'h, Result<(), ExchangeOutcome>>;

    /// Whether the provider has refused the authorization of the attempt for a reason that another one may not have.
    fn has_remedy(&self, ctx: &Self::CTX) -> bool;

    /// Prepares the same attempt with another authorization. Returns false if there is none within this time.
    fn reauthorize<'h>(&'h self, ctx: &'h mut Self::CTX, within: Duration) -> HookFuture<'h, bool>;

    /// No attempt follows: frees the request body.
    fn on_exchange_end(&self, ctx: &mut Self::CTX);
}
