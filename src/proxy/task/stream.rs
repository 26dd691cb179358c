//! Videos on their way from a provider to a client: piece by piece, never held as a whole.

use base64_simd::STANDARD;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};

use super::super::call::{CallLog, Reached};
use super::super::context::Context;
use super::super::fetch::FetchFault;
use super::super::reply::{add_own_headers, new_head, set_version};
use super::super::request::overloaded;
use super::super::{Client, Gateway};
use super::call::{TaskRequest, TaskRoute};
use super::view::TaskView;
use super::{broken, failed};
use crate::canonical::video::Medium;
use crate::error::{ApiError, Kind};
use crate::provider::{BaseUrl, VideoStep};
use crate::wire::Api;
use crate::wire::video::answer::{self, Frame};
use crate::wire::video::read;

/// Places at the provider that a link leads over.
const REDIRECTS: usize = 3;
/// Bytes that are turned into base64 at a time: a multiple of three.
const STEP: usize = 48 * 1024;

/// What stands around a video.
pub(super) enum Wrap {
    /// JSON, once.
    Whole(Frame),
    /// The answer to a download: the video twice.
    Download(String),
    /// Nothing: it is the video of this number.
    Plain(usize),
}

/// A video that has been found.
enum Source {
    /// It comes from the provider.
    Reached(Box<Reached>),
    /// It is here, in base64.
    Inline(Bytes),
    /// It lies behind an address that everybody may read.
    Elsewhere(String),
}

/// Bytes on their way into base64.
#[derive(Default)]
struct Encoder {
    rest: BytesMut,
    size: u64,
}

impl Encoder {
    /// Takes a piece and gives what can be written of it.
    fn push(&mut self, piece: &[u8], last: bool) -> Bytes {
        self.size += piece.len() as u64;
        self.rest.extend_from_slice(piece);
        let whole = if last { self.rest.len() } else { self.rest.len() / 3 * 3 };
        let ready = self.rest.split_to(whole);
        Bytes::from(STANDARD.encode_to_string(&ready).into_bytes())
    }
}

impl Gateway {
    /// Brings a client the video of a task.
    pub(super) async fn reply_video(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        shown: &TaskView,
        medium: &Medium,
        wrap: Wrap,
    ) -> Result<bool, ApiError> {
        match (medium, wrap) {
            (Medium::Public(url), Wrap::Whole(frame)) => self.pass_link(client, ctx, url, frame).await,
            (Medium::Public(url), _) => self.reply_elsewhere(client, ctx, url).await,
            (_, wrap) => self.reply_own(client, ctx, shown, medium, wrap).await,
        }
    }

    /// Brings a client a video that its provider has.
    async fn reply_own(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        shown: &TaskView,
        medium: &Medium,
        wrap: Wrap,
    ) -> Result<bool, ApiError> {
        let road = self.road_of(ctx, shown)?;
        let number = if let Wrap::Plain(number) = wrap { number } else { 0 };
        let mut notes = CallLog::default();
        let found = self.open_video(&road, shown, medium, number, &mut notes).await;
        let record = &mut ctx.record;
        record.attempts += notes.attempts;
        record.answered = notes.answered;
        record.upstream_status = notes.status;
        record.upstream_id = notes.id.take();
        record.detail = notes.detail.take();
        match (found?, wrap) {
            (Source::Elsewhere(url), Wrap::Whole(frame)) => self.pass_link(client, ctx, &url, frame).await,
            (Source::Elsewhere(url), _) => self.reply_elsewhere(client, ctx, &url).await,
            (Source::Inline(text), Wrap::Plain(_)) => self.reply_inline(client, ctx, &text).await,
            (Source::Inline(text), Wrap::Whole(frame)) => {
                let length = frame.head.len() + text.len() + frame.tail.len();
                self.begin_answer(client, ctx, Some(length as u64), "application/json").await?;
                self.send(client, ctx, frame.head, false).await?;
                self.send(client, ctx, text, false).await?;
                self.send(client, ctx, frame.tail, true).await?;
                Ok(true)
            }
            (Source::Inline(_), Wrap::Download(_)) => Err(failed()),
            (Source::Reached(reached), Wrap::Plain(_)) => self.pass_plain(client, ctx, *reached).await,
            (Source::Reached(reached), Wrap::Whole(frame)) => {
                let length = reached.length.map(|size| frame.len(size));
                self.begin_answer(client, ctx, length, "application/json").await?;
                self.send(client, ctx, frame.head, false).await?;
                self.pass_encoded(client, ctx, *reached).await?;
                self.send(client, ctx, frame.tail, true).await?;
                Ok(true)
            }
            (Source::Reached(reached), Wrap::Download(id)) => {
                let frame = match reached.length {
                    Some(size) => answer::downloaded(&id, size),
                    None => answer::downloaded_unmeasured(&id),
                };
                let length = reached.length.map(|size| frame.len(size));
                self.begin_answer(client, ctx, length, "application/json").await?;
                self.send(client, ctx, frame.head, false).await?;
                let size = self.pass_encoded(client, ctx, *reached).await?;
                self.send(client, ctx, frame.middle.unwrap_or_default(), false).await?;
                // The video stands there twice; it is asked for twice, so that nobody has to hold it.
                let again = self.open_video(&road, shown, medium, 0, &mut notes).await?;
                let Source::Reached(again) = again else { return Err(broken()) };
                if self.pass_encoded(client, ctx, *again).await? != size {
                    return Err(broken());
                }
                let tail = if length.is_some() { frame.tail } else { answer::downloaded_end(size) };
                self.send(client, ctx, tail, true).await?;
                Ok(true)
            }
        }
    }

