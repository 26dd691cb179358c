//! Pauses in the transfer of a large body, in which the worker's other tasks have their turn.
//!
//! The runtime interrupts a task after 128 reads or writes. Of a body that arrives as fast as it is read these are 8 MB,
//! some milliseconds, for which each frame of a stream on the same worker would wait.

/// Bytes after which the other tasks have their turn: a fraction of a millisecond.
const TURN: usize = 256 * 1024;

/// Counter of the bytes that one task has moved since its last pause.
#[derive(Debug, Default)]
pub struct TransferTurn {
    moved: usize,
}

impl TransferTurn {
    /// Counts bytes that were moved, and lets the other tasks run if it was their turn. Cancel-safe.
    pub async fn on_moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= TURN {
            self.moved = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn yielding_lets_the_other_tasks_run_after_each_turn() {
        const PIECE: usize = TURN / 4;
        let moved = Cell::new(0);
        let mut transfer = pin!(async {
            let mut turn = TransferTurn::default();
            for _ in 0..101 {
                moved.set(moved.get() + PIECE);
                turn.on_moved(PIECE).await;
            }
        });
        let mut context = Context::from_waker(Waker::noop());
        let mut before = 0;
        while transfer.as_mut().poll(&mut context).is_pending() {
            assert_eq!(moved.get() - before, TURN);
            before = moved.get();
        }
        assert_eq!(moved.get(), 101 * PIECE);
    }
}
