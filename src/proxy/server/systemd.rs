//! Notifications of the process to systemd.

use sd_notify::NotifyState;

/// Notifies systemd. Does nothing if the process does not run under systemd.
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
