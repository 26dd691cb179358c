//! Coding clients: names, programs, and where each client's plans are made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::error::ClientSetupError;
use super::plan::{ClientSetup, FilePlan, LaunchPlan, UserEnvironment};
use super::{aider, claude, codex, crush, gemini, opencode, qwen};

/// Coding client that can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CodingClient {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// OpenCode.
    Opencode,
    /// Qwen Code.
    Qwen,
    /// Crush.
    Crush,
    /// Aider.
    Aider,
}

impl CodingClient {
    /// Returns the name on the command line, which is also that of the program.
    pub(super) fn name(self) -> &'static str {
        match self {
            CodingClient::Claude => "claude",
            CodingClient::Codex => "codex",
            CodingClient::Gemini => "gemini",
            CodingClient::Opencode => "opencode",
            CodingClient::Qwen => "qwen",
            CodingClient::Crush => "crush",
            CodingClient::Aider => "aider",
        }
    }

    /// Returns the command that installs the client.
    pub(super) fn install(self) -> &'static str {
        match self {
            CodingClient::Claude => "npm install -g @anthropic-ai/claude-code",
            CodingClient::Codex => "npm install -g @openai/codex",
            CodingClient::Gemini => "npm install -g @google/gemini-cli",
            CodingClient::Opencode => "npm install -g opencode-ai",
            CodingClient::Qwen => "npm install -g @qwen-code/qwen-code",
            CodingClient::Crush => "npm install -g @charmland/crush",
            CodingClient::Aider => "pipx install aider-chat",
        }
    }

    /// Returns the folder of the user's settings.
    ///
    /// # Errors
    /// Returns [`ClientSetupError::NoHome`] if the environment does not say where it is.
    pub(super) fn folder(self, user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
        match self {
            CodingClient::Claude => claude::folder(user),
            CodingClient::Codex => codex::folder(user),
            CodingClient::Gemini => gemini::folder(user),
            CodingClient::Opencode => opencode::folder(user),
            CodingClient::Qwen => qwen::folder(user),
            CodingClient::Crush => crush::folder(user),
            CodingClient::Aider => aider::folder(user),
        }
    }

    /// Returns remarks on the chosen model.
    pub(super) fn notes(self, setup: &ClientSetup) -> Vec<String> {
        match self {
            CodingClient::Claude => claude::notes(setup),
            CodingClient::Codex => codex::notes(setup),
            CodingClient::Gemini => gemini::notes(setup),
            CodingClient::Opencode => opencode::notes(setup),
            CodingClient::Qwen => qwen::notes(setup),
            CodingClient::Crush => crush::notes(setup),
            CodingClient::Aider => aider::notes(setup),
        }
    }

    /// Plans a start whose files will be in the folder `temporary`.
    ///
    /// # Errors
    /// Returns an error if settings cannot be read, or a model is missing.
    pub(super) fn launch(
        self,
        setup: &ClientSetup,
        user: &UserEnvironment,
        temporary: &Path,
        arguments: &[OsString],
    ) -> Result<LaunchPlan, ClientSetupError> {
        match self {
            CodingClient::Claude => claude::launch(setup, user, temporary, arguments),
            CodingClient::Codex => codex::launch(setup, user, arguments),
            CodingClient::Gemini => gemini::launch(setup, user, temporary, arguments),
            CodingClient::Opencode => opencode::launch(setup, user, arguments),
            CodingClient::Qwen => qwen::launch(setup, user, temporary, arguments),
            CodingClient::Crush => crush::launch(setup, user, temporary, arguments),
            CodingClient::Aider => aider::launch(setup, user, temporary, arguments),
        }
    }

    /// Plans the settings that `configure` writes.
    ///
    /// # Errors
    /// Returns an error if settings cannot be found, or a model is missing.
    pub(super) fn files(
        self,
        setup: &ClientSetup,
        user: &UserEnvironment,
    ) -> Result<Vec<FilePlan>, ClientSetupError> {
        match self {
            CodingClient::Claude => claude::files(setup, user),
            CodingClient::Codex => codex::files(setup, user),
            CodingClient::Gemini => gemini::files(setup, user),
            CodingClient::Opencode => opencode::files(setup, user),
            CodingClient::Qwen => qwen::files(setup, user),
            CodingClient::Crush => crush::files(setup, user),
            CodingClient::Aider => aider::files(setup, user),
        }
    }
}
