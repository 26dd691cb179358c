//! Item references of requests of the responses format: items that the gateway stores take the place of their references,
//! for every target; references to items of a provider are checked for their owner and stay.
//!
//! What a reference is, and what its id means, lives in `wire::responses::references`.

use std::collections::HashMap;

use bytes::Bytes;

use super::context::Context;
use super::response_owner::IdOwner;
use super::stored::{LOAD_TIMEOUT, account, text, unavailable, unreadable};
use crate::Gateway;
use codec::error::{ApiError, ErrorKind};
use codec::wire::request::Body;
use codec::wire::responses::references::{self, ItemReference, each_output_item, replaced, response_of};
use driver::offload::run_blocking_if_large;
use json::{JsonStr, with_whole_characters};
use routing::account::Key;
use storage::kv::{Holder, Store};

/// Maximum number of references in a request: more than a conversation has items that a client would send.
const MAX_REFERENCES: usize = 1024;
/// Responses that are loaded at a time.
const AT_ONCE: usize = 8;
/// How many times the maximum size of a body the loaded responses may have together: of a response only the items that
/// are referred to are kept.
const LOADED: usize = 4;

impl Gateway {
    /// Puts the items that the gateway stores for the key in the place of their references. Returns the ids of others whose
    /// owner is unknown: they are the key's from now on.
    ///
    /// # Errors
    /// Returns the error of an unknown id if an item belongs to another owner, or is not an item of its response;
    /// [`ErrorKind::InvalidField`] for a reference without one id, and for too many of them;
    /// [`ErrorKind::BodyTooLarge`] if the items do not fit into a body; and an error if the store is unavailable.
    pub(super) async fn resolve_references(
        &self,
        ctx: &Context,
        by: &Key,
        body: &mut Box<Body>,
    ) -> Result<Vec<String>, ApiError> {
        let found = run_blocking_if_large(body.text.len(), || body.item_references());
        if found.len() > MAX_REFERENCES {
            let message = format!("The input has more than {MAX_REFERENCES} item references.");
            return Err(ApiError::new(ErrorKind::InvalidField, message).param("input"));
        }
        let (mut adopted, mut own) = (Vec::new(), Vec::new());
        let mut holders: HashMap<String, Holder> = HashMap::new();
        for reference in found {
            let ItemReference { index, id, .. } = &reference;
            if id.is_empty() {
                return Err(references::unreadable(*index));
            }
            let response = response_of(id);
            let holder = match &response {
                Some(response) => match holders.get(response) {
                    Some(holder) => *holder,
                    None => *holders.entry(response.clone()).or_insert(self.holder(ctx, response).await?),
                },
                None => Holder::NoAccount,
            };
            match (holder, response) {
                (Holder::Asker, Some(response)) => own.push((reference, response)),
                (Holder::OtherAccount, _) => return Err(references::not_found(id)),
                _ => match self.foreign_owner(by, id).await? {
                    IdOwner::Asker => {}
                    IdOwner::Other => return Err(references::not_found(id)),
                    IdOwner::Unknown => adopted.push(reference.id),
                },
            }
        }
        if let (false, Some(store)) = (own.is_empty(), self.store.as_deref()) {
            let items = self.load_items(ctx, store, &own).await?;
            self.insert_items(body, &own, &items)?;
        }
        Ok(adopted)
    }

    /// Loads the items of these references, by their ids.
    async fn load_items(
        &self,
        ctx: &Context,
        store: &dyn Store,
        own: &[(ItemReference, String)],
    ) -> Result<HashMap<String, String>, ApiError> {
        let mut wanted: HashMap<&str, Option<String>> =
            own.iter().map(|(reference, _)| (&*reference.id, None)).collect();
        let mut responses: Vec<&String> = own.iter().map(|(_, response)| response).collect();
        responses.sort_unstable();
        responses.dedup();
        let (mut loaded, mut kept) = (0_usize, 0_usize);
        for some in responses.chunks(AT_ONCE) {
            let ids = some.iter().map(|id| (*id).clone()).collect();
            let documents = store.find_documents(&account(ctx), ids).within(LOAD_TIMEOUT).await;
            self.count_store("find", &documents);
            for document in documents.map_err(|error| unavailable(&error))?.into_iter().flatten() {
                loaded = loaded.saturating_add(document.len());
                if loaded > self.limits.body.saturating_mul(LOADED) {
                    return Err(self.too_large());
                }
                let document: Bytes = self.charge_memory(document)?;
                let document = text(&document)?;
                let mut take = |id: JsonStr<'_>, item: &str| {
                    if let Some(place) = wanted.get_mut(&*id.decode()) {
                        kept = kept.saturating_add(item.len());
                        // A response may have what a request may not.
                        *place = Some(with_whole_characters(item).into_owned());
                    }
                };
                run_blocking_if_large(document.len(), || each_output_item(document, &mut take))
                    .map_err(|_| unreadable())?;
                if kept > self.limits.body {
                    return Err(self.too_large());
                }
            }
        }
        wanted
            .into_iter()
            .map(|(id, item)| item.map(|item| (id.to_owned(), item)).ok_or_else(|| references::not_found(id)))
            .collect()
    }

    /// Replaces the body by one with the items.
    fn insert_items(
        &self,
        body: &mut Box<Body>,
        own: &[(ItemReference, String)],
        items: &HashMap<String, String>,
    ) -> Result<(), ApiError> {
        let item = |reference: &ItemReference| items.get(&reference.id).map_or("", String::as_str);
        // One item may be named many times.
        let added = own.iter().fold(0_usize, |sum, (one, _)| sum.saturating_add(item(one).len()));
        if body.text.len().saturating_add(added) > self.limits.body {
            return Err(self.too_large());
        }
        let longer = run_blocking_if_large(body.text.len() + added, || {
            let text = body.text.make_contiguous();
            replaced(&text, own.iter().map(|(one, _)| (one.range.clone(), item(one))))
        });
        let model = body.model.take();
        *body = self.scan_again(longer)?;
        body.model = model;
        body.needs_store = true;
        Ok(())
    }

    fn too_large(&self) -> ApiError {
        let message = format!(
            "The request body with the items that it refers to is larger than {} bytes (limits.body).",
            self.limits.body
        );
        ApiError::new(ErrorKind::BodyTooLarge, message).param("input")
    }
}
