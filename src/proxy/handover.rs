//! Handing the listeners over to a new process that says when it serves.
//!
//! A new process (`--upgrade`) listens on a socket beside `server.upgrade_socket`, with `.ready` behind its name, before it
//! asks for the listeners. The old process connects to it, sends the listeners, and goes on accepting until a byte
//! comes over that connection. Only then it stops. Where the connection ends without that byte, or it does not come in
//! time, the new process has failed, and the old one goes on as if nothing had happened.
//!
//! A new process of an earlier version has no such socket. For it the old one waits as long as Pingora does by itself.

use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pingora::server::ListenFds;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// How long the old process waits until a new one asks for the listeners, where that was started by somebody else.
const APPEAR: Duration = Duration::from_secs(6);
/// How long a new process may take from the listeners to its first client: longer than it gives itself to come up.
const COME_UP: Duration = Duration::from_secs(30);
/// How long the old process accepts beside a new one that cannot say when it is ready.
const SILENT: Duration = Duration::from_secs(5);
/// How often the file system is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Why the old process goes on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no process has asked for the listeners")]
    Nobody,
    #[error("the listeners cannot be sent: {0}")]
    Unsent(String),
    #[error("the new process ended before it was ready")]
    Ended,
    #[error("the new process was not ready within {COME_UP:?}")]
    Late,
    #[error("the new process cannot be started: {0}")]
    Unstarted(io::Error),
    #[error("the new process ended with {0}")]
    Refused(std::process::ExitStatus),
    #[error("the new process did not ask for the listeners within {0:?}")]
    Slow(Duration),
}

fn ready_socket(upgrade_socket: &Path) -> PathBuf {
    let mut name = upgrade_socket.as_os_str().to_owned();
    name.push(".ready");
    name.into()
}

/// The new process's side: where the old one is told that this one serves.
#[derive(Debug)]
pub(super) struct Ready {
    listener: UnixListener,
    path: PathBuf,
}

impl Ready {
    /// Opens the socket; before the listeners are asked for.
    pub(super) fn open(upgrade_socket: &Path) -> io::Result<Ready> {
        let path = ready_socket(upgrade_socket);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        // The old process has connected by the time that it is told, or it is of an earlier version.
        listener.set_nonblocking(true)?;
        Ok(Ready { listener, path })
    }

    /// Says that this process serves.
    pub(super) fn tell(self) {
        while let Ok((mut old, _)) = self.listener.accept() {
            let _ = old.write_all(b"!");
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A new process, ended with the value that stands for it unless it was let go.
#[derive(Debug)]
pub(super) struct Successor(Option<Child>);

impl Successor {
    /// Starts the program that stands where this one was started from, and waits until it asks for the listeners.
    pub(super) async fn start(upgrade_socket: &Path, within: Duration) -> Result<Successor, Failure> {
        let _ = std::fs::remove_file(upgrade_socket);
        let _ = std::fs::remove_file(ready_socket(upgrade_socket));
        let mut successor = Successor(Some(spawn().map_err(Failure::Unstarted)?));
        let waiting = async {
            while !upgrade_socket.exists() {
                if let Some(child) = &mut successor.0
                    && let Ok(Some(status)) = child.try_wait()
                {
                    return Err(Failure::Refused(status));
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        };
        tokio::time::timeout(within, waiting).await.unwrap_or(Err(Failure::Slow(within)))?;
        Ok(successor)
    }

    /// It serves, and outlives this process.
    pub(super) fn release(mut self) {
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
    // A program that was replaced is "deleted" under its old name and stands there anew.
    let program = program.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--upgrade") {
        arguments.push("--upgrade".into());
    }
    // The watchdog that was this process's is the new one's.
    Command::new(program).args(arguments).env_remove("WATCHDOG_PID").spawn()
}

/// Sends the listeners, and waits until the new process serves.
pub(super) async fn hand_over(table: Option<ListenFds>, upgrade_socket: &Path) -> Result<(), Failure> {
    let ready = tokio::time::timeout(APPEAR, appear(upgrade_socket)).await.map_err(|_| Failure::Nobody)?;
    let path = upgrade_socket.display().to_string();
    // It waits with the thread that it runs on.
    let sent = tokio::task::spawn_blocking(move || {
        let table = table.ok_or_else(|| "there are none".to_owned())?;
        table.lock().send_to_sock(path.as_str()).map_err(|error| error.to_string())
    });
    sent.await.map_err(|error| error.to_string()).and_then(|sent| sent).map_err(Failure::Unsent)?;
    let Some(mut ready) = ready else {
        tokio::time::sleep(SILENT).await;
        return Ok(());
    };
    match tokio::time::timeout(COME_UP, ready.read_u8()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Failure::Ended),
        Err(_) => Err(Failure::Late),
    }
}

/// Waits until somebody asks for the listeners; gives the connection over which it says that it is ready, if it does that.
async fn appear(upgrade_socket: &Path) -> Option<UnixStream> {
    let socket = ready_socket(upgrade_socket);
    loop {
        if let Ok(ready) = UnixStream::connect(&socket).await {
            return Some(ready);
        }
        // The socket for the listeners is opened behind the other one.
        if upgrade_socket.exists() {
            return UnixStream::connect(&socket).await.ok();
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("upgrade.sock");
        (folder, socket)
    }

    #[tokio::test]
    async fn an_old_process_hears_of_a_new_one_that_serves() {
        let (_folder, socket) = place();
        let ready = Ready::open(&socket).unwrap();
        let mut heard = appear(&socket).await.unwrap();
        ready.tell();
        assert_eq!(heard.read_u8().await.unwrap(), b'!');
        assert!(!ready_socket(&socket).exists());
    }

    #[tokio::test]
    async fn a_new_process_that_ends_is_noticed() {
        let (_folder, socket) = place();
        let ready = Ready::open(&socket).unwrap();
        let mut heard = appear(&socket).await.unwrap();
        drop(ready);
        assert!(heard.read_u8().await.is_err());
    }

    #[tokio::test]
    async fn a_process_of_an_earlier_version_says_nothing() {
        let (_folder, socket) = place();
        std::fs::write(&socket, "").unwrap();
        assert!(appear(&socket).await.is_none());
        // What a process left that was killed is not somebody.
        drop(UnixListener::bind(ready_socket(&socket)).unwrap());
        assert!(appear(&socket).await.is_none());
    }
}
