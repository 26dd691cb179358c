//! Media that clients give by address, for providers that must be given the bytes: brought before the request is
//! encoded.
//!
//! Nothing is paid for it by other requests: a request is looked at for addresses only when it would be refused because
//! of them.

use base64_simd::STANDARD;
use bytes::Bytes;
use tokio::task::JoinSet;

use super::Gateway;
use super::body_memory::{MemoryPermit, Room};
use super::context::{Attempt, Context};
use super::fetch::FetchFault;
use super::plan::Selection;
use super::request::overloaded;
use crate::canonical::Thinking;
use crate::error::{ApiError, Kind};
use crate::translate::{FetchedMedia, Key, Refused, RemoteParts, StoreOptions, WantedMedia, links};

/// Addresses of one request that are followed at most: more than any provider takes images.
const MOST: usize = 100;
/// How many are followed at a time.
const AT_ONCE: usize = 4;

/// Elements that are lost where a provider cannot be given an address.
const BY_ADDRESS: [&str; 3] = ["image_url", "file_url", "audio"];

/// Why a request was not translated.
pub(super) enum MediaFault {
    /// The client is told.
    Told(ApiError),
    /// Something in it is given by address, perhaps.
    Linked(Box<(Selection, Refused)>),
    /// Turns of it have lost their seals, which may be kept under these keys.
    Bare(Box<(Selection, Vec<Key>)>),
}

impl From<ApiError> for MediaFault {
    fn from(error: ApiError) -> Self {
        MediaFault::Told(error)
    }
}

/// Whether a refusal may be for want of what lies behind an address.
pub(super) fn may_be_linked(refused: &Refused, stored: &StoreOptions<'_>) -> bool {
    stored.brought.0.is_empty()
        && refused.losses.iter().any(|loss| BY_ADDRESS.contains(&loss.element.as_ref()))
}

impl Gateway {
    /// Translates a request once more, with what lies behind its addresses.
    pub(super) async fn translate_linked(
        &self,
        ctx: &Context,
        stuck: (Selection, Refused),
        thinking: Thinking,
        text: &[u8],
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, ApiError> {
        let (chosen, refused) = stuck;
        let (Some(client), Some(provider)) = (chosen.api.format(), chosen.upstream.format()) else {
            return Err(refused.error);
        };
        let wanted = {
            let target = chosen.target()?;
            let turn = self.offload.turn(text.len()).await?;
            let dialect = chosen.lane.dialect(target);
            turn.run(|| {
                links(std::str::from_utf8(text).unwrap_or_default(), client, provider, &dialect, stored)
            })
        };
        if wanted.is_empty() {
            self.count_losses(client, provider, &refused.losses);
            return Err(refused.error);
        }
        // What was brought is counted until the body that it becomes part of is.
        let (brought, _weights) = self.bring_all(wanted).await?;
        let stored = StoreOptions { brought: FetchedMedia(&brought), ..stored };
        self.translate(ctx, chosen, thinking, text, stored).await.map_err(|untold| match untold {
            MediaFault::Told(error) => error,
            MediaFault::Linked(stuck) => stuck.1.error,
            // They were looked for before.
            MediaFault::Bare(_) => refused.error,
        })
    }

    /// Brings what lies behind addresses: all of it together, in base64, no more than a body may be. All of it is
    /// counted while it comes, and in the form that the provider gets until the weights go.
    async fn bring_all(
        &self,
        wanted: Vec<(String, WantedMedia)>,
    ) -> Result<(Vec<RemoteParts>, Vec<Option<MemoryPermit>>), ApiError> {
        if wanted.len() > MOST {
            let message = format!("The request has more than {MOST} images and files given by address.");
            return Err(ApiError::new(Kind::InvalidField, message));
        }
        let room = Room::new(self.limits.body / 4 * 3);
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
                    let fetched = gateway.fetch(&url, gateway.limits.fetch, &room).await;
                    (url, kind, fetched)
                });
            }
            let Some(done) = tasks.join_next().await else { return Ok((brought, weights)) };
            let (url, kind, fetched) =
                done.map_err(|_| ApiError::new(Kind::Internal, "The gateway failed."))?;
            let result = fetched.as_ref().map_or_else(FetchFault::label, |_| "ok");
            self.metrics.links.with_label_values(&["client", result]).inc();
            let mut weight = None;
            let encoded = fetched.as_ref().map_or(0, |bytes| bytes.len().div_ceil(3) * 4);
            if fetched == Err(FetchFault::Busy) || !self.memory.grow(&mut weight, encoded) {
                return Err(overloaded());
            }
            if fetched == Err(FetchFault::Together) {
                let message = format!(
                    "The images and files of the request that are given by address are larger than {} bytes together.",
                    self.limits.body
                );
                return Err(ApiError::new(Kind::BodyTooLarge, message));
            }
            brought.push(read(url, kind, fetched)?);
            weights.push(weight);
        }
    }
}

/// What was brought, as the provider gets it.
fn read(
    url: String,
    wanted: WantedMedia,
    fetched: Result<Bytes, FetchFault>,
) -> Result<RemoteParts, ApiError> {
    // Addresses may be long, and hold what should be in no log for long.
    let shown: String = url.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect();
    let cannot = |why: &str| {
        let message = format!("The {} at '{shown}' cannot be brought: {why}.", wanted.name());
        ApiError::new(Kind::InvalidField, message)
    };
    let bytes = fetched.map_err(|fault| cannot(&fault.to_string()))?;
    let media_type = wanted.media_type(&bytes).ok_or_else(|| cannot("what lies there is of another kind"))?;
    Ok(RemoteParts { url: url.into(), media_type, base64: STANDARD.encode_to_string(&bytes) })
}
