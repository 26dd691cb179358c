//! Repeated requests: the answer of an operation that shows a secret once is kept for a while, for a caller to whom it did
//! not arrive.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::error::{AdminApiError, ErrorCode};
use super::request::ApiRequest;
use super::response::{AnswerContent, ApiResponse, ApiResult};
use routing::account::KeyHash;

/// Time for which an answer is kept. It has the text of a key, so that it is short, and the answer is only in memory.
const KEPT: Duration = Duration::from_secs(600);
/// Maximum number of answers. Beyond it, the oldest is forgotten.
const ANSWERS: usize = 256;
/// Longest idempotency key, in bytes.
const LONGEST_KEY: usize = 256;

/// Request with an idempotency key.
#[derive(Debug)]
struct Seen {
    /// Hash of the caller, the key, the operation and its object.
    id: KeyHash,
    /// Hash of what is asked for.
    asked: KeyHash,
    since: Instant,
    /// Answer with its version. `None` while the request is in progress.
    answer: Option<(Value, Option<String>)>,
}

/// Answers of requests with idempotency keys.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<Vec<Seen>>);

impl Repeats {
    /// Does `work` for the first request of its caller with an idempotency key, and answers further ones in the same way. Without a
    /// key, does `work`.
    ///
    /// # Errors
    /// Returns the error of `work`, which is not kept; that of a key that was used for another request, is in use or too long.
    pub(super) fn once(&self, request: &ApiRequest, work: impl FnOnce() -> ApiResult) -> ApiResult {
        let Some(key) = request.idempotency_key.as_deref().filter(|key| !key.is_empty()) else {
            return work();
        };
        if key.len() > LONGEST_KEY {
            let message = format!("an idempotency key has at most {LONGEST_KEY} bytes");
            return Err(AdminApiError::new(ErrorCode::Invalid, message));
        }
        if request.dry_run()? {
            return work();
        }
        let id =
            [&[request.caller.name.as_str(), key, request.route.id], &*names(request)].concat().join("\u{0}");
        let asked = KeyHash::of(&Value::Object(request.body.clone()).to_string());
        let id = KeyHash::of(&id);
        if let Some(answer) = self.begin(id, asked, Instant::now())? {
            return Ok(answer);
        }
        // Forgets the request if it fails, or panics.
        let mut unfinished = Unfinished { repeats: self, id, is_done: false };
        let answer = work()?;
        if let AnswerContent::Json(value) = &answer.content {
            let kept = Some((value.clone(), answer.etag.clone()));
            if let Some(seen) = self.0.lock().iter_mut().find(|seen| seen.id == id) {
                seen.answer = kept;
            }
            unfinished.is_done = true;
        }
        Ok(answer)
    }

    /// Begins a request. Returns the answer of an earlier one; `None` if there was none.
    fn begin(&self, id: KeyHash, asked: KeyHash, now: Instant) -> Result<Option<ApiResponse>, AdminApiError> {
        let mut all = self.0.lock();
        all.retain(|seen| seen.answer.is_none() || now.saturating_duration_since(seen.since) < KEPT);
        if let Some(seen) = all.iter().find(|seen| seen.id == id) {
            if seen.asked != asked {
                let message = "the idempotency key was used for another request";
                return Err(AdminApiError::new(ErrorCode::Exists, message));
            }
            let Some((value, etag)) = &seen.answer else {
                let message = "a request with this idempotency key is in progress";
                return Err(AdminApiError::new(ErrorCode::Unavailable, message).retry_after(1));
            };
            let mut value = value.clone();
            if let Some(members) = value.as_object_mut() {
                members.insert("repeated".to_owned(), true.into());
            }
            return Ok(Some(ApiResponse::json(value).with_etag(etag.clone())));
        }
        if all.len() >= ANSWERS {
            all.remove(0);
        }
        all.push(Seen { id, asked, since: now, answer: None });
        Ok(None)
    }
}

fn names(request: &ApiRequest) -> Vec<&str> {
    request.names.iter().map(String::as_str).collect()
}

/// Request in progress, which is forgotten unless it is done.
struct Unfinished<'r> {
    repeats: &'r Repeats,
    id: KeyHash,
    is_done: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.repeats.0.lock().retain(|seen| seen.id != self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_of_a_request_is_answered_for_a_while_and_within_bounds() {
        let (repeats, start) = (Repeats::default(), Instant::now());
        let hash = |text: &str| KeyHash::of(text);
        let begin = |id: &str, asked: &str, now| repeats.begin(hash(id), hash(asked), now);
        assert!(begin("a", "x", start).unwrap().is_none());
        assert_eq!(begin("a", "x", start).err().unwrap().code, ErrorCode::Unavailable);
        assert_eq!(begin("a", "y", start).err().unwrap().code, ErrorCode::Exists);
        repeats.0.lock()[0].answer = Some((serde_json::json!({ "key": "k" }), None));
        let again = begin("a", "x", start + KEPT / 2).unwrap().unwrap();
        assert!(matches!(again.content, AnswerContent::Json(value) if value["repeated"] == true));
        assert!(begin("a", "x", start + KEPT).unwrap().is_none(), "the answer is kept for a while");
        for number in 0..2 * ANSWERS {
            begin(&format!("b{number}"), "x", start).unwrap();
        }
        assert_eq!(repeats.0.lock().len(), ANSWERS);
    }
}
