//! Variables and project settings that take precedence over the settings that `configure` writes.

use std::path::{Path, PathBuf};

use super::client::CodingClient;
use super::crush;
use super::doctor::Finding;
use super::edit::FileSyntax;
use super::file::SettingsFile;
use super::plan::{KEY_VARIABLE, PROVIDER, UserEnvironment};
use super::receipt::SetupReceipt;

/// Effect of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Requests go to another address, or with another credential.
    Redirects,
    /// Requests are of another model, or other settings apply too.
    Selects,
}

use Effect::{Redirects, Selects};

/// Key of a file of a project, with its effect.
type Key = (&'static [&'static str], Effect);

/// Places that take precedence over a client's user settings.
struct Places {
    variables: &'static [(&'static str, Effect)],
    /// Files in the folder of the project.
    files: &'static [(&'static str, FileSyntax, &'static [Key])],
}

const CLAUDE_KEYS: &[Key] = &[
    (&["env", "ANTHROPIC_BASE_URL"], Redirects),
    (&["env", "ANTHROPIC_AUTH_TOKEN"], Redirects),
    (&["env", "ANTHROPIC_API_KEY"], Redirects),
    (&["apiKeyHelper"], Redirects),
    (&["env", "ANTHROPIC_MODEL"], Selects),
    (&["model"], Selects),
];
const GEMINI_VARIABLES: &[Key] = &[
    (&["GOOGLE_GEMINI_BASE_URL"], Redirects),
    (&["GEMINI_API_KEY"], Redirects),
    (&["GEMINI_MODEL"], Selects),
];
const OPENCODE_KEYS: &[Key] =
    &[(&["provider", PROVIDER], Redirects), (&["providers", PROVIDER], Redirects), (&["model"], Selects)];

const CLAUDE: Places = Places {
    variables: &[
        ("ANTHROPIC_API_KEY", Redirects),
        ("CLAUDE_CODE_USE_BEDROCK", Redirects),
        ("CLAUDE_CODE_USE_VERTEX", Redirects),
        ("CLAUDE_CODE_USE_FOUNDRY", Redirects),
    ],
    files: &[
        (".claude/settings.local.json", FileSyntax::StrictJson, CLAUDE_KEYS),
        (".claude/settings.json", FileSyntax::StrictJson, CLAUDE_KEYS),
    ],
};
const CODEX: Places = Places {
    variables: &[],
    files: &[(
        ".codex/config.toml",
        FileSyntax::Toml,
        &[(&["model_provider"], Redirects), (&["profile"], Selects), (&["model"], Selects)],
    )],
};
const GEMINI: Places = Places {
    variables: &[
        ("GOOGLE_GEMINI_BASE_URL", Redirects),
        ("GEMINI_API_KEY", Redirects),
        ("GOOGLE_GENAI_USE_VERTEXAI", Redirects),
        ("GOOGLE_GENAI_USE_GCA", Redirects),
        ("GEMINI_MODEL", Selects),
    ],
    files: &[
        (".gemini/.env", FileSyntax::Env, GEMINI_VARIABLES),
        (".env", FileSyntax::Env, GEMINI_VARIABLES),
        (
            ".gemini/settings.json",
            FileSyntax::Json,
            &[(&["security", "auth", "selectedType"], Redirects), (&["model", "name"], Selects)],
        ),
    ],
};
const OPENCODE: Places = Places {
    variables: &[("OPENCODE_CONFIG_CONTENT", Selects), ("OPENCODE_CONFIG", Selects)],
    files: &[
        ("opencode.json", FileSyntax::Json, OPENCODE_KEYS),
        ("opencode.jsonc", FileSyntax::Json, OPENCODE_KEYS),
        (".opencode/opencode.json", FileSyntax::Json, OPENCODE_KEYS),
        (".opencode/opencode.jsonc", FileSyntax::Json, OPENCODE_KEYS),
    ],
};
const QWEN: Places = Places {
    variables: &[("OPENAI_BASE_URL", Redirects), ("OPENAI_MODEL", Selects), ("QWEN_MODEL", Selects)],
    files: &[
        (
            ".qwen/settings.json",
            FileSyntax::Json,
            &[
                (&["modelProviders", PROVIDER], Redirects),
                (&["security", "auth", "selectedType"], Redirects),
                (&["model", "name"], Selects),
            ],
        ),
        (".qwen/.env", FileSyntax::Env, &[(&["OPENAI_BASE_URL"], Redirects)]),
        (".env", FileSyntax::Env, &[(&["OPENAI_BASE_URL"], Redirects)]),
    ],
};
const CRUSH: Places = Places {
    variables: &[],
    files: &[("crush.json", FileSyntax::Json, CRUSH_KEYS), (".crush.json", FileSyntax::Json, CRUSH_KEYS)],
};
const CRUSH_KEYS: &[Key] = &[(&["providers", PROVIDER], Redirects), (&["models"], Selects)];
const AIDER: Places = Places {
    variables: &[
        ("AIDER_OPENAI_API_BASE", Redirects),
        ("AIDER_OPENAI_API_KEY", Redirects),
        ("AIDER_MODEL", Selects),
    ],
    files: &[
        (
            ".aider.conf.yml",
            FileSyntax::Yaml,
            &[(&["openai-api-base"], Redirects), (&["openai-api-key"], Redirects), (&["model"], Selects)],
        ),
        (
            ".env",
            FileSyntax::Env,
            &[(&["AIDER_OPENAI_API_BASE"], Redirects), (&["AIDER_OPENAI_API_KEY"], Redirects)],
        ),
    ],
};

