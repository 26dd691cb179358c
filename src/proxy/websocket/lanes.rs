//! Lanes of a socket: requests with the same `stream_id` run one after the other, those with different ones at the same
//! time. Requests without one are a lane too.

use std::collections::VecDeque;

use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::wire::responses::socket::Create;
use driver::body_memory::MemoryPermit;

/// Lanes with a request at a time. An agent with a few sub-agents needs one each.
pub(super) const MAX_LANES: usize = 16;
/// Requests that wait behind another one of their lane, over all lanes.
pub(super) const MAX_QUEUED: usize = 16;

/// Request with the memory that it was received in; `None` for a small one.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) create: Box<Create>,
    pub(super) permit: Option<MemoryPermit>,
}

/// Lanes that have a request in progress, with those that wait for its end.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<(Option<Box<str>>, VecDeque<Queued>)>,
    queued: usize,
}

impl Lanes {
    /// Returns whether no request is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Returns whether a request of a lane has to wait.
    pub(super) fn is_busy(&self, lane: Option<&str>) -> bool {
        self.lanes.iter().any(|(name, _)| name.as_deref() == lane)
    }

    /// Adds a request. Returns it if its lane is free: it begins now. `None` if it waits.
    ///
    /// # Errors
    /// Returns [`ErrorKind::RateLimited`] if too many requests of this socket run or wait.
    pub(super) fn add(&mut self, queued: Queued) -> Result<Option<Queued>, ApiError> {
        let open = self.lanes.len();
        let lane = self.lanes.iter_mut().find(|(name, _)| *name == queued.create.lane);
        match lane {
            None if open >= MAX_LANES => Err(excess(format!(
                "This connection may have {MAX_LANES} responses in progress; wait for one of them to end."
            ))),
            None => {
                self.lanes.push((queued.create.lane.clone(), VecDeque::new()));
                Ok(Some(queued))
            }
            Some(_) if self.queued >= MAX_QUEUED => Err(excess(format!(
                "{MAX_QUEUED} requests of this connection wait for responses in progress already."
            ))),
            Some((_, waiting)) => {
                waiting.push_back(queued);
                self.queued += 1;
                Ok(None)
            }
        }
    }

    /// Ends the request in progress of a lane. Returns the next one of that lane, which begins now; `None` if none
    /// waits.
    pub(super) fn next(&mut self, lane: Option<&str>) -> Option<Queued> {
        let at = self.lanes.iter().position(|(name, _)| name.as_deref() == lane)?;
        let next = self.lanes.get_mut(at)?.1.pop_front();
        match &next {
            Some(_) => self.queued -= 1,
            None => _ = self.lanes.swap_remove(at),
        }
        if self.lanes.is_empty() {
            // An idle socket holds no memory for lanes.
            self.lanes = Vec::new();
        }
        next
    }

    /// Drops the requests that wait.
    pub(super) fn drop_queued(&mut self) {
        self.lanes.iter_mut().for_each(|(_, waiting)| waiting.clear());
        self.queued = 0;
    }
}

fn excess(message: String) -> ApiError {
    let mut error = ApiError::new(ErrorKind::RateLimited, message);
    error.code = Some("too_many_pending_responses".into());
    error.retry_after(Some(RetryAfter::Wait(std::time::Duration::from_secs(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::wire::responses::socket::ClientEvent;
    use json::Rope;

    fn request(lane: Option<&str>, model: usize) -> Queued {
        let lane = lane.map(|lane| format!(",\"stream_id\":\"{lane}\"")).unwrap_or_default();
        let text = format!("{{\"type\":\"response.create\",\"model\":\"{model}\"{lane}}}");
        match ClientEvent::read(Rope::from(bytes::Bytes::from(text))) {
            Ok(ClientEvent::Create(create)) => Queued { create, permit: None },
            other => panic!("{other:?}"),
        }
    }

    fn model(queued: Option<Queued>) -> Option<String> {
        queued.map(|queued| queued.create.model.to_string())
    }

    #[test]
    fn lanes_are_fifo_each_and_parallel_to_each_other() {
        let mut lanes = Lanes::default();
        assert_eq!(model(lanes.add(request(None, 1)).unwrap()).as_deref(), Some("1"));
        assert!(lanes.add(request(None, 2)).unwrap().is_none());
        assert!(lanes.add(request(None, 3)).unwrap().is_none());
        assert_eq!(model(lanes.add(request(Some("a"), 4)).unwrap()).as_deref(), Some("4"));
        assert_eq!(model(lanes.next(None)).as_deref(), Some("2"));
        assert!(lanes.next(Some("a")).is_none() && !lanes.is_idle());
        assert_eq!(model(lanes.next(None)).as_deref(), Some("3"));
        assert!(lanes.next(None).is_none() && lanes.is_idle());
        assert!(lanes.next(None).is_none());
    }

    #[test]
    fn lanes_and_queues_are_bounded() {
        let mut lanes = Lanes::default();
        for lane in 0..MAX_LANES {
            assert!(lanes.add(request(Some(&lane.to_string()), 0)).unwrap().is_some());
        }
        assert_eq!(lanes.add(request(None, 0)).unwrap_err().kind, ErrorKind::RateLimited);
        for lane in 0..MAX_QUEUED {
            assert!(lanes.add(request(Some(&lane.to_string()), 0)).unwrap().is_none());
        }
        assert_eq!(lanes.add(request(Some("0"), 0)).unwrap_err().kind, ErrorKind::RateLimited);
        lanes.drop_queued();
        assert!(lanes.add(request(Some("0"), 0)).unwrap().is_none());
    }
}
