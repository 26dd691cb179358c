//! Virtual keys of Bifrost, with their budgets and rate limits.

use std::collections::BTreeMap;

use super::Import;
use crate::account::KeyHash;
use crate::account::amount::{self, Amount};
use crate::cli::import::document::{Field, FieldResult};
use crate::cli::import::draft::{KeyDraft, LimitDraft, limit};

impl Import<'_> {
    /// Reads the virtual keys, with their budgets and rate limits.
    pub(super) fn governance(&mut self, governance: &Field<'_>) -> FieldResult<()> {
        governance.members()?;
        for (section, reason) in [
            ("auth_config", "the gateway has no login; server.admin is for this machine only"),
            ("routing_rules", "a model's targets do not depend on rules"),
            ("model_configs", "limits are of keys, accounts and targets"),
        ] {
            if let Some(field) = governance.get(section) {
                self.report.impossible(&field, reason);
            }
        }
        let budgets = self.by_id(governance, "budgets")?;
        let rates = self.by_id(governance, "rate_limits")?;
        for section in ["teams", "customers"] {
            if let Some(field) = governance.get(section) {
                let reason = "accounts are flat and have balances: create one with model-gateway accounts, and set key.account";
                self.report.impossible(&field, reason);
            }
        }
        let Some(list) = governance.get("virtual_keys") else { return Ok(()) };
        for field in list.elements()? {
            self.virtual_key(&field, &budgets, &rates)?;
        }
        Ok(())
    }

    /// Reads a list of limits by their ids.
    fn by_id<'n>(
        &mut self,
        governance: &Field<'n>,
        section: &str,
    ) -> FieldResult<BTreeMap<String, Field<'n>>> {
        let mut found = BTreeMap::new();
        let Some(list) = governance.get(section) else { return Ok(found) };
        for field in list.elements()? {
            field.members()?;
            if let Some(id) = field.set("id") {
                found.insert(id.text()?.to_owned(), field.clone());
            }
            let note =
                "of a virtual key: a limit of a minute, of a day or of a month; others have no counterpart";
            self.report.changed(&field, "key.limits", note);
        }
        Ok(found)
    }

    fn virtual_key(
        &mut self,
        field: &Field<'_>,
        budgets: &BTreeMap<String, Field<'_>>,
        rates: &BTreeMap<String, Field<'_>>,
    ) -> FieldResult<()> {
        field.members()?;
        let Some(value) = field.set("value") else {
            self.report.impossible(field, "the key has no value: create one with model-gateway keys create");
            return Ok(());
        };
        let Some(secret) = self.resolve(value.text()?).filter(|secret| !secret.is_empty()) else {
            let reason = "the value is an environment variable that is not set: set it while importing, so that its hash can be taken";
            self.report.impossible(field, reason);
            return Ok(());
        };
        let name = field.set("name").or_else(|| field.set("id"));
        let name = name.map(|field| field.text()).transpose()?.unwrap_or("virtual-key");
        let mut key =
            KeyDraft::new(name, KeyHash::of(&secret), format!("{} (line {})", field.path, field.node.line));
        if let Some(active) = field.set("is_active") {
            key.enabled = active.boolean()?;
            self.report.taken(&active, "key.enabled");
        }
        self.report.changed(&value, "key.sha256", "the hash of the key; clients keep the key");
        for member in ["name", "id", "description"] {
            if let Some(field) = field.get(member) {
                self.report.changed(&field, "key.name", "a key has one name");
            }
        }
        if let Some(configs) = field.get("provider_configs") {
            key.models = self.permissions(&configs)?;
        }
        let id = |member: &str| field.set(member).and_then(|field| field.text().ok());
        if let Some(budget) = id("budget_id").and_then(|id| budgets.get(id)) {
            read_budget(budget, &mut key.limits)?;
        }
        if let Some(rate) = id("rate_limit_id").and_then(|id| rates.get(id)) {
            read_rates(rate, &mut key.limits)?;
        }
        for member in ["budget_id", "rate_limit_id"] {
            if let Some(field) = field.get(member) {
                self.report.changed(&field, "key.limits", "see the limits themselves");
            }
        }
        for member in ["team_id", "customer_id"] {
            if let Some(field) = field.get(member) {
                self.report.impossible(&field, "accounts are flat and have balances: set key.account");
            }
        }
        if let Err(other) = self.draft.key(key) {
            self.report.impossible(field, &format!("the same key as {other:?}"));
        }
        Ok(())
    }

    /// Reads the providers and models that a key may use.
    fn permissions(&mut self, configs: &Field<'_>) -> FieldResult<Vec<String>> {
        let mut models = Vec::new();
        for config in configs.elements()? {
            config.members()?;
            let Some(provider) = config.set("provider") else { continue };
            let name = provider.text()?;
            let allowed = config.get("allowed_models");
            let list = allowed.as_ref().map(|field| field.texts()).transpose()?.unwrap_or_default();
            if list.is_empty() {
                models.push(format!("{name}/*"));
            }
            models.extend(list.iter().map(|model| format!("{name}/{model}")));
            self.report.taken(&provider, "key.models");
            if let Some(allowed) = allowed {
                self.report.taken(&allowed, "key.models");
            }
            for member in ["key_ids", "keys", "weight", "id", "budget_id", "rate_limit_id"] {
                if let Some(field) = config.get(member) {
                    let reason = "the targets of a model are the same for all keys; a model of its own for a key can have others";
                    self.report.impossible(&field, reason);
                }
            }
        }
        Ok(models)
    }
}

fn read_budget(budget: &Field<'_>, limits: &mut LimitDraft) -> FieldResult<()> {
    let Some(most) = budget.set("max_limit") else { return Ok(()) };
    let amount = amount::parse(&most.number()?).map_err(|error| most.fault(error.to_string()))?;
    let amount = Some(Amount(amount).to_string());
    let period = budget.set("reset_duration").map(|field| field.text()).transpose()?.unwrap_or_default();
    match period {
        "1d" | "24h" => limits.spend_per_day = amount,
        "1M" | "30d" => limits.spend_per_month = amount,
        period if period.ends_with(['s', 'm', 'h']) => limits.spend_per_day = amount,
        _ => limits.spend_per_month = amount,
    }
    Ok(())
}

fn read_rates(rates: &Field<'_>, limits: &mut LimitDraft) -> FieldResult<()> {
    let rate = |most: &str, period: &str| -> FieldResult<Option<u64>> {
        let Some(most) = rates.set(most) else { return Ok(None) };
        let most = most.integer()?;
        let period = rates.set(period).map(|field| field.text()).transpose()?.unwrap_or("1m");
        Ok(match period {
            "1m" | "60s" => limit(most),
            "1h" | "60m" => limit(most.div_ceil(60)),
            _ => None,
        })
    };
    limits.requests_per_minute = rate("request_max_limit", "request_reset_duration")?;
    limits.tokens_per_minute = rate("token_max_limit", "token_reset_duration")?;
    Ok(())
}
