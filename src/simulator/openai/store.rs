//! Stored responses for `previous_response_id` and `GET /v1/responses/{id}`: in memory, with limits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::super::http::Reply;
use super::errors::ApiError;

/// Maximum number of stored responses. The oldest one is evicted first.
const MAX_RESPONSES: usize = 1000;
/// Maximum size of the stored conversations, as JSON, in bytes.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Stored response, with the conversation that led to it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) response: Value,
    /// Items of this request, as `input_items` lists them.
    pub(super) input: Vec<Value>,
    /// All items of the conversation, up to the output of this response.
    pub(super) history: Vec<Value>,
}

impl Stored {
    fn id(&self) -> &str {
        self.response.get("id").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Store of responses.
#[derive(Debug, Default)]
pub(super) struct Store {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    responses: VecDeque<(Arc<Stored>, usize)>,
    bytes: usize,
}

/// Responses that a request can continue: the stored ones, and over a WebSocket the latest of its connection, also with
/// `store: false`.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreView<'a> {
    pub(super) stored: &'a Store,
    pub(super) connection: Option<&'a Store>,
}

impl StoreView<'_> {
    /// Returns a response by its id.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Stored>> {
        self.connection.and_then(|connection| connection.get(id)).or_else(|| self.stored.get(id))
    }

    /// Returns an item of any of the conversations by its id.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        self.connection.and_then(|connection| connection.item(id)).or_else(|| self.stored.item(id))
    }

    /// Adds a response; `stores` is the request's `store`.
    pub(super) fn insert(&self, response: Stored, stores: bool) {
        let response = Arc::new(response);
        if let Some(connection) = self.connection {
            connection.clear();
            connection.insert(response.clone());
        }
        if stores {
            self.stored.insert(response);
        }
    }
}

impl Store {
    /// Removes all responses.
    pub(super) fn clear(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a response, and evicts the oldest ones above the limits.
    pub(super) fn insert(&self, stored: Arc<Stored>) {
        let size = stored.history.iter().map(|item| item.to_string().len()).sum::<usize>();
        let mut inner = self.lock();
        inner.bytes += size;
        inner.responses.push_back((stored, size));
        while inner.responses.len() > MAX_RESPONSES || inner.bytes > MAX_BYTES {
            match inner.responses.pop_front() {
                Some((_, size)) => inner.bytes -= size,
                None => break,
            }
        }
    }

    /// Returns a response by its id.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Stored>> {
        self.lock()
            .responses
            .iter()
            .find(|(stored, _)| stored.id() == id)
            .map(|(stored, _)| Arc::clone(stored))
    }

    /// Returns an item of any stored conversation by its id.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let inner = self.lock();
        let mut items = inner.responses.iter().flat_map(|(stored, _)| &stored.history);
        items.find(|item| item.get("id").and_then(Value::as_str) == Some(id)).cloned()
    }

    /// Answers `GET /v1/responses/{id}`.
    pub(super) fn response(&self, id: &str) -> Result<Reply, ApiError> {
        self.get(id).map(|stored| Reply::json(200, &stored.response)).ok_or_else(|| not_found(id))
    }

    /// Answers `GET /v1/responses/{id}/input_items`, newest first.
    pub(super) fn input_items(&self, id: &str) -> Result<Reply, ApiError> {
        let stored = self.get(id).ok_or_else(|| not_found(id))?;
        let data: Vec<&Value> = stored.input.iter().rev().collect();
        let id = |item: Option<&&Value>| item.and_then(|item| item.get("id")).cloned();
        Ok(Reply::json(
            200,
            &json!({"object": "list", "data": data, "first_id": id(data.first()), "last_id": id(data.last()),
                    "has_more": false}),
        ))
    }

    /// Answers `DELETE /v1/responses/{id}`.
    pub(super) fn delete(&self, id: &str) -> Result<Reply, ApiError> {
        let mut inner = self.lock();
        let at = inner.responses.iter().position(|(stored, _)| stored.id() == id);
        let (_, size) = at.and_then(|at| inner.responses.remove(at)).ok_or_else(|| not_found(id))?;
        inner.bytes -= size;
        Ok(Reply::json(200, &json!({"id": id, "object": "response", "deleted": true})))
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::new(404, "invalid_request_error", format!("Response with id '{id}' not found."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(id: usize, size: usize) -> Arc<Stored> {
        Arc::new(Stored {
            response: json!({"id": id.to_string()}),
            input: Vec::new(),
            history: vec![json!({"id": format!("i{id}"), "text": "x".repeat(size)})],
        })
    }

    #[test]
    fn store_evicts_the_oldest_beyond_its_limits() {
        let store = Store::default();
        (0..MAX_RESPONSES + 5).for_each(|id| store.insert(stored(id, 1)));
        assert!(store.get("4").is_none() && store.get("5").is_some());
        store.insert(stored(9999, MAX_BYTES - 10));
        assert!(store.get("9999").is_none());
        assert_eq!(store.lock().bytes, 0);
    }

    #[test]
    fn store_items_are_found_until_the_response_is_deleted() {
        let store = Store::default();
        store.insert(stored(1, 1));
        assert!(store.item("i1").is_some());
        assert!(store.delete("1").is_ok());
        assert!(store.delete("1").is_err_and(|e| e.to_string() == "Response with id '1' not found."));
        assert!(store.item("i1").is_none());
    }
}
