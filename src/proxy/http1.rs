//! The requests of one HTTP/1 connection, one after the other.
//!
//! For HTTP/2 Pingora's `HttpProxy` calls the phases of [`Gateway`]; for HTTP/1, which carries nearly all traffic, the
//! same rooms are called here in the same order. `HttpProxy` has room for a cache, compression, subrequests and
//! upgrades in the state of every request: 18 KiB that are allocated, moved and cleared for each, and kept for as long
//! as a stream lasts (docs/decisions/002).

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::BytesMut;
use pingora::ErrorType;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;

use super::context::Context;
use super::exchange::Ended;
use super::reply::own_error_head;
use super::shutdown::Held;
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::wire::{Format, error as wire_error};

/// How long a connection that has not said anything yet may still begin once the process is stopping: it was accepted,
/// and its request is probably under way.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// How long the answer to a broken head may take to be written.
const BROKEN: Duration = Duration::from_secs(2);

/// Resolves when the process begins to stop; polled between requests.
type Draining<'d> = Pin<&'d mut (dyn Future<Output = ()> + Send)>;

/// Serves a connection until either side closes it. `first` is what was read of it, and `held` makes those wait who
/// wait for the requests under way: until the first head has come, or has been given up.
pub(super) async fn serve(gateway: &Gateway, stream: Stream, first: BytesMut, held: Held) {
    let mut ended = pin!(gateway.shutdown.ended());
    let mut draining = pin!(gateway.shutdown.draining());
    let mut next = Some((stream, Some(first)));
    let mut fresh = Some(held);
    while let Some((stream, prefix)) = next.take() {
        let mut client = ServerSession::new_http1(stream);
        client.set_keepalive(Some(gateway.limits.keepalive.as_secs().max(1)));
        client.set_pipelining_enabled(true);
        if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
            client.set_pipelined_prefix(prefix);
        }
        if !read_head(gateway, &mut client, draining.as_mut(), fresh.is_some()).await {
            return;
        }
        let answered = {
            let mut ctx = gateway.new_context();
            drop(fresh.take());
            answer(gateway, &mut client, &mut ctx, ended.as_mut()).await
        };
        if !answered {
            return;
        }
        next = match client.finish().await {
            Ok(Some(reusable)) => Some(reusable.into_parts()),
            _ => None,
        };
    }
}

/// Reads a request's head. False when there is none.
async fn read_head(gateway: &Gateway, client: &mut Client, draining: Draining<'_>, fresh: bool) -> bool {
    let stopping = async {
        draining.await;
        if fresh {
            tokio::time::sleep(FRESH).await;
        }
    };
    let read = tokio::select! {
        biased;
        read = client.read_request() => read,
        () = stopping => return false,
    };
    let error = match read {
        Ok(head) => return head,
        Err(error) => error,
    };
    let timed_out = error
        .root_cause()
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut);
    let told = match error.etype() {
        _ if timed_out => ApiError::new(Kind::HeaderTimeout, "The request's head did not arrive in time."),
        ErrorType::InvalidHTTPHeader => {
            ApiError::new(Kind::InvalidHead, "The request's head is not valid HTTP, or it is too large.")
        }
        // The connection is gone.
        _ => return false,
    };
    gateway.count_broken_head(&told);
    let _ = tokio::time::timeout(BROKEN, refuse(client, &told)).await;
    false
}

/// Tells a client that its head cannot be read. No format is known, and no id.
async fn refuse(client: &mut Client, error: &ApiError) -> pingora::Result<()> {
    let body = wire_error::body(Format::Chat, error, "").freeze();
    client.set_keepalive(None);
    client.write_response_header(own_error_head(error, body.len())).await?;
    client.write_response_body(body, true).await
}

/// Answers a request. False when the connection is of no more use.
async fn answer(gateway: &Gateway, client: &mut Client, ctx: &mut Context, ended: Ended<'_>) -> bool {
    gateway.begin(client, ctx);
    let result = match gateway.decide(client, ctx).await {
        Ok(true) => Ok(()),
        Ok(false) => gateway.exchange(client, ctx, ended).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &result {
        gateway.fail(client, error, ctx).await;
    }
    gateway.finish(client, result.as_ref().err().map(|error| &**error), ctx);
    result.is_ok()
}
