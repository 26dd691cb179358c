//! `model-gateway demo`: the gateway with simulated providers, to try it without configuration.
//!
//! Contains the start of the simulated providers, the temporary configuration ([`files`]), the printed page ([`page`])
//! and the line per request ([`requests`]). The gateway runs as `model-gateway serve` in its own process, as in
//! production; the lines are made from its access log. Code that makes the gateway behave differently from production
//! must not live here.

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
use files::Files;
use page::Page;
use routing::account::NewKey;
use simulator::{self, SimulatedProvider, Simulator, SimulatorError};

/// Default port of the gateway.
const PORT: u16 = 8080;
/// Default admin port.
const ADMIN_PORT: u16 = 9090;
/// Range of ports if a default port is taken.
const ANY: std::ops::Range<u16> = 15_000..32_000;
/// Time-out until the gateway accepts its first connection.
const START: Duration = Duration::from_secs(20);
/// Time for the gateway to end by itself after Ctrl-C, which the terminal sends to both processes.
const END: Duration = Duration::from_millis(500);
/// Delays of a simulated stream: short, but visible.
const FIRST_TOKEN: Duration = Duration::from_millis(120);
const PER_TOKEN: Duration = Duration::from_millis(15);

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Port of the gateway; 0 for any. Default: 8080, or any other if that is taken.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port of metrics and health; 0 for any. Default: 9090, or any other if that is taken.
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
}

/// Reason why the demo failed.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("port {port} cannot be used: {source}; choose another: model-gateway demo {flag} PORT")]
    Port { port: u16, flag: &'static str, source: io::Error },
    #[error("no free port: {0}")]
    NoPort(io::Error),
    #[error("a simulated provider did not start: {0}")]
    Provider(#[from] SimulatorError),
    #[error("random numbers are not available: {0}")]
    Random(String),
    #[error("temporary folder: {0}")]
    Files(io::Error),
    #[error("the gateway process failed: {0}")]
    Process(io::Error),
    #[error("the gateway did not start ({0})")]
    NotStarted(ExitStatus),
    #[error("the gateway did not accept connections in time")]
    Silent,
    #[error("the gateway ended unexpectedly ({0})")]
    Ended(ExitStatus),
}

pub(super) fn run(options: &DemoArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(error),
    };
    let done = runtime.block_on(demo(options));
    // Do not wait for simulated streams in flight.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

async fn demo(options: &DemoArgs) -> Result<(), DemoError> {
    let mut stop = Stop::new().map_err(DemoError::Process)?;
    let port = choose(options.port, PORT, "--port")?;
    let admin = choose(options.admin_port, ADMIN_PORT, "--admin-port")?;
    let random = |error: rand::rngs::SysError| DemoError::Random(error.to_string());
    let key = NewKey::generate().map_err(random)?;
    let token = NewKey::generate_admin_token().map_err(random)?;
    let providers = Providers::start().await?;
    let files = Files::write([port, admin], &key, &token, &providers).map_err(DemoError::Files)?;
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
        token: token.text(),
    };
    let ended = match print(&page.to_string()) {
        Ok(()) => {
            tokio::select! {
                status = gateway.wait() => Some(status.map_err(DemoError::Process)?),
                () = stop.asked() => None,
                () = show(lines) => None,
            }
        }
        // Standard output is closed.
        Err(_) => None,
    };
    if let Some(status) = ended {
        return Err(DemoError::Ended(status));
    }
    if tokio::time::timeout(END, gateway.wait()).await.is_err() {
        let _ = gateway.kill().await;
    }
    drop(files);
    let _ = print("\nThe demo has ended. Its temporary files are removed.\n");
    Ok(())
}

/// Returns a free port. A requested port must be free; a default port may be replaced by another.
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
    // The gateway binds the port only later. Choose outside of the range of ephemeral ports: another connection could
    // take one of those in the meantime.
    let some =
        || ANY.start + u16::try_from(rand::Rng::next_u64(&mut rand::rng()) % ANY.len() as u64).unwrap_or(0);
    let tries = std::iter::repeat_with(some).take(64);
    tries.map(bind).find(Result::is_ok).unwrap_or_else(|| bind(0))
}

/// Signals that end the demo: SIGINT, SIGTERM, SIGHUP.
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

/// Simulated providers, each on its own port. They require the gateway's credential, not the client's key.
struct Providers {
    openai: Simulator,
    anthropic: Simulator,
    google: Simulator,
    cohere: Simulator,
    ark: Simulator,
    dashscope: Simulator,
    bedrock: Simulator,
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
            bedrock: Simulator::start(SimulatedProvider::Bedrock, options(files::BEDROCK_CREDENTIAL)).await?,
        })
    }
}

/// Starts this program as `serve` in a child process.
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

/// Waits until both ports accept connections, the process has ended, or the time-out has passed.
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

/// Prints a line per request. Returns if standard output is closed; otherwise never.
async fn show(lines: Option<tokio::process::ChildStdout>) {
    if let Some(lines) = lines {
        let mut lines = BufReader::new(lines).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if print(&requests::pretty(&line)).is_err() {
                return;
            }
        }
    }
    // The gateway has closed its output and is about to exit: the other branch of the `select!` reports its status.
    std::future::pending().await
}

/// Prints a text. Returns an error if standard output is closed, where `print!` would panic.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
