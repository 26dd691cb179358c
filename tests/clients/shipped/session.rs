//! One run of a shipped client: a gateway, a simulated provider with prescribed responses, and a home folder of its own.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use model_gateway::simulator::{Options, PrescribedResponse, SimulatedProvider, Simulator};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::client::Client;
use super::install;
use super::outside::Outside;
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, KEY, Setup};

/// Time after which a client that has not ended is stopped.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Format of the provider behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upstream {
    Chat,
    Messages,
    Responses,
    Generate,
}

impl Upstream {
    pub(super) const ALL: [Upstream; 4] =
        [Upstream::Chat, Upstream::Messages, Upstream::Responses, Upstream::Generate];

    pub(super) fn name(self) -> &'static str {
        match self {
            Upstream::Chat => "chat",
            Upstream::Messages => "messages",
            Upstream::Responses => "responses",
            Upstream::Generate => "generate",
        }
    }

    /// Simulated provider, kind in routes.toml, the gateway's model, and the provider's.
    fn provider(self) -> (SimulatedProvider, &'static str, &'static str, &'static str) {
        match self {
            Upstream::Chat => (SimulatedProvider::OpenAi, "openai", "gpt-chat", "gpt-5.1"),
            Upstream::Responses => (SimulatedProvider::OpenAi, "openai", "gpt-responses", "gpt-5.1"),
            Upstream::Messages => {
                (SimulatedProvider::Anthropic, "anthropic", "claude-messages", "claude-sonnet-4-6")
            }
            Upstream::Generate => {
                (SimulatedProvider::Google, "gemini", "gemini-generate", "gemini-3.1-pro-preview")
            }
        }
    }
}

/// Gateway, provider and folders of a run.
pub(super) struct Session {
    client: Client,
    pub(super) model: &'static str,
    pub(super) gateway: Gateway,
    pub(super) provider: Simulator,
    outside: Outside,
    home: tempfile::TempDir,
    work: tempfile::TempDir,
}

/// End of a run.
#[derive(Debug)]
pub(super) struct Ended {
    /// Exit status; `None` if the client was stopped.
    pub(super) status: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Time from the start to the first request at the provider.
    pub(super) first_request: Option<Duration>,
    pub(super) time: Duration,
}

impl Session {
    /// Starts gateway and provider. `window` is the model's context window in tokens, `websocket` whether the gateway
    /// serves WebSockets.
    pub(super) async fn start(client: Client, upstream: Upstream, window: u64, websocket: bool) -> Session {
        let (simulated, kind, model, name) = upstream.provider();
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        let provider = Simulator::start(simulated, options).await.unwrap();
        let apis = format!("apis = [\"{}\"]", upstream.name());
        let setup = Setup::new().server(&format!("websocket = {websocket}"));
        let mut setup = setup.provider("provider", kind, &provider.base_url(), &apis);
        let _ = writeln!(
            setup.routes,
            "[[model]]\nid = \"{model}\"\ncontext_window = {window}\nmax_output_tokens = 16000\n\
             targets = [{{ provider = \"provider\", model = \"{name}\" }}]\n"
        );
        let (home, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        client.prepare(home.path());
        Session {
            client,
            model,
            gateway: Gateway::start(&setup).await,
            provider,
            outside: Outside::start().await,
            home,
            work,
        }
    }

    /// Returns the path of a file in the folder that the client works in.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.work.path().canonicalize().unwrap().join(name)
    }

    /// Returns the text of a file in the folder that the client works in. Empty if there is none.
    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Prescribes the provider's responses to the conversation.
    pub(super) fn prescribe(&self, responses: Vec<PrescribedResponse>) {
        self.provider.prescribe(self.client.shell_tool(), responses);
    }

    /// Returns the requests that received a prescribed response.
    pub(super) fn requests(&self) -> Vec<Value> {
        let bodies = self.provider.prescribed_requests();
        bodies.iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
    }

    /// Returns the hosts that the client asked for.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.outside.hosts()
    }

    /// Runs the client with `model-gateway run`, and waits for its end.
    pub(super) async fn run(&self, arguments: &[String]) -> Ended {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_model-gateway")));
        command.args(["run", self.client.name(), "-m", self.model, "--"]).args(arguments);
        self.ended(command).await
    }

    /// Runs `model-gateway configure` for the client, and then the client itself.
    pub(super) async fn run_configured(&self, arguments: &[String]) -> Ended {
        let mut configure = self.command(Path::new(env!("CARGO_BIN_EXE_model-gateway")));
        configure.args(["configure", self.client.name(), "-m", self.model]);
        let configured = self.ended(configure).await;
        assert_eq!(configured.status, Some(0), "{}{}", configured.stdout, configured.stderr);
        let mut command = self.command(&install::folder().join("bin").join(self.client.name()));
        command.args(arguments);
        self.ended(command).await
    }

    /// Runs Claude Code with its settings for Amazon Bedrock, and the gateway in its place. `window` is the model's context
    /// window in tokens.
    pub(super) async fn run_for_bedrock(&self, arguments: &[String], window: u64) -> Ended {
        let mut command = self.command(&install::folder().join("bin").join(self.client.name()));
        command
            .env("CLAUDE_CODE_USE_BEDROCK", "1")
            .env("ANTHROPIC_BEDROCK_BASE_URL", format!("http://{}", self.gateway.addr))
            .env("AWS_BEARER_TOKEN_BEDROCK", KEY)
            .env("AWS_REGION", "eu-west-1")
            .env("ANTHROPIC_MODEL", self.model)
            .env("CLAUDE_CODE_MAX_CONTEXT_TOKENS", window.to_string())
            .env("ANTHROPIC_DEFAULT_HAIKU_MODEL", self.model)
            .args(arguments);
        self.ended(command).await
    }

    fn command(&self, program: &Path) -> tokio::process::Command {
        let bin = install::folder().join("bin");
        let mut command = tokio::process::Command::new(program);
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()))
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path())
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb")
            .env("MODEL_GATEWAY_URL", format!("http://{}", self.gateway.addr))
            .env("MODEL_GATEWAY_KEY", KEY)
            .envs(self.outside.variables())
            .envs(self.client.variables().iter().copied())
            .current_dir(self.work.path())
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    async fn ended(&self, mut command: tokio::process::Command) -> Ended {
        let (stdout, stderr) = (self.home.path().join("stdout"), self.home.path().join("stderr"));
        command.stdout(std::fs::File::create(&stdout).unwrap());
        command.stderr(std::fs::File::create(&stderr).unwrap());
        let start = Instant::now();
        let mut child = command.spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
        let mut first_request = None;
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                tokio::select! {
                    status = child.wait() => return status.unwrap(),
                    () = tokio::time::sleep(Duration::from_millis(20)) => {
                        if first_request.is_none() && self.provider.requests() > 0 {
                            first_request = Some(start.elapsed());
                        }
                    }
                }
            }
        })
        .await;
        let status = match waited {
            Ok(status) => Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())),
            Err(_) => {
                let _ = killpg(group, Signal::SIGTERM);
                let _ = tokio::time::timeout(GRACE, child.wait()).await;
                None
            }
        };
        // Processes of the client that have outlived it.
        let _ = killpg(group, Signal::SIGKILL);
        let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let (stdout, stderr) = (text(&stdout), text(&stderr));
        Ended { status, stdout, stderr, first_request, time: start.elapsed() }
    }
}
