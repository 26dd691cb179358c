//! Task service: the store of tasks, and the reservations of those that this process has started or taken over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use storage::kv::TaskStore;
use storage::ledger::Reservation;

/// Task service: the task store, and the reservations of tasks that this process has started or taken over.
pub(crate) struct TaskService {
    pub(super) tasks: Arc<dyn TaskStore>,
    pub(super) reservations: Mutex<HashMap<(String, String), TaskReservation>>,
}

/// Reservation of one task.
pub(super) struct TaskReservation {
    pub(super) reservation: Reservation,
    pub(super) since: Instant,
}

impl TaskService {
    pub(crate) fn new(tasks: Arc<dyn TaskStore>) -> Self {
        TaskService { tasks, reservations: Mutex::default() }
    }

    pub(super) fn insert(&self, owner: &str, id: &str, reservation: Reservation) {
        let hold = TaskReservation { reservation, since: Instant::now() };
        self.reservations.lock().insert((owner.to_owned(), id.to_owned()), hold);
    }

    pub(super) fn has_reservation(&self, owner: &str, id: &str) -> bool {
        self.reservations.lock().contains_key(&(owner.to_owned(), id.to_owned()))
    }

    pub(super) fn release(&self, owner: &str, id: &str) -> Option<Reservation> {
        let hold = self.reservations.lock().remove(&(owner.to_owned(), id.to_owned()));
        hold.map(|hold| hold.reservation)
    }
}
