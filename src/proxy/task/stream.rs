//! Video streaming from a provider to a client: piece by piece, never buffered as a whole.

use base64_simd::STANDARD;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};

use super::super::call::{CallLog, OpenCall};
use super::super::context::Context;
use super::super::fetch::FetchFault;
use super::super::reply::{add_own_headers, new_head, set_version};
use super::super::request::overloaded;
use super::super::{Client, Gateway};
use super::call::{TaskRequest, TaskRoute};
use super::view::TaskView;
use super::{internal_error, malformed_response};
use crate::canonical::video::Medium;
use crate::error::{ApiError, ErrorKind};
use crate::provider::{BaseUrl, VideoStep};
use crate::wire::Api;
use crate::wire::video::answer::{self, InlineVideoFrame};
use crate::wire::video::read;

/// Redirects at the provider that are followed.
const REDIRECTS: usize = 3;
/// Bytes that are encoded in base64 at a time: a multiple of three.
const BASE64_STEP: usize = 48 * 1024;

/// Response format of a video.
pub(super) enum VideoEncoding {
    /// JSON that contains the video once, in base64.
    Whole(InlineVideoFrame),
    /// Response to a download: JSON that contains the video twice.
    Download(String),
    /// The bytes of the video with this index.
    Plain(usize),
}

/// Location of a video's bytes.
enum VideoSource {
    /// A response of the provider whose body has not been read.
    Open(Box<OpenCall>),
    /// Base64 text in memory.
    Inline(Bytes),
    /// A public URL.
    PublicUrl(String),
}

/// Streaming base64 encoder.
#[derive(Default)]
struct Encoder {
    rest: BytesMut,
    size: u64,
}

impl Encoder {
    /// Takes a piece and returns the base64 text of all complete groups of three bytes.
    fn push(&mut self, piece: &[u8], last: bool) -> Bytes {
        self.size += piece.len() as u64;
        self.rest.extend_from_slice(piece);
        let whole = if last { self.rest.len() } else { self.rest.len() / 3 * 3 };
        let ready = self.rest.split_to(whole);
        Bytes::from(STANDARD.encode_to_string(&ready).into_bytes())
    }
}

impl Gateway {
    /// Sends the client a video of a task.
    pub(super) async fn reply_video(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        shown: &TaskView,
        medium: &Medium,
        wrap: VideoEncoding,
    ) -> Result<bool, ApiError> {
        match (medium, wrap) {
            (Medium::Public(url), VideoEncoding::Whole(frame)) => {
                self.forward_public_base64(client, ctx, url, frame).await
            }
            (Medium::Public(url), _) => self.reply_redirect(client, ctx, url).await,
            (_, wrap) => self.reply_proxied(client, ctx, shown, medium, wrap).await,
        }
    }

