//! Configuration: what is in effect, the files, a check of texts, and reloads.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::instance::{FAULT, RELOAD, reload_json};
use super::time;
use crate::api::AdminApi;
use crate::error::{AdminApiError, ErrorCode, fault};
use crate::request::ApiRequest;
use crate::response::{AnswerContent, ApiResponse, ApiResult};
use crate::schema::{MemberType, Record, member, optional};
use config::{self, CandidateTexts, Environment, FileHash, Report, SourceKind};

/// File of the configuration.
const FILE: Record = Record {
    name: "ConfigFile",
    text: "File of the configuration.",
    members: &[
        member("kind", MemberType::OneOf(&["gateway", "routes", "keys", "admin"]), "What it has."),
        member("path", MemberType::Text, "Path."),
        optional("etag", MemberType::Text, "Version on disk, for `if-match`; null if it cannot be read."),
        optional("loaded", MemberType::Text, "Version in effect; null if it is not in effect."),
        member(
            "changed",
            MemberType::Flag,
            "Whether the version on disk is not in effect: gateway.toml takes effect with a restart, the others with a reload.",
        ),
        optional("modified", MemberType::Time, "Time of its last change; null if it does not exist."),
        optional("size", MemberType::Count, "Size in bytes; null if it does not exist."),
        member("writable", MemberType::Flag, "Whether the gateway may change it."),
    ],
};

/// Files of the configuration.
pub(crate) const FILES: Record = Record {
    name: "ConfigFileList",
    text: "Files of the configuration: gateway.toml, those of routes and keys, admin.toml.",
    members: &[member("items", MemberType::List(&MemberType::Object(&FILE)), "Files.")],
};

/// Texts to be checked.
pub(crate) const TEXTS: Record = Record {
    name: "ConfigTexts",
    text: "Texts of files to be checked; the other files are those on disk.",
    members: &[
        optional("gateway", MemberType::Text, "Text of gateway.toml."),
        optional("routes", MemberType::Text, "Text of the main file of routes."),
        optional("keys", MemberType::Text, "Text of the main file of keys."),
    ],
};

/// Result of a check.
pub(crate) const CHECKED: Record = Record {
    name: "ConfigCheck",
    text: "Result of a check, as of `model-gateway check --no-secrets`.",
    members: &[
        member("ok", MemberType::Flag, "Whether the configuration is valid."),
        member("faults", MemberType::List(&MemberType::Object(&FAULT)), "All faults of all files."),
        member("warnings", MemberType::List(&MemberType::Object(&FAULT)), "Warnings."),
        optional("models", MemberType::Count, "Number of models, if it is valid."),
        optional("keys", MemberType::Count, "Number of keys, if it is valid."),
    ],
};

/// Change that a reload or a restart would make.
const PENDING_CHANGE: Record = Record {
    name: "PendingChange",
    text: "Change that a reload or a restart would make: names only, never values.",
    members: &[
        member(
            "entry",
            MemberType::OneOf(&["setting", "routing", "provider", "model", "key", "account"]),
            "What changes: `setting` is one of gateway.toml, `routing` one of routes.toml.",
        ),
        member("name", MemberType::Text, "Name of the entry, or path of the setting."),
        member("change", MemberType::OneOf(&["added", "changed", "removed"]), "How it changes."),
        member("members", MemberType::List(&MemberType::Text), "Members that differ, of a changed entry."),
        member(
            "effect",
            MemberType::OneOf(&["reload", "restart"]),
            "When it takes effect: settings of gateway.toml with a restart, all others with a reload.",
        ),
    ],
};

/// Changes that a reload or a restart would make.
pub(crate) const PENDING: Record = Record {
    name: "ConfigPending",
    text: "Difference between the configuration in effect and the files on disk.",
    members: &[
        member("reload_ok", MemberType::Flag, "Whether a reload would be applied."),
        member("restart_ok", MemberType::Flag, "Whether all files are valid, gateway.toml too."),
        member("faults", MemberType::List(&MemberType::Object(&FAULT)), "All faults of all files."),
        member(
            "files",
            MemberType::List(&MemberType::Text),
            "Files of routes and keys whose texts are not those in effect; empty if a reload would be refused.",
        ),
        member("changes", MemberType::List(&MemberType::Object(&PENDING_CHANGE)), "The first 1,000 changes."),
        member("total", MemberType::Count, "Number of all changes."),
    ],
};

/// Largest number of changes in an answer.
const MAX_CHANGES: usize = 1_000;

/// Result of a reload, with its line in the audit log.
pub(crate) const RELOADED: Record = Record {
    name: "Reloaded",
    text: "Result of a reload that was asked for.",
    members: &[
        member("reload", MemberType::Object(&RELOAD), "Result."),
        member("audit", MemberType::Count, "Number of the line in the audit log."),
        member(
            "tokens",
            MemberType::List(&MemberType::Object(&FAULT)),
            "Faults of admin.toml, whose tokens stay then.",
        ),
    ],
};

