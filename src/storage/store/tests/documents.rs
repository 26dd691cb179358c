//! Responses and provider signatures.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::server::pause;
use super::{PATIENCE, TestBackend, on_both, wait};
use crate::kv::{Found, Holder, Store, StoreLimits, StoredResponse};
use crate::store::StoreError;

pub(crate) const LIMITS: StoreLimits = StoreLimits {
    lifetime: Duration::from_secs(3600),
    response: 1000,
    total: 10_000,
    signature_lifetime: Duration::from_secs(3600),
    signature_total: 10_000,
};

on_both!(
    response_is_found_and_removed_by_its_account_only,
    response_id_is_known_to_be_taken,
    response_documents_are_found_by_their_account_only,
    response_is_found_by_other_and_later_processes,
    response_expired_is_not_found_and_is_swept,
    response_too_large_is_refused_and_the_oldest_is_evicted,
    response_with_the_same_id_replaces_the_old_one,
    response_many_concurrent_writes_are_all_stored,
    signature_is_found_by_its_account_only,
    signature_too_large_is_refused_and_the_oldest_is_evicted,
    signature_expired_is_not_found,
);

/// Returns a response whose items and document name this text.
pub(crate) fn response(account: &str, id: &str, text: &str) -> StoredResponse {
    let bytes = |text: String| Bytes::from(text.into_bytes());
    StoredResponse {
        account: account.to_owned(),
        id: id.to_owned(),
        items: bytes(format!("items of {text}")),
        document: bytes(format!("document of {text}")),
    }
}

pub(crate) fn store_response(store: &dyn Store, account: &str, id: &str, text: &str) {
    wait(store.store_response(response(account, id, text))).unwrap();
}

pub(crate) fn find(store: &dyn Store, account: &str, id: &str) -> Option<String> {
    wait(store.find(account, id)).unwrap().map(joined)
}

/// Returns the items and the document of a response as one text.
pub(crate) fn joined(found: Found) -> String {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    format!("{}; {}", text(found.items), text(found.document))
}

fn response_is_found_and_removed_by_its_account_only(place: &dyn TestBackend) {
    let store = &*place.store(LIMITS);
    store_response(store, "a", "resp_1", "one");
    store_response(store, "b", "resp_1", "two");
    let one = Some("items of one; document of one".to_owned());
    assert_eq!(find(store, "a", "resp_1"), one);
    assert_eq!(find(store, "b", "resp_1").unwrap(), "items of two; document of two");
    for (account, id) in
        [("c", "resp_1"), ("", "resp_1"), ("a", "resp_2"), ("a", ""), ("A", "resp_1"), ("a:resp_1", "")]
    {
        assert_eq!(find(store, account, id), None);
        assert!(!wait(store.remove(account, id)).unwrap());
    }
    assert!(wait(store.remove("b", "resp_1")).unwrap());
    assert!(!wait(store.remove("b", "resp_1")).unwrap());
    assert_eq!(find(store, "b", "resp_1"), None);
    assert_eq!(find(store, "a", "resp_1"), one);
}

fn response_id_is_known_to_be_taken(place: &dyn TestBackend) {
    let store = &*place.store(LIMITS);
    let holder = |account: &str, id: &str| wait(store.holder(account, id)).unwrap();
    assert_eq!(holder("a", "resp_1"), Holder::NoAccount);
    store_response(store, "a", "resp_1", "one");
    assert_eq!((holder("a", "resp_1"), holder("b", "resp_1")), (Holder::Asker, Holder::OtherAccount));
    assert_eq!((holder("a", "resp_"), holder("", "resp_1")), (Holder::NoAccount, Holder::OtherAccount));
    // Another account cannot end that.
    assert!(!wait(store.remove("b", "resp_1")).unwrap());
    assert_eq!(holder("b", "resp_1"), Holder::OtherAccount);
    assert!(wait(store.remove("a", "resp_1")).unwrap());
    assert_eq!((holder("a", "resp_1"), holder("b", "resp_1")), (Holder::NoAccount, Holder::NoAccount));
    assert_eq!(store.size(), 0);
    // Expired entries belong to no account.
    let brief = place.store(StoreLimits { lifetime: Duration::from_millis(1), ..LIMITS });
    store_response(&*brief, "a", "resp_2", "two");
    pause(20);
    assert_eq!((holder("a", "resp_2"), holder("b", "resp_2")), (Holder::NoAccount, Holder::NoAccount));
    // The same for an evicted response.
    for number in 0..100 {
        let large = StoredResponse {
            document: Bytes::from(vec![b'x'; 900]),
            ..response("a", &format!("resp_{number}"), "")
        };
        wait(store.store_response(large)).unwrap();
    }
    assert_eq!((holder("a", "resp_3"), holder("b", "resp_3")), (Holder::NoAccount, Holder::NoAccount));
    assert_eq!(holder("b", "resp_99"), Holder::OtherAccount);
}

fn response_documents_are_found_by_their_account_only(place: &dyn TestBackend) {
    let store = &*place.store(LIMITS);
    store_response(store, "a", "resp_1", "one");
    store_response(store, "a", "resp_2", "two");
    store_response(store, "b", "resp_3", "three");
    let find = |ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let found = wait(store.find_documents("a", ids)).unwrap();
        found
            .into_iter()
            .map(|text| text.map(|text| String::from_utf8(text.to_vec()).unwrap()))
            .collect::<Vec<_>>()
    };
    let text = |text: &str| Some(format!("document of {text}"));
    assert_eq!(
        find(&["resp_2", "resp_3", "resp_1", "x", "resp_2"]),
        [text("two"), None, text("one"), None, text("two")]
    );
    assert_eq!(find(&[]), []);
}

