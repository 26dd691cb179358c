//! Secrets of an import: the environment that the result reads, and the file that sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use config::Vault;

/// Name of the file.
pub(super) const FILE: &str = "secrets.env";

/// Lookup of an environment variable.
pub(super) type Lookup<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Environment variables that the result reads.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    /// Variables whose values were in the source.
    values: BTreeMap<String, String>,
    /// Variables that the source reads from its environment.
    referenced: BTreeSet<String>,
}

impl Secrets {
    /// Records a variable that the source reads from its environment.
    ///
    /// # Errors
    /// Returns the reason if the text is not the name of a variable.
    pub(super) fn reference(&mut self, name: &str) -> Result<String, &'static str> {
        if !is_name(name) {
            return Err("the name of the environment variable is not valid");
        }
        if !self.values.contains_key(name) {
            self.referenced.insert(name.to_owned());
        }
        Ok(name.to_owned())
    }

    /// Sets a variable that the source sets itself.
    ///
    /// # Errors
    /// Returns the reason if the name or the value is not valid.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        if !is_name(name) {
            return Err("the name of the environment variable is not valid");
        }
        let value = checked(value)?;
        self.referenced.remove(name);
        self.values.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Stores a secret under a name that is made of `owner`. The same secret is stored once. Returns the name.
    ///
    /// # Errors
    /// Returns the reason if the value cannot be a credential.
    pub(super) fn store(&mut self, owner: &str, value: &str) -> Result<String, &'static str> {
        let value = checked(value)?;
        if let Some((name, _)) = self.values.iter().find(|(_, known)| *known == value) {
            return Ok(name.clone());
        }
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let base: String = owner.chars().take(48).map(word).collect();
        let base = format!("GATEWAY_{}_KEY", base.trim_matches('_'));
        let mut name = base.clone();
        let mut number = 1;
        while self.values.contains_key(&name) || self.referenced.contains(&name) {
            number += 1;
            name = format!("{base}_{number}");
        }
        self.values.insert(name.clone(), value.to_owned());
        Ok(name)
    }

    /// Returns whether the file sets this variable.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.referenced.is_empty()
    }

    /// Returns the variables that must be set from elsewhere.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.referenced.iter().map(String::as_str)
    }

    /// Returns the text of the file, in the syntax that shells and systemd's `EnvironmentFile=` share.
    pub(super) fn text(&self) -> String {
        let mut out = "# Environment of the gateway: credentials of providers. Keep it readable by the gateway's user only.\n\
                       # systemd: EnvironmentFile=; a shell: set -a; . ./secrets.env; set +a\n"
            .to_owned();
        for (name, value) in &self.values {
            let _ = writeln!(out, "{name}={}", quoted(value));
        }
        if !self.referenced.is_empty() {
            out.push_str("\n# Read from the environment of the source too. Set them here or elsewhere.\n");
        }
        for name in &self.referenced {
            let _ = writeln!(out, "#{name}=");
        }
        out
    }
}

fn is_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first && name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks a value as the configuration does.
fn checked(value: &str) -> Result<&str, &'static str> {
    let value = value.trim();
    if value.is_empty() {
        return Err("the credential is empty");
    }
    if !value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err("the credential has characters other than printable ASCII");
    }
    Ok(value)
}

fn quoted(value: &str) -> String {
    if value.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=+@,%".contains(c)) {
        return value.to_owned();
    }
    let escaped = value.chars().fold(String::new(), |mut out, c| {
        if "\\\"$`".contains(c) {
            out.push('\\');
        }
        out.push(c);
        out
    });
    format!("\"{escaped}\"")
}

/// Secrets for the check of the result: those of the source. Every other one counts as present, since the operator has
/// still to set it.
pub(super) struct ImportVault<'s>(pub(super) &'s Secrets);

impl Vault for ImportVault<'_> {
    fn env(&self, name: &str) -> Option<String> {
        self.0.values.get(name).cloned()
    }

    fn file(&self, _path: &Path) -> std::io::Result<String> {
        Ok("to-be-written".to_owned())
    }

    fn reads(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_stored_once_and_quoted_for_shells() {
        let mut secrets = Secrets::default();
        assert_eq!(secrets.store("openai", " sk-1 ").unwrap(), "GATEWAY_OPENAI_KEY");
        assert_eq!(secrets.store("other", "sk-1").unwrap(), "GATEWAY_OPENAI_KEY");
        assert_eq!(secrets.store("openai", "a\"$b c").unwrap(), "GATEWAY_OPENAI_KEY_2");
        assert_eq!(secrets.reference("AZURE_API_KEY").unwrap(), "AZURE_API_KEY");
        assert!(secrets.reference("A B\nC").is_err());
        assert!(secrets.store("x", "\u{e4}").is_err());
        let text = secrets.text();
        assert!(text.contains("\nGATEWAY_OPENAI_KEY=sk-1\n"), "{text}");
        assert!(text.contains("\nGATEWAY_OPENAI_KEY_2=\"a\\\"\\$b c\"\n"), "{text}");
        assert!(text.contains("\n#AZURE_API_KEY=\n"), "{text}");
    }
}
