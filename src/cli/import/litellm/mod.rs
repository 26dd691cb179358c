//! LiteLLM: the config.yaml of its proxy, and tables of its database.
//!
//! Sources: <https://docs.litellm.ai/docs/proxy/configs>, <https://docs.litellm.ai/docs/proxy/config_settings> and
//! the schema of the database, `schema.prisma` of <https://github.com/BerriAI/litellm>, November 2026. The
//! deployments are in [`deployments`], those with patterns in [`wildcards`], with their parameters in [`parameters`] and
//! [`aws`], where each leads to in [`endpoint`] and [`prefixes`], the settings in [`settings`], fallbacks in
//! [`fallbacks`], and the keys in [`keys`], whose columns
//! are in [`key_columns`].

mod aws;
mod deployments;
pub(super) mod endpoint;
mod fallbacks;
mod groups;
mod key_columns;
mod keys;
mod parameters;
pub(super) mod prefixes;
mod settings;
mod wildcards;

pub(super) use groups::whole_weights;
pub(super) use keys::{KeyReader, rows as key_rows};

use std::collections::HashMap;
use std::path::Path;

use super::document::{Field, FieldResult, SourceNode, SourceValue};
use super::draft::{ImportDraft, KeyDraft, TimeoutDraft};
use super::file::read_text;
use super::report::FieldReport;
use super::secrets::Lookup;
use super::{ImportError, Imported, MAX_CONFIG, MAX_TABLE, yaml};
use routing::account::{KeyHash, Losses};

/// Port of LiteLLM's proxy.
const LISTEN: &str = "127.0.0.1:4000";
/// Most deployments of a configuration.
const MAX_DEPLOYMENTS: usize = 5_000;
/// What a reference to an environment variable begins with.
const REFERENCE: &str = "os.environ/";

/// Imports a configuration, and the tables of keys, teams and budgets.
///
/// # Errors
/// Returns an error if a file cannot be read, or has a field of the wrong type.
pub(super) fn import(
    file: &Path,
    tables: [Option<&Path>; 3],
    env: Lookup<'_>,
) -> Result<Imported, ImportError> {
    let text = read_text(file, MAX_CONFIG)?;
    let fault = |fault| ImportError::Field { path: file.to_owned(), fault };
    let document = yaml::read(&text).map_err(fault)?;
    let mut imported = read(&document, env).map_err(fault)?;
    let [keys, teams, budgets] = tables;
    let Some(path) = keys else { return Ok(imported) };
    let table = |path: &Path| -> Result<Vec<SourceNode>, ImportError> {
        let text = read_text(path, MAX_TABLE)?;
        keys::rows(&text).map_err(|fault| ImportError::Field { path: path.to_owned(), fault })
    };
    let optional = |path: Option<&Path>| path.map(table).transpose().map(Option::unwrap_or_default);
    let mut reader = KeyReader::new(&mut imported);
    for row in optional(budgets)? {
        let path = budgets.unwrap_or(path);
        reader.budget(&row).map_err(|fault| ImportError::Field { path: path.to_owned(), fault })?;
    }
    for row in optional(teams)? {
        let path = teams.unwrap_or(path);
        reader.team(&row).map_err(|fault| ImportError::Field { path: path.to_owned(), fault })?;
    }
    for row in table(path)? {
        reader.key(&row).map_err(|fault| ImportError::Field { path: path.to_owned(), fault })?;
    }
    reader.finish();
    Ok(imported)
}

/// Reads a configuration.
///
/// # Errors
/// Returns a fault for a field of the wrong type.
pub(super) fn read(document: &SourceNode, env: Lookup<'_>) -> FieldResult<Imported> {
    let root = Field::root(document);
    if !matches!(document.value, SourceValue::Map(_)) {
        return Err(root.fault("not a configuration of LiteLLM: expected a mapping with model_list"));
    }
    let mut context = Context::new(env);
    context.draft.listen = LISTEN.to_owned();
    context.read_variables(&root)?;
    context.read_credentials(&root)?;
    settings::read(&mut context, &root)?;
    let list = root.get("model_list").map(|list| list.elements()).transpose()?.unwrap_or_default();
    if list.len() > MAX_DEPLOYMENTS {
        return Err(root.fault(format!("model_list has more than {MAX_DEPLOYMENTS} deployments")));
    }
    if list.is_empty()
        && let Some(field) = root.get("model_list")
    {
        context.report.changed(&field, "", "there is nothing to take over");
    }
    let mut names: Vec<String> = Vec::new();
    let mut groups: HashMap<String, Vec<deployments::Deployment>> = HashMap::new();
    for field in list {
        if let Some(deployment) = deployments::read(&mut context, &field)? {
            if !groups.contains_key(&deployment.id) {
                names.push(deployment.id.clone());
            }
            groups.entry(deployment.id.clone()).or_default().push(deployment);
        }
    }
    for group in names.iter().filter_map(|name| groups.get(name)) {
        groups::join(&mut context, group);
    }
    for remark in context.draft.settle_models() {
        context.report.remark(remark);
    }
    fallbacks::read(&mut context, &root)?;
    context.read_master_key(&root)?;
    context.report_unused();
    context.report.complete(document);
    let Context { draft, report, .. } = context;
    Ok(Imported { draft, report })
}

