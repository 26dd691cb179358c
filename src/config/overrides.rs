//! Environment variables that override settings of gateway.toml: `MODEL_GATEWAY__SERVER__THREADS` is `server.threads`.
//!
//! The rest of the name is the path of the key in upper case, with two underscores for each dot. The value of a text, a
//! duration, a size or an address is taken as it is; any other value is written as in TOML. A list of tables is
//! overridden as a whole.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::key_types::{KeyType, shape};
use super::node::TomlDocument;
use super::reference::{ConfigFile, keys};
use super::report::{Problem, Report, closest};

/// Beginning of the names.
pub const PREFIX: &str = "MODEL_GATEWAY__";

/// Environment variable that overrides a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingOverride {
    /// Name of the variable.
    pub variable: String,
    /// Path of the key: `server.threads`.
    pub key: String,
}

/// Overrides of one reading of gateway.toml, with their values.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides(Vec<OverrideValue>);

/// Override with its value.
#[derive(Clone, Debug)]
pub(super) struct OverrideValue {
    pub(super) origin: SettingOverride,
    /// Value as TOML.
    pub(super) text: String,
}

impl Overrides {
    /// Reads the variables of the process.
    ///
    /// # Errors
    /// Returns [`Report`] with every variable that names no key or is not UTF-8.
    pub(super) fn of_process() -> Result<Self, Report> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            name.starts_with(PREFIX).then(|| (name, value.into_string().ok()))
        });
        Overrides::new(variables)
    }

    /// Finds the keys of variables. The value is `None` if it is not UTF-8.
    ///
    /// # Errors
    /// Returns [`Report`] with every variable that names no key or has no text as its value.
    pub(super) fn new(variables: impl Iterator<Item = (String, Option<String>)>) -> Result<Self, Report> {
        let mut variables: Vec<_> = variables.collect();
        if variables.is_empty() {
            return Ok(Overrides::default());
        }
        variables.sort();
        let known: Vec<String> = keys(ConfigFile::Gateway).into_iter().map(|key| key.path).collect();
        let (mut values, mut report) = (Vec::new(), Report::default());
        for (variable, value) in variables {
            match find(&variable, value, &known) {
                Ok(value) => values.push(value),
                Err((message, hint)) => report.problems.push(Problem {
                    file: file_of(&variable),
                    line: 0,
                    column: 0,
                    key: String::new(),
                    message,
                    hint: Some(hint),
                }),
            }
        }
        report.into_result().map(|()| Overrides(values))
    }

    /// Returns the overrides, ordered by variable.
    pub(super) fn iter(&self) -> impl Iterator<Item = &OverrideValue> {
        self.0.iter()
    }

    /// Returns which settings are overridden.
    pub(super) fn origins(&self) -> Vec<SettingOverride> {
        self.0.iter().map(|value| value.origin.clone()).collect()
    }
}

/// Value that takes the place of that of a key, in a text of its own.
pub(super) struct Layer<'t> {
    key: &'t str,
    document: &'t TomlDocument<'t>,
    value: Spanned<DeValue<'t>>,
}

impl<'t> Layer<'t> {
    /// Parses the value of an override, the text of `document`. Returns `None` after a syntax error, which is reported
    /// there.
    pub(super) fn parse(document: &'t TomlDocument<'t>, value: &'t OverrideValue) -> Option<Self> {
        match DeValue::parse(document.text()) {
            Ok(parsed) => Some(Layer { key: &value.origin.key, document, value: parsed }),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                let hint = "write the value as in TOML, such as 4, true or [\"a\", \"b\"]".to_owned();
                document.report(&span, value.origin.key.clone(), error.message().to_owned(), Some(hint));
                None
            }
        }
    }

    pub(super) fn key(&self) -> &'t str {
        self.key
    }

    pub(super) fn document(&self) -> &'t TomlDocument<'t> {
        self.document
    }

    pub(super) fn value(&self) -> &Spanned<DeValue<'t>> {
        &self.value
    }

    /// Returns whether the key is in the table with this path.
    pub(super) fn is_below(&self, table: &str) -> bool {
        self.key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// Returns what stands for a file in faults of a variable.
pub(super) fn file_of(variable: &str) -> PathBuf {
    Path::new("environment").join(variable)
}

/// Finds the key of a variable. The error is a message and a hint.
fn find(variable: &str, value: Option<String>, known: &[String]) -> Result<OverrideValue, (String, String)> {
    let rest = variable.strip_prefix(PREFIX).unwrap_or_default();
    let key = rest.to_ascii_lowercase().replace("__", ".");
    let name = |key: &str| format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase());
    let is_table = |key: &str| matches!(shape(key), Some(KeyType::Table));
    if rest.bytes().any(|byte| byte.is_ascii_lowercase()) || !known.contains(&key) || is_table(&key) {
        let candidates = known.iter().map(String::as_str).filter(|key| !is_table(key));
        let hint = match closest(&key, candidates) {
            Some(meant) => format!("did you mean {}?", name(meant)),
            None => format!(
                "the name of a key of gateway.toml is {PREFIX} and its path, such as {}",
                name("server.threads")
            ),
        };
        return Err(("no setting has this name".to_owned(), hint));
    }
    // Keys in lists of tables have no path of their own.
    let mut parents = key.match_indices('.').filter_map(|(at, _)| key.get(..at));
    if let Some(list) = parents.find(|parent| matches!(shape(parent), Some(KeyType::Tables))) {
        let message = format!("{list} is a list, of which a single key cannot be overridden");
        return Err((message, format!("give the whole list in {}, as in TOML", name(list))));
    }
    let Some(value) = value else {
        return Err(("the value is not UTF-8".to_owned(), "remove the variable".to_owned()));
    };
    let text = if is_text(&key, &value) { toml::Value::String(value).to_string() } else { value };
    Ok(OverrideValue { origin: SettingOverride { variable: variable.to_owned(), key }, text })
}

