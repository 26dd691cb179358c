//! Remote media of requests: fetches what a client gave by URL, for providers that accept only inline bytes.
//!
//! Other requests do not pay for it: a request is searched for URLs only after its translation failed because of them.

use base64_simd::STANDARD;
use bytes::Bytes;
use tokio::task::JoinSet;

use super::attempt::Attempt;
use super::context::Context;
use super::selection::Selection;
use crate::Gateway;
use crate::client::fetch::FetchFault;
use codec::canonical::Thinking;
use codec::error::{ApiError, ErrorKind};
use codec::translate::{
    EncodeError, FetchedMedia, MediaAddress, RemoteParts, SignatureKey, StoreOptions, WantedMedia,
    remote_urls,
};
use driver::body_memory::{MemoryPermit, RequestBudget, with_permit};
use driver::offload::run_blocking_if_large;
use json::JsonText;

/// URLs that are fetched for one request: more images than any provider accepts.
const MAX_URLS: usize = 100;
/// Concurrent downloads for one request.
const AT_ONCE: usize = 4;

/// Length in base64 from which media is shared by its references in a body (`json::RopeBuilder`).
const SHARED: usize = 64 * 1024;

/// Elements that are lost if a provider does not accept URLs.
const BY_ADDRESS: [&str; 3] = ["image_url", "file_url", "audio"];

/// Reason why a request was not translated.
pub(crate) enum MediaFault {
    /// The request is refused with this error.
    Rejected(ApiError),
    /// The request may contain URLs that must be fetched first.
    NeedsFetch(Box<(Selection, EncodeError)>),
    /// Turns of the conversation lack their provider signatures, which may be stored under these keys.
    NeedsSignatures(Box<(Selection, Vec<SignatureKey>)>),
}

impl From<ApiError> for MediaFault {
    fn from(error: ApiError) -> Self {
        MediaFault::Rejected(error)
    }
}

/// Returns whether a refusal may be due to media that is given by URL. False once media was fetched.
pub(crate) fn may_need_fetch(refused: &EncodeError, stored: &StoreOptions<'_>) -> bool {
    stored.media.0.is_empty() && refused.losses.iter().any(|loss| BY_ADDRESS.contains(&loss.element.as_ref()))
}