/// Credential of `credential_list`.
struct NamedCredential<'n> {
    field: Field<'n>,
    values: Option<Field<'n>>,
    used: bool,
}

/// State of an import.
struct Context<'n> {
    draft: ImportDraft,
    report: FieldReport,
    env: Lookup<'n>,
    /// Values of `environment_variables`.
    variables: HashMap<String, (Field<'n>, String)>,
    credentials: HashMap<String, Vec<NamedCredential<'n>>>,
    /// Time-outs of all deployments.
    timeouts: TimeoutDraft,
    /// Policy of models with several targets; `None` for the default, which draws by weight.
    policy: Option<&'static str>,
    losses: Losses,
}

impl<'n> Context<'n> {
    fn new(env: Lookup<'n>) -> Context<'n> {
        Context {
            draft: ImportDraft::default(),
            report: FieldReport::default(),
            env,
            variables: HashMap::new(),
            credentials: HashMap::new(),
            timeouts: TimeoutDraft::default(),
            policy: None,
            losses: Losses::default(),
        }
    }

    fn read_variables(&mut self, root: &Field<'n>) -> FieldResult<()> {
        let Some(section) = root.get("environment_variables") else { return Ok(()) };
        for (name, field) in section.members()? {
            let value = match &field.node.value {
                SourceValue::Text(text) | SourceValue::Number(text) => text.clone(),
                SourceValue::Bool(value) => value.to_string(),
                SourceValue::Null => String::new(),
                SourceValue::List(_) | SourceValue::Map(_) => return Err(field.fault("expected a text")),
            };
            self.variables.insert(name.to_owned(), (field, value));
        }
        Ok(())
    }

    fn read_credentials(&mut self, root: &Field<'n>) -> FieldResult<()> {
        let Some(list) = root.get("credential_list") else { return Ok(()) };
        for field in list.elements()? {
            field.members()?;
            let name =
                field.set("credential_name").ok_or_else(|| field.fault("credential_name is missing"))?;
            let values = field.set("credential_values");
            if let Some(values) = &values {
                values.members()?;
            }
            let named = NamedCredential { values, field: field.clone(), used: false };
            self.credentials.entry(name.text()?.to_owned()).or_default().push(named);
        }
        Ok(())
    }

    /// Marks a named credential as used.
    ///
    /// # Errors
    /// Returns the reason if there is none of this name, or several.
    fn credential_of(&mut self, name: &str) -> Result<(), &'static str> {
        match self.credentials.get_mut(name).map(Vec::as_mut_slice) {
            Some([one]) => {
                one.used = true;
                Ok(())
            }
            None | Some([]) => Err("credential_list has no credential of this name"),
            Some(_) => Err("credential_list has several credentials of this name: remove all but one"),
        }
    }

    /// Returns a parameter of a deployment, or that of its named credential.
    fn value(&self, params: &Field<'n>, key: &str) -> Option<Field<'n>> {
        let shared = || {
            let name = params.set("litellm_credential_name")?;
            let [credential] = self.credentials.get(name.text().ok()?)?.as_slice() else { return None };
            credential.values.as_ref()?.set(key)
        };
        params.set(key).or_else(shared)
    }

    /// Returns an environment variable: that of the file, or else that of the process.
    fn lookup(&self, name: &str) -> Option<String> {
        let own = self.variables.get(name).map(|(_, value)| value.clone());
        own.filter(|value| reference(value).is_none()).or_else(|| (self.env)(name))
    }

    /// Resolves a reference to an environment variable.
    ///
    /// # Errors
    /// Returns the name of a variable that is not set.
    fn resolve(&self, text: &str) -> Result<String, String> {
        match text.trim().strip_prefix(REFERENCE) {
            Some(name) => self.lookup(name).ok_or_else(|| super::draft::printable(name)),
            None => Ok(text.trim().to_owned()),
        }
    }

    /// Records a credential that is read from the environment; one that the file sets itself is stored.
    ///
    /// # Errors
    /// Returns the reason if it cannot be a credential.
    fn reference(&mut self, name: &str) -> Result<String, &'static str> {
        match self.variables.get(name) {
            Some((_, value)) if reference(value).is_none() && !value.trim().is_empty() => {
                self.draft.secrets.set(name, value)?;
                Ok(name.to_owned())
            }
            _ => self.draft.secrets.reference(name),
        }
    }

