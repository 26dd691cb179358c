//! Input during a response (`response.steer`), for the response of the socket that it names.

use std::borrow::Cow;
use std::sync::Weak;

use super::Connection;
use codec::wire::responses::socket::Steer;
use driver::body_memory::MemoryPermit;
use driver::provider_socket::steering::{SteerItems, SteerRefusal};

impl Connection {
    /// Gives input to the response in progress that it names.
    ///
    /// # Errors
    /// Returns code and message of the event that refuses it.
    pub(super) fn on_steer(
        &mut self,
        steer: &Steer,
        permit: Option<MemoryPermit>,
    ) -> Result<(), (&'static str, Cow<'static, str>)> {
        let items =
            steer.items().map_err(|error| ("invalid_input", Cow::Owned(error.message.to_string())))?;
        if self.is_draining || self.is_revoked {
            return Err(("response_not_active", "The connection closes after this response.".into()));
        }
        self.inboxes.retain(|inbox| inbox.strong_count() > 0);
        let mut items = Some(SteerItems { items, _permit: permit });
        for inbox in self.inboxes.iter().filter_map(Weak::upgrade) {
            match inbox.put(steer, &mut items) {
                Ok(()) => return Ok(()),
                Err(SteerRefusal::NoTarget) => {}
                Err(SteerRefusal::TooMany) => {
                    return Err(("too_many_pending_steers", "The response has too many inputs.".into()));
                }
                Err(SteerRefusal::NoBalance) => {
                    return Err(("insufficient_quota", "The account has no balance left.".into()));
                }
            }
        }
        if self.memory.find(&steer.previous).is_some() {
            return Err(("response_already_completed", "The response has ended.".into()));
        }
        if self.lanes.is_idle() {
            return Err(("response_not_found", "No response of this connection has this id.".into()));
        }
        Err(("steering_not_supported", "The response takes no input while it is in progress.".into()))
    }
}