impl Gateway {
    /// Fetches the request's remote media and translates it again.
    pub(crate) async fn translate_with_media(
        &self,
        ctx: &Context,
        stuck: (Selection, EncodeError),
        thinking: Thinking,
        text: &JsonText,
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, ApiError> {
        let (chosen, refused) = stuck;
        let (Some(client), Some(provider)) = (chosen.api.format(), chosen.upstream.format()) else {
            return Err(refused.error);
        };
        let wanted = {
            let target = chosen.target()?;
            let turn = self.offload.acquire(text.len()).await?;
            let dialect = chosen.dialect(target);
            turn.run(|| remote_urls(text, client, provider, &dialect, stored))
        };
        if wanted.is_empty() {
            self.count_losses(client, provider, &refused.losses);
            return Err(refused.error);
        }
        // The permits count the copies of short media until the memory budget counts the body that contains them.
        let (brought, _weights) = self.fetch_all(wanted).await?;
        let stored = StoreOptions { media: FetchedMedia(&brought), ..stored };
        self.translate(ctx, chosen, thinking, text, stored).await.map_err(|untold| match untold {
            MediaFault::Rejected(error) => error,
            MediaFault::NeedsFetch(stuck) => stuck.1.error,
            // Unreachable: the signatures were looked up before.
            MediaFault::NeedsSignatures(_) => refused.error,
        })
    }

    /// Fetches remote media. Together, encoded in base64 and each as often as it is given, it may be no larger than a body.
    /// The memory budget counts it while it arrives, and then in its encoded form for as long as it is held. Its further
    /// copies count before they are made, until the permits are dropped.
    async fn fetch_all(
        &self,
        wanted: Vec<MediaAddress>,
    ) -> Result<(Vec<RemoteParts>, Vec<Option<MemoryPermit>>), ApiError> {
        if wanted.len() > MAX_URLS {
            let message = format!("The request has more than {MAX_URLS} images and files given by URL.");
            return Err(ApiError::new(ErrorKind::InvalidField, message));
        }
        let room = RequestBudget::new(self.media_limit());
        let mut brought = Vec::with_capacity(wanted.len());
        let mut weights = Vec::with_capacity(wanted.len());
        let mut wanted = wanted.into_iter();
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < AT_ONCE
                && let Some(address) = wanted.next()
            {
                let (gateway, room) = (self.clone(), room.clone());
                tasks.spawn(async move {
                    let fetched =
                        gateway.upstream_client.fetch(&address.url, gateway.limits.fetch, &room).await;
                    (address, fetched)
                });
            }
            let Some(done) = tasks.join_next().await else { return Ok((brought, weights)) };
            let (MediaAddress { url, kind, references }, fetched) =
                done.map_err(|_| ApiError::new(ErrorKind::Internal, "Internal gateway error."))?;
            let result = fetched.as_ref().map_or_else(FetchFault::label, |_| "ok");
            self.metrics.remote_fetches.with_label_values(&["client", result]).inc();
            let length = fetched.as_ref().map_or(0, Bytes::len);
            let repeated = length.saturating_mul(references.saturating_sub(1));
            if fetched == Err(FetchFault::TotalTooLarge) || !room.take(repeated) {
                return Err(self.media_too_large());
            }
            if fetched == Err(FetchFault::Busy) {
                return Err(ApiError::overloaded());
            }
            let (media_type, bytes) = read(&url, kind, fetched)?;
            // Counted before it exists.
            let (mut permit, mut copies) = (None, None);
            if !self.memory.grow(&mut permit, encoded(length))
                || !self.memory.grow(&mut copies, copied(length, references, media_type))
            {
                return Err(ApiError::overloaded());
            }
            let base64 = run_blocking_if_large(length, || STANDARD.encode_to_string(&bytes));
            let base64 = with_permit(Bytes::from(base64), permit);
            let base64 = JsonText::new(base64).unwrap_or_default();
            brought.push(RemoteParts { url: url.into(), media_type, base64 });
            weights.push(copies);
        }
    }

    /// Returns the limit of all fetched media of a request, in bytes as they are fetched. Base64 makes four bytes of three.
    fn media_limit(&self) -> usize {
        self.limits.body / 4 * 3
    }

    fn media_too_large(&self) -> ApiError {
        let message = format!(
            "The images and files that the request gives by URL are larger than {} bytes in total, each as often as it is \
             given: in base64, they would exceed limits.body.",
            self.media_limit()
        );
        ApiError::new(ErrorKind::BodyTooLarge, message)
    }
}

/// Returns the length of media in base64: four bytes for three.
fn encoded(length: usize) -> usize {
    length.div_ceil(3).saturating_mul(4)
}

/// Returns the bytes of the copies of fetched media in the body. Long media is shared by all its references, but for
/// texts, which some formats have as such.
fn copied(length: usize, references: usize, media_type: &str) -> usize {
    match encoded(length) >= SHARED && media_type != "text/plain" {
        true => 0,
        false => encoded(length).saturating_mul(references),
    }
}

/// Checks fetched media, and returns its type with it.
///
/// # Errors
/// Returns [`ErrorKind::InvalidField`] if the download failed, or the media is of another type than its element.
fn read(
    url: &str,
    wanted: WantedMedia,
    fetched: Result<Bytes, FetchFault>,
) -> Result<(&'static str, Bytes), ApiError> {
    // The query may contain signatures and tokens, which belong in no log or message; a long URL is cut.
    let shown: String = url.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect();
    let cannot = |why: &str| {
        let message = format!("The {} at '{shown}' cannot be fetched: {why}.", wanted.name());
        ApiError::new(ErrorKind::InvalidField, message)
    };
    let bytes = fetched.map_err(|fault| cannot(&fault.to_string()))?;
    let media_type = wanted.media_type(&bytes).ok_or_else(|| cannot("its content is of another type"))?;
    Ok((media_type, bytes))
}
