//! Virtual keys of Bifrost, with their budgets and rate limits.

use std::collections::BTreeMap;

use super::Import;
use crate::import::budget::{AMPLE_CREDIT, BudgetLimits, BudgetPeriod, tighter};
use crate::import::document::{Field, FieldResult};
use crate::import::draft::{AccountDraft, KeyDraft, LimitDraft, NO_MODELS, cut, limit};
use routing::account::KeyHash;
use routing::account::amount::{self, Amount};

/// Team or customer, which is an account once a key belongs to it.
struct Group {
    name: String,
    limits: LimitDraft,
    /// Name of its account, if that exists.
    account: Option<String>,
}

/// Budgets and rate limits by their ids, and the accounts that have them.
#[derive(Default)]
struct Governance {
    budgets: BTreeMap<String, LimitDraft>,
    rates: BTreeMap<String, LimitDraft>,
    teams: BTreeMap<String, Group>,
    customers: BTreeMap<String, Group>,
}

impl Governance {
    /// Returns the limits that an entry names by the ids of its budget and its rate limit.
    fn limits_of(&self, entry: &Field<'_>) -> FieldResult<LimitDraft> {
        let mut limits = LimitDraft::default();
        for (member, known) in [("budget_id", &self.budgets), ("rate_limit_id", &self.rates)] {
            let id = entry.set(member).map(|field| field.text()).transpose()?;
            if let Some(named) = id.and_then(|id| known.get(id)) {
                limits = tighter(&limits, named);
            }
        }
        Ok(limits)
    }
}