fn places(client: CodingClient) -> &'static Places {
    match client {
        CodingClient::Claude => &CLAUDE,
        CodingClient::Codex => &CODEX,
        CodingClient::Gemini => &GEMINI,
        CodingClient::Opencode => &OPENCODE,
        CodingClient::Qwen => &QWEN,
        CodingClient::Crush => &CRUSH,
        CodingClient::Aider => &AIDER,
    }
}

/// Checks that the settings of a receipt apply: which address the client uses in the current folder, and whether the key
/// is there that they name. `key` is the key that `doctor` has, if any.
pub(super) fn check(
    client: CodingClient,
    user: &UserEnvironment,
    receipt: &SetupReceipt,
    key: Option<&str>,
) -> Vec<Finding> {
    let name = client.name();
    let own = |value: &str| {
        let value = value.trim().trim_matches(['"', '\'']);
        let address = value.trim_end_matches('/');
        Some(value) == key
            || address.strip_suffix("/v1").unwrap_or(address) == receipt.gateway
            || value == PROVIDER
            || (client == CodingClient::Gemini && value == "gemini-api-key")
            || (client == CodingClient::Qwen && value == "openai")
    };
    let mut findings = Vec::new();
    let mut report = |place: String, value: &str, effect: Effect| {
        // Any other value can be a credential.
        let shown = if value.contains("://") { format!(" ({})", value.trim()) } else { String::new() };
        findings.push(match effect {
            Redirects => Finding::fault(format!(
                "address: {place}{shown} takes precedence over the settings of configure. Remove it, or start the client \
                 with model-gateway run {name}"
            )),
            Selects => Finding::note(format!(
                "settings: {place}{shown} takes precedence over the settings of configure; it can select another model"
            )),
        });
    };
    for (variable, effect) in places(client).variables {
        if let Some(value) = user.get(variable).filter(|value| !own(value)) {
            report(format!("the variable {variable}"), value, *effect);
        }
    }
    for folder in project_folders(user) {
        for (path, syntax, keys) in places(client).files {
            let path = folder.join(path);
            if receipt.files.iter().any(|file| is_same(&file.path, &path)) {
                continue;
            }
            let Some(file) = SettingsFile::read(&path).ok().filter(SettingsFile::exists) else { continue };
            for (key, effect) in *keys {
                let key: Vec<String> = key.iter().map(|part| (*part).to_owned()).collect();
                let value = syntax.get(&file.text, &key).ok().flatten();
                if let Some(value) = value.filter(|value| !own(value)) {
                    report(format!("{} in {}", key.join("."), path.display()), &value, *effect);
                }
            }
        }
    }
    if client == CodingClient::Crush {
        findings.extend(crush(user));
    }
    if findings.iter().all(Finding::is_good) {
        findings
            .insert(0, Finding::good(format!("address: {name} sends its requests to {}", receipt.gateway)));
    }
    let names_key = |path: &Path| SettingsFile::read(path).is_ok_and(|file| file.text.contains(KEY_VARIABLE));
    if user.get(KEY_VARIABLE).is_none() && receipt.files.iter().any(|file| names_key(&file.path)) {
        findings.push(Finding::fault(format!(
            "key: the settings name the variable {KEY_VARIABLE}, which is not set. Export it, or configure with \
             --key-in-file"
        )));
    }
    findings
}

/// Checks the scripts of the project, and the model that was selected in the dialog of Crush.
fn crush(user: &UserEnvironment) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in
        project_folders(user).iter().flat_map(|folder| [folder.join(".crushrc"), folder.join("crushrc")])
    {
        if path.exists() {
            findings.push(Finding::note(format!(
                "settings: {} takes precedence over the settings of configure; it can select another provider",
                path.display()
            )));
        }
    }
    let selected = crush::selected_provider(user).filter(|provider| provider != PROVIDER);
    findings.extend(selected.map(|provider| {
        Finding::fault(format!(
            "address: the dialog of Crush has selected a model of {provider}, which takes precedence over the settings of \
             configure. Select a model of {PROVIDER} there, or start the client with model-gateway run crush"
        ))
    }));
    findings
}

/// Returns the folders in which clients look for settings of a project: the current one and its parents, up to the folder
/// of the repository.
fn project_folders(user: &UserEnvironment) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in user.current.ancestors() {
        folders.push(folder.to_owned());
        if folder.join(".git").exists() {
            return folders;
        }
    }
    folders.truncate(1);
    folders
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