/// Answers `GET /config`.
pub(crate) fn read(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let mut text = String::new();
    api.control().with_snapshot(&mut |snapshot, _| text = config::effective_of(api.settings(), snapshot));
    Ok(ApiResponse::of(AnswerContent::Text("application/toml; charset=utf-8", text)))
}

/// Answers `GET /config/files`.
pub(crate) fn files(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let loaded = api.writer().reloader().loaded_files();
    let mut items = Vec::new();
    for (kind, name) in [(SourceKind::Routes, "routes"), (SourceKind::Keys, "keys")] {
        let found = api.writer().reloader().sources().of(kind).files();
        let mut paths = found.unwrap_or_default();
        let gone = loaded.iter().filter(|file| file.kind == kind && !paths.contains(&file.path));
        let gone: Vec<_> = gone.map(|file| file.path.clone()).collect();
        paths.extend(gone);
        for path in paths {
            let etag = config::file_hash(&path).map(FileHash::to_hex);
            let in_effect = loaded.iter().find(|file| file.path == path).map(|file| file.hash.to_hex());
            let writable = api.writer().is_writable(&path);
            items.push(file_json(name, &path, (etag, in_effect), writable));
        }
    }
    for (name, path, in_effect) in api.fixed_files() {
        let etag = config::file_hash(path).map(FileHash::to_hex);
        let shown = file_json(name, path, (etag, in_effect.map(FileHash::to_hex)), false);
        if name == "gateway" { items.insert(0, shown) } else { items.push(shown) }
    }
    Ok(ApiResponse::json(json!({ "items": items })))
}

/// Shows a file with its versions on disk and in effect.
fn file_json(
    kind: &str,
    path: &Path,
    (etag, in_effect): (Option<String>, Option<String>),
    writable: bool,
) -> Value {
    let metadata = std::fs::metadata(path).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    let modified = modified.and_then(|at| i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok());
    json!({
        "kind": kind,
        "path": path.display().to_string(),
        "etag": etag,
        "loaded": in_effect,
        "changed": etag != in_effect,
        "modified": modified.map(time),
        "size": metadata.map(|metadata| metadata.len()),
        "writable": writable,
    })
}

/// Answers `POST /config/validate`.
pub(crate) fn validate(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let text = |name| request.text(name).map(str::to_owned);
    let texts = CandidateTexts { gateway: text("gateway"), routes: text("routes"), keys: text("keys") };
    let sources = api.writer().reloader().sources();
    let checked = config::check_texts(api.config_file(), sources, texts, &request.limit);
    if request.limit.is_over() {
        return Err(AdminApiError::new(ErrorCode::TimedOut, "the check took too long"));
    }
    Ok(ApiResponse::json(match checked {
        Ok((warnings, snapshot)) => json!({
            "ok": true,
            "faults": [],
            "warnings": warnings.iter().map(fault).collect::<Value>(),
            "models": snapshot.routes.models().len(),
            "keys": snapshot.keys.len(),
        }),
        Err(report) => json!({
            "ok": false,
            "faults": report.problems.iter().map(fault).collect::<Value>(),
            "warnings": [],
            "models": null,
            "keys": null,
        }),
    }))
}

/// Answers `POST /config/reload`.
pub(crate) fn reload(api: &AdminApi, request: &ApiRequest) -> ApiResult {
    let (outcome, audit) = api.record_reload_of(request, || api.reload())?;
    api.control().report_reload(&outcome);
    let tokens = outcome.access.iter().flat_map(|report| &report.problems);
    Ok(ApiResponse::json(json!({
        "reload": reload_json(&outcome),
        "audit": audit,
        "tokens": tokens.map(fault).collect::<Value>(),
    })))
}

/// Answers `GET /config/pending`.
pub(crate) fn pending(api: &AdminApi, _request: &ApiRequest) -> ApiResult {
    let (mut faults, mut changes, mut files) = (Report::default(), Vec::new(), Vec::new());
    match api.writer().reloader().pending() {
        Ok(next) => {
            files = next.files;
            api.control().with_snapshot(&mut |running, _| {
                changes = config::snapshot_changes(running, &next.snapshot, api.settings());
            });
        }
        Err(report) => faults.merge(report),
    }
    let tokens = config::load_admin_access(&api.settings().admin_api.tokens, &Environment);
    faults.merge(tokens.err().unwrap_or_default());
    let reload_ok = faults.problems.is_empty();
    match config::load_gateway(api.config_file(), &Environment) {
        Ok(settings) => changes.extend(config::settings_changes(api.settings(), &settings)),
        Err(report) => faults.merge(report),
    }
    let shown = changes.iter().take(MAX_CHANGES).map(|change| {
        json!({
            "entry": change.entry,
            "name": change.name,
            "change": change.change,
            "members": change.members,
            "effect": if change.entry == "setting" { "restart" } else { "reload" },
        })
    });
    Ok(ApiResponse::json(json!({
        "reload_ok": reload_ok,
        "restart_ok": faults.problems.is_empty(),
        "faults": faults.problems.iter().map(fault).collect::<Value>(),
        "files": files.iter().map(|path| path.display().to_string()).collect::<Value>(),
        "changes": shown.collect::<Value>(),
        "total": changes.len(),
    })))
}
