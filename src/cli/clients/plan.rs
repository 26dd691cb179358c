//! Plans: what a start of a client sets, and what `configure` writes. Plans are made without a change of anything.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rand::TryRng as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::address::{ClientKey, GatewayAddress};
use super::edit::{FileSyntax, json_tree};
use super::error::ClientSetupError;
use super::file::SettingsFile;
use super::listing::{GatewayModel, GatewayModels};

/// Environment variable with the key, for the gateway's commands and for clients that read a key by name.
pub(super) const KEY_VARIABLE: &str = "MODEL_GATEWAY_KEY";
/// Name of the gateway as a provider in the settings of clients.
pub(super) const PROVIDER: &str = "model-gateway";
/// Request header with the session of a client, by which the gateway keeps a conversation at one target. Clients that send
/// a session of their own need it not: Claude Code, Codex and OpenCode.
pub(super) const SESSION_HEADER: &str = "x-session-affinity";

/// Gateway, key and model that a client is set up for.
#[derive(Clone, Debug)]
pub(super) struct ClientSetup {
    pub(super) address: GatewayAddress,
    pub(super) key: ClientKey,
    /// Model that the user chose. `None` if the client chooses.
    pub(super) model: Option<GatewayModel>,
    /// Models of the gateway. Empty if it was not asked.
    pub(super) listing: GatewayModels,
    /// Whether the key is written into settings that could name a variable instead.
    pub(super) key_in_file: bool,
    /// Random id of this start, for [`SESSION_HEADER`].
    pub(super) session: String,
}

/// Returns a random session id: 128 bits in hexadecimal digits.
///
/// # Errors
/// Returns an error if the operating system provides no random numbers.
pub(super) fn session_id() -> Result<String, ClientSetupError> {
    let mut bytes = [0_u8; 16];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| ClientSetupError::io("a random session id", std::io::Error::other(error)))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

impl ClientSetup {
    /// Returns the chosen model.
    ///
    /// # Errors
    /// Returns [`ClientSetupError::ModelRequired`] if there is none.
    pub(super) fn required_model(&self, client: &'static str) -> Result<&GatewayModel, ClientSetupError> {
        let error = || ClientSetupError::ModelRequired { client, known: self.listing.named("") };
        self.model.as_ref().ok_or_else(error)
    }

    /// Returns the models that a client with a list of models gets: the listing, or the chosen model alone.
    pub(super) fn models(&self) -> Vec<&GatewayModel> {
        let chosen = self.model.iter().filter(|model| self.listing.get(&model.id).is_none());
        let listed = self.listing.models.iter().map(|listed| match &self.model {
            // The user's limits stand in the chosen model only.
            Some(chosen) if chosen.id == listed.id => chosen,
            _ => listed,
        });
        chosen.chain(listed).collect()
    }
}

/// Environment, home folder and current folder of the user.
#[derive(Clone, Debug, Default)]
pub(super) struct UserEnvironment {
    pub(super) variables: BTreeMap<String, String>,
    pub(super) current: PathBuf,
}

impl UserEnvironment {
    /// Reads the environment of this process. Variables that are not UTF-8 are left out; the client inherits them.
    pub(super) fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        UserEnvironment {
            variables: variables.collect(),
            current: std::env::current_dir().unwrap_or_default(),
        }
    }

    /// Returns a variable. `None` if it is not set or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a path in the home folder.
    ///
    /// # Errors
    /// Returns [`ClientSetupError::NoHome`] if the variable `HOME` is not set.
    pub(super) fn home(&self, client: &'static str, path: &str) -> Result<PathBuf, ClientSetupError> {
        let home = self.get("HOME").ok_or(ClientSetupError::NoHome(client))?;
        Ok(Path::new(home).join(path))
    }

    /// Returns the folder that a variable names, or else a folder in the home folder.
    ///
    /// # Errors
    /// Returns [`ClientSetupError::NoHome`] if neither variable is set.
    pub(super) fn folder(
        &self,
        client: &'static str,
        variable: &str,
        path: &str,
    ) -> Result<PathBuf, ClientSetupError> {
        match self.get(variable) {
            Some(folder) => Ok(self.current.join(folder)),
            None => self.home(client, path),
        }
    }

    /// Returns a folder of the XDG base directories (<https://specifications.freedesktop.org/basedir/latest/>).
    ///
    /// # Errors
    /// Returns [`ClientSetupError::NoHome`] if neither variable is set.
    pub(super) fn xdg(
        &self,
        client: &'static str,
        variable: &str,
        default: &str,
    ) -> Result<PathBuf, ClientSetupError> {
        // A relative path is invalid there and must be ignored.
        match self.get(variable).filter(|folder| folder.starts_with('/')) {
            Some(folder) => Ok(PathBuf::from(folder)),
            None => self.home(client, default),
        }
    }
}