    /// Sends the client a video that is fetched with the provider's credential.
    async fn reply_proxied(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        shown: &TaskView,
        medium: &Medium,
        wrap: VideoEncoding,
    ) -> Result<bool, ApiError> {
        let road = self.route_of(ctx, shown)?;
        let number = if let VideoEncoding::Plain(number) = wrap { number } else { 0 };
        let mut notes = CallLog::default();
        let found = self.open_video(&road, shown, medium, number, &mut notes).await;
        let record = &mut ctx.record;
        record.attempts += notes.attempts;
        record.head_received_at = notes.head_received_at;
        record.upstream_status = notes.status;
        record.upstream_id = notes.id.take();
        record.detail = notes.detail.take();
        match (found?, wrap) {
            (VideoSource::PublicUrl(url), VideoEncoding::Whole(frame)) => {
                self.forward_public_base64(client, ctx, &url, frame).await
            }
            (VideoSource::PublicUrl(url), _) => self.reply_redirect(client, ctx, &url).await,
            (VideoSource::Inline(text), VideoEncoding::Plain(_)) => {
                self.reply_inline(client, ctx, &text).await
            }
            (VideoSource::Inline(text), VideoEncoding::Whole(frame)) => {
                let length = frame.head.len() + text.len() + frame.tail.len();
                self.send_head(client, ctx, Some(length as u64), "application/json").await?;
                self.send(client, ctx, frame.head, false).await?;
                self.send(client, ctx, text, false).await?;
                self.send(client, ctx, frame.tail, true).await?;
                Ok(true)
            }
            (VideoSource::Inline(_), VideoEncoding::Download(_)) => Err(internal_error()),
            (VideoSource::Open(reached), VideoEncoding::Plain(_)) => {
                self.forward_bytes(client, ctx, *reached).await
            }
            (VideoSource::Open(reached), VideoEncoding::Whole(frame)) => {
                let length = reached.length.map(|size| frame.len(size));
                self.send_head(client, ctx, length, "application/json").await?;
                self.send(client, ctx, frame.head, false).await?;
                self.forward_base64(client, ctx, *reached).await?;
                self.send(client, ctx, frame.tail, true).await?;
                Ok(true)
            }
            (VideoSource::Open(reached), VideoEncoding::Download(id)) => {
                let frame = match reached.length {
                    Some(size) => answer::downloaded(&id, size),
                    None => answer::downloaded_unmeasured(&id),
                };
                let length = reached.length.map(|size| frame.len(size));
                self.send_head(client, ctx, length, "application/json").await?;
                self.send(client, ctx, frame.head, false).await?;
                let size = self.forward_base64(client, ctx, *reached).await?;
                self.send(client, ctx, frame.middle.unwrap_or_default(), false).await?;
                // The response contains the video twice. Request it again, so that it is never held in memory as a
                // whole.
                let again = self.open_video(&road, shown, medium, 0, &mut notes).await?;
                let VideoSource::Open(again) = again else { return Err(malformed_response()) };
                if self.forward_base64(client, ctx, *again).await? != size {
                    return Err(malformed_response());
                }
                let tail = if length.is_some() { frame.tail } else { answer::downloaded_end(size) };
                self.send(client, ctx, tail, true).await?;
                Ok(true)
            }
        }
    }

    /// Opens a video at its provider.
    async fn open_video(
        &self,
        road: &TaskRoute,
        shown: &TaskView,
        medium: &Medium,
        number: usize,
        notes: &mut CallLog,
    ) -> Result<VideoSource, ApiError> {
        let target = road.target().ok_or_else(internal_error)?;
        let provider = &target.provider;
        let upstream = shown.state.upstream.as_deref().unwrap_or_default();
        let mut path = match medium {
            Medium::Content => {
                provider.video_path(&target.model, VideoStep::Content(upstream)).ok_or_else(internal_error)?
            }
            Medium::Keyed(url) => local(&provider.base, url).ok_or_else(|| {
                notes.detail = Some("the URL of the video does not belong to its provider".into());
                malformed_response()
            })?,
            Medium::Inline => {
                let look = super::poller::poll_request(road, upstream).ok_or_else(internal_error)?;
                let body = self.call_provider(road, &look, notes).await?;
                let text = crate::json::from_utf8(&body).map_err(|_| malformed_response())?;
                let videos = read::inline(text).map_err(|_| malformed_response())?;
                let video =
                    videos.get(number).and_then(|video| video.as_str()).ok_or_else(malformed_response)?;
                return Ok(VideoSource::Inline(match video.decode() {
                    std::borrow::Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
                    std::borrow::Cow::Owned(text) => Bytes::from(text.into_bytes()),
                }));
            }
            Medium::Public(_) => return Err(internal_error()),
        };
        for _ in 0..=REDIRECTS {
            let mut reached = self.open_call(road, &TaskRequest::get(path), notes).await?;
            let location = reached.text(&header::LOCATION).map(str::to_owned);
            match (reached.status, location) {
                (200, _) => return Ok(VideoSource::Open(Box::new(reached))),
                (301 | 302 | 303 | 307 | 308, Some(to)) => {
                    let _ = reached.collect_body(0, None, notes).await;
                    self.release_connection(reached);
                    match local(&provider.base, &to) {
                        Some(to) => path = to,
                        // A redirect to another host is a signed URL. It must not receive the provider's credential.
                        None => return Ok(VideoSource::PublicUrl(to)),
                    }
                }
                (404 | 410, _) => {
                    self.release_connection(reached);
                    let message = "The upstream provider no longer has the video.";
                    let mut error = ApiError::new(ErrorKind::TaskState, message).status(410);
                    error.code = Some("expired".into());
                    return Err(error);
                }
                _ => {
                    return Err(self.read_error(road, reached, notes).await);
                }
            }
        }
        notes.detail = Some("the video's URL redirects too many times".into());
        Err(malformed_response())
    }

