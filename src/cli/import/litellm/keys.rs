//! Keys of LiteLLM's database: rows of `LiteLLM_VerificationToken`, with those of teams and budgets.
//!
//! The token of a row is the SHA-256 of the key in hexadecimal digits, which is what keys.toml has too. A field is
//! reported by its column: with 100,000 keys, a line for each value would be of no use.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::key_columns;
use crate::import::budget::{AMPLE_CREDIT, BudgetLimits, BudgetPeriod, least, tighter};
use crate::import::document::{Field, FieldResult, SourceFault, SourceNode, SourceValue};
use crate::import::draft::{AccountDraft, KeyDraft, LimitDraft, NO_MODELS, cut, limit, printable};
use crate::import::report::FieldOutcome;
use crate::import::{Imported, json};
use routing::account::amount::{self, Amount};
use routing::account::{KeyHash, Losses, Pattern};

/// Reads rows as JSON lines, or as a list.
///
/// # Errors
/// Returns a fault for a line that is not JSON.
pub(in crate::import) fn rows(text: &str) -> FieldResult<Vec<SourceNode>> {
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

/// What keys, teams and budgets have in common.
#[derive(Clone, Default)]
struct Shared {
    limits: LimitDraft,
    models: Vec<String>,
    blocked: bool,
    /// What is left of a budget without a duration.
    total: Option<String>,
}

/// Team, which is an account once a key belongs to it.
#[derive(Clone, Default)]
struct Team {
    name: String,
    shared: Shared,
    /// Name of its account, if that exists.
    account: Option<String>,
}

/// Reader of the rows.
pub(in crate::import) struct KeyReader<'i> {
    imported: &'i mut Imported,
    losses: Losses,
    teams: HashMap<String, Team>,
    budgets: HashMap<String, Shared>,
    columns: BTreeSet<String>,
    /// Outcomes of single rows and values.
    rows: BTreeMap<String, (FieldOutcome, &'static str)>,
}

impl<'i> KeyReader<'i> {
    /// Creates a reader that adds keys to the result.
    pub(in crate::import) fn new(imported: &'i mut Imported) -> KeyReader<'i> {
        // The policy of the master key is that of the configuration.
        let losses = imported.draft.keys.first().map_or_else(Losses::default, |key| key.losses);
        let (teams, budgets, columns, rows) = Default::default();
        KeyReader { imported, losses, teams, budgets, columns, rows }
    }

    /// Reads a budget, before the keys that name it.
    ///
    /// # Errors
    /// Returns a fault for a field of the wrong type.
    pub(in crate::import) fn budget(&mut self, row: &SourceNode) -> FieldResult<()> {
        let row = Field::root(row);
        if let Some(id) = row.set("budget_id") {
            let shared = self.shared("budgets", &row)?;
            self.budgets.insert(id.text()?.to_owned(), shared);
        }
        self.note_columns("budgets", &row)
    }

    /// Reads a team, before the keys that name it.
    ///
    /// # Errors
    /// Returns a fault for a field of the wrong type.
    pub(in crate::import) fn team(&mut self, row: &SourceNode) -> FieldResult<()> {
        let row = Field::root(row);
        if let Some(id) = row.set("team_id") {
            let name = row.set("team_alias").map_or(id.text(), |alias| alias.text())?.to_owned();
            let team = Team { name, shared: self.shared("teams", &row)?, account: None };
            self.teams.insert(id.text()?.to_owned(), team);
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
    pub(in crate::import) fn key(&mut self, row: &SourceNode) -> FieldResult<()> {
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
        let shown = format!("keys[{}]", cut(&printable(&name), 60));
        if let Some(field) = row.set("expires") {
            match time(field.text()?) {
                Some(time) => key.expires = Some(time),
                None => return Err(field.fault("expected a date and time")),
            }
        }
        self.note_columns("keys", &row)?;
        if self.imported.draft.has_key(&hash) {
            self.rows.insert(shown, (FieldOutcome::Impossible, "another key has the same token"));
            return Ok(());
        }
        let own = self.shared("keys", &row)?;
        let budget = row.set("budget_id").map(|id| id.text()).transpose()?;
        let budget = budget.and_then(|id| self.budgets.get(id)).cloned().unwrap_or_default();
        let id = row.set("team_id").map(|id| id.text()).transpose()?;
        let team = id.and_then(|id| self.teams.get(id)).cloned();
        let blocked = team.as_ref().is_some_and(|team| team.shared.blocked);
        key.enabled = !own.blocked && !blocked;
        key.limits = tighter(&own.limits, &budget.limits);
        key.models = models(&own.models, team.as_ref().map_or(&[], |team| &team.shared.models));
        for name in key.models.iter().filter(|name| *name != NO_MODELS) {
            self.imported.draft.ensure_model(name);
        }
        let spend = row.set("spend").map(|field| field.number()).transpose()?.unwrap_or_default();
        let budget_left = budget.total.as_ref().and_then(|total| remaining(total, &spend));
        if let Some(credit) = least(&own.total, &budget_left) {
            key.account = Some(self.own_account(&hash, credit, team.as_ref(), &mut key.limits, &shown));
        } else if let (Some(id), Some(team)) = (id, team) {
            key.account = Some(self.team_account(id, team));
        }
        if self.imported.draft.key(key).is_err() {
            self.rows.insert(shown, (FieldOutcome::Impossible, "another key has the same token"));
        }
        Ok(())
    }

    /// Adds the account of a key with a budget of its own, without a duration. Returns its name.
    fn own_account(
        &mut self,
        hash: &KeyHash,
        mut credit: String,
        team: Option<&Team>,
        limits: &mut LimitDraft,
        shown: &str,
    ) -> String {
        if let Some(Team { shared, .. }) = team {
            credit = least(&Some(credit.clone()), &shared.total).unwrap_or(credit);
            *limits = tighter(limits, &shared.limits);
            let note = "the key has a budget of its own, and a key has one account: the limits of the team apply to this key alone";
            self.rows.insert(format!("{shown}.team_id"), (FieldOutcome::Changed, note));
        }
        let reference = format!("import-litellm-{}", cut(&hash.to_hex(), 32));
        let name = format!("litellm-{}", cut(&hash.to_hex(), 12));
        let (enabled, limits) = (true, LimitDraft::default());
        self.imported.draft.account(AccountDraft { name, credit, reference, enabled, limits })
    }

    /// Returns the name of the account of a team, which is added with the first key.
    fn team_account(&mut self, id: &str, team: Team) -> String {
        let Team { name, shared, account } = team;
        if let Some(account) = account {
            return account;
        }
        if shared.total.is_none() {
            self.imported.report.remark(format!(
                "teams without a budget, and those whose budget has a duration, have accounts with a credit of {AMPLE_CREDIT}, which does not limit them"
            ));
        }
        let credit = shared.total.unwrap_or_else(|| AMPLE_CREDIT.to_owned());
        let reference = format!("import-litellm-team-{}", cut(&KeyHash::of(id).to_hex(), 32));
        let (enabled, limits) = (!shared.blocked, shared.limits);
        let name = self.imported.draft.account(AccountDraft { name, credit, reference, enabled, limits });
        if let Some(team) = self.teams.get_mut(id) {
            team.account = Some(name.clone());
        }
        name
    }

    /// Reads what keys, teams and budgets have in common.
    fn shared(&mut self, table: &str, row: &Field<'_>) -> FieldResult<Shared> {
        let number = |key: &str| -> FieldResult<Option<u64>> {
            Ok(row.set(key).map(|field| field.integer()).transpose()?.and_then(limit))
        };
        let mut shared = Shared {
            limits: LimitDraft {
                requests_per_minute: number("rpm_limit")?,
                tokens_per_minute: number("tpm_limit")?,
                concurrent: number("max_parallel_requests")?.map(|limit| limit.min(1_000_000)),
                ..LimitDraft::default()
            },
            ..Shared::default()
        };
        if let Some(budget) = row.set("max_budget") {
            let amount = rounded(&budget.number()?).ok_or_else(|| budget.fault("not an amount of money"))?;
            match row.set("budget_duration").map(|field| field.text()).transpose()? {
                None => {
                    let spend = row.set("spend").map(|field| field.number()).transpose()?.unwrap_or_default();
                    let left = remaining(&amount, &spend);
                    shared.total = Some(left.ok_or_else(|| row.fault("spend is not an amount of money"))?);
                }
                Some(duration) => self.period(table, &amount, duration, &mut shared.limits),
            }
        }
        if let Some(models) = row.set("models") {
            shared.models = models.texts()?.into_iter().map(str::to_owned).collect();
        }
        shared.blocked = row.set("blocked").map(|field| field.boolean()).transpose()?.unwrap_or(false);
        Ok(shared)
    }

    /// Sets the limits of a budget with a duration, which is reported if it is neither a day nor a month.
    fn period(&mut self, table: &str, amount: &str, duration: &str, limits: &mut LimitDraft) {
        let period = BudgetPeriod::parse(duration);
        let note = match period.and_then(|period| BudgetLimits::new(amount, period)) {
            Some(budget) => {
                budget.apply(limits);
                budget.note
            }
            None => {
                limits.spend_per_month = Some(amount.to_owned());
                "not a duration that the importer knows: each month has at most the amount"
            }
        };
        if !note.is_empty() {
            let shown = cut(&printable(duration), 16);
            self.rows.insert(format!("{table}.budget_duration[{shown}]"), (FieldOutcome::Changed, note));
        }
    }

    /// Reports the columns, and what is special of single rows.
    pub(in crate::import) fn finish(self) {
        let report = &mut self.imported.report;
        key_columns::report(report, &self.columns);
        for (path, (outcome, note)) in self.rows {
            report.row(path, outcome, "", note);
        }
    }
}

/// Returns the models of a key, which are those that its team may use too. An empty list is all of them.
fn models(own: &[String], team: &[String]) -> Vec<String> {
    let none = || vec![NO_MODELS.to_owned()];
    let is_all = |list: &[String]| {
        list.is_empty() || list.iter().any(|name| name == "*" || name == "all-proxy-models")
    };
    if own.iter().any(|name| name == "no-default-models") {
        return none();
    }
    if is_all(own) || own.iter().any(|name| name == "all-team-models") {
        return if is_all(team) { Vec::new() } else { team.to_vec() };
    }
    if is_all(team) {
        return own.to_vec();
    }
    let permits = |list: &[String], name: &String| {
        list.iter().any(|pattern| pattern == name || Pattern::new(pattern.as_str()).matches(name))
    };
    let mut both: Vec<String> = own.iter().filter(|name| permits(team, name)).cloned().collect();
    let narrower = team.iter().filter(|name| permits(own, name) && !own.contains(name));
    both.extend(narrower.cloned());
    if both.is_empty() { none() } else { both }
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
    codec::canonical::time::unix_seconds(&time)?;
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
        assert_eq!(models(&list(&["b"]), &list(&[])), list(&["b"]));
        assert_eq!(models(&list(&["all-proxy-models"]), &[]), list(&[]));
        // A model whose name begins like a name of LiteLLM's own.
        assert_eq!(models(&list(&["all-minilm"]), &[]), list(&["all-minilm"]));
        assert_eq!(models(&[], &list(&["all-minilm"])), list(&["all-minilm"]));
    }

    #[test]
    fn key_may_use_what_its_team_may_use_too() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let none = list(&[NO_MODELS]);
        for (own, team, both) in [
            (list(&["a", "b"]), list(&["b", "c"]), list(&["b"])),
            (list(&["a"]), list(&["b"]), none.clone()),
            (list(&["openai/gpt-4o"]), list(&["openai/*"]), list(&["openai/gpt-4o"])),
            (list(&["openai/*"]), list(&["openai/gpt-4o", "x"]), list(&["openai/gpt-4o"])),
            (list(&["all-proxy-models"]), list(&["a"]), list(&["a"])),
            (list(&["a"]), list(&["all-proxy-models"]), list(&["a"])),
            (list(&["no-default-models"]), list(&["a"]), none.clone()),
            (list(&["no-default-models"]), list(&[]), none),
        ] {
            assert_eq!(models(&own, &team), both, "{own:?} {team:?}");
        }
    }
}
