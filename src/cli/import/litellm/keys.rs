//! Keys of LiteLLM's database: rows of `LiteLLM_VerificationToken`, with those of teams and budgets.
//!
//! The token of a row is the SHA-256 of the key in hexadecimal digits, which is what keys.toml has too. A field is
//! reported by its column: with 100,000 keys, a line for each value would be of no use.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::account::amount::{self, Amount};
use crate::account::{KeyHash, Losses};
use crate::cli::import::document::{Field, FieldResult, SourceFault, SourceNode, SourceValue};
use crate::cli::import::draft::{AccountDraft, KeyDraft, LimitDraft, cut, limit, printable};
use crate::cli::import::report::{FieldOutcome, UNKNOWN};
use crate::cli::import::{Imported, json};

/// Columns of keys: name, outcome, target, note.
const KEYS: &[(&str, FieldOutcome, &str, &str)] = &[
    ("token", FieldOutcome::Taken, "key.sha256", ""),
    ("key_alias", FieldOutcome::Taken, "key.name", ""),
    ("key_name", FieldOutcome::Changed, "key.name", "the name of a key without an alias"),
    ("expires", FieldOutcome::Taken, "key.expires", ""),
    ("blocked", FieldOutcome::Taken, "key.enabled", ""),
    (
        "models",
        FieldOutcome::Changed,
        "key.models",
        "all-team-models is the list of the team; access groups are not known",
    ),
    (
        "team_id",
        FieldOutcome::Changed,
        "key.limits",
        "limits of the team apply to each of its keys on its own",
    ),
    ("budget_id", FieldOutcome::Changed, "key.limits", "the limits of the budget, with --budgets"),
    ("tpm_limit", FieldOutcome::Taken, "key.limits.tokens_per_minute", ""),
    ("rpm_limit", FieldOutcome::Taken, "key.limits.requests_per_minute", ""),
    ("max_parallel_requests", FieldOutcome::Taken, "key.limits.concurrent", ""),
    (
        "max_budget",
        FieldOutcome::Changed,
        "key.limits",
        "of a day or a month: a limit of the calendar's; without a duration: the balance of an account of the key's own",
    ),
    (
        "budget_duration",
        FieldOutcome::Changed,
        "key.limits",
        "1d is a day, and 30d and 1mo are a month of the calendar",
    ),
    (
        "spend",
        FieldOutcome::Changed,
        "",
        "subtracted from a budget without a duration; the spend of the past is not in the ledger",
    ),
    ("created_at", FieldOutcome::Impossible, "", "keys have no history"),
    ("updated_at", FieldOutcome::Impossible, "", "keys have no history"),
    ("created_by", FieldOutcome::Impossible, "", "keys have no history"),
    ("updated_by", FieldOutcome::Impossible, "", "keys have no history"),
    ("last_active", FieldOutcome::Impossible, "", "model-gateway usage shows the use of keys"),
    ("budget_reset_at", FieldOutcome::Impossible, "", "spend limits are of days and months, UTC"),
    ("user_id", FieldOutcome::Impossible, "", "keys have no users; key.account is charged"),
    ("organization_id", FieldOutcome::Impossible, "", "accounts are flat"),
    ("project_id", FieldOutcome::Impossible, "", "accounts are flat"),
    ("agent_id", FieldOutcome::Impossible, "", "the gateway has no agents"),
    ("metadata", FieldOutcome::Impossible, "", "keys have no metadata"),
    ("permissions", FieldOutcome::Impossible, "", "key.endpoints restricts a key to APIs"),
    ("allowed_routes", FieldOutcome::Impossible, "", "key.endpoints restricts a key to APIs"),
    ("aliases", FieldOutcome::Impossible, "", "names of models are the same for all keys: add a [[model]]"),
    ("config", FieldOutcome::Impossible, "", "keys have no settings of routing"),
    ("router_settings", FieldOutcome::Impossible, "", "keys have no settings of routing"),
    ("model_spend", FieldOutcome::Impossible, "", "the spend of the past is not in the ledger"),
    ("model_max_budget", FieldOutcome::Impossible, "", "limits are of keys and accounts, not of models"),
    ("soft_budget_cooldown", FieldOutcome::Impossible, "", "there are no soft budgets"),
    ("allowed_cache_controls", FieldOutcome::Impossible, "", "the gateway does not cache responses"),
    ("policies", FieldOutcome::Impossible, "", "the gateway has no guardrails"),
    ("access_group_ids", FieldOutcome::Impossible, "", "key.models lists models by name and pattern"),
    (
        "object_permission_id",
        FieldOutcome::Impossible,
        "",
        "the gateway has no vector stores and no MCP servers",
    ),
    ("rotation_count", FieldOutcome::Impossible, "", "keys are not replaced automatically"),
    ("auto_rotate", FieldOutcome::Impossible, "", "keys are not replaced automatically"),
    ("rotation_interval", FieldOutcome::Impossible, "", "keys are not replaced automatically"),
    ("last_rotation_at", FieldOutcome::Impossible, "", "keys are not replaced automatically"),
    ("key_rotation_at", FieldOutcome::Impossible, "", "keys are not replaced automatically"),
];

