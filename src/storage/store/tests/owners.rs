//! Owners of responses that providers store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{TestBackend, on_both, wait};
use crate::store::millis;

on_both!(
    owner_is_found_by_its_key,
    owner_is_found_by_other_and_later_processes,
    owner_is_the_first_one_until_its_entry_expires,
    owner_entry_is_renewed_by_a_claim_of_its_owner,
);

fn owner_is_found_by_its_key(place: &dyn TestBackend) {
    let owners = &*place.owners();
    assert_eq!(wait(owners.owner([1; 32])).unwrap(), None);
    wait(owners.claim([1; 32], "account:a")).unwrap();
    wait(owners.claim([2; 32], "key:\u{e9} b")).unwrap();
    wait(owners.claim([1; 32], "account:a")).unwrap();
    assert_eq!(wait(owners.owner([1; 32])).unwrap().as_deref(), Some("account:a"));
    assert_eq!(wait(owners.owner([2; 32])).unwrap().as_deref(), Some("key:\u{e9} b"));
    assert_eq!(wait(owners.owner([3; 32])).unwrap(), None);
}

fn owner_is_found_by_other_and_later_processes(place: &dyn TestBackend) {
    let (one, beside) = (place.owners(), place.owners());
    wait(one.claim([1; 32], "account:a")).unwrap();
    assert_eq!(wait(beside.owner([1; 32])).unwrap().as_deref(), Some("account:a"));
    drop((one, beside));
    assert_eq!(wait(place.owners().owner([1; 32])).unwrap().as_deref(), Some("account:a"));
}

fn owner_is_the_first_one_until_its_entry_expires(place: &dyn TestBackend) {
    let owners = &*place.owners();
    for owner in ["account:a", "account:b", "account:a"] {
        wait(owners.claim([1; 32], owner)).unwrap();
        assert_eq!(wait(owners.owner([1; 32])).unwrap().as_deref(), Some("account:a"), "{owner}");
    }
    place.expire_owners(1);
    assert_eq!(wait(owners.owner([1; 32])).unwrap(), None);
    for owner in ["account:b", "account:a"] {
        wait(owners.claim([1; 32], owner)).unwrap();
        assert_eq!(wait(owners.owner([1; 32])).unwrap().as_deref(), Some("account:b"), "{owner}");
    }
}

fn owner_entry_is_renewed_by_a_claim_of_its_owner(place: &dyn TestBackend) {
    let owners = &*place.owners();
    wait(owners.claim([1; 32], "account:a")).unwrap();
    wait(owners.claim([2; 32], "account:a")).unwrap();
    // Time enough for the two claims before it, on a busy machine too.
    let soon = millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap()) + 4_000;
    place.expire_owners(soon);
    wait(owners.claim([1; 32], "account:a")).unwrap();
    wait(owners.claim([2; 32], "account:b")).unwrap();
    while millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap()) <= soon + 10 {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert_eq!(wait(owners.owner([1; 32])).unwrap().as_deref(), Some("account:a"));
    assert_eq!(wait(owners.owner([2; 32])).unwrap(), None);
}
