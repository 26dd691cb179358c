//! Sockets to providers that the conversations of a client's socket keep, one for each lane.

use std::collections::VecDeque;
use std::sync::Arc;

use super::lanes::MAX_LANES;
use driver::provider_socket::conversation::KeptSocket;

/// Sockets by lane, the one used last at the end. At most as many as lanes can be active at a time: the socket of the lane
/// that was used least recently is closed.
#[derive(Debug, Default)]
pub(super) struct KeptSockets(VecDeque<(Option<Box<str>>, Arc<KeptSocket>)>);

impl KeptSockets {
    /// Returns the socket of a lane.
    pub(super) fn of_lane(&mut self, lane: Option<&str>) -> Arc<KeptSocket> {
        let at = self.0.iter().position(|(name, _)| name.as_deref() == lane);
        let kept =
            at.and_then(|at| self.0.remove(at)).unwrap_or_else(|| (lane.map(Into::into), Arc::default()));
        let socket = kept.1.clone();
        if self.0.len() >= MAX_LANES {
            self.0.pop_front();
        }
        self.0.push_back(kept);
        socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_sockets_are_those_of_the_lanes_used_last() {
        let mut sockets = KeptSockets::default();
        let first = sockets.of_lane(None);
        assert!(Arc::ptr_eq(&first, &sockets.of_lane(None)));
        for lane in 0..MAX_LANES {
            sockets.of_lane(Some(&lane.to_string()));
        }
        assert_eq!(sockets.0.len(), MAX_LANES);
        assert!(!Arc::ptr_eq(&first, &sockets.of_lane(None)));
    }
}
