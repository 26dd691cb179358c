//! Outcomes of the columns of LiteLLM's tables of keys, teams and budgets.

use std::collections::BTreeSet;

use crate::import::report::{FieldOutcome, FieldReport, UNKNOWN};

/// Outcome of a column: name, outcome, target, note.
type Column = (&'static str, FieldOutcome, &'static str, &'static str);

/// Note of durations.
const DURATION: &str =
    "1d is a day, and 30d and 1mo are a month of the calendar; other durations have a line of their own";

/// Columns of keys.
const KEYS: &[Column] = &[
    ("token", FieldOutcome::Taken, "key.sha256", ""),
    ("key_alias", FieldOutcome::Taken, "key.name", ""),
    ("key_name", FieldOutcome::Changed, "key.name", "the name of a key without an alias"),
    ("expires", FieldOutcome::Taken, "key.expires", ""),
    ("blocked", FieldOutcome::Taken, "key.enabled", ""),
    (
        "models",
        FieldOutcome::Changed,
        "key.models",
        "those that the team may use too; access groups are not known, and become names of no model",
    ),
    (
        "team_id",
        FieldOutcome::Changed,
        "key.account",
        "the account of the team, with its limits; a key with a budget without a duration has an account of its own",
    ),
    ("budget_id", FieldOutcome::Changed, "key.limits", "the limits of the budget, with --budgets"),
    ("tpm_limit", FieldOutcome::Taken, "key.limits.tokens_per_minute", ""),
    ("rpm_limit", FieldOutcome::Taken, "key.limits.requests_per_minute", ""),
    ("max_parallel_requests", FieldOutcome::Taken, "key.limits.concurrent", ""),
    (
        "max_budget",
        FieldOutcome::Changed,
        "key.limits",
        "with a duration: limits of the calendar's day and month; without: the balance of an account of the key's own",
    ),
    ("budget_duration", FieldOutcome::Changed, "key.limits", DURATION),
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

/// Columns of teams.
const TEAMS: &[Column] = &[
    ("team_id", FieldOutcome::Changed, "key.account", "used to find the keys of the team"),
    ("team_alias", FieldOutcome::Taken, "key.account", ""),
    (
        "models",
        FieldOutcome::Changed,
        "key.models",
        "a key may use those of its own that the team may use too",
    ),
    ("blocked", FieldOutcome::Changed, "key.enabled", "the account and the keys of the team are disabled"),
    ("tpm_limit", FieldOutcome::Taken, "account.limits.tokens_per_minute", ""),
    ("rpm_limit", FieldOutcome::Taken, "account.limits.requests_per_minute", ""),
    ("max_parallel_requests", FieldOutcome::Taken, "account.limits.concurrent", ""),
    (
        "max_budget",
        FieldOutcome::Changed,
        "account.limits",
        "with a duration: limits of the calendar's day and month; without: the balance of the account",
    ),
    ("budget_duration", FieldOutcome::Changed, "account.limits", DURATION),
    (
        "spend",
        FieldOutcome::Changed,
        "",
        "subtracted from a budget without a duration; the spend of the past is not in the ledger",
    ),
];

/// Columns of budgets, which apply to each key that names them.
const BUDGETS: &[Column] = &[
    ("budget_id", FieldOutcome::Changed, "", "used to find the keys with the budget"),
    ("tpm_limit", FieldOutcome::Taken, "key.limits.tokens_per_minute", ""),
    ("rpm_limit", FieldOutcome::Taken, "key.limits.requests_per_minute", ""),
    ("max_parallel_requests", FieldOutcome::Taken, "key.limits.concurrent", ""),
    ("max_budget", FieldOutcome::Changed, "key.limits", "of each key with the budget, as there"),
    ("budget_duration", FieldOutcome::Changed, "key.limits", DURATION),
];

/// Reports the columns that have values: `table.column`.
pub(super) fn report(report: &mut FieldReport, columns: &BTreeSet<String>) {
    for path in columns {
        let (table, column) = path.split_once('.').unwrap_or_default();
        let (known, rest) = match table {
            "teams" => (TEAMS, "accounts have nothing like it"),
            "budgets" => (BUDGETS, "budgets have nothing like it"),
            _ => (KEYS, UNKNOWN),
        };
        match known.iter().find(|(name, ..)| *name == column) {
            Some((_, outcome, target, note)) => report.row(path.clone(), *outcome, target, note),
            None => report.row(path.clone(), FieldOutcome::Impossible, "", rest),
        }
    }
}
