//! Pauses in the transfer of a large body, in which the worker's other tasks have their turn.
//!
//! The runtime interrupts a task after 128 reads or writes. Of a body that arrives as fast as it is read these are 8 MB:
//! ten milliseconds, for which each frame of a stream on the same worker would wait.

/// Bytes after which the other tasks have their turn. Read, scanned and stored in a third of a millisecond.
const TURN: usize = 256 * 1024;

/// Counter of the bytes that one task has moved since its last pause.
#[derive(Debug, Default)]
pub(in crate::proxy) struct TransferTurn {
    moved: usize,
}

impl TransferTurn {
    /// Counts bytes that were moved, and lets the other tasks run if it was their turn. Cancel-safe.
    pub(in crate::proxy) async fn on_moved(&mut self, bytes: usize) {
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

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn yielding_lets_another_task_run_within_a_turn() {
        let moved = Cell::new(0);
        let longest = Cell::new(0);
        let transfer = async {
            let mut turn = TransferTurn::default();
            for _ in 0..100 {
                moved.set(moved.get() + TURN / 4);
                turn.on_moved(TURN / 4).await;
            }
        };
        let other = async {
            let mut seen = 0;
            while seen < 100 * (TURN / 4) {
                longest.set(longest.get().max(moved.get() - seen));
                seen = moved.get();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(transfer, other);
        assert_eq!(longest.get(), TURN);
    }
}
