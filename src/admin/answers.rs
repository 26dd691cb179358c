//! Answers of the admin API as HTTP: documents, files, streams.

use std::sync::Arc;

use http::{HeaderValue, Response, header};

use super::api::{AdminApi, Answered};
use super::body::{PieceWriter, pieces};
use super::error::{AdminApiError, ErrorCode};
use super::events::{EventFilter, EventStream, Topics};
use super::exchange::{page, redirect, whole};
use super::playground_stream;
use super::request::ApiRequest;
use super::resources::playground;
use super::response::{AnswerContent, ApiResponse, WritePieces};

impl AdminApi {
    /// Turns an answer into HTTP.
    pub(super) fn respond(&self, answer: ApiResponse) -> Answered {
        let mut response = match answer.content {
            AnswerContent::Json(value) => {
                let mut text = value.to_string();
                text.push('\n');
                whole("application/json", text)
            }
            AnswerContent::Text(media, text) => whole(media, text),
            AnswerContent::Page(status, text) => page(status, text),
            AnswerContent::Redirect(address) => redirect(&address)?,
            AnswerContent::Pieces(media, name, write) => self.export(media, &name, write)?,
        };
        if let Some(etag) = answer.etag.and_then(|etag| HeaderValue::from_str(&format!("\"{etag}\"")).ok()) {
            response.headers_mut().insert(header::ETAG, etag);
        }
        for cookie in answer.cookies {
            let cookie = HeaderValue::try_from(cookie);
            let wrong = |_| AdminApiError::new(ErrorCode::Internal, "a cookie cannot be sent");
            response.headers_mut().append(header::SET_COOKIE, cookie.map_err(wrong)?);
        }
        Ok(response)
    }

    /// Starts a thread that writes an export as fast as its client reads.
    fn export(&self, media: &'static str, name: &str, write: WritePieces) -> Answered {
        let place = self.capacity().export()?;
        let (sender, body) = pieces();
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let mut out = PieceWriter::new(sender);
            let written = write(&mut out).and_then(|()| std::io::Write::flush(&mut out));
            if let Err(error) = written
                && error.kind() != std::io::ErrorKind::BrokenPipe
            {
                tracing::warn!(%error, "an export ended early");
            }
        });
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
            headers.insert(header::CONTENT_DISPOSITION, value);
        }
        Ok(response)
    }

    /// Runs a request of the playground, whose response is a stream of events.
    pub(super) fn play(&self, request: &ApiRequest) -> Answered {
        let asked = playground::read(request)?;
        let place = self.capacity().playground()?;
        let unavailable = |reason| AdminApiError::new(ErrorCode::Unavailable, reason);
        let parts = self.control().submit(asked).map_err(unavailable)?;
        let (sender, body) = pieces();
        tokio::spawn(async move {
            let _place = place;
            playground_stream::run(parts, sender).await;
        });
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(response)
    }

    /// Starts a stream of events, which ends when its caller may not see them any more.
    pub(super) fn listen(self: &Arc<Self>, request: &ApiRequest) -> Answered {
        let topics = Topics::of(request)?;
        let filter = EventFilter::of(request)?;
        let place = self.capacity().stream()?;
        let (sender, body) = pieces();
        let totals = Some((self.shared_metrics().clone(), self.started()));
        let (api, caller, role) = (self.clone(), request.caller.clone(), request.route.role);
        let may_listen = Box::new(move || api.callers().still_has(&caller, role));
        let stream = EventStream::new(self, totals, (topics, filter), may_listen);
        tokio::spawn(async move {
            let _place = place;
            stream.run(sender).await;
        });
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(response)
    }
}
