//! The shipped clients: names, pinned versions, command lines, and the tools that they offer a model.

use std::path::Path;

use serde_json::{Value, json};

/// Shipped coding client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    ClaudeCode,
    Codex,
    GeminiCli,
    OpenCode,
    QwenCode,
    Crush,
    Aider,
}

impl Client {
    /// Name at `model-gateway run`, which is also that of the program.
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::ClaudeCode => "claude",
            Client::Codex => "codex",
            Client::GeminiCli => "gemini",
            Client::OpenCode => "opencode",
            Client::QwenCode => "qwen",
            Client::Crush => "crush",
            Client::Aider => "aider",
        }
    }

    /// Package at the registry of npm. `None` for Aider, a Python package.
    fn package(self) -> Option<&'static str> {
        match self {
            Client::ClaudeCode => Some("@anthropic-ai/claude-code"),
            Client::Codex => Some("@openai/codex"),
            Client::GeminiCli => Some("@google/gemini-cli"),
            Client::OpenCode => Some("opencode-ai"),
            Client::QwenCode => Some("@qwen-code/qwen-code"),
            Client::Crush => Some("@charmland/crush"),
            Client::Aider => None,
        }
    }

    /// Pinned version.
    fn version(self) -> String {
        let Some(package) = self.package() else {
            let pins = include_str!("aider.txt").lines();
            return pins.filter_map(|line| line.strip_prefix("aider-chat==")).collect();
        };
        let pins: Value = serde_json::from_str(include_str!("package.json")).unwrap();
        pins["dependencies"][package].as_str().unwrap().to_owned()
    }

    /// Name and version, for the table.
    pub(super) fn title(self) -> String {
        let name = match self {
            Client::ClaudeCode => "Claude Code",
            Client::Codex => "Codex",
            Client::GeminiCli => "Gemini CLI",
            Client::OpenCode => "OpenCode",
            Client::QwenCode => "Qwen Code",
            Client::Crush => "Crush",
            Client::Aider => "Aider",
        };
        format!("{name} {}", self.version())
    }

    /// Whether the pinned version is the one in the folder of the installed clients.
    pub(super) fn is_pinned_version(self, folder: &Path) -> bool {
        let Some(package) = self.package() else {
            let name = format!("aider_chat-{}.dist-info", self.version());
            let environments = std::fs::read_dir(folder.join("aider/lib")).into_iter().flatten();
            return environments
                .filter_map(Result::ok)
                .any(|python| python.path().join("site-packages").join(&name).exists());
        };
        let manifest = folder.join("npm/node_modules").join(package).join("package.json");
        let text = std::fs::read_to_string(manifest).unwrap_or_default();
        let manifest: Value = serde_json::from_str(&text).unwrap_or_default();
        manifest["version"] == self.version()
    }

    /// Arguments that send one prompt without a terminal and permit the tools.
    pub(super) fn arguments(self, prompt: &str) -> Vec<String> {
        let words: &[&str] = match self {
            Client::ClaudeCode => &["-p", prompt, "--allowedTools", "Bash,Read,Write"],
            Client::Codex => &[
                "-c",
                "analytics.enabled=false",
                "-c",
                "check_for_update_on_startup=false",
                "exec",
                "--skip-git-repo-check",
                "--sandbox",
                "danger-full-access",
                prompt,
            ],
            Client::GeminiCli => &["--skip-trust", "--yolo", "-p", prompt],
            Client::OpenCode => &["run", prompt],
            Client::QwenCode => &["--yolo", "-p", prompt],
            Client::Crush => &["run", "--quiet", prompt],
            // The check of a test command is the second turn of this client, which offers a model no tools.
            Client::Aider => &[
                "--yes-always",
                "--no-git",
                "--no-pretty",
                "--analytics-disable",
                "--no-check-update",
                "--no-show-release-notes",
                "--no-show-model-warnings",
                "--edit-format",
                "diff",
                "--auto-test",
                "--test-cmd",
                "sh check.sh",
                "--message",
                prompt,
            ],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Variables that switch off telemetry, updates and downloads.
    pub(super) fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Client::ClaudeCode => &[
                ("DISABLE_TELEMETRY", "1"),
                ("DISABLE_ERROR_REPORTING", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1"),
            ],
            Client::OpenCode => &[
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
                ("OPENCODE_DISABLE_SHARE", "1"),
                ("OPENCODE_PERMISSION", r#"{"bash":"allow","edit":"allow"}"#),
            ],
            // Without a second process with other limits of memory.
            Client::GeminiCli => &[("GEMINI_CLI_NO_RELAUNCH", "true")],
            Client::QwenCode => {
                &[("QWEN_CODE_SUPPRESS_YOLO_WARNING", "1"), ("QWEN_CODE_NO_RELAUNCH", "true")]
            }
            Client::Crush => &[
                ("CRUSH_DISABLE_METRICS", "1"),
                ("CRUSH_DISABLE_PROVIDER_AUTO_UPDATE", "1"),
                ("DO_NOT_TRACK", "1"),
            ],
            Client::Aider => &[("LITELLM_LOCAL_MODEL_COST_MAP", "True")],
            Client::Codex => &[],
        }
    }

    /// Writes settings that switch off telemetry and updates, where no variable does.
    pub(super) fn prepare(self, home: &Path) {
        let settings = json!({
            "privacy": { "usageStatisticsEnabled": false },
            "telemetry": { "enabled": false },
            "general": { "enableAutoUpdate": false, "disableAutoUpdate": true },
        });
        let folder = match self {
            Client::GeminiCli => ".gemini",
            Client::QwenCode => ".qwen",
            _ => return,
        };
        std::fs::create_dir_all(home.join(folder)).unwrap();
        std::fs::write(home.join(folder).join("settings.json"), settings.to_string()).unwrap();
    }

    /// Tool that the client's requests for the conversation offer, and its side requests do not. `None` for a client
    /// without tools.
    pub(super) fn shell_tool(self) -> Option<&'static str> {
        match self {
            Client::ClaudeCode => Some("Bash"),
            Client::Codex => Some("exec_command"),
            Client::GeminiCli | Client::QwenCode => Some("run_shell_command"),
            Client::OpenCode | Client::Crush => Some("bash"),
            Client::Aider => None,
        }
    }

    /// Call that runs a shell command.
    pub(super) fn shell(self, command: &str) -> (String, Value) {
        let arguments = match self {
            Client::Codex => json!({ "cmd": command }),
            Client::QwenCode => json!({ "command": command, "is_background": false }),
            _ => json!({ "command": command, "description": "Runs a command" }),
        };
        (self.shell_tool().unwrap_or_default().to_owned(), arguments)
    }

    /// Call that writes a file. `None` if the client offers this model no tool for that: OpenCode has models of OpenAI
    /// apply patches instead.
    pub(super) fn write(self, model: &str, path: &Path, text: &str) -> Option<(String, Value)> {
        let (name, member) = match self {
            Client::ClaudeCode => ("Write", "file_path"),
            Client::GeminiCli | Client::QwenCode => ("write_file", "file_path"),
            Client::OpenCode if model.starts_with("gpt-") => return None,
            Client::OpenCode => ("write", "filePath"),
            Client::Crush => ("write", "file_path"),
            Client::Codex | Client::Aider => return None,
        };
        Some((name.to_owned(), json!({ member: path, "content": text })))
    }

    /// Call that reads a file. `None` if the client has no tool for that.
    pub(super) fn read(self, path: &Path) -> Option<(String, Value)> {
        let (name, member) = match self {
            Client::ClaudeCode => ("Read", "file_path"),
            Client::GeminiCli | Client::QwenCode => ("read_file", "file_path"),
            Client::OpenCode => ("read", "filePath"),
            Client::Crush => ("view", "file_path"),
            Client::Codex | Client::Aider => return None,
        };
        Some((name.to_owned(), json!({ member: path })))
    }
}
