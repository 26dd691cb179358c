//! Owners of what providers keep.

use super::{Place, on_both, wait};

on_both!(owner_is_found_by_the_key_alone, owner_is_known_to_the_next_process_and_to_others);

fn owner_is_found_by_the_key_alone(place: &dyn Place) {
    let owners = &*place.owners();
    assert_eq!(wait(owners.owner([1; 32])).unwrap(), None);
    wait(owners.claim([1; 32], "account:a")).unwrap();
    wait(owners.claim([2; 32], "key:\u{e9} b")).unwrap();
    wait(owners.claim([1; 32], "account:a")).unwrap();
    assert_eq!(wait(owners.owner([1; 32])).unwrap().as_deref(), Some("account:a"));
    assert_eq!(wait(owners.owner([2; 32])).unwrap().as_deref(), Some("key:\u{e9} b"));
    assert_eq!(wait(owners.owner([3; 32])).unwrap(), None);
}

fn owner_is_known_to_the_next_process_and_to_others(place: &dyn Place) {
    let (one, beside) = (place.owners(), place.owners());
    wait(one.claim([1; 32], "account:a")).unwrap();
    assert_eq!(wait(beside.owner([1; 32])).unwrap().as_deref(), Some("account:a"));
    drop((one, beside));
    assert_eq!(wait(place.owners().owner([1; 32])).unwrap().as_deref(), Some("account:a"));
}