fn response_is_found_by_other_and_later_processes(place: &dyn TestBackend) {
    {
        let store = place.store(LIMITS);
        store_response(&*store, "a", "resp_1", "one");
        // Another process reads it while this one still runs.
        assert!(find(&*place.store(LIMITS), "a", "resp_1").is_some());
    }
    let store = &*place.store(LIMITS);
    assert!(find(store, "a", "resp_1").is_some());
    store_response(store, "a", "resp_2", "two");
    assert!(store.size() > 40);
}

fn response_expired_is_not_found_and_is_swept(place: &dyn TestBackend) {
    let brief = place.store(StoreLimits { lifetime: Duration::ZERO, ..LIMITS });
    store_response(&*brief, "a", "resp_1", "one");
    assert_eq!(find(&*brief, "a", "resp_1"), None);
    assert!(!wait(brief.remove("a", "resp_1")).unwrap());
    store_response(&*brief, "a", "resp_2", "two");
    assert!(brief.size() > 0);
    drop(brief);
    // The sweep at the start of the next process frees space for exactly one response.
    let store = place.store(LIMITS);
    let one = response("a", "resp_3", "two");
    let size = one.items.len() + one.document.len() + one.id.len() + one.account.len();
    let deadline = Instant::now() + PATIENCE;
    loop {
        store_response(&*store, "a", "resp_3", "two");
        if store.size() == size as u64 || Instant::now() > deadline {
            break;
        }
        pause(5);
    }
    assert_eq!(store.size(), size as u64);
}

fn response_too_large_is_refused_and_the_oldest_is_evicted(place: &dyn TestBackend) {
    let store = &*place.store(LIMITS);
    let large = wait(store.store_response(response("a", "resp_0", &"x".repeat(600))));
    assert!(matches!(large, Err(StoreError::TooLarge { limit: 1000, size }) if size > 1200), "{large:?}");
    for n in 0..40 {
        store_response(store, "a", &format!("resp_{n}"), &"x".repeat(400));
        assert!(store.size() <= LIMITS.total, "{}", store.size());
    }
    let found: Vec<bool> = (0..40).map(|n| find(store, "a", &format!("resp_{n}")).is_some()).collect();
    let count = found.iter().filter(|found| **found).count();
    assert!((8..=12).contains(&count), "{count}");
    // The latest ones are still there, without a gap.
    assert!(found.iter().rev().take(count).all(|found| *found), "{found:?}");
}

fn response_with_the_same_id_replaces_the_old_one(place: &dyn TestBackend) {
    let store = &*place.store(LIMITS);
    store_response(store, "a", "resp_1", "one");
    store_response(store, "a", "resp_1", "two");
    let one = store.size();
    assert_eq!(find(store, "a", "resp_1").unwrap(), "items of two; document of two");
    store_response(store, "a", "resp_2", "one");
    assert_eq!(store.size(), one * 2);
}

fn response_many_concurrent_writes_are_all_stored(place: &dyn TestBackend) {
    let store = &*place.store(StoreLimits { total: 1 << 30, ..LIMITS });
    let pending: Vec<_> =
        (0..500).map(|n| store.store_response(response("a", &format!("resp_{n}"), "one"))).collect();
    pending.into_iter().for_each(|pending| wait(pending).unwrap());
    for n in 0..500 {
        assert!(find(store, "a", &format!("resp_{n}")).is_some(), "{n}");
    }
}

fn load_signatures(store: &dyn Store, account: &str, keys: &[u8]) -> Vec<Option<String>> {
    let keys = keys.iter().map(|key| [*key; 32]).collect();
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    wait(store.load_signatures(account, keys))
        .unwrap()
        .into_iter()
        .map(|signature| signature.map(text))
        .collect()
}

fn store_signature(store: &dyn Store, account: &str, key: u8, text: &str) {
    wait(store.store_signatures(account, vec![([key; 32], Bytes::from(text.to_owned().into_bytes()))]))
        .unwrap();
}

fn signature_is_found_by_its_account_only(place: &dyn TestBackend) {
    {
        let store = &*place.store(LIMITS);
        store_signature(store, "a", 1, "one");
        store_signature(store, "a", 2, "two");
        store_signature(store, "b", 1, "other");
        store_signature(store, "a", 2, "three");
        wait(store.store_signatures("a", Vec::new())).unwrap();
    }
    let store = &*place.store(LIMITS);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(load_signatures(store, "a", &[2, 3, 1]), [text("three"), None, text("one")]);
    assert_eq!(load_signatures(store, "b", &[1, 2]), [text("other"), None]);
    assert_eq!(load_signatures(store, "c", &[1]), [None]);
    assert!(load_signatures(store, "a", &[]).is_empty());
    assert_eq!(store.size(), 0, "signatures do not count as responses");
}

fn signature_too_large_is_refused_and_the_oldest_is_evicted(place: &dyn TestBackend) {
    let store = &*place.store(LIMITS);
    let large = wait(store.store_signatures("a", vec![([1; 32], Bytes::from(vec![b'x'; 10_001]))]));
    assert!(matches!(large, Err(StoreError::TooLarge { limit: 10_000, .. })), "{large:?}");
    for key in 0..50 {
        store_signature(store, "a", key, &"x".repeat(900));
    }
    let keys: Vec<u8> = (0..50).collect();
    let found = load_signatures(store, "a", &keys);
    let count = found.iter().filter(|signature| signature.is_some()).count();
    assert!((8..=10).contains(&count), "{count}");
    assert!(found.iter().rev().take(count).all(Option::is_some));
}

fn signature_expired_is_not_found(place: &dyn TestBackend) {
    let store = &*place.store(StoreLimits { signature_lifetime: Duration::ZERO, ..LIMITS });
    store_signature(store, "a", 1, "one");
    assert_eq!(load_signatures(store, "a", &[1]), [None]);
}