impl Import<'_> {
    /// Reads the virtual keys, with their budgets and rate limits, and the teams and customers that they belong to.
    pub(super) fn governance(&mut self, governance: &Field<'_>) -> FieldResult<()> {
        governance.members()?;
        for (section, reason) in [
            (
                "auth_config",
                "people sign in with a token of admin.toml, or at an issuer of identities (docs/admin-api.md)",
            ),
            ("routing_rules", "a model's targets do not depend on rules"),
            ("model_configs", "limits are of keys, accounts and targets"),
        ] {
            if let Some(field) = governance.get(section) {
                self.report.impossible(&field, reason);
            }
        }
        let mut read = Governance::default();
        self.budgets(governance, &mut read.budgets)?;
        self.rates(governance, &mut read.rates)?;
        read.customers = self.groups(governance, "customers", &read)?;
        read.teams = self.groups(governance, "teams", &read)?;
        let Some(list) = governance.get("virtual_keys") else { return Ok(()) };
        for field in list.elements()? {
            self.virtual_key(&field, &mut read)?;
        }
        Ok(())
    }

    /// Reads the budgets by their ids.
    fn budgets(
        &mut self,
        governance: &Field<'_>,
        found: &mut BTreeMap<String, LimitDraft>,
    ) -> FieldResult<()> {
        let list = governance.get("budgets").map(|list| list.elements()).transpose()?;
        for field in list.unwrap_or_default() {
            let mut limits = LimitDraft::default();
            self.named(&field)?;
            self.budget(&field, &mut limits)?;
            if let Some(id) = field.set("id") {
                found.insert(id.text()?.to_owned(), limits);
            }
        }
        Ok(())
    }

    /// Reads the rate limits by their ids.
    fn rates(&mut self, governance: &Field<'_>, found: &mut BTreeMap<String, LimitDraft>) -> FieldResult<()> {
        let list = governance.get("rate_limits").map(|list| list.elements()).transpose()?;
        for field in list.unwrap_or_default() {
            self.named(&field)?;
            let limits = LimitDraft {
                requests_per_minute: self.rate(&field, ["request_max_limit", "request_reset_duration"])?,
                tokens_per_minute: self.rate(&field, ["token_max_limit", "token_reset_duration"])?,
                ..LimitDraft::default()
            };
            if let Some(id) = field.set("id") {
                found.insert(id.text()?.to_owned(), limits);
            }
        }
        Ok(())
    }

    /// Reports a budget or a rate limit, which others name.
    fn named(&mut self, field: &Field<'_>) -> FieldResult<()> {
        field.members()?;
        let note = "of the virtual keys, teams and customers that name it";
        self.report.changed(field, "key.limits, account.limits", note);
        Ok(())
    }

    /// Reads the teams or the customers.
    fn groups(
        &mut self,
        governance: &Field<'_>,
        section: &str,
        read: &Governance,
    ) -> FieldResult<BTreeMap<String, Group>> {
        let mut found = BTreeMap::new();
        let Some(list) = governance.get(section) else { return Ok(found) };
        for field in list.elements()? {
            field.members()?;
            let Some(id) = field.set("id") else {
                self.report.impossible(&field, "it has no id, so no key belongs to it");
                continue;
            };
            let name = field.set("name").map_or(id.text(), |name| name.text())?.to_owned();
            let mut limits = read.limits_of(&field)?;
            let customer = field.set("customer_id").map(|field| field.text()).transpose()?;
            let mut note = "an account, with the budget and the rate limit as its limits";
            if let Some(customer) = customer.and_then(|id| read.customers.get(id)) {
                limits = tighter(&limits, &customer.limits);
                note = "an account; accounts are flat, so the limits of the customer apply to each of its teams on its own";
            }
            self.report.changed(&field, "key.account, account.limits", note);
            found.insert(id.text()?.to_owned(), Group { name, limits, account: None });
        }
        Ok(found)
    }

    fn virtual_key(&mut self, field: &Field<'_>, read: &mut Governance) -> FieldResult<()> {
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
        if self.draft.has_key(&key.hash) {
            self.report.impossible(field, "another key has the same value");
            return Ok(());
        }
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
        key.models = self.permissions(field)?;
        key.limits = read.limits_of(field)?;
        for member in ["budget_id", "rate_limit_id"] {
            if let Some(field) = field.get(member) {
                self.report.changed(&field, "key.limits", "see the limits themselves");
            }
        }
        key.account = self.account_of(field, read)?;
        if let Err(other) = self.draft.key(key) {
            self.report.impossible(field, &format!("the same key as {other:?}"));
        }
        Ok(())
    }

    /// Returns the account of the team or the customer that a key belongs to. `None` if it belongs to neither.
    fn account_of(&mut self, key: &Field<'_>, read: &mut Governance) -> FieldResult<Option<String>> {
        let mut account = None;
        for (member, groups, slug) in
            [("team_id", &mut read.teams, "team"), ("customer_id", &mut read.customers, "customer")]
        {
            let Some(field) = key.set(member) else { continue };
            let id = field.text()?;
            let Some(group) = groups.get_mut(id) else {
                self.report.impossible(&field, "the file has none of this id: the key has no account");
                continue;
            };
            if account.is_some() {
                self.report.changed(&field, "", "the account of the key is that of its team");
                continue;
            }
            self.report.taken(&field, "key.account");
            if group.account.is_none() {
                self.report.remark(format!(
                    "Bifrost has no balances: the accounts of teams and customers are credited with {AMPLE_CREDIT}, which does not limit them"
                ));
                let reference = format!("import-bifrost-{slug}-{}", cut(&KeyHash::of(id).to_hex(), 32));
                let (name, limits) = (group.name.clone(), group.limits.clone());
                let (credit, enabled) = (AMPLE_CREDIT.to_owned(), true);
                let name = self.draft.account(AccountDraft { name, credit, reference, enabled, limits });
                group.account = Some(name);
            }
            account.clone_from(&group.account);
        }
        Ok(account)
    }

    /// Returns the models that a key may use: an empty list of Bifrost is none, `*` is all.
    fn permissions(&mut self, key: &Field<'_>) -> FieldResult<Vec<String>> {
        let mut models = Vec::new();
        let configs = key.get("provider_configs").map(|configs| configs.elements()).transpose()?;
        for config in configs.unwrap_or_default() {
            config.members()?;
            let Some(provider) = config.set("provider") else { continue };
            let name = provider.text()?;
            let allowed = config.get("allowed_models");
            let list = allowed.as_ref().map(|field| field.texts()).transpose()?.unwrap_or_default();
            if list.is_empty() {
                let note = "no model: Bifrost before 1.5 permitted all, which is \"*\" now; add them to key.models if the key may use them";
                self.report.changed(&provider, "key.models", note);
                if let Some(allowed) = &allowed {
                    self.report.changed(allowed, "key.models", note);
                }
            } else {
                self.report.taken(&provider, "key.models");
            }
            models.extend(list.iter().map(|model| format!("{name}/{model}")));
            if let Some(allowed) = allowed.filter(|_| !list.is_empty()) {
                self.report.taken(&allowed, "key.models");
            }
            for member in ["key_ids", "keys", "weight", "id", "budget_id", "rate_limit_id"] {
                if let Some(field) = config.get(member) {
                    let reason = "the targets of a model are the same for all keys; a model of its own for a key can have others";
                    self.report.impossible(&field, reason);
                }
            }
        }
        if models.is_empty() {
            models.push(NO_MODELS.to_owned());
            self.report.remark(format!(
                "the key of {} may use no model: it lists none, which Bifrost before 1.5 took for all; set key.models",
                key.path
            ));
        }
        Ok(models)
    }

    /// Reads a budget.
    fn budget(&mut self, budget: &Field<'_>, limits: &mut LimitDraft) -> FieldResult<()> {
        let Some(most) = budget.set("max_limit") else { return Ok(()) };
        let amount = amount::parse(&most.number()?).map_err(|error| most.fault(error.to_string()))?;
        let amount = Amount(amount).to_string();
        let Some(duration) = budget.set("reset_duration") else {
            let note = "without a period: each month has at most the amount; an account with a balance is spent once";
            self.report.changed(&most, "key.limits.spend_per_month", note);
            limits.spend_per_month = Some(amount);
            return Ok(());
        };
        let period = BudgetPeriod::parse(duration.text()?);
        match period.and_then(|period| BudgetLimits::new(&amount, period)) {
            Some(budget) => {
                budget.apply(limits);
                if budget.note.is_empty() {
                    self.report.changed(&duration, "key.limits, account.limits", "of the calendar, UTC");
                } else {
                    self.report.changed(&duration, "key.limits, account.limits", budget.note);
                }
            }
            None => {
                let note = "not a duration that the importer knows: each month has at most the amount";
                self.report.changed(&duration, "key.limits, account.limits", note);
                limits.spend_per_month = Some(amount);
            }
        }
        Ok(())
    }

    /// Reads a number of requests or tokens in a period, as one for each minute. `None` if there is none, or its period is
    /// too long for that.
    fn rate(&mut self, rates: &Field<'_>, [most, period]: [&str; 2]) -> FieldResult<Option<u64>> {
        let Some(field) = rates.set(most) else { return Ok(None) };
        let number = field.integer()?;
        let period = rates.set(period);
        let text = period.as_ref().map(|field| field.text()).transpose()?.unwrap_or("1m");
        let place = period.as_ref().unwrap_or(&field);
        Ok(match BudgetPeriod::parse(text) {
            Some(BudgetPeriod::Seconds(60)) => limit(number),
            Some(BudgetPeriod::Seconds(seconds)) if seconds <= 3_600 => {
                let note = "limits are of a minute: that part of the number";
                self.report.changed(place, "limits.requests_per_minute, limits.tokens_per_minute", note);
                limit(number.saturating_mul(60).div_ceil(seconds))
            }
            _ => {
                let reason = "rates are of a minute, and this period is too long for that; limits.spend_per_day bounds a day";
                self.report.impossible(place, reason);
                None
            }
        })
    }
}