    /// Finds a video at its provider.
    async fn open_video(
        &self,
        road: &TaskRoute,
        shown: &TaskView,
        medium: &Medium,
        number: usize,
        notes: &mut CallLog,
    ) -> Result<Source, ApiError> {
        let target = road.target().ok_or_else(failed)?;
        let provider = &target.provider;
        let upstream = shown.state.upstream.as_deref().unwrap_or_default();
        let mut path = match medium {
            Medium::Content => {
                provider.video_path(&target.model, VideoStep::Content(upstream)).ok_or_else(failed)?
            }
            Medium::Keyed(url) => local(&provider.base, url).ok_or_else(|| {
                notes.detail = Some("the video is at another address than its provider".into());
                broken()
            })?,
            Medium::Inline => {
                let look = super::poller::look(road, upstream).ok_or_else(failed)?;
                let body = self.bring_answer(road, &look, notes).await?;
                let text = std::str::from_utf8(&body).map_err(|_| broken())?;
                let videos = read::inline(text).map_err(|_| broken())?;
                let video = videos.get(number).and_then(|video| video.as_str()).ok_or_else(broken)?;
                return Ok(Source::Inline(match video.decode() {
                    std::borrow::Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
                    std::borrow::Cow::Owned(text) => Bytes::from(text.into_bytes()),
                }));
            }
            Medium::Public(_) => return Err(failed()),
        };
        for _ in 0..=REDIRECTS {
            let mut reached = self.reach(road, &TaskRequest::get(path), notes).await?;
            let location = reached.text(&header::LOCATION).map(str::to_owned);
            match (reached.status, location) {
                (200, _) => return Ok(Source::Reached(Box::new(reached))),
                (301 | 302 | 303 | 307 | 308, Some(to)) => {
                    let _ = reached.hear(0, None, notes).await;
                    self.read_out(reached);
                    match local(&provider.base, &to) {
                        Some(to) => path = to,
                        // A signed link, which needs no credential.
                        None => return Ok(Source::Elsewhere(to)),
                    }
                }
                (404 | 410, _) => {
                    self.read_out(reached);
                    let message = "The upstream provider has the video no more.";
                    let mut error = ApiError::new(Kind::TaskState, message).status(410);
                    error.code = Some("expired".into());
                    return Err(error);
                }
                _ => {
                    return Err(self.refusal(road, reached, notes).await);
                }
            }
        }
        notes.detail = Some("the video's address leads on too many times".into());
        Err(broken())
    }

    /// Tells a client where a video is that everybody may read.
    async fn reply_elsewhere(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        url: &str,
    ) -> Result<bool, ApiError> {
        let location = HeaderValue::from_str(url).map_err(|_| broken())?;
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(broken());
        }
        let mut head = new_head(302, 8);
        let _ = head.insert_header(header::LOCATION, location);
        let _ = head.insert_header(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        add_own_headers(&mut head, ctx);
        set_version(&mut head, client);
        client.write_response_header(head).await.map_err(|error| gone(&error))?;
        ctx.record.status = 302;
        client.write_response_body(Bytes::new(), true).await.map_err(|error| gone(&error))?;
        Ok(true)
    }

