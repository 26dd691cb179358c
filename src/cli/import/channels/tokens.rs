//! Tokens of New API and One API, which are keys, and users, which are accounts.

use std::collections::{BTreeMap, BTreeSet};

use super::{ChannelSource, Import, Row, Tables, prices, rows};
use crate::account::{KeyHash, Losses};
use crate::cli::import::draft::{AccountDraft, KeyDraft, LimitDraft, cut, printable};
use crate::cli::import::report::FieldOutcome;

/// User of the source.
struct User {
    name: String,
    enabled: bool,
    group: String,
    quota: i64,
}

/// Reads users and tokens, after the channels.
pub(super) fn read(import: &mut Import, tables: &Tables, options: &BTreeMap<String, String>) {
    let mut users: BTreeMap<i64, User> = BTreeMap::new();
    for row in rows(&tables.users).filter(|row| row.text("deleted_at").is_empty()) {
        let id = row.integer("id", 0);
        let name = cut(&printable(&row.text("username")), 96);
        let name = if name.is_empty() { format!("user-{id}") } else { name };
        let enabled = row.integer("status", 1) == 1;
        users.insert(id, User { name, enabled, group: row.text("group"), quota: row.integer("quota", 0) });
    }
    let mut used: BTreeSet<i64> = BTreeSet::new();
    for row in rows(&tables.tokens).filter(|row| row.text("deleted_at").is_empty()) {
        used.insert(row.integer("user_id", 0));
        token(import, row, &users, options);
    }
    for (id, user) in users.iter().filter(|(id, user)| used.contains(id) || user.quota > 0) {
        account(import, *id, user, options);
    }
}

/// Reads a token.
fn token(import: &mut Import, row: Row<'_>, users: &BTreeMap<i64, User>, options: &BTreeMap<String, String>) {
    let id = row.integer("id", 0);
    let shown = format!("tokens[id={id}]");
    let key = row.text("key");
    if key.is_empty() {
        return import.report.row(shown, FieldOutcome::Impossible, "", "the token has no key");
    }
    let user_id = row.integer("user_id", 0);
    let user = users.get(&user_id);
    if user.is_none() && !users.is_empty() {
        return import.report.row(
            shown,
            FieldOutcome::Impossible,
            "",
            "the user of the token does not exist, or is deleted",
        );
    }
    // The database has the key without its prefix.
    let bare = key.strip_prefix("sk-").unwrap_or(&key);
    let name = printable(&row.text("name"));
    let name = user.map_or_else(|| name.clone(), |user| format!("{}/{name}", user.name));
    let mut entry = KeyDraft::new(name.as_str(), KeyHash::of(&format!("sk-{bare}")), shown.clone());
    // Both drop what a provider does not accept, without a word.
    entry.losses = Losses::Allow;
    entry.enabled = row.integer("status", 1) == 1;
    entry.expires = expiry(row.integer("expired_time", -1));
    match models(import, row, user) {
        Ok(models) => entry.models = models,
        Err(reason) => return import.report.row(shown, FieldOutcome::Impossible, "", reason),
    }
    for network in row.list("allow_ips").into_iter().chain(row.list("subnet")) {
        match crate::account::Network::parse(&network) {
            Some(_) => entry.networks.push(network),
            None => {
                // Without the restriction the key would be usable from anywhere.
                entry.enabled = false;
                let reason = "not a network, so the key is disabled: correct key.networks and enable it";
                import.report.row(format!("{shown}.networks"), FieldOutcome::Changed, "key.enabled", reason);
            }
        }
    }
    match user {
        Some(user) => {
            entry.account = Some(user.name.clone());
            if row.integer("unlimited_quota", 0) == 0 {
                entry.limits.spend_per_month = prices::credit(row.integer("remain_quota", 0), options);
            }
        }
        None => {
            let note = "the dump has no users: the key has no account, and is not charged";
            import.report.row(format!("{shown}.user_id"), FieldOutcome::Changed, "", note);
        }
    }
    if let Err(other) = import.draft.key(entry) {
        import.report.row(shown, FieldOutcome::Impossible, "", &format!("the same key as {other:?}"));
    }
}

/// Returns the models of a token: its own list, or those of its group. An empty list is all models.
fn models(import: &Import, row: Row<'_>, user: Option<&User>) -> Result<Vec<String>, &'static str> {
    let own = match import.origin {
        ChannelSource::NewApi if row.integer("model_limits_enabled", 0) == 0 => Vec::new(),
        ChannelSource::NewApi => row.list("model_limits"),
        ChannelSource::OneApi => row.list("models"),
    };
    // `auto` is any group.
    let group = Some(row.text("group")).filter(|group| !group.is_empty());
    let group = group
        .or_else(|| user.map(|user| user.group.clone()))
        .filter(|group| !group.is_empty() && group != "auto");
    let serves = |model: &str| match &group {
        Some(group) => import.groups.get(model).is_some_and(|groups| groups.contains(group)),
        None => true,
    };
    let all: Vec<&str> = import.draft.models.iter().map(|model| model.id.as_str()).collect();
    let served: Vec<String> =
        all.iter().filter(|model| serves(model)).map(|&model| model.to_owned()).collect();
    if own.is_empty() {
        if served.len() == all.len() {
            return Ok(Vec::new());
        }
        if served.is_empty() {
            return Err("its group has no model of the result");
        }
        return Ok(served);
    }
    // A model that is left out stays in the list, so that it can be added later.
    let known = |model: &String| !all.contains(&model.as_str()) || serves(model);
    let own: Vec<String> = own.into_iter().filter(known).collect();
    if own.is_empty() { Err("its group has none of its models") } else { Ok(own) }
}

/// Adds the account of a user with its balance.
fn account(import: &mut Import, id: i64, user: &User, options: &BTreeMap<String, String>) {
    let credit = prices::credit(user.quota, options);
    if credit.is_none() {
        let reason = "not an amount that the gateway can count: the account has no credit";
        import.report.row(format!("users[id={id}].quota"), FieldOutcome::Impossible, "", reason);
    }
    import.draft.accounts.push(AccountDraft {
        name: user.name.clone(),
        credit: credit.unwrap_or_else(|| "0".to_owned()),
        reference: format!("import-{}-user-{id}", import.origin.slug()),
        enabled: user.enabled,
        limits: LimitDraft::default(),
    });
}

/// Returns a time in RFC 3339, or `None` for never.
fn expiry(seconds: i64) -> Option<String> {
    let time = jiff::Timestamp::from_second(seconds).ok().filter(|_| seconds >= 0)?;
    let text = time.to_string();
    text.parse::<toml_edit::Datetime>().ok().map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_of_minus_one_is_never() {
        assert_eq!(expiry(-1), None);
        assert_eq!(expiry(1_798_761_600).as_deref(), Some("2027-01-01T00:00:00Z"));
        assert_eq!(expiry(i64::MAX), None);
    }
}