/// Reads rows as JSON lines, or as a list.
///
/// # Errors
/// Returns a fault for a line that is not JSON.
pub(in crate::cli::import) fn rows(text: &str) -> FieldResult<Vec<SourceNode>> {
    if text.trim_start().starts_with('[') {
        return match json::read(text)?.value {
            SourceValue::List(rows) => Ok(rows),
            _ => Ok(Vec::new()),
        };
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let mut row = json::read(line).map_err(|fault| SourceFault { line: at + 1, ..fault })?;
            row.line = at + 1;
            if let SourceValue::Map(members) = &mut row.value {
                members.iter_mut().for_each(|(_, node)| node.line = at + 1);
            }
            Ok(row)
        })
        .collect()
}

/// Limits of a team or a budget.
#[derive(Clone, Default)]
struct Shared {
    limits: LimitDraft,
    models: Vec<String>,
    blocked: bool,
    /// Budget without a duration.
    total: Option<String>,
}

/// Reader of the rows.
pub(in crate::cli::import) struct KeyReader<'i> {
    imported: &'i mut Imported,
    losses: Losses,
    teams: HashMap<String, Shared>,
    budgets: HashMap<String, Shared>,
    columns: BTreeSet<String>,
    /// Outcomes of single rows.
    rows: BTreeMap<String, &'static str>,
}

