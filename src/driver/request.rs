//! One request, whatever carries it: its session, and the phases that it runs through.

use std::io::Cursor;
use std::time::Duration;

use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;

use super::hooks::ExchangeHooks;
use codec::error::ApiError;

/// Write time-out of the error response to a malformed head.
pub(super) const BROKEN: Duration = Duration::from_secs(2);

/// Creates the session of a request that does not come over HTTP/1.
pub(super) fn session_of<P: ExchangeHooks>(proxy: &P, client: ServerSession) -> Session {
    // Pingora makes sessions of HTTP/1 streams only; the stream is replaced before anything reads it.
    let unused = Box::new(Cursor::new(Vec::new()));
    let mut session = Session::new_h1_with_modules(unused, proxy.modules());
    *session.downstream_session = client;
    session
}

/// Writes the error response to a request whose head is not valid; `target` is the target of the request, if it is known. A
/// connection of HTTP/1 cannot be used for another one.
pub(super) async fn refuse_request<P: ExchangeHooks>(
    proxy: &P,
    session: &mut Session,
    error: &ApiError,
    target: Option<&str>,
) {
    let (head, body) = proxy.refuse_head(error, target);
    let refusing = async {
        let client = &mut session.downstream_session;
        client.set_keepalive(None);
        client.write_response_header(head).await?;
        client.write_response_body(body, true).await
    };
    let _ = tokio::time::timeout(BROKEN, refusing).await;
}

/// Handles a request: calls the phases as Pingora's `HttpProxy` does. Returns false if the connection cannot be used for
/// another one.
pub(super) async fn handle_request<P: ExchangeHooks>(
    proxy: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
) -> bool {
    let result = phases(proxy, session, ctx).await;
    let reusable = match &result {
        Ok(()) => true,
        Err(error) => proxy.fail_to_proxy(session, error, ctx).await.can_reuse_downstream,
    };
    // Last, as in Pingora: the log line has the status that `fail_to_proxy` has sent.
    proxy.logging(session, result.as_ref().err().map(|error| &**error), ctx).await;
    reusable
}

async fn phases<P: ExchangeHooks>(proxy: &P, session: &mut Session, ctx: &mut P::CTX) -> pingora::Result<()> {
    proxy.early_request_filter(session, ctx).await?;
    if !proxy.request_filter(session, ctx).await? {
        // Runs the exchange, and returns false: nothing is left for Pingora's own loop.
        proxy.proxy_upstream_filter(session, ctx).await?;
    }
    Ok(())
}
