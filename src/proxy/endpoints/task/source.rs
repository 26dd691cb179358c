//! Sources of a task's video: the provider's response, base64 in the provider's report, or a public URL.

use std::borrow::Cow;

use bytes::Bytes;
use http::header;

use super::call::{TaskRequest, TaskRoute, poll_request, read_error};
use super::internal_error;
use super::record::Form;
use super::view::TaskView;
use crate::Gateway;
use crate::client::body::OpenResponse;
use crate::client::call::malformed_response;
use crate::client::fetch::{FetchFault, OpenFetch};
use crate::client::send::CallLog;
use crate::gateway::context::Context;
use codec::canonical::video::Medium;
use codec::error::{ApiError, ErrorKind};
use codec::provider::{BaseUrl, VideoStep};
use codec::wire::Api;
use codec::wire::video::read;

/// Redirects at the provider that are followed.
const REDIRECTS: usize = 3;

/// Location of a video's bytes.
pub(super) enum VideoSource {
    /// A response of the provider whose body has not been read.
    Open(VideoBody),
    /// Base64 text in memory.
    Inline(Bytes),
    /// A public URL.
    PublicUrl(String),
}

/// Body of a video that is forwarded piece by piece.
pub(super) enum VideoBody {
    Provider(Box<OpenResponse>),
    Public(Box<OpenFetch>),
}

impl VideoBody {
    /// Returns the length in bytes; `None` if it is unknown.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            VideoBody::Provider(response) => response.length,
            VideoBody::Public(fetch) => fetch.length(),
        }
    }

    /// Reads the next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        match self {
            VideoBody::Provider(response) => {
                response.next().await.map_err(|error| error.into_api(&mut CallLog::default()))
            }
            VideoBody::Public(fetch) => fetch.next().await.map_err(public_fetch_error),
        }
    }
}

impl Gateway {
    /// Returns the route to the provider of a task.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TaskState`] if the provider is not configured any more.
    pub(super) fn route_of(&self, ctx: &mut Context, shown: &TaskView) -> Result<TaskRoute, ApiError> {
        let facts = &shown.facts;
        let at = Some((&*facts.provider, &*facts.target));
        let api = if facts.form == Form::Group { Api::Tasks } else { Api::Videos };
        self.select_task_route(ctx, &facts.model, api, at).map_err(|_| {
            ApiError::new(ErrorKind::TaskState, "The provider of this task is no longer configured.")
        })
    }

    /// Opens a video at its provider.
    pub(super) async fn open_video(
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
        match medium {
            Medium::Content => {
                let path = provider.video_path(&target.model, VideoStep::Content(upstream));
                self.open_path(road, path.ok_or_else(internal_error)?, notes).await
            }
            Medium::Keyed(url) => {
                let path = local(&provider.base, url).ok_or_else(|| {
                    notes.detail = Some("the URL of the video does not belong to its provider".into());
                    malformed_response()
                })?;
                self.open_path(road, path, notes).await
            }
            Medium::Inline => self.read_inline(road, upstream, number, notes).await,
            Medium::Public(_) => Err(internal_error()),
        }
    }

    /// Opens a video at a path of its provider, and follows redirects there.
    async fn open_path(
        &self,
        road: &TaskRoute,
        mut path: String,
        notes: &mut CallLog,
    ) -> Result<VideoSource, ApiError> {
        let provider = &road.target().ok_or_else(internal_error)?.provider;
        for _ in 0..=REDIRECTS {
            let response = self.open_call(road, &TaskRequest::get(path), notes).await?;
            let location = response.text(&header::LOCATION).map(str::to_owned);
            match (response.status, location) {
                (200, _) => return Ok(VideoSource::Open(VideoBody::Provider(Box::new(response)))),
                (301 | 302 | 303 | 307 | 308, Some(to)) => {
                    let _ = response.collect_body(0, None, notes).await;
                    match local(&provider.base, &to) {
                        Some(to) => path = to,
                        // A redirect to another host is a signed URL. It must not receive the provider's credential.
                        None => return Ok(VideoSource::PublicUrl(to)),
                    }
                }
                (404 | 410, _) => {
                    let message = "The upstream provider no longer has the video.";
                    let mut error = ApiError::new(ErrorKind::TaskState, message).status(410);
                    error.code = Some("expired".into());
                    return Err(error);
                }
                _ => return Err(read_error(road, response, notes).await),
            }
        }
        notes.detail = Some("the video's URL redirects too many times".into());
        Err(malformed_response())
    }

    /// Reads a video that the provider's report of the task contains in base64.
    async fn read_inline(
        &self,
        road: &TaskRoute,
        upstream: &str,
        number: usize,
        notes: &mut CallLog,
    ) -> Result<VideoSource, ApiError> {
        let poll = poll_request(road, upstream).ok_or_else(internal_error)?;
        let body = self.call_provider(road, &poll, notes).await?;
        let text = std::str::from_utf8(&body).map_err(|_| malformed_response())?;
        let videos = read::inline(text).map_err(|_| malformed_response())?;
        let video = videos.get(number).and_then(|video| video.as_str()).ok_or_else(malformed_response)?;
        Ok(VideoSource::Inline(match video.decode() {
            Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
            Cow::Owned(text) => Bytes::from(text.into_bytes()),
        }))
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

/// Maps a failed download from a public URL to the client's error.
pub(super) fn public_fetch_error(fault: FetchFault) -> ApiError {
    if fault == FetchFault::Busy {
        return ApiError::overloaded();
    }
    let message = format!("The video cannot be fetched from the upstream provider's link: {fault}.");
    ApiError::new(ErrorKind::UpstreamBroken, message)
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
}