impl<'i> KeyReader<'i> {
    /// Creates a reader that adds keys to the result.
    pub(in crate::cli::import) fn new(imported: &'i mut Imported) -> KeyReader<'i> {
        // The policy of the master key is that of the configuration.
        let losses = imported.draft.keys.first().map_or_else(Losses::default, |key| key.losses);
        let (teams, budgets, columns, rows) = Default::default();
        KeyReader { imported, losses, teams, budgets, columns, rows }
    }

    /// Reads a budget, before the keys that name it.
    ///
    /// # Errors
    /// Returns a fault for a field of the wrong type.
    pub(in crate::cli::import) fn budget(&mut self, row: &SourceNode) -> FieldResult<()> {
        let row = Field::root(row);
        if let Some(id) = row.set("budget_id") {
            let shared = shared(&row)?;
            self.budgets.insert(id.text()?.to_owned(), shared);
        }
        self.note_columns("budgets", &row)
    }

    /// Reads a team, before the keys that name it.
    ///
    /// # Errors
    /// Returns a fault for a field of the wrong type.
    pub(in crate::cli::import) fn team(&mut self, row: &SourceNode) -> FieldResult<()> {
        let row = Field::root(row);
        if let Some(id) = row.set("team_id") {
            let shared = shared(&row)?;
            if shared.total.is_some() {
                let name = row.set("team_alias").map_or(id.text(), |alias| alias.text())?;
                let reason = "a team with a budget without a duration: create an account, credit it, and set key.account";
                self.rows.insert(format!("teams[{}].max_budget", cut(&printable(name), 60)), reason);
            }
            self.teams.insert(id.text()?.to_owned(), shared);
        }
        self.note_columns("teams", &row)
    }

    fn note_columns(&mut self, table: &str, row: &Field<'_>) -> FieldResult<()> {
        for (column, field) in row.members()? {
            let is_set = !matches!(field.node.value, SourceValue::Null);
            if is_set && !self.columns.contains(&format!("{table}.{column}")) {
                self.columns.insert(format!("{table}.{column}"));
            }
        }
        Ok(())
    }

    /// Reads a key.
    ///
    /// # Errors
    /// Returns a fault for a row without a token, and for a field of the wrong type.
    pub(in crate::cli::import) fn key(&mut self, row: &SourceNode) -> FieldResult<()> {
        let row = Field::root(row);
        let token = row.set("token").ok_or_else(|| row.fault("token is missing"))?;
        let token = token.text()?;
        // An old row can have the key itself.
        let hash = KeyHash::from_hex(token).unwrap_or_else(|| KeyHash::of(token));
        let name = row.set("key_alias").or_else(|| row.set("key_name"));
        let name = match name {
            Some(name) => name.text()?.to_owned(),
            None => "litellm-key".to_owned(),
        };
        let origin = format!("LiteLLM_VerificationToken (line {})", row.node.line);
        let mut key = KeyDraft::new(name.as_str(), hash, origin);
        key.losses = self.losses;
        key.enabled = !row.set("blocked").map(|field| field.boolean()).transpose()?.unwrap_or(false);
        let shown = format!("keys[{}]", cut(&printable(&name), 60));
        if let Some(field) = row.set("expires") {
            match time(field.text()?) {
                Some(time) => key.expires = Some(time),
                None => return Err(field.fault("expected a date and time")),
            }
        }
        let own = shared(&row)?;
        key.limits = own.limits.clone();
        let budget = row.set("budget_id").map(|id| id.text()).transpose()?;
        let budget = budget.and_then(|id| self.budgets.get(id)).cloned().unwrap_or_default();
        key.limits = tighter(&key.limits, &budget.limits);
        let team = row.set("team_id").map(|id| id.text()).transpose()?;
        let team = team.and_then(|id| self.teams.get(id)).cloned().unwrap_or_default();
        key.limits = tighter(&key.limits, &team.limits);
        key.enabled &= !team.blocked;
        key.models = models(&own.models, &team.models);
        // A name of no model, which stands for none.
        for name in key.models.iter().filter(|name| *name != "no-default-models") {
            self.imported.draft.ensure_model(name);
        }
        if let Some(total) = own.total.or(budget.total) {
            let spend = row.set("spend").map(|field| field.number()).transpose()?.unwrap_or_default();
            match remaining(&total, &spend) {
                Some(credit) => {
                    key.account = Some(format!("litellm-{}", cut(&hash.to_hex(), 12)));
                    let reference = format!("import-litellm-{}", cut(&hash.to_hex(), 32));
                    let account = key.account.clone().unwrap_or_default();
                    let (enabled, limits) = (true, LimitDraft::default());
                    self.imported.draft.accounts.push(AccountDraft {
                        name: account,
                        credit,
                        reference,
                        enabled,
                        limits,
                    });
                }
                None => {
                    self.rows
                        .insert(format!("{shown}.max_budget"), "not an amount that the gateway can count");
                }
            }
        }
        self.note_columns("keys", &row)?;
        if self.imported.draft.key(key).is_err() {
            self.rows.insert(shown, "another key has the same token");
        }
        Ok(())
    }

    /// Reports the columns.
    pub(in crate::cli::import) fn finish(self) {
        let report = &mut self.imported.report;
        for path in &self.columns {
            let column = path.rsplit('.').next().unwrap_or_default();
            let used =
                ["models", "blocked", "tpm_limit", "rpm_limit", "max_parallel_requests", "budget_duration"];
            let known = match path.split('.').next() {
                Some("keys") => KEYS.iter().find(|(name, ..)| *name == column).copied(),
                _ if used.contains(&column) => Some((
                    "",
                    FieldOutcome::Changed,
                    "key.limits, key.models",
                    "applied to each key on its own",
                )),
                _ => match column {
                    "team_id" | "budget_id" | "team_alias" => {
                        Some(("", FieldOutcome::Changed, "", "used to find the rows of keys"))
                    }
                    "max_budget" => Some((
                        "",
                        FieldOutcome::Changed,
                        "key.limits",
                        "of a day or a month, applied to each key on its own",
                    )),
                    _ => Some(("", FieldOutcome::Impossible, "", "teams and budgets have nothing like it")),
                },
            };
            match known {
                Some((_, outcome, target, note)) => report.row(path.clone(), outcome, target, note),
                None => report.row(path.clone(), FieldOutcome::Impossible, "", UNKNOWN),
            }
        }
        for (path, reason) in self.rows {
            report.row(path, FieldOutcome::Impossible, "", reason);
        }
    }
}

/// Reads the limits that keys, teams and budgets have in common.
fn shared(row: &Field<'_>) -> FieldResult<Shared> {
    let number = |key: &str| -> FieldResult<Option<u64>> {
        Ok(row.set(key).map(|field| field.integer()).transpose()?.and_then(limit))
    };
    let mut limits = LimitDraft {
        requests_per_minute: number("rpm_limit")?,
        tokens_per_minute: number("tpm_limit")?,
        concurrent: number("max_parallel_requests")?.map(|limit| limit.min(1_000_000)),
        ..LimitDraft::default()
    };
    let mut total = None;
    if let Some(budget) = row.set("max_budget") {
        let amount = rounded(&budget.number()?).ok_or_else(|| budget.fault("not an amount of money"))?;
        match row.set("budget_duration").map(|field| field.text()).transpose()? {
            None => total = Some(amount),
            Some("1d" | "24h") => limits.spend_per_day = Some(amount),
            Some("30d" | "31d" | "1mo") => limits.spend_per_month = Some(amount),
            // A shorter or longer budget as one of the next longer period is never too strict.
            Some(duration) if duration.ends_with(['s', 'm', 'h']) => limits.spend_per_day = Some(amount),
            Some(_) => limits.spend_per_month = Some(amount),
        }
    }
    let models = match row.set("models") {
        Some(models) => models.texts()?.into_iter().map(str::to_owned).collect(),
        None => Vec::new(),
    };
    let blocked = row.set("blocked").map(|field| field.boolean()).transpose()?.unwrap_or(false);
    Ok(Shared { limits, models, blocked, total })
}

/// Returns the stricter one of each limit.
fn tighter(one: &LimitDraft, other: &LimitDraft) -> LimitDraft {
    let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    let spend = |one: &Option<String>, other: &Option<String>| {
        let amounts = one.iter().chain(other);
        amounts.min_by_key(|amount| amount::parse(amount).unwrap_or(i64::MAX)).cloned()
    };
    LimitDraft {
        requests_per_minute: least(one.requests_per_minute, other.requests_per_minute),
        tokens_per_minute: least(one.tokens_per_minute, other.tokens_per_minute),
        concurrent: least(one.concurrent, other.concurrent),
        spend_per_day: spend(&one.spend_per_day, &other.spend_per_day),
        spend_per_month: spend(&one.spend_per_month, &other.spend_per_month),
    }
}

/// Returns the models of a key; an empty list is all of them.
fn models(own: &[String], team: &[String]) -> Vec<String> {
    let special = |name: &str| name.starts_with("all-") || name == "*";
    if own.iter().any(|name| name == "no-default-models") {
        // No model has a name with a line feed.
        return vec!["no-default-models".to_owned()];
    }
    let list = if own.is_empty() || own.iter().any(|name| name == "all-team-models") { team } else { own };
    if list.iter().any(|name| special(name)) { Vec::new() } else { list.to_vec() }
}

/// Returns an amount, rounded down to what the ledger counts. `None` if it is none.
fn rounded(number: &str) -> Option<String> {
    if let Ok(nanos) = amount::parse(number) {
        return Some(Amount(nanos).to_string());
    }
    // More than nine decimal places: the digits of a binary fraction.
    let value = number.parse::<f64>().ok().filter(|value| (0.0..1e9).contains(value))?;
    Some(Amount((value * 1e9) as i64).to_string())
}

/// Returns what is left of a budget; 0 if it is spent.
fn remaining(total: &str, spend: &str) -> Option<String> {
    let spend = if spend.is_empty() { "0".to_owned() } else { rounded(spend)? };
    let left = amount::parse(total).ok()?.checked_sub(amount::parse(&spend).ok()?)?;
    Some(Amount(left.max(0)).to_string())
}

/// Converts a time of PostgreSQL to RFC 3339; without an offset it is UTC.
fn time(text: &str) -> Option<String> {
    let mut time = text.trim().replacen(' ', "T", 1);
    let clock = time.get(10..).unwrap_or_default();
    if !clock.contains(['Z', 'z', '+', '-']) {
        time.push('Z');
    }
    crate::canonical::time::unix_seconds(&time)?;
    time.parse::<toml_edit::Datetime>().ok().filter(|time| time.offset.is_some()).map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_times_of_rows_are_converted() {
        assert_eq!(remaining("10", "2.5").as_deref(), Some("7.5"));
        assert_eq!(remaining("10", "12").as_deref(), Some("0"));
        assert_eq!(rounded("0.1234567890123").as_deref(), Some("0.123456789"));
        assert_eq!(time("2027-01-31T00:00:00").as_deref(), Some("2027-01-31T00:00:00Z"));
        assert_eq!(time("2027-01-31 10:00:00.5+00:00").as_deref(), Some("2027-01-31T10:00:00.5+00:00"));
        assert_eq!(time("soon"), None);
    }

    #[test]
    fn models_of_a_key_are_those_of_its_team_unless_it_has_its_own() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        assert_eq!(models(&[], &list(&["a"])), list(&["a"]));
        assert_eq!(models(&list(&["all-team-models"]), &list(&["a"])), list(&["a"]));
        assert_eq!(models(&list(&["b"]), &list(&["a"])), list(&["b"]));
        assert_eq!(models(&list(&["all-proxy-models"]), &[]), list(&[]));
        assert_ne!(models(&list(&["no-default-models"]), &[]), list(&[]));
    }
}
