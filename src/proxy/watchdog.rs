//! systemd's watchdog (`WatchdogSec=`): it is told that the process lives as long as the workers run what they are given.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

use super::listeners::Sockets;
use super::signals::notify;

/// Tells the watchdog for as long as the process lives, if there is one.
pub(super) async fn watch(sockets: Arc<Sockets>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // Two of three may be lost.
    let period = limit / 3;
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(workers) = sockets.workers() else { continue };
        if lives(workers, period).await {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(?period, "no worker has run a task in this time; the watchdog is not told");
        }
    }
}

/// Whether the workers run a task in time.
async fn lives(workers: &Handle, within: Duration) -> bool {
    matches!(tokio::time::timeout(within, workers.spawn(async {})).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workers_that_stand_still_are_noticed() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        assert!(lives(runtime.handle(), Duration::from_secs(30)).await);
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        for _ in 0..2 {
            let gate = gate.clone();
            runtime.spawn(async move { drop(gate.lock().map(|gate| gate.recv())) });
        }
        // Until both have begun to stand still.
        while lives(runtime.handle(), Duration::from_millis(100)).await {}
        drop(open);
        assert!(lives(runtime.handle(), Duration::from_secs(30)).await);
        runtime.shutdown_background();
    }
}
