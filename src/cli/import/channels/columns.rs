//! Outcomes of the columns of New API and One API.

use super::{Cell, Tables};
use crate::import::report::{FieldOutcome, FieldReport, UNKNOWN};
use FieldOutcome::{Changed, Impossible, Taken};
use storage::store::foreign::ForeignTable;

type Column = (&'static str, FieldOutcome, &'static str, &'static str);

const STATISTICS: &str = "statistics of the past are not taken over; the gateway records usage of its own";
const TESTS: &str = "provider.check enables health checks";
const LOGIN: &str = "the gateway has no users with passwords; keys.toml is the only list of keys";

const CHANNELS: &[Column] = &[
    ("id", Changed, "", "channels are named"),
    ("type", Taken, "provider.kind", ""),
    (
        "key",
        Changed,
        "provider.credential",
        "the key is in secrets.env; a channel with several keys becomes several providers",
    ),
    ("open_ai_organization", Taken, "provider.headers", ""),
    ("test_model", Impossible, "", TESTS),
    ("test_time", Impossible, "", TESTS),
    ("response_time", Impossible, "", STATISTICS),
    ("status", Taken, "model.targets.weight", ""),
    ("name", Changed, "provider.name", "without spaces, and unique"),
    ("weight", Changed, "model.targets.weight", "0 is 1, since a target of the weight 0 is not used"),
    ("created_time", Impossible, "", STATISTICS),
    ("base_url", Changed, "provider.base_url", "with the version that the source adds itself"),
    ("other", Changed, "provider.api_version", "of Azure only"),
    ("balance", Impossible, "", STATISTICS),
    ("balance_updated_time", Impossible, "", STATISTICS),
    ("models", Taken, "model.id, model.targets", ""),
    (
        "group",
        Changed,
        "key.models",
        "keys may use the models of their group; which of a model's channels serves them does not depend on the group",
    ),
    ("used_quota", Impossible, "", STATISTICS),
    ("model_mapping", Taken, "model.targets.model", ""),
    ("status_code_mapping", Impossible, "", "the status of a provider's answer is not changed"),
    ("priority", Taken, "model.targets.tier", ""),
    ("auto_ban", Changed, "breaker", "every target has a breaker, which closes by itself"),
    ("other_info", Impossible, "", "notes of the source"),
    ("tag", Impossible, "", "providers have no tags"),
    ("setting", Impossible, "", "the gateway does not change what a request says, and uses no HTTP proxy"),
    ("settings", Impossible, "", "the gateway does not change what a request says, and uses no HTTP proxy"),
    ("param_override", Impossible, "", "the gateway does not change what a request says"),
    ("header_override", Impossible, "", "set provider.headers"),
    ("channel_info", Changed, "provider.credential", "the keys of a channel are used in turn"),
    ("remark", Impossible, "", "notes of the source"),
    ("config", Impossible, "", "settings of types that have no counterpart"),
    ("system_prompt", Impossible, "", "the gateway does not change what a request says"),
];

const TOKENS: &[Column] = &[
    ("id", Changed, "", "keys are named"),
    ("user_id", Taken, "key.account", ""),
    (
        "key",
        Changed,
        "key.sha256",
        "the hash of \"sk-\" and the key, as clients send it; the bare key and sk-KEY-CHANNEL are not accepted",
    ),
    ("status", Taken, "key.enabled", ""),
    ("name", Changed, "key.name", "with the user's name before it, and unique"),
    ("created_time", Impossible, "", "keys have no history"),
    ("accessed_time", Impossible, "", "model-gateway usage shows the use of keys"),
    ("expired_time", Taken, "key.expires", ""),
    (
        "remain_quota",
        Changed,
        "key.account, accounts.sh",
        "an account of the token's own with this balance, which is taken out of the user's",
    ),
    ("unlimited_quota", Taken, "key.account", ""),
    ("model_limits_enabled", Taken, "key.models", ""),
    ("model_limits", Taken, "key.models", ""),
    ("models", Taken, "key.models", ""),
    ("allow_ips", Taken, "key.networks", ""),
    ("subnet", Taken, "key.networks", ""),
    ("used_quota", Impossible, "", STATISTICS),
    ("group", Changed, "key.models", "the models of the group"),
    ("cross_group_retry", Impossible, "", "groups have no order"),
    ("deleted_at", Changed, "", "a deleted token is left out"),
];

const USERS: &[Column] = &[
    ("id", Changed, "", "accounts are named"),
    ("username", Taken, "key.account", ""),
    ("status", Taken, "accounts.sh", ""),
    (
        "quota",
        Changed,
        "accounts.sh",
        "the balance in money: quota divided by QuotaPerUnit, less that of tokens with a quota of their own",
    ),
    ("group", Changed, "key.models", "the models of the group"),
    ("used_quota", Impossible, "", STATISTICS),
    ("request_count", Impossible, "", STATISTICS),
    ("deleted_at", Changed, "", "a deleted user and the tokens of it are left out"),
];

const OPTIONS: &[Column] =
    &[("key", Changed, "", "see the options by name"), ("value", Changed, "", "see the options by name")];

/// Reports every column of every table.
pub(super) fn report(report: &mut FieldReport, tables: &Tables) {
    for (name, table, known, rest) in [
        ("channels", &tables.channels, CHANNELS, None),
        ("tokens", &tables.tokens, TOKENS, None),
        ("users", &tables.users, USERS, Some(LOGIN)),
        ("options", &tables.options, OPTIONS, None),
    ] {
        for (at, column) in table.columns.iter().enumerate() {
            let path = format!("{name}.{column}");
            match known.iter().find(|(known, ..)| known == column) {
                _ if is_empty(table, at) => report.row(path, Changed, "", "no row has a value"),
                Some((_, outcome, target, note)) => report.row(path, *outcome, target, note),
                None => report.row(path, Impossible, "", rest.unwrap_or(UNKNOWN)),
            }
        }
    }
    for (table, columns) in &tables.others {
        let (outcome, note) = match table.as_str() {
            "abilities" => (Changed, "a table that the source derives of the channels"),
            "logs" | "quota_data" => (Impossible, STATISTICS),
            "redemptions" | "top_ups" => {
                (Impossible, "model-gateway accounts credit is the only way to credit an account")
            }
            "tasks" | "midjourneys" => (Impossible, "tasks of the past are not taken over"),
            "migrations" | "setups" => (Changed, "state of the source itself"),
            _ => (Impossible, "the table has no counterpart"),
        };
        for column in columns {
            report.row(format!("{table}.{column}"), outcome, "", note);
        }
    }
}

/// Returns whether no row has a value in this column.
fn is_empty(table: &ForeignTable, at: usize) -> bool {
    let empty = |cell: &Cell| match cell {
        Cell::Null => true,
        Cell::Text(text) => text.is_empty(),
        Cell::Integer(_) | Cell::Real(_) => false,
    };
    table.rows.iter().all(|row| row.get(at).is_none_or(empty))
}