    /// Returns a number, or `None` if it is missing or a reference, which is reported.
    fn number<'f>(&mut self, place: &Field<'f>, key: &str) -> FieldResult<Option<Field<'f>>> {
        let Some(field) = place.set(key) else { return Ok(None) };
        if matches!(&field.node.value, SourceValue::Text(text) if text.starts_with(REFERENCE)) {
            self.report.impossible(&field, "numbers cannot be read from the environment; write the number");
            return Ok(None);
        }
        field.number()?;
        Ok(Some(field))
    }

    /// Makes a key of the master key: clients that use it go on.
    fn read_master_key(&mut self, root: &Field<'n>) -> FieldResult<()> {
        let Some(field) = root.get("general_settings").and_then(|section| section.set("master_key")) else {
            let note =
                "the file has no master_key: LiteLLM then needs no key, and the gateway always needs one";
            self.report.remark(note);
            return Ok(());
        };
        match self.resolve(field.text()?) {
            Ok(key) if !key.is_empty() => {
                let origin = format!("general_settings.master_key (line {})", field.node.line);
                let mut entry = KeyDraft::new("litellm-master-key", KeyHash::of(&key), origin);
                entry.losses = self.losses;
                let note = "a key that may use all models; it has no administrative rights, and only its hash is stored";
                self.report.changed(&field, "key.sha256", note);
                if KeyHash::of("sk-1234") == entry.hash {
                    self.report
                        .remark("the master key is that of LiteLLM's examples, which is public: replace it");
                }
                // It is the first key.
                let _ = self.draft.key(entry);
            }
            Ok(_) => self.report.impossible(&field, "the key is empty"),
            Err(name) => {
                let reason =
                    format!("{name} is not set: set it while importing, so that its hash can be taken");
                self.report.impossible(&field, &reason);
            }
        }
        Ok(())
    }

    /// Reports the named credentials and the variables.
    fn report_unused(&mut self) {
        for list in self.credentials.values() {
            let ambiguous = list.len() > 1;
            for NamedCredential { field, values, used } in list {
                if ambiguous || !used {
                    let reason = if ambiguous {
                        "several credentials have this name"
                    } else {
                        "no deployment uses it"
                    };
                    self.report.impossible(field, reason);
                    continue;
                }
                if let Some(field) = field.get("credential_name") {
                    self.report.taken(&field, "provider.credential");
                }
                if let Some(field) = field.get("credential_info") {
                    self.report.changed(&field, "", "credentials have no description");
                }
                for (key, target) in [
                    ("api_key", "provider.credential"),
                    ("api_base", "provider.base_url"),
                    ("api_version", "provider.api_version"),
                ] {
                    if let Some(field) = values.as_ref().and_then(|values| values.get(key)) {
                        self.report.taken(&field, target);
                    }
                }
            }
        }
        let missing: Vec<String> = self.draft.secrets.missing().map(str::to_owned).collect();
        for (name, (field, value)) in &self.variables {
            if reference(value).is_some() {
                self.report.changed(
                    field,
                    "",
                    "a reference to the environment, which the gateway reads itself",
                );
            } else if self.draft.secrets.is_set(name) {
                self.report.taken(field, "secrets.env");
            } else if missing.contains(name) {
                self.report.changed(
                    field,
                    "secrets.env",
                    "the value cannot be a credential; the variable is to be set",
                );
            } else {
                self.report.impossible(field, "no setting of the result reads this variable");
            }
        }
    }
}

/// Returns the name of the variable if a text is nothing but a reference.
fn reference(text: &str) -> Option<&str> {
    let text = text.trim();
    text.strip_prefix(REFERENCE).or_else(|| text.strip_prefix("${")?.strip_suffix('}'))
}
