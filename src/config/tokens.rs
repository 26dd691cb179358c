//! `[tokens]` of routes.toml: issue and verification of access tokens for the task APIs.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::Secret;
use super::node::{ConfigTable, Value};
use super::secret::{self, Vault};
use routing::account::{Signature, TokenKey, Tokens};

/// Default validity of a token: 2 h.
const LIFETIME: Duration = Duration::from_secs(7_200);

pub(super) fn read(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Option<Tokens> {
    let issuer = table.string("issuer").unwrap_or_else(|| "model-gateway".to_owned());
    let audience = table.string("audience").unwrap_or_else(|| "svc".to_owned());
    let lifetime = table.duration("lifetime").unwrap_or(LIFETIME);
    if lifetime.is_zero() {
        table.wrong("lifetime must be greater than 0", "lifetime = \"2h\"".to_owned());
    }
    let mut keys: Vec<TokenKey> = Vec::new();
    let mut ids = HashSet::new();
    let mut count = 0;
    table.tables("key", |table| {
        count += 1;
        if let Some(key) = read_key(table, folder, vault) {
            if !ids.insert(key.id().to_owned()) {
                table.wrong(format!("the key \"{}\" is defined twice", key.id()), None);
            }
            keys.push(key);
        }
    });
    if count == 0 {
        table.wrong("no keys are defined", "add a [[tokens.key]] with id, algorithm and secret".to_owned());
    }
    Some(Tokens { issuer, audience, lifetime, keys })
}

fn read_key(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Option<TokenKey> {
    let id = table.require("id", "id = \"2026-11\"").and_then(|id| id.as_str().map(str::to_owned));
    let signature = table.require("algorithm", "algorithm = \"HS256\"").and_then(|value| {
        value.parsed(|text| {
            Signature::from_name(text).ok_or_else(|| "write \"HS256\" or \"EdDSA\"".to_owned())
        })
    });
    const EXAMPLE: &str =
        "secret = { env = \"TOKEN_SECRET\" }, or { file = \"%d/token\" }, or { value = \"...\" }";
    let public = table.string("public");
    let configured = table.get("secret").map(Value::hidden);
    let text = configured.as_ref().and_then(|value| secret::read(value, "secret", EXAMPLE, folder, vault));
    let (id, signature) = (id?, signature?);
    if !vault.reads() {
        // Secrets are not read in this mode: a placeholder key lets the other checks continue.
        return TokenKey::hs256(&id, &[0; 64]).ok();
    }
    let key = match (signature, &text, &public) {
        (Signature::Hs256, Some(text), _) => TokenKey::hs256(&id, text.expose().as_bytes()),
        (Signature::Hs256, None, _) => {
            if configured.is_none() {
                table.require("secret", "secret = { env = \"TOKEN_SECRET\" }");
            }
            return None;
        }
        (Signature::EdDsa, text, Some(public)) => {
            TokenKey::eddsa(&id, text.as_ref().map(Secret::expose), public)
        }
        (Signature::EdDsa, _, None) => {
            table.require("public", "public = \"...\"");
            return None;
        }
    };
    key.map_err(|fault| table.wrong(fault.to_string(), None)).ok()
}
