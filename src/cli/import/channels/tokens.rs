//! Tokens of New API and One API, which are keys, and users, which are accounts.

use std::collections::{BTreeMap, BTreeSet};

use super::{ChannelSource, Import, Row, Tables, prices, rows};
use crate::import::draft::{AccountDraft, KeyDraft, LimitDraft, NO_MODELS, cut, printable};
use crate::import::report::FieldOutcome;
use routing::account::{KeyHash, Losses};

/// User of the source.
struct User {
    name: String,
    enabled: bool,
    group: String,
    quota: i64,
    /// Sum of what is left of the tokens with a quota of their own.
    limited: i128,
}

impl User {
    /// Returns the part of the user's quota that a token with a quota of its own gets: all of it, or in proportion if
    /// the tokens of the user have more than the user.
    fn part(&self, remaining: i64) -> i64 {
        let (remaining, quota) = (remaining.max(0), self.quota.max(0));
        if self.limited <= i128::from(quota) {
            return remaining;
        }
        let part = i128::from(remaining).saturating_mul(i128::from(quota)).checked_div(self.limited);
        part.and_then(|part| i64::try_from(part).ok()).unwrap_or(0)
    }

    /// Returns what the tokens with a quota of their own leave of the user's.
    fn rest(&self) -> i64 {
        let rest = i128::from(self.quota.max(0)).saturating_sub(self.limited);
        i64::try_from(rest.max(0)).unwrap_or(0)
    }
}

/// Reads users and tokens, after the channels.
pub(super) fn read(import: &mut Import, tables: &Tables, options: &BTreeMap<String, String>) {
    let mut users: BTreeMap<i64, User> = BTreeMap::new();
    for row in rows(&tables.users).filter(|row| row.text("deleted_at").is_empty()) {
        let id = row.integer("id", 0);
        let name = cut(&printable(&row.text("username")), 96);
        let name = if name.is_empty() { format!("user-{id}") } else { name };
        let (enabled, group) = (row.integer("status", 1) == 1, row.text("group"));
        let quota = row.integer("quota", 0);
        users.insert(id, User { name, enabled, group, quota, limited: 0 });
    }
    let mut used: BTreeSet<i64> = BTreeSet::new();
    let tokens = || rows(&tables.tokens).filter(|row| row.text("deleted_at").is_empty());
    for row in tokens() {
        let id = row.integer("user_id", 0);
        used.insert(id);
        if let (Some(user), Some(remaining)) = (users.get_mut(&id), quota(row)) {
            user.limited = user.limited.saturating_add(i128::from(remaining));
        }
    }
    for (id, user) in users.iter_mut().filter(|(id, user)| used.contains(id) || user.quota > 0) {
        user.name = account(import, *id, user, options);
        if user.limited > i128::from(user.quota.max(0)) {
            let note =
                "its tokens have more than the user: each has a part of the user's quota, in proportion";
            import.report.row(format!("users[id={id}].quota"), FieldOutcome::Changed, "accounts.sh", note);
        }
    }
    for row in tokens() {
        token(import, row, &users, options);
    }
}

/// Returns what is left of the quota of a token. `None` if it has none of its own.
fn quota(row: Row<'_>) -> Option<i64> {
    (row.integer("unlimited_quota", 0) == 0 && !row.text("key").is_empty())
        .then(|| row.integer("remain_quota", 0).max(0))
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
        match routing::account::Network::parse(&network) {
            Some(_) => entry.networks.push(network),
            None => {
                // Without the restriction the key would be usable from anywhere.
                entry.enabled = false;
                let reason = "not a network, so the key is disabled: correct key.networks and enable it";
                import.report.row(format!("{shown}.networks"), FieldOutcome::Changed, "key.enabled", reason);
            }
        }
    }
    if import.draft.has_key(&entry.hash) {
        return import.report.row(shown, FieldOutcome::Impossible, "", "another token has the same key");
    }
    match user {
        Some(user) => {
            entry.account = Some(match quota(row) {
                Some(remaining) => {
                    let reference = format!("import-{}-token-{id}", import.origin.slug());
                    let credit =
                        prices::credit(user.part(remaining), options).unwrap_or_else(|| "0".to_owned());
                    let (name, enabled) = (format!("{}/token-{id}", user.name), user.enabled);
                    let limits = LimitDraft::default();
                    import.draft.account(AccountDraft { name, credit, reference, enabled, limits })
                }
                None => user.name.clone(),
            });
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

/// Returns the models of a token: its own list, or those of its group. An empty list is all models; New API refuses every
/// model to a token whose list applies and is empty.
fn models(import: &Import, row: Row<'_>, user: Option<&User>) -> Result<Vec<String>, &'static str> {
    let applies = row.integer("model_limits_enabled", 0) != 0;
    let own = match import.origin {
        ChannelSource::NewApi if applies => {
            let own = row.list("model_limits");
            if own.is_empty() {
                return Ok(vec![NO_MODELS.to_owned()]);
            }
            own
        }
        ChannelSource::NewApi => Vec::new(),
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

/// Adds the account of a user, with the balance that the tokens with a quota of their own leave. Returns its name.
fn account(import: &mut Import, id: i64, user: &User, options: &BTreeMap<String, String>) -> String {
    let credit = prices::credit(user.rest(), options);
    if credit.is_none() {
        let reason = "not an amount that the gateway can count: the account has no credit";
        import.report.row(format!("users[id={id}].quota"), FieldOutcome::Impossible, "", reason);
    }
    import.draft.account(AccountDraft {
        name: user.name.clone(),
        credit: credit.unwrap_or_else(|| "0".to_owned()),
        reference: format!("import-{}-user-{id}", import.origin.slug()),
        enabled: user.enabled,
        limits: LimitDraft::default(),
    })
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
    fn quotas_of_user_and_tokens_are_spent_once() {
        let user = |quota, limited| User {
            name: String::new(),
            enabled: true,
            group: String::new(),
            quota,
            limited,
        };
        let enough = user(500_001, 250_000);
        assert_eq!((enough.part(250_000), enough.rest()), (250_000, 250_001));
        // Tokens that have twice as much as their user.
        let short = user(100, 200);
        assert_eq!((short.part(150), short.part(50), short.rest()), (75, 25, 0));
        let none = user(-5, 10);
        assert_eq!((none.part(10), none.rest()), (0, 0));
        let huge = user(i64::MAX, i128::from(i64::MAX) * 2);
        assert_eq!(huge.part(i64::MAX), i64::MAX / 2);
    }

    #[test]
    fn expiry_of_minus_one_is_never() {
        assert_eq!(expiry(-1), None);
        assert_eq!(expiry(1_798_761_600).as_deref(), Some("2027-01-01T00:00:00Z"));
        assert_eq!(expiry(i64::MAX), None);
    }
}
