//! Owner store of a fleet.

use bytes::Bytes;

use super::store::{OnExisting, ValkeyStore, bytes, store_command};
use crate::kv::owners::{LIFETIME, MOST};
use crate::kv::{OwnerStore, StoreKey};
use crate::store::Pending;
use crate::store::valkey::connection::parts;
use crate::store::valkey::keys::ValkeyKey;
use crate::store::valkey::script;

pub(super) const OWNERS: ValkeyKey = ValkeyKey("owners");
/// Accounted size of an entry, in bytes. All entries count the same, so that the limit is a number of entries.
const ENTRY: usize = 128;
/// Maximum accounted size of all owner entries, in bytes.
const TOTAL: u64 = MOST.unsigned_abs() * ENTRY as u64;

impl OwnerStore for ValkeyStore {
    fn claim(&self, key: StoreKey, owner: &str) -> Pending<()> {
        let owner = Bytes::copy_from_slice(owner.as_bytes());
        let in_flight = owner.len() + ENTRY;
        let thing = (OWNERS.item("", &key), ENTRY, owner, Bytes::new());
        let call = store_command(OWNERS, LIFETIME, TOTAL, OnExisting::Leave, vec![thing]);
        self.submit(in_flight, call, |_, _| ())
    }

    fn owner(&self, key: StoreKey) -> Pending<Option<String>> {
        self.submit(0, script::FIND.call(&[OWNERS.item("", &key)]), |_, answer| {
            let owner = bytes(parts(parts(answer).first()?).first()?)?;
            String::from_utf8(owner.to_vec()).ok()
        })
    }
}
