//! `model-gateway demo`: the gateway between simulated providers and whoever pastes a line.
//!
//! Here live the simulated providers' start, the temporary configuration ([`files`]), what is printed ([`page`]) and
//! the line per request ([`requests`]). The gateway itself runs as `model-gateway serve` in a process of its own, as it
//! would in production, and its access log is what the lines are made of. Here must not live: anything that makes the
//! gateway behave otherwise than it does in production.

mod files;
mod page;
mod requests;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::fail;
use crate::account::NewKey;
use crate::simulator::{self, SimulatedProvider, Simulator, SimulatorError};
use files::Files;
use page::Page;

/// Where the gateway listens when nothing is said and nobody else does.
const PORT: u16 = 8080;
/// Where its admin port is.
const ADMIN_PORT: u16 = 9090;
/// Any other port is one of these.
const ANY: std::ops::Range<u16> = 15_000..32_000;
/// How long the gateway may take to accept its first connection.
const START: Duration = Duration::from_secs(20);
/// How long it may take to end by itself after Ctrl-C, which it was sent too.
const END: Duration = Duration::from_millis(500);
/// Pauses of a simulated stream: short, but long enough to see that it is one.
const FIRST_TOKEN: Duration = Duration::from_millis(120);
const PER_TOKEN: Duration = Duration::from_millis(15);

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Port of the gateway; 0 for any. Without this 8080, or any other if that is taken.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port of metrics and health; 0 for any. Without this 9090, or any other if that is taken.
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("port {port} cannot be used: {source}; choose another: model-gateway demo {flag} PORT")]
    Port { port: u16, flag: &'static str, source: io::Error },
    #[error("no free port: {0}")]
    NoPort(io::Error),
    #[error("a simulated provider does not start: {0}")]
    Provider(#[from] SimulatorError),
    #[error("no random numbers: {0}")]
    Random(String),
    #[error("temporary folder: {0}")]
    Files(io::Error),
    #[error("the gateway's process: {0}")]
    Process(io::Error),
    #[error("the gateway did not start ({0})")]
    NotStarted(ExitStatus),
    #[error("the gateway did not accept connections in time")]
    Silent,
    #[error("the gateway ended by itself ({0})")]
    Ended(ExitStatus),
}

pub(super) fn run(options: &Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(error),
    };
    let done = runtime.block_on(demo(options));
    // Simulated streams may be under way; nobody waits for them.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

async fn demo(options: &Options) -> Result<(), DemoError> {
    let mut stop = Stop::new().map_err(DemoError::Process)?;
    let port = choose(options.port, PORT, "--port")?;
    let admin = choose(options.admin_port, ADMIN_PORT, "--admin-port")?;
    let key = NewKey::generate().map_err(|error| DemoError::Random(error.to_string()))?;
    let providers = Providers::start().await?;
    let files = Files::write(port, admin, &key, &providers).map_err(DemoError::Files)?;
    let mut gateway = start(&files)?;
    let lines = gateway.stdout.take();
    tokio::select! {
        accepted = accepts(&mut gateway, [port, admin]) => accepted?,
        () = stop.asked() => return Ok(()),
    }
    let page = Page {
        port,
        admin,
        other_port: options.port.is_none() && port != PORT,
        other_admin: options.admin_port.is_none() && admin != ADMIN_PORT,
        key: key.text(),
    };
    let ended = match say(&page.to_string()) {
        Ok(()) => {
            tokio::select! {
                status = gateway.wait() => Some(status.map_err(DemoError::Process)?),
                () = stop.asked() => None,
                () = show(lines) => None,
            }
        }
        // Nobody reads any more.
        Err(_) => None,
    };
    if let Some(status) = ended {
        return Err(DemoError::Ended(status));
    }
    if tokio::time::timeout(END, gateway.wait()).await.is_err() {
        let _ = gateway.kill().await;
    }
    drop(files);
    let _ = say("\nThe demo has ended and left nothing behind.\n");
    Ok(())
}

/// A port that was asked for must be free. Where nothing was asked, any other is as good as the usual one.
fn choose(asked: Option<u16>, usual: u16, flag: &'static str) -> Result<u16, DemoError> {
    match asked {
        Some(port) => free(port).map_err(|source| DemoError::Port { port, flag, source }),
        None => free(usual).or_else(|_| free(0)).map_err(DemoError::NoPort),
    }
}

fn free(port: u16) -> io::Result<u16> {
    let bind =
        |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr().map(|address| address.port());
    if port != 0 {
        return bind(port);
    }
    // The gateway binds it a moment later. From the range that the system takes the ports of clients from, it might be
    // gone by then.
    let some =
        || ANY.start + u16::try_from(rand::Rng::next_u64(&mut rand::rng()) % ANY.len() as u64).unwrap_or(0);
    let tries = std::iter::repeat_with(some).take(64);
    tries.map(bind).find(Result::is_ok).unwrap_or_else(|| bind(0))
}

/// What wants the demo to end: Ctrl-C, a polite kill, a closed terminal.
struct Stop([Signal; 3]);

impl Stop {
    fn new() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Stop([interrupt?, terminate?, hangup?]))
    }

    async fn asked(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// The providers, each on a port of its own. They want the credential that the gateway has, not the client's key.
struct Providers {
    openai: Simulator,
    anthropic: Simulator,
    google: Simulator,
    cohere: Simulator,
    ark: Simulator,
    dashscope: Simulator,
}

impl Providers {
    async fn start() -> Result<Self, SimulatorError> {
        let options = |credential: &str| simulator::Options {
            credential: Some(credential.to_owned()),
            first_token: FIRST_TOKEN,
            per_token: PER_TOKEN,
            ..simulator::Options::default()
        };
        Ok(Providers {
            openai: Simulator::start(SimulatedProvider::OpenAi, options(files::OPENAI_CREDENTIAL)).await?,
            anthropic: Simulator::start(SimulatedProvider::Anthropic, options(files::ANTHROPIC_CREDENTIAL))
                .await?,
            google: Simulator::start(SimulatedProvider::Google, options(files::GOOGLE_CREDENTIAL)).await?,
            cohere: Simulator::start(SimulatedProvider::Cohere, options(files::COHERE_CREDENTIAL)).await?,
            ark: Simulator::start(SimulatedProvider::Ark, options(files::ARK_CREDENTIAL)).await?,
            dashscope: Simulator::start(SimulatedProvider::DashScope, options(files::DASHSCOPE_CREDENTIAL))
                .await?,
        })
    }
}

/// Starts this program once more, as `serve`.
fn start(files: &Files) -> Result<Child, DemoError> {
    let program = std::env::current_exe().map_err(DemoError::Process)?;
    Command::new(program)
        .arg("serve")
        .arg("--conf")
        .arg(files.gateway())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(DemoError::Process)
}

/// Waits until connections are accepted, or until it is known that they never will be.
async fn accepts(gateway: &mut Child, ports: [u16; 2]) -> Result<(), DemoError> {
    let deadline = tokio::time::Instant::now() + START;
    for port in ports {
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            if let Some(status) = gateway.try_wait().map_err(DemoError::Process)? {
                return Err(DemoError::NotStarted(status));
            }
            if tokio::time::Instant::now() > deadline {
                return Err(DemoError::Silent);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

/// Shows a line per request, until nobody reads them or the gateway is gone.
async fn show(lines: Option<tokio::process::ChildStdout>) {
    if let Some(lines) = lines {
        let mut lines = BufReader::new(lines).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if say(&requests::pretty(&line)).is_err() {
                return;
            }
        }
    }
    // The gateway has closed its output: it is about to end, and how it ends is the other branch's to tell.
    std::future::pending().await
}

/// Prints; a reader that has gone is an error and not a panic.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