/// Returns whether a value is taken as a text, and not as TOML.
fn is_text(key: &str, value: &str) -> bool {
    match shape(key) {
        Some(
            KeyType::Text
            | KeyType::SecretText
            | KeyType::Url
            | KeyType::Duration
            | KeyType::Size
            | KeyType::Address
            | KeyType::Digest
            | KeyType::OneOf(_),
        ) => true,
        // A list or a source is written as in TOML; a single text as it is.
        Some(KeyType::TextOrTexts | KeyType::UrlsOrSource) => !value.trim_start().starts_with(['[', '{']),
        _ => false,
    }
}

/// Marks the overridden settings in a configuration in effect, a text of TOML.
pub(super) fn mark_origins(text: &str, overrides: &[SettingOverride]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut table = "";
    let mut list = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            list = name.starts_with('[');
            table = name.trim_start_matches('[').trim_end_matches(']');
        }
        out.push_str(line);
        let key = line.split_once('=').map(|(key, _)| key.trim());
        let found = overrides.iter().find(|value| match (list, key) {
            (true, None) => line.starts_with("[[") && value.key == table,
            (false, Some(key)) => {
                value.key.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')) == Some(key)
            }
            _ => false,
        });
        if let Some(found) = found {
            out.push_str("  # from the environment: ");
            out.push_str(&found.variable);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(pairs: &[(&str, &str)]) -> Result<Overrides, Report> {
        Overrides::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))))
    }

    #[test]
    fn override_value_is_a_text_or_toml_by_its_key() {
        for (variable, value, key, text) in [
            ("MODEL_GATEWAY__SERVER__THREADS", "4", "server.threads", "4"),
            ("MODEL_GATEWAY__SERVER__UPGRADE_SOCKET", "/run/x", "server.upgrade_socket", "\"/run/x\""),
            ("MODEL_GATEWAY__SERVER__ADMIN", "[::1]:9090", "server.admin", "\"[::1]:9090\""),
            ("MODEL_GATEWAY__SERVER__LISTEN", "[\"[::1]:80\"]", "server.listen", "[\"[::1]:80\"]"),
            ("MODEL_GATEWAY__SERVER__ROUTES", "r.toml", "server.routes", "\"r.toml\""),
            ("MODEL_GATEWAY__SERVER__ROUTES", "[\"r.toml\"]", "server.routes", "[\"r.toml\"]"),
            ("MODEL_GATEWAY__LIMITS__BODY", "1MiB", "limits.body", "\"1MiB\""),
            (
                "MODEL_GATEWAY__LOG__LEVEL",
                "model_gateway=debug,warn",
                "log.level",
                "\"model_gateway=debug,warn\"",
            ),
            ("MODEL_GATEWAY__STORE__VALKEY", "{ file = \"u\" }", "store.valkey", "{ file = \"u\" }"),
        ] {
            let found = overrides(&[(variable, value)]).unwrap();
            let found: Vec<_> =
                found.iter().map(|value| (value.origin.key.as_str(), value.text.as_str())).collect();
            assert_eq!(found, [(key, text)]);
        }
    }

    #[test]
    fn override_of_no_setting_is_a_fault() {
        for (variable, says) in [
            ("MODEL_GATEWAY__SERVER__THREDS", "did you mean MODEL_GATEWAY__SERVER__THREADS?"),
            ("MODEL_GATEWAY__server__threads", "did you mean MODEL_GATEWAY__SERVER__THREADS?"),
            ("MODEL_GATEWAY__SERVER", "no setting has this name"),
            ("MODEL_GATEWAY__", "no setting has this name"),
            ("MODEL_GATEWAY__SERVER__TLS__CERT", "give the whole list in MODEL_GATEWAY__SERVER__TLS"),
        ] {
            let report = overrides(&[(variable, "1")]).unwrap_err().to_string();
            assert!(
                report.contains(says) && report.starts_with(&format!("environment/{variable}: ")),
                "{report}"
            );
        }
        let not_utf8 = Overrides::new(std::iter::once(("MODEL_GATEWAY__LOG__LEVEL".to_owned(), None)));
        assert!(not_utf8.unwrap_err().to_string().contains("not UTF-8"));
    }

    #[test]
    fn origin_is_marked_at_its_setting_only() {
        let text = "[server]\nthreads = 4\n\n[[server.tls]]\nlisten = \"a\"\n\n[limits]\nthreads = 1\nbody = \"b\"\n";
        let origin = |key: &str| SettingOverride { variable: format!("V_{key}"), key: key.to_owned() };
        let marked =
            mark_origins(text, &[origin("server.threads"), origin("server.tls"), origin("limits.body")]);
        assert_eq!(
            marked,
            "[server]\nthreads = 4  # from the environment: V_server.threads\n\n\
             [[server.tls]]  # from the environment: V_server.tls\nlisten = \"a\"\n\n\
             [limits]\nthreads = 1\nbody = \"b\"  # from the environment: V_limits.body\n"
        );
    }
}
