//! Binary upgrade: transfer of the listening sockets to a new process that confirms when it serves.
//!
//! A new process (`--upgrade`) listens on the readiness socket, `server.upgrade_socket` with `.ready` appended, before
//! it requests the listening sockets. The old process connects to it, sends the sockets, and accepts until it reads one
//! byte from that connection. Then it stops accepting. If the connection ends without the byte, or the byte does not
//! arrive in time, the upgrade has failed and the old process continues to serve.
//!
//! A new process of an earlier version has no readiness socket. The old process then accepts for a fixed time beside
//! it.

use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pingora::server::ListenFds;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// Maximum time that the old process waits for a new one that an operator started.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);
/// Maximum time from the transfer to the confirmation. Above the start time-out of the new process, 20 s.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which both processes accept if the new one cannot confirm. Pingora's own value.
const UNCONFIRMED_OVERLAP: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reason why an upgrade failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("no process has requested the listeners")]
    NoRequest,
    #[error("the listeners cannot be sent: {0}")]
    Transfer(String),
    #[error("the new process ended before it was ready")]
    ConfirmationLost,
    #[error("the new process was not ready within {READY_TIMEOUT:?}")]
    ReadyTimeout,
    #[error("the new process cannot be started: {0}")]
    Spawn(io::Error),
    #[error("the new process ended with {0}")]
    Exited(std::process::ExitStatus),
    #[error("the new process did not request the listeners within {0:?}")]
    StartTimeout(Duration),
}

fn ready_socket_path(upgrade_socket: &Path) -> PathBuf {
    let mut name = upgrade_socket.as_os_str().to_owned();
    name.push(".ready");
    name.into()
}

/// Readiness socket of a new process.
#[derive(Debug)]
pub(crate) struct ReadySocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ReadySocket {
    /// Opens the socket. Must be called before the listening sockets are requested.
    pub(crate) fn open(upgrade_socket: &Path) -> io::Result<ReadySocket> {
        let path = ready_socket_path(upgrade_socket);
        // A file that a killed process has left would make `bind` fail.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        // An old process of an earlier version never connects: accept must not block.
        listener.set_nonblocking(true)?;
        Ok(ReadySocket { listener, path })
    }

    /// Confirms to the old process that this one serves.
    pub(crate) fn confirm(self) {
        // The listener does not block: the loop ends when no connection waits.
        while let Ok((mut old, _)) = self.listener.accept() {
            let _ = old.write_all(b"!");
        }
    }
}

impl Drop for ReadySocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Child process that takes over. Dropping it kills the process, unless it was detached.
#[derive(Debug)]
pub(crate) struct Successor(Option<Child>);

impl Successor {
    /// Starts the executable of this process again and waits until the new process requests the listening sockets.
    ///
    /// # Errors
    /// Returns [`UpgradeError`] if it cannot be started, exits early, or sends no request in time.
    pub(crate) async fn start(upgrade_socket: &Path, timeout: Duration) -> Result<Successor, UpgradeError> {
        // Sockets left from an earlier upgrade would look like the request of the new process.
        let _ = std::fs::remove_file(upgrade_socket);
        let _ = std::fs::remove_file(ready_socket_path(upgrade_socket));
        let mut successor = Successor(Some(spawn().map_err(UpgradeError::Spawn)?));
        let request = async {
            while !upgrade_socket.exists() {
                if let Some(child) = &mut successor.0
                    && let Ok(Some(status)) = child.try_wait()
                {
                    return Err(UpgradeError::Exited(status));
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        tokio::time::timeout(timeout, request).await.unwrap_or(Err(UpgradeError::StartTimeout(timeout)))?;
        Ok(successor)
    }

    /// Releases the process, so that it outlives this one.
    pub(crate) fn detach(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // The runtime reaps it.
            let _ = child.start_kill();
        }
    }
}

fn spawn() -> io::Result<Child> {
    let program = std::env::current_exe()?;
    // Linux appends " (deleted)" to the path of a program that was replaced.
    let program = program.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--upgrade") {
        arguments.push("--upgrade".into());
    }
    // systemd sets WATCHDOG_PID to the old process's id; with it, the new process would not serve the watchdog.
    Command::new(program).args(arguments).env_remove("WATCHDOG_PID").spawn()
}

/// Sends the listening sockets and waits for the confirmation.
///
/// # Errors
/// Returns [`UpgradeError`] if no process requests them, the transfer fails, or no confirmation arrives in time.
pub(crate) async fn transfer_listeners(
    fds: Option<ListenFds>,
    upgrade_socket: &Path,
) -> Result<(), UpgradeError> {
    let request = wait_for_request(upgrade_socket);
    let ready = tokio::time::timeout(REQUEST_TIMEOUT, request).await.map_err(|_| UpgradeError::NoRequest)?;
    let path = upgrade_socket.display().to_string();
    // Pingora's sender blocks its thread.
    let sent = tokio::task::spawn_blocking(move || {
        let fds = fds.ok_or_else(|| "no listeners exist".to_owned())?;
        fds.lock().send_to_sock(path.as_str()).map_err(|error| error.to_string())
    });
    sent.await.map_err(|error| error.to_string()).and_then(|sent| sent).map_err(UpgradeError::Transfer)?;
    let Some(mut ready) = ready else {
        tokio::time::sleep(UNCONFIRMED_OVERLAP).await;
        return Ok(());
    };
    match tokio::time::timeout(READY_TIMEOUT, ready.read_u8()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(UpgradeError::ConfirmationLost),
        Err(_) => Err(UpgradeError::ReadyTimeout),
    }
}

/// Waits until a new process requests the listening sockets. Returns the connection to its readiness socket; `None` for
/// a process of an earlier version.
async fn wait_for_request(upgrade_socket: &Path) -> Option<UnixStream> {
    let ready = ready_socket_path(upgrade_socket);
    loop {
        if let Ok(connection) = UnixStream::connect(&ready).await {
            return Some(connection);
        }
        // The new process opens the readiness socket first.
        if upgrade_socket.exists() {
            return UnixStream::connect(&ready).await.ok();
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket_path() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upgrade.sock");
        (folder, path)
    }

    #[tokio::test]
    async fn upgrade_confirmation_reaches_the_old_process() {
        let (_folder, path) = socket_path();
        let ready = ReadySocket::open(&path).unwrap();
        let mut connection = wait_for_request(&path).await.unwrap();
        ready.confirm();
        assert_eq!(connection.read_u8().await.unwrap(), b'!');
        assert!(!ready_socket_path(&path).exists());
    }

    #[tokio::test]
    async fn upgrade_end_of_the_new_process_is_detected() {
        let (_folder, path) = socket_path();
        let ready = ReadySocket::open(&path).unwrap();
        let mut connection = wait_for_request(&path).await.unwrap();
        drop(ready);
        assert!(connection.read_u8().await.is_err());
    }

    #[tokio::test]
    async fn upgrade_process_without_a_readiness_socket_is_accepted() {
        let (_folder, path) = socket_path();
        std::fs::write(&path, "").unwrap();
        assert!(wait_for_request(&path).await.is_none());
        // A killed process leaves the file of its socket behind.
        drop(UnixListener::bind(ready_socket_path(&path)).unwrap());
        assert!(wait_for_request(&path).await.is_none());
    }
}
