//! One request, whatever carries it: its session, and the phases that it runs through.

use std::io::Cursor;

use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;

use super::hooks::ExchangeHooks;

/// Creates the session of a request that does not come over HTTP/1.
pub(super) fn session_of<P: ExchangeHooks>(proxy: &P, client: ServerSession) -> Session {
    // Pingora makes sessions of HTTP/1 streams only; the stream is replaced before anything reads it.
    let unused = Box::new(Cursor::new(Vec::new()));
    let mut session = Session::new_h1_with_modules(unused, proxy.modules());
    *session.downstream_session = client;
    session
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
