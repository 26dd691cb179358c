//! Remote media of requests: fetches what a client gave by URL, for providers that accept only inline bytes.
//!
//! Other requests do not pay for it: a request is searched for URLs only after its translation failed because of them.

use base64_simd::STANDARD;
use bytes::Bytes;
use tokio::task::JoinSet;

use super::attempt::Attempt;
use super::context::Context;
use super::selection::Selection;
use crate::canonical::Thinking;
use crate::error::{ApiError, ErrorKind};
use crate::json::JsonText;
use crate::proxy::Gateway;
use crate::proxy::body_memory::{MemoryPermit, RequestBudget};
use crate::proxy::client::fetch::FetchFault;
use crate::translate::{
    EncodeError, FetchedMedia, RemoteParts, SignatureKey, StoreOptions, WantedMedia, remote_urls,
};

/// URLs that are fetched for one request: more images than any provider accepts.
const MAX_URLS: usize = 100;
/// Concurrent downloads for one request.
const AT_ONCE: usize = 4;

/// Elements that are lost if a provider does not accept URLs.
const BY_ADDRESS: [&str; 3] = ["image_url", "file_url", "audio"];

/// Reason why a request was not translated.
pub(in crate::proxy) enum MediaFault {
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
pub(in crate::proxy) fn may_need_fetch(refused: &EncodeError, stored: &StoreOptions<'_>) -> bool {
    stored.media.0.is_empty() && refused.losses.iter().any(|loss| BY_ADDRESS.contains(&loss.element.as_ref()))
}

impl Gateway {
    /// Fetches the request's remote media and translates it again.
    pub(in crate::proxy) async fn translate_with_media(
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
        // The permits count the fetched media until the memory budget counts the body that contains it.
        let (brought, _weights) = self.fetch_all(wanted).await?;
        let stored = StoreOptions { media: FetchedMedia(&brought), ..stored };
        self.translate(ctx, chosen, thinking, text, stored).await.map_err(|untold| match untold {
            MediaFault::Rejected(error) => error,
            MediaFault::NeedsFetch(stuck) => stuck.1.error,
            // Unreachable: the signatures were looked up before.
            MediaFault::NeedsSignatures(_) => refused.error,
        })
    }

    /// Fetches remote media. Together, encoded in base64, it may be no larger than a body. The memory budget counts it
    /// while it arrives, and in its encoded form until the permits are dropped.
    async fn fetch_all(
        &self,
        wanted: Vec<(String, WantedMedia)>,
    ) -> Result<(Vec<RemoteParts>, Vec<Option<MemoryPermit>>), ApiError> {
        if wanted.len() > MAX_URLS {
            let message = format!("The request has more than {MAX_URLS} images and files given by URL.");
            return Err(ApiError::new(ErrorKind::InvalidField, message));
        }
        // Base64 makes four bytes of three.
        let room = RequestBudget::new(self.limits.body / 4 * 3);
        let mut brought = Vec::with_capacity(wanted.len());
        let mut weights = Vec::with_capacity(wanted.len());
        let mut wanted = wanted.into_iter();
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < AT_ONCE
                && let Some((url, kind)) = wanted.next()
            {
                let (gateway, room) = (self.clone(), room.clone());
                tasks.spawn(async move {
                    let fetched = gateway.upstream_client.fetch(&url, gateway.limits.fetch, &room).await;
                    (url, kind, fetched)
                });
            }
            let Some(done) = tasks.join_next().await else { return Ok((brought, weights)) };
            let (url, kind, fetched) =
                done.map_err(|_| ApiError::new(ErrorKind::Internal, "Internal gateway error."))?;
            let result = fetched.as_ref().map_or_else(FetchFault::label, |_| "ok");
            self.metrics.remote_fetches.with_label_values(&["client", result]).inc();
            let mut weight = None;
            let encoded = fetched.as_ref().map_or(0, |bytes| bytes.len().div_ceil(3) * 4);
            if fetched == Err(FetchFault::Busy) || !self.memory.grow(&mut weight, encoded) {
                return Err(ApiError::overloaded());
            }
            if fetched == Err(FetchFault::TotalTooLarge) {
                let message = format!(
                    "The images and files that the request gives by URL are larger than {} bytes in total.",
                    self.limits.body
                );
                return Err(ApiError::new(ErrorKind::BodyTooLarge, message));
            }
            brought.push(read(url, kind, fetched)?);
            weights.push(weight);
        }
    }
}

/// Encodes fetched media for the provider.
///
/// # Errors
/// Returns [`ErrorKind::InvalidField`] if the download failed, or the media is of another type than its element.
fn read(
    url: String,
    wanted: WantedMedia,
    fetched: Result<Bytes, FetchFault>,
) -> Result<RemoteParts, ApiError> {
    // The query may contain signatures and tokens, which belong in no log or message; a long URL is cut.
    let shown: String = url.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect();
    let cannot = |why: &str| {
        let message = format!("The {} at '{shown}' cannot be fetched: {why}.", wanted.name());
        ApiError::new(ErrorKind::InvalidField, message)
    };
    let bytes = fetched.map_err(|fault| cannot(&fault.to_string()))?;
    let media_type = wanted.media_type(&bytes).ok_or_else(|| cannot("its content is of another type"))?;
    Ok(RemoteParts { url: url.into(), media_type, base64: STANDARD.encode_to_string(&bytes) })
}