/// Start of a client: everything that its process gets.
#[derive(Clone, Debug, Default)]
pub(super) struct LaunchPlan {
    /// Variables that are set.
    pub(super) set: BTreeMap<String, String>,
    /// Variables that are removed.
    pub(super) unset: Vec<String>,
    /// Files in the temporary folder, with their paths there.
    pub(super) files: Vec<(&'static str, String)>,
    /// Symbolic links in the temporary folder: their paths there, and where they lead.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Folders of the client that some of the links lead to, and that are made if they are missing: what it keeps in them
    /// outlives the temporary folder.
    pub(super) folders: Vec<PathBuf>,
    /// Arguments of the client.
    pub(super) arguments: Vec<OsString>,
    /// Remarks for the user.
    pub(super) notes: Vec<String>,
}

impl LaunchPlan {
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.set.insert(name.to_owned(), value.into());
    }

    pub(super) fn unset(&mut self, names: &[&str]) {
        self.unset.extend(names.iter().map(|name| (*name).to_owned()));
    }
}

/// Role of a key in a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyRole {
    /// Any setting.
    Plain,
    /// Address that requests go to, or the selection of a provider.
    Endpoint,
    /// Credential of requests. It is restored only together with the endpoint: the one without the other would send a
    /// credential to the wrong place.
    Credential,
}

/// Change of one key of a settings file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyChange {
    pub(super) path: Vec<String>,
    /// New value. `None` to remove the key.
    pub(super) value: Option<Value>,
    pub(super) role: KeyRole,
    /// Whether a value that the key has already stays.
    pub(super) is_default: bool,
}

/// Changes of one settings file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilePlan {
    pub(super) path: PathBuf,
    pub(super) syntax: FileSyntax,
    pub(super) changes: Vec<KeyChange>,
}

impl FilePlan {
    pub(super) fn new(path: PathBuf, syntax: FileSyntax) -> Self {
        FilePlan { path, syntax, changes: Vec::new() }
    }

    /// Adds a key to set.
    pub(super) fn set(&mut self, path: &[&str], role: KeyRole, value: impl Into<Value>) {
        self.change(path, role, Some(value.into()), false);
    }

    /// Adds a key to set if the file does not have it.
    pub(super) fn set_default(&mut self, path: &[&str], role: KeyRole, value: impl Into<Value>) {
        self.change(path, role, Some(value.into()), true);
    }

    /// Adds a key to remove.
    pub(super) fn remove(&mut self, path: &[&str], role: KeyRole) {
        self.change(path, role, None, false);
    }

    fn change(&mut self, path: &[&str], role: KeyRole, value: Option<Value>, is_default: bool) {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        self.changes.push(KeyChange { path, value, role, is_default });
    }
}

/// Reads a JSON settings file as a tree. `None` if it does not exist, or is not valid: then the client itself reports
/// the fault.
pub(super) fn read_json(path: &Path) -> Option<Value> {
    let file = SettingsFile::read(path).ok()?;
    json_tree(&file.text).ok().flatten()
}

/// Merges settings into others: objects by member, everything else is replaced.
pub(super) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Returns JSON settings as the text of a file.
pub(super) fn json_text(settings: &Value) -> String {
    format!("{settings:#}\n")
}

/// Returns an object with one member.
pub(super) fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge;

    #[test]
    fn settings_are_merged_by_member() {
        let mut settings = json!({"a": {"b": 1, "c": [1]}, "d": 2});
        merge(&mut settings, json!({"a": {"c": [2], "e": {}}, "f": null}));
        assert_eq!(settings, json!({"a": {"b": 1, "c": [2], "e": {}}, "d": 2, "f": null}));
    }
}