    /// A video that is here in base64, as it is.
    async fn reply_inline(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        text: &Bytes,
    ) -> Result<bool, ApiError> {
        let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
        if !text.len().is_multiple_of(4) || padding > 2 {
            return Err(broken());
        }
        let size = text.len() / 4 * 3 - padding;
        let mut pieces = text.chunks(STEP / 3 * 4).peekable();
        self.begin_answer(client, ctx, Some(size as u64), "video/mp4").await?;
        while let Some(piece) = pieces.next() {
            let bytes = STANDARD.decode_to_vec(piece).map_err(|_| broken())?;
            self.send(client, ctx, bytes.into(), pieces.peek().is_none()).await?;
        }
        Ok(true)
    }

    /// A video from its provider, as it is.
    async fn pass_plain(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut reached: Reached,
    ) -> Result<bool, ApiError> {
        self.begin_answer(client, ctx, reached.length, "video/mp4").await?;
        while let Some(piece) = reached.next(&mut CallLog::default()).await? {
            self.send(client, ctx, piece, false).await?;
        }
        self.send(client, ctx, Bytes::new(), true).await?;
        self.read_out(reached);
        Ok(true)
    }

    /// A video from its provider, in base64; returns its size.
    async fn pass_encoded(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut reached: Reached,
    ) -> Result<u64, ApiError> {
        let expected = reached.length;
        let mut encoder = Encoder::default();
        while let Some(piece) = reached.next(&mut CallLog::default()).await? {
            for step in piece.chunks(STEP) {
                let text = encoder.push(step, false);
                self.send(client, ctx, text, false).await?;
            }
        }
        let text = encoder.push(&[], true);
        self.send(client, ctx, text, false).await?;
        self.read_out(reached);
        if expected.is_some_and(|expected| expected != encoder.size) {
            return Err(broken());
        }
        Ok(encoder.size)
    }

    /// A video behind an address that everybody may read, in base64.
    async fn pass_link(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        url: &str,
        frame: Frame,
    ) -> Result<bool, ApiError> {
        let gone = |fault: FetchFault| {
            if fault == FetchFault::Busy {
                return overloaded();
            }
            let message = format!("The video cannot be brought from the upstream provider's link: {fault}.");
            ApiError::new(Kind::UpstreamBroken, message)
        };
        let mut opened = self.open_link(url).await.map_err(gone)?;
        let length = opened.length.map(|size| frame.len(size as u64));
        self.begin_answer(client, ctx, length, "application/json").await?;
        self.send(client, ctx, frame.head, false).await?;
        let mut encoder = Encoder::default();
        while let Some(piece) = opened.next().await.map_err(gone)? {
            for step in piece.chunks(STEP) {
                let text = encoder.push(step, false);
                self.send(client, ctx, text, false).await?;
            }
        }
        let text = encoder.push(&[], true);
        self.send(client, ctx, text, false).await?;
        self.send(client, ctx, frame.tail, true).await?;
        Ok(true)
    }

    async fn begin_answer(
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
        client.write_response_header(head).await.map_err(|error| gone(&error))?;
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
        client.write_response_body(piece, last).await.map_err(|error| gone(&error))
    }

    /// The way to the provider that a task is at.
    pub(super) fn road_of(&self, ctx: &mut Context, shown: &TaskView) -> Result<TaskRoute, ApiError> {
        let facts = &shown.facts;
        let at = Some((&*facts.provider, &*facts.target));
        let api = if facts.form == super::record::Form::Group { Api::Tasks } else { Api::Videos };
        self.road(ctx, &facts.model, api, at).map(|(road, _)| road).map_err(|_| {
            ApiError::new(Kind::TaskState, "The provider of this task is not configured any more.")
        })
    }
}

/// The path and query of an address, if it is the provider's own; a relative one is.
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

fn gone(error: &pingora::Error) -> ApiError {
    ApiError::new(Kind::ClientGone, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_provider_s_own_address_is_asked_with_its_credential() {
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
    fn pieces_of_any_size_become_one_text() {
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
