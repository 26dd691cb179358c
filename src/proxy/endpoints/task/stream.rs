//! Video streaming from a provider to a client: piece by piece, never buffered as a whole.

use base64_simd::STANDARD;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};

use super::call::TaskRoute;
use super::internal_error;
use super::record::VideoEncoding;
use super::source::{VideoBody, VideoSource, public_fetch_error};
use super::view::TaskView;
use crate::Client;
use crate::Gateway;
use crate::client::call::malformed_response;
use crate::client::send::CallLog;
use crate::endpoints::record_calls;
use crate::gateway::context::Context;
use crate::gateway::reply::{add_own_headers, new_head, set_version};
use codec::canonical::video::Medium;
use codec::error::{ApiError, ErrorKind};
use codec::wire::video::answer::{self, InlineVideoFrame};

/// Bytes that are encoded in base64 at a time: a multiple of three.
const BASE64_STEP: usize = 48 * 1024;

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
        match medium {
            Medium::Public(url) => self.reply_public(client, ctx, url, wrap).await,
            _ => self.reply_proxied(client, ctx, shown, medium, wrap).await,
        }
    }

    /// Sends the client a video at a public URL: in base64 where the response format contains it, as a redirect
    /// otherwise.
    async fn reply_public(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        url: &str,
        wrap: VideoEncoding,
    ) -> Result<bool, ApiError> {
        let VideoEncoding::Whole(frame) = wrap else { return self.reply_redirect(client, ctx, url).await };
        let opened = self.upstream_client.open_url(url).await.map_err(public_fetch_error)?;
        self.forward_framed(client, ctx, VideoBody::Public(Box::new(opened)), frame).await
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
        record_calls(ctx, notes);
        match (found?, wrap) {
            (VideoSource::PublicUrl(url), wrap) => self.reply_public(client, ctx, &url, wrap).await,
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
            (VideoSource::Open(body), VideoEncoding::Plain(_)) => self.forward_bytes(client, ctx, body).await,
            (VideoSource::Open(body), VideoEncoding::Whole(frame)) => {
                self.forward_framed(client, ctx, body, frame).await
            }
            (VideoSource::Open(body), VideoEncoding::Download(id)) => {
                self.forward_download(client, ctx, body, &id, (&road, shown, medium)).await
            }
        }
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
        mut body: VideoBody,
    ) -> Result<bool, ApiError> {
        self.send_head(client, ctx, body.length(), "video/mp4").await?;
        while let Some(piece) = body.next().await? {
            self.send(client, ctx, piece, false).await?;
        }
        self.send(client, ctx, Bytes::new(), true).await?;
        Ok(true)
    }

    /// Sends JSON that contains a video once, in base64.
    async fn forward_framed(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: VideoBody,
        frame: InlineVideoFrame,
    ) -> Result<bool, ApiError> {
        let length = body.length().map(|size| frame.len(size));
        self.send_head(client, ctx, length, "application/json").await?;
        self.send(client, ctx, frame.head, false).await?;
        self.forward_base64(client, ctx, body).await?;
        self.send(client, ctx, frame.tail, true).await?;
        Ok(true)
    }

    /// Sends the response to a download, which contains the video twice. It is requested again for that, so that it is
    /// never held in memory as a whole.
    async fn forward_download(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        body: VideoBody,
        id: &str,
        (road, shown, medium): (&TaskRoute, &TaskView, &Medium),
    ) -> Result<bool, ApiError> {
        let frame = match body.length() {
            Some(size) => answer::downloaded(id, size),
            None => answer::downloaded_unmeasured(id),
        };
        let length = body.length().map(|size| frame.len(size));
        self.send_head(client, ctx, length, "application/json").await?;
        self.send(client, ctx, frame.head, false).await?;
        let size = self.forward_base64(client, ctx, body).await?;
        self.send(client, ctx, frame.middle.unwrap_or_default(), false).await?;
        let again = self.open_video(road, shown, medium, 0, &mut CallLog::default()).await?;
        let VideoSource::Open(again) = again else { return Err(malformed_response()) };
        if self.forward_base64(client, ctx, again).await? != size {
            return Err(malformed_response());
        }
        let tail = if length.is_some() { frame.tail } else { answer::downloaded_end(size) };
        self.send(client, ctx, tail, true).await?;
        Ok(true)
    }

    /// Sends a video in base64. Returns its length in bytes.
    async fn forward_base64(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut body: VideoBody,
    ) -> Result<u64, ApiError> {
        let expected = body.length();
        let mut encoder = Encoder::default();
        while let Some(piece) = body.next().await? {
            for step in piece.chunks(BASE64_STEP) {
                let text = encoder.push(step, false);
                self.send(client, ctx, text, false).await?;
            }
        }
        let text = encoder.push(&[], true);
        self.send(client, ctx, text, false).await?;
        // The response head announced a length that follows from the expected size. Break off instead of ending with a
        // wrong one.
        if expected.is_some_and(|expected| expected != encoder.size) {
            return Err(malformed_response());
        }
        Ok(encoder.size)
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
}

fn disconnect_error(error: &pingora::Error) -> ApiError {
    ApiError::new(ErrorKind::ClientGone, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