    /// Redirects the client to a public URL.
    async fn reply_redirect(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        url: &str,
    ) -> Result<bool, ApiError> {
        let location = HeaderValue::from_str(url).map_err(|_| malformed_response())?;
        // A redirect to another scheme (`javascript:`, `file:`) must not reach the client.
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(malformed_response());
        }
        let mut head = new_head(302, 8);
        let _ = head.insert_header(header::LOCATION, location);
        let _ = head.insert_header(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        add_own_headers(&mut head, ctx);
        set_version(&mut head, client);
        client.write_response_header(head).await.map_err(|error| disconnect_error(&error))?;
        ctx.record.status = 302;
        client.write_response_body(Bytes::new(), true).await.map_err(|error| disconnect_error(&error))?;
        Ok(true)
    }

    /// Sends a base64 video as bytes.
    async fn reply_inline(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        text: &Bytes,
    ) -> Result<bool, ApiError> {
        let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
        if !text.len().is_multiple_of(4) || padding > 2 {
            return Err(malformed_response());
        }
        let size = text.len() / 4 * 3 - padding;
        let mut pieces = text.chunks(BASE64_STEP / 3 * 4).peekable();
        self.send_head(client, ctx, Some(size as u64), "video/mp4").await?;
        while let Some(piece) = pieces.next() {
            let bytes = STANDARD.decode_to_vec(piece).map_err(|_| malformed_response())?;
            self.send(client, ctx, bytes.into(), pieces.peek().is_none()).await?;
        }
        Ok(true)
    }

    /// Sends a video from its provider as bytes.
    async fn forward_bytes(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut reached: OpenCall,
    ) -> Result<bool, ApiError> {
        self.send_head(client, ctx, reached.length, "video/mp4").await?;
        while let Some(piece) = reached.next(&mut CallLog::default()).await? {
            self.send(client, ctx, piece, false).await?;
        }
        self.send(client, ctx, Bytes::new(), true).await?;
        self.release_connection(reached);
        Ok(true)
    }

    /// Sends a video from its provider in base64. Returns its length in bytes.
    async fn forward_base64(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut reached: OpenCall,
    ) -> Result<u64, ApiError> {
        let expected = reached.length;
        let mut encoder = Encoder::default();
        while let Some(piece) = reached.next(&mut CallLog::default()).await? {
            for step in piece.chunks(BASE64_STEP) {
                let text = encoder.push(step, false);
                self.send(client, ctx, text, false).await?;
            }
        }
        let text = encoder.push(&[], true);
        self.send(client, ctx, text, false).await?;
        self.release_connection(reached);
        // The response head announced a length that follows from the expected size. Break off instead of ending with a
        // wrong one.
        if expected.is_some_and(|expected| expected != encoder.size) {
            return Err(malformed_response());
        }
        Ok(encoder.size)
    }

    /// Sends a video from a public URL in base64.
    async fn forward_public_base64(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        url: &str,
        frame: InlineVideoFrame,
    ) -> Result<bool, ApiError> {
        let gone = |fault: FetchFault| {
            if fault == FetchFault::Busy {
                return overloaded();
            }
            let message = format!("The video cannot be fetched from the upstream provider's link: {fault}.");
            ApiError::new(ErrorKind::UpstreamBroken, message)
        };
        let mut opened = self.open_url(url).await.map_err(gone)?;
        let length = opened.length.map(|size| frame.len(size as u64));
        self.send_head(client, ctx, length, "application/json").await?;
        self.send(client, ctx, frame.head, false).await?;
        let mut encoder = Encoder::default();
        while let Some(piece) = opened.next().await.map_err(gone)? {
            for step in piece.chunks(BASE64_STEP) {
                let text = encoder.push(step, false);
                self.send(client, ctx, text, false).await?;
            }
        }
        let text = encoder.push(&[], true);
        self.send(client, ctx, text, false).await?;
        self.send(client, ctx, frame.tail, true).await?;
        Ok(true)
    }

