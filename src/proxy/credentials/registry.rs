//! Registry of the credential handles of all snapshots, so that a reload keeps what is issued already.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::handle::CredentialHandle;
use codec::provider::Provider;

/// Registry of credential handles. The snapshots own the handles.
#[derive(Debug, Default)]
pub(crate) struct CredentialRegistry(Mutex<Vec<Weak<CredentialHandle>>>);

impl CredentialRegistry {
    /// Returns the handle of a provider: that of another snapshot if the way to its credential is the same. `None` for a
    /// provider without access to a cloud platform.
    pub(crate) fn handle(&self, provider: &Provider) -> Option<Arc<CredentialHandle>> {
        provider.cloud.as_ref()?;
        let mut handles = self.0.lock();
        handles.retain(|handle| handle.strong_count() > 0);
        let known = handles.iter().filter_map(Weak::upgrade).find(|handle| handle.serves(provider));
        if known.is_some() {
            return known;
        }
        let handle = Arc::new(CredentialHandle::new(provider)?);
        handles.push(Arc::downgrade(&handle));
        Some(handle)
    }
}
