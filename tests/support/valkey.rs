//! Valkey or Redis server for one test, on a free loopback port, with its files in a temporary folder.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::ports::free_port;

/// Maximum duration of a start.
const PATIENCE: Duration = Duration::from_secs(40);
/// Names of the server program, in order of preference.
const PROGRAMS: [&str; 2] = ["valkey-server", "redis-server"];

/// Blocks the thread for some milliseconds.
#[allow(clippy::disallowed_methods, reason = "in a thread of a test's own")]
pub(crate) fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

/// Running server process. It is killed when the value is dropped.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) port: u16,
    pub(crate) folder: tempfile::TempDir,
    program: &'static str,
    arguments: Vec<String>,
}

fn program() -> Option<&'static str> {
    let there = |program: &&str| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let found = PROGRAMS.into_iter().find(there);
    if found.is_none() {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "there is none of {PROGRAMS:?}, and GATEWAY_REQUIRE_ALL=1");
        eprintln!("SKIPPED: there is none of {PROGRAMS:?}");
    }
    found
}

impl Server {
    /// Starts a server that writes every command to disk before it answers. Returns `None` if no server program is
    /// installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server with other arguments. Returns `None` if no server program is installed.
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        let program = program()?;
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server { child: None, port: 0, folder, program, arguments };
        let deadline = Instant::now() + PATIENCE;
        // A node of a cluster also listens on this port plus 10,000, which any client connection of the system may have: the
        // server then ends, and another port is tried.
        loop {
            server.port = free_port().port();
            if server.launch(deadline) {
                return Some(server);
            }
        }
    }

    /// Starts the server again on the same port with the same files.
    pub(crate) fn start_again(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.launch(deadline) {
            pause(100);
        }
    }

    /// Starts the process and waits for its first answer. Returns false if it ends instead.
    fn launch(&mut self, deadline: Instant) -> bool {
        let mut command = Command::new(self.program);
        command
            .args(self.arguments.iter().take_while(|argument| !argument.starts_with("--")))
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(self.folder.path())
            .args(self.arguments.iter().skip_while(|argument| !argument.starts_with("--")))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = self.child.insert(command.spawn().unwrap());
        let mut ended = || child.try_wait().is_ok_and(|status| status.is_some());
        while ask(self.port, "PING") != "+PONG\r\n" {
            assert!(Instant::now() < deadline, "the server does not start");
            if ended() {
                return false;
            }
            pause(10);
        }
        true
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a command and returns the first read of the response, or an empty text if the server does not answer.
    pub(crate) fn ask(&self, command: &str) -> String {
        ask(self.port, command)
    }

    /// Returns the process id, to send signals.
    pub(crate) fn process(&self) -> Option<nix::unistd::Pid> {
        self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok()).map(nix::unistd::Pid::from_raw)
    }

    /// Returns the address of the server.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn ask(port: u16, command: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = [0; 8192];
        let read = stream.read(&mut answer)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer[..read]).into_owned())
    };
    ask().unwrap_or_default()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
