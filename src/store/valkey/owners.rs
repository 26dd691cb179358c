//! Owners that a fleet knows together.

use bytes::Bytes;

use super::connection::parts;
use super::keys::ValkeyKey;
use super::script;
use super::store::{ValkeyStore, bytes};
use crate::store::owners::{LIFETIME, MOST, OwnerStore};
use crate::store::{Pending, SealKey};

pub(super) const OWNERS: ValkeyKey = ValkeyKey("owners");
/// What an owner counts for beside its name: the key and its place in the order.
const OVERHEAD: usize = 128;
/// Most bytes of all owners together.
const TOTAL: u64 = MOST.unsigned_abs() * 128;

impl OwnerStore for ValkeyStore {
    fn claim(&self, key: SealKey, owner: &str) -> Pending<()> {
        let owner = Bytes::copy_from_slice(owner.as_bytes());
        let size = owner.len() + OVERHEAD;
        let thing = (OWNERS.item("", &key), size, owner, Bytes::new());
        let call = self.keep_all(OWNERS, LIFETIME, TOTAL, vec![thing]);
        self.submit(size, call, |_, _| ())
    }

    fn owner(&self, key: SealKey) -> Pending<Option<String>> {
        self.submit(0, script::FIND.call(&[OWNERS.item("", &key)]), |_, answer| {
            let owner = bytes(parts(parts(answer).first()?).first()?)?;
            String::from_utf8(owner.to_vec()).ok()
        })
    }
}
