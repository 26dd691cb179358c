//! Gateway process under test: started with a configuration of its own, killed when its [`Gateway`] is dropped.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::net::TcpStream;

use super::client::{Answer, Client, ask, request};
use super::metrics::Metrics;
use super::ports::free_port;
use super::setup::{Ports, Setup};
use super::{soon, until};

/// Returns ports that are free now.
pub(crate) fn free_ports() -> Ports {
    Ports { plain: free_port(), tls: free_port(), admin: free_port() }
}

/// Running gateway process.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// Address of the plaintext listener.
    pub(crate) addr: SocketAddr,
    /// Address of the TLS listener, if the configuration has one.
    pub(crate) tls: SocketAddr,
    /// Address of the admin port.
    pub(crate) admin: SocketAddr,
    folder: tempfile::TempDir,
    child: Child,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // An upgrade may have left a successor process.
        for pid in self.successors() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if std::thread::panicking() {
            eprintln!("--- what the gateway said ---\n{}", self.log());
        }
    }
}

impl Gateway {
    /// Starts a gateway and waits until it is ready.
    pub(crate) async fn start(setup: &Setup) -> Gateway {
        let mut gateway = Gateway::spawn(setup, free_ports());
        gateway.wait_until_ready().await;
        gateway
    }

    /// Starts a gateway without waiting until it is ready.
    pub(crate) fn spawn(setup: &Setup, ports: Ports) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let conf = setup.write(folder.path(), &ports);
        for (name, credit) in &setup.accounts {
            command(&conf, &["accounts", "create", name, "--credit", credit]);
        }
        let child = run(&conf, &[], folder.path());
        Gateway { addr: ports.plain, tls: ports.tls, admin: ports.admin, folder, child }
    }

    pub(crate) async fn wait_until_ready(&mut self) {
        let child = &mut self.child;
        let (admin, folder) = (self.admin, self.folder.path());
        soon(async {
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    let log = std::fs::read_to_string(folder.join("stderr")).unwrap_or_default();
                    panic!("the gateway ended with {status}:\n{log}");
                }
                if status_of(admin, "/readyz").await == Some(200) {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
        // Readiness must imply that clients are served. The gateway closes this connection, not the test: so it is
        // certain that the connection no longer counts against the limits that the test sets.
        let connected = TcpStream::connect(self.addr).await;
        let mut client = Client::over(connected.expect("ready, but nobody listens"));
        client.finish_sending().await;
        client.closed().await;
    }

    /// Kills the process and starts another one with the same configuration, on the same ports.
    pub(crate) async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = run(&self.folder.path().join("gateway.toml"), &[], self.folder.path());
        self.wait_until_ready().await;
    }

    /// Sends one request over its own connection and reads the response.
    pub(crate) async fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        ask(self.addr, request).await
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.addr).await
    }

    /// Opens a TLS connection and returns the negotiated ALPN protocol too.
    pub(crate) async fn connect_tls(
        &self,
        config: std::sync::Arc<rustls::ClientConfig>,
        name: &'static str,
    ) -> std::io::Result<(Client, Option<Vec<u8>>)> {
        Client::connect_tls(self.tls, config, name).await
    }

    /// Sends a GET request to the admin port.
    pub(crate) async fn admin(&self, path: &str) -> Answer {
        ask(self.admin, request("GET", path, &[("connection", "close")])).await
    }

    /// Returns the status of a request to the admin port, or `None` if the port does not accept connections.
    pub(crate) async fn admin_status(&self, path: &str) -> Option<u16> {
        status_of(self.admin, path).await
    }

    /// Returns all metric series.
    pub(crate) async fn metrics(&self) -> Metrics {
        Metrics::parse(self.admin("/metrics").await.text())
    }

    /// Waits until at least `count` requests are finished and none is in progress, and returns all metric series. A
    /// client has its response before the request is counted, so a test that reads counters after a response must wait.
    pub(crate) async fn metrics_after(&self, count: usize) -> Metrics {
        soon(async {
            loop {
                let metrics = self.metrics().await;
                let finished = metrics.sum("gateway_requests_total", &[]) >= count as f64;
                if finished && metrics.sum("gateway_requests_in_flight", &[]) == 0.0 {
                    return metrics;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Waits until no request is in progress. A client has its response before the request releases its places in all
    /// limits and at its target.
    pub(crate) async fn idle(&self) {
        self.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    }

    /// Waits until a series has a value.
    pub(crate) async fn wait_for_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        soon(async {
            while self.metrics().await.sum(name, labels) != value {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Returns the document at `/status`.
    pub(crate) async fn status(&self) -> Value {
        self.admin("/status").await.json()
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Waits for the end of the process.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = None;
        until(|| {
            status = child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Whether the process is running.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns the folder of the configuration.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the text of a configuration file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().join(name)).unwrap()
    }

    /// Replaces a file atomically.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let new = self.folder().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder().join(name)).unwrap();
    }

    /// Reloads routes and keys with SIGHUP and waits until the reload with this result is counted.
    pub(crate) async fn reload(&self, result: &str) {
        let reloads = |metrics: Metrics| metrics.sum("gateway_reloads_total", &[("result", result)]);
        let before = reloads(self.metrics().await);
        self.signal(Signal::SIGHUP);
        self.wait_for_metric("gateway_reloads_total", &[("result", result)], before + 1.0).await;
    }

    /// Returns the standard error output.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("stderr")).unwrap_or_default()
    }

    /// Returns standard error, standard output and access log.
    pub(crate) fn everything_written(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder().join(name)).unwrap_or_default();
        format!("{}\n{}\n{}", read("stderr"), read("stdout"), read("access.log"))
    }

    /// Returns the lines of the access log so far.
    pub(crate) fn access_log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder().join("access.log")).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the access log has at least `lines` lines.
    pub(crate) async fn wait_for_log(&self, lines: usize) -> Vec<Value> {
        until(|| self.access_log().len() >= lines).await;
        self.access_log()
    }

    /// Returns a field of `/proc/<pid>/status`, in KiB. `RssAnon` is the memory that the gateway allocated; `VmRSS` has the
    /// program's own pages as well, which come and go.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Starts a new peak of memory and returns what is allocated now, in KiB.
    pub(crate) fn start_of_peak(&self) -> u64 {
        // Where the system has no such file, the old peak is the baseline.
        let _ = std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5");
        self.peak_memory()
    }

    /// Returns the largest memory since [`start_of_peak`](Self::start_of_peak), in KiB, without the program's own pages:
    /// those that were used first on the way are loaded, not allocated.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.memory("VmHWM").saturating_sub(self.memory("RssFile"))
    }

    /// Runs another command with the same configuration and returns its output.
    pub(crate) fn command(&self, arguments: &[&str]) -> String {
        command(&self.folder().join("gateway.toml"), arguments)
    }

    /// Waits until there are at least `count` usage records and returns them.
    pub(crate) async fn records(&self, count: usize) -> Vec<Value> {
        let mut records: Vec<Value> = Vec::new();
        until(|| {
            let text = self.command(&["usage", "--records", "--json"]);
            records = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            records.len() >= count
        })
        .await;
        assert_eq!(records.len(), count, "{records:#?}");
        records
    }

    /// Returns the state of an account in the ledger.
    pub(crate) fn account(&self, name: &str) -> Value {
        serde_json::from_str(&self.command(&["accounts", "show", name, "--json"])).unwrap()
    }

    /// Starts a second process with the same configuration.
    pub(crate) fn start_beside(&self, arguments: &[&str]) -> Successor {
        Successor(run(&self.folder().join("gateway.toml"), arguments, self.folder()))
    }

    /// Returns processes that run with this gateway's configuration and were not started by the test.
    pub(crate) fn successors(&self) -> Vec<i32> {
        let conf = self.folder().join("gateway.toml");
        let conf = conf.to_str().unwrap().as_bytes();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = u32::try_from(pid).is_ok_and(|pid| pid == self.pid());
            if !ours && memchr::memmem::find(&command, conf).is_some() {
                found.push(pid);
            }
        }
        found
    }
}

/// Second process with the same configuration.
#[derive(Debug)]
pub(crate) struct Successor(Child);

impl Successor {
    /// Whether it is running.
    pub(crate) fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command of the gateway to its end.
fn command(conf: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
        .args(arguments)
        .arg("--conf")
        .arg(conf)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(conf: &Path, arguments: &[&str], folder: &Path) -> Child {
    let file = |name: &str| {
        let path: PathBuf = folder.join(name);
        Stdio::from(File::options().create(true).append(true).open(path).unwrap())
    };
    // If the setup has a start script, the shell runs it to prepare the environment; "$@" is the gateway's command
    // line.
    let script = folder.join("start.sh");
    let mut command = if script.exists() {
        let mut shell = Command::new("sh");
        shell.arg(script).arg(env!("CARGO_BIN_EXE_model-gateway"));
        shell
    } else {
        Command::new(env!("CARGO_BIN_EXE_model-gateway"))
    };
    // Trust roots in place of the system's, if the setup has them.
    let roots = folder.join("system-roots.pem");
    if roots.exists() {
        command.env("SSL_CERT_FILE", roots);
    }
    command
        .arg("serve")
        .arg("--conf")
        .arg(conf)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .unwrap()
}

async fn status_of(admin: SocketAddr, path: &str) -> Option<u16> {
    let mut client = Client::over(TcpStream::connect(admin).await.ok()?);
    client.try_send(request("GET", path, &[("connection", "close")])).await.ok()?;
    Some(client.try_answer().await?.status())
}