    async fn send_head(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        length: Option<u64>,
        kind: &'static str,
    ) -> Result<(), ApiError> {
        let mut head = new_head(200, 8);
        let _ = head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(length) = length {
            let _ = head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(length));
        } else if client.req_header().version == http::Version::HTTP_11 {
            let _ = head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        add_own_headers(&mut head, ctx);
        set_version(&mut head, client);
        self.close_if_stopping(client);
        client.write_response_header(head).await.map_err(|error| disconnect_error(&error))?;
        ctx.record.status = 200;
        ctx.record.first_content = Some(std::time::Instant::now());
        Ok(())
    }

    async fn send(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        piece: Bytes,
        last: bool,
    ) -> Result<(), ApiError> {
        if piece.is_empty() && !last {
            return Ok(());
        }
        ctx.record.response_bytes += piece.len() as u64;
        client.write_response_body(piece, last).await.map_err(|error| disconnect_error(&error))
    }

    /// Returns the route to the provider of a task.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TaskState`] if the provider is not configured any more.
    pub(super) fn route_of(&self, ctx: &mut Context, shown: &TaskView) -> Result<TaskRoute, ApiError> {
        let facts = &shown.facts;
        let at = Some((&*facts.provider, &*facts.target));
        let api = if facts.form == super::record::Form::Group { Api::Tasks } else { Api::Videos };
        self.select_task_route(ctx, &facts.model, api, at).map(|(road, _)| road).map_err(|_| {
            ApiError::new(ErrorKind::TaskState, "The provider of this task is no longer configured.")
        })
    }
}

/// Returns the path and query of a URL at the provider itself; a path alone is one. `None` for any other URL: it must
/// not receive the provider's credential.
pub(super) fn local(base: &BaseUrl, url: &str) -> Option<String> {
    if url.starts_with('/') && !url.starts_with("//") {
        return Some(url.to_owned());
    }
    let (start, path) = match url.split_once("://")?.1.find('/') {
        Some(_) => {
            let scheme = url.find("://")? + 3;
            let at = scheme + url.get(scheme..)?.find('/')?;
            url.split_at_checked(at)?
        }
        None => (url, "/"),
    };
    let theirs = BaseUrl::parse(start).ok()?;
    let same = theirs.scheme() == base.scheme() && theirs.authority() == base.authority();
    same.then(|| path.to_owned())
}

fn disconnect_error(error: &pingora::Error) -> ApiError {
    ApiError::new(ErrorKind::ClientGone, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_is_sent_to_the_provider_origin_only() {
        let base = BaseUrl::parse("https://h.example:444/v1beta").unwrap();
        for (url, path) in [
            (
                "https://h.example:444/v1beta/files/x:download?alt=media",
                Some("/v1beta/files/x:download?alt=media"),
            ),
            ("https://H.example:444/other", Some("/other")),
            ("/relative?x", Some("/relative?x")),
            ("https://h.example/v1beta", None),
            ("http://h.example:444/v1beta", None),
            ("https://h.example:444@evil.example/v1beta", None),
            ("https://evil.example/https://h.example:444/", None),
            ("//evil.example/x", None),
            ("ftp://h.example:444/x", None),
            ("", None),
        ] {
            assert_eq!(local(&base, url).as_deref(), path, "{url}");
        }
    }

    #[test]
    fn base64_encoder_output_is_the_same_at_every_split() {
        let bytes: Vec<u8> = (0..10_000u32).map(|n| (n * 7 % 251) as u8).collect();
        for size in [1, 2, 3, 5, 1_000, 10_000] {
            let mut encoder = Encoder::default();
            let mut text = Vec::new();
            for piece in bytes.chunks(size) {
                text.extend_from_slice(&encoder.push(piece, false));
            }
            text.extend_from_slice(&encoder.push(&[], true));
            assert_eq!(STANDARD.decode_to_vec(&text).unwrap(), bytes, "{size}");
            assert_eq!(encoder.size, 10_000);
        }
    }
}
