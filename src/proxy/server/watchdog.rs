//! Keep-alive messages for systemd's watchdog (`WatchdogSec=`), sent while the workers run tasks in time.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

use super::listener_service::ListenerHandle;
use super::systemd::notify;

/// Serves the watchdog until the process ends. Returns at once if systemd has not enabled it.
pub(crate) async fn serve(listeners: Arc<ListenerHandle>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // Two messages may be late before systemd kills the process.
    let period = limit / 3;
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(workers) = listeners.runtime() else { continue };
        if workers_respond(workers, period).await {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(
                ?period,
                "no worker has run a task in this period; systemd's watchdog is not notified"
            );
        }
    }
}

/// Returns whether a worker runs a task within `timeout`.
async fn workers_respond(workers: &Handle, timeout: Duration) -> bool {
    matches!(tokio::time::timeout(timeout, workers.spawn(async {})).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watchdog_detects_blocked_workers() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        assert!(workers_respond(runtime.handle(), Duration::from_secs(30)).await);
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        for _ in 0..2 {
            let gate = gate.clone();
            runtime.spawn(async move { drop(gate.lock().map(|gate| gate.recv())) });
        }
        // Wait until both workers are blocked.
        while workers_respond(runtime.handle(), Duration::from_millis(100)).await {}
        drop(open);
        assert!(workers_respond(runtime.handle(), Duration::from_secs(30)).await);
        runtime.shutdown_background();
    }
}
