//! The phases of a request, as Pingora's `ProxyHttp`: each method is one call into the file of its phase. The driver calls
//! them for HTTP/1 and HTTP/2 alike.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};

use super::authorize::authorize_attempt;
use super::context::Context;
use super::invoke::complete_body;
use super::phase::internal_error;
use super::state::Gateway;
use driver::attempt;
use driver::fault::UNRESOLVED;
use driver::hooks::ExchangeHooks;

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        self.new_context()
    }

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<()> {
        self.start_request(&mut session.downstream_session, ctx);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        self.prepare_request(&mut session.downstream_session, ctx).await
    }

    // Runs the whole exchange, with the phases below: Pingora's own loop cannot carry a body that was read before the
    // peer was chosen (docs/decisions/002).
    async fn proxy_upstream_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        let ended = std::pin::pin!(self.shutdown.ended());
        attempt::run(self, session, ctx, ended).await?;
        Ok(false)
    }

    async fn upstream_peer(&self, _session: &mut Session, ctx: &mut Context) -> Result<Box<HttpPeer>> {
        let route = ctx.attempt().map(|plan| &plan.upstream_route);
        let addresses = route.and_then(|route| ctx.active.addresses_of(route)).ok_or_else(internal_error)?;
        // A credential that is yet to be issued is waited for like an address.
        if addresses.credential().is_some_and(|credential| !credential.is_available()) {
            return Err(Error::new_in(ErrorType::Custom(UNRESOLVED)));
        }
        match addresses.cached(&self.resolver) {
            Some(peer) => Ok(Box::new(peer.http().clone())),
            None => Err(Error::new_in(ErrorType::Custom(UNRESOLVED))),
        }
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream_request: &mut RequestHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        complete_body(ctx, &session.req_header().headers);
        let attempt = ctx.attempt().ok_or_else(internal_error)?;
        *upstream_request = self.upstream_head(&session.downstream_session, ctx, attempt)?;
        if attempt.upstream_route.credential.is_some() {
            authorize_attempt(upstream_request, ctx)?;
        }
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Context,
    ) -> Result<()> {
        *body = ctx.attempt_mut().and_then(|attempt| attempt.next_body(end_of_stream));
        Ok(())
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Context,
        e: Box<Error>,
    ) -> Box<Error> {
        self.on_failure(ctx, e)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        e: Box<Error>,
        ctx: &mut Context,
        _client_reused: bool,
    ) -> Box<Error> {
        self.on_failure(ctx, e)
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        self.on_response_head(upstream_response, ctx)?;
        self.permit_steering(ctx);
        Ok(())
    }

    async fn response_filter(
        &self,
        _session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        *upstream_response = self.client_head(upstream_response, ctx);
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Context,
    ) -> Result<Option<Duration>> {
        let filtered = self.filter_piece(body.take().unwrap_or_default(), end_of_stream, ctx)?;
        *body = (!filtered.is_empty()).then_some(filtered);
        Ok(None)
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Context) -> FailToProxy {
        self.fail(&mut session.downstream_session, e, ctx).await
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, ctx: &mut Context) {
        self.finish(&session.downstream_session, e, ctx);
    }
}

impl Gateway {
    /// Creates the context of a new request: it holds the active snapshot and counts as in flight.
    pub(super) fn new_context(&self) -> Context {
        Context::new(self.live.load_full(), self.shutdown.enter())
    }
}
