//! conf.json of Portkey's gateway: integrations with their models, which clients name `@SLUG/MODEL`.

use super::{Import, providers};
use crate::import::document::{Field, FieldResult};
use crate::import::draft::{DraftCredential, TargetDraft, limit, printable};
use crate::import::litellm::endpoint::{self, Parameters};

/// Sections without a counterpart, with the reason.
const SECTIONS: &[(&str, &str)] = &[
    (
        "admin_token",
        "tokens of the admin API have files of their own: model-gateway admin (docs/admin-api.md)",
    ),
    ("plugins_enabled", "the gateway has no plugins"),
    ("credentials", "credentials of plugins: the gateway has no plugins"),
    ("cache", "the gateway does not cache responses; model.prompt_cache uses the caches of the providers"),
];

/// Limits of an integration, for each of its targets.
#[derive(Clone, Copy, Default)]
struct Rates {
    requests: Option<u64>,
    tokens: Option<u64>,
}

impl Import {
    /// Reads conf.json.
    ///
    /// # Errors
    /// Returns a fault for a field of the wrong type.
    pub(super) fn conf_json(&mut self, root: &Field<'_>) -> FieldResult<()> {
        for (section, reason) in SECTIONS {
            if let Some(field) = root.get(section) {
                if field.boolean() == Ok(false) {
                    self.report.changed(&field, "", "it is switched off");
                } else {
                    self.report.impossible(&field, reason);
                }
            }
        }
        let Some(list) = root.get("integrations") else { return Ok(()) };
        for field in list.elements()? {
            field.members()?;
            if let Err(reason) = self.integration(&field)? {
                self.report.impossible(&field, &reason);
            }
        }
        Ok(())
    }

    /// Reads an integration. Returns the reason if it has no counterpart.
    fn integration(&mut self, field: &Field<'_>) -> FieldResult<Result<(), String>> {
        let Some(provider) = field.set("provider") else {
            return Ok(Err("the integration has no provider".to_owned()));
        };
        let name = provider.text()?.trim();
        let Some(prefix) = providers::prefix_of(name) else {
            return Ok(Err("the provider is not known: add a [[provider]] by hand".to_owned()));
        };
        let slug = field.set("slug").map_or(Ok(name), |slug| slug.text())?.trim();
        let credentials = field.set("credentials");
        let secret = credentials
            .as_ref()
            .and_then(|credentials| credentials.set("apiKey").or_else(|| credentials.set("api_key")));
        let host = field.set("custom_host").or_else(|| credentials.as_ref()?.set("customHost"));
        let base = host.as_ref().map(|host| host.text()).transpose()?.map(str::to_owned);
        let given = |model: &str| Parameters {
            model: format!("{prefix}/{model}"),
            base: base.clone(),
            has_key: secret.is_some(),
            ..Parameters::default()
        };
        let rates = self.rates(field)?;
        let models = field.get("models").map(|models| models.elements()).transpose()?.unwrap_or_default();
        if models.is_empty() {
            let reason = "the integration lists no models: add a [[provider]], and a [[model]] for each model that clients use";
            return Ok(Err(reason.to_owned()));
        }
        let mut credential = None;
        for model in models {
            model.members()?;
            let Some(name) = model.set("slug") else { continue };
            let mut endpoint = match endpoint::resolve(&given(name.text()?.trim())) {
                Ok(endpoint) => endpoint,
                Err(reason) => {
                    self.report.impossible(&model, &reason);
                    continue;
                }
            };
            if credential.is_none() {
                credential = match self.secret(secret.as_ref(), slug, endpoint.env)? {
                    Ok(found) => found,
                    Err(reason) => return Ok(Err(reason.to_owned())),
                };
            }
            if credential.is_none()
                && endpoint.provider.kind.needs_credential()
                && endpoint.provider.aws.is_empty()
            {
                return Ok(Err("the integration has no credential that can be copied".to_owned()));
            }
            endpoint.provider.credential.clone_from(&credential);
            endpoint.provider.name = printable(slug);
            endpoint.provider.origin = format!("{} (line {})", field.path, field.node.line);
            let target = TargetDraft {
                requests_per_minute: rates.requests,
                tokens_per_minute: rates.tokens,
                ..TargetDraft::new(self.draft.provider(endpoint.provider), endpoint.model)
            };
            self.model(&model, &name, slug, target)?;
        }
        self.report.taken(&provider, "provider.kind");
        for (member, target) in [("slug", "provider.name, model.id"), ("custom_host", "provider.base_url")] {
            if let Some(field) = field.get(member) {
                self.report.taken(&field, target);
            }
        }
        if let Some(secret) = &secret {
            let note = "the key is in secrets.env, and not in the configuration";
            self.report.changed(secret, "provider.credential", note);
        }
        Ok(Ok(()))
    }

    /// Adds the model of an integration.
    fn model(
        &mut self,
        model: &Field<'_>,
        name: &Field<'_>,
        slug: &str,
        mut target: TargetDraft,
    ) -> FieldResult<()> {
        let id = format!("@{slug}/{}", name.text()?.trim());
        if id.len() > 256 {
            self.report.impossible(model, "the name of a model must have 1 to 256 bytes");
            return Ok(());
        }
        if let Some(status) = model.set("status") {
            if status.text()? == "active" {
                self.report.taken(&status, "model.targets.weight");
            } else {
                target.weight = 0;
                self.report.changed(&status, "model.targets.weight", "0: the target is not used");
            }
        }
        if let Some(prices) = model.get("pricing_config") {
            if matches!(prices.node.value, crate::import::document::SourceValue::Null) {
                self.report.changed(&prices, "", "the prices of the provider: docs/accounts.md");
            } else {
                self.report.impossible(&prices, "set model.price, or prices (docs/accounts.md)");
            }
        }
        let origin = format!("{} (line {})", model.path, model.node.line);
        if self.draft.target(&id, &origin, target) {
            self.report.taken(name, "model.id, model.targets.model");
        } else {
            self.report.impossible(name, "a model can have at most 64 targets");
        }
        Ok(())
    }

    /// Returns the credential of an integration, `None` without one, or the reason why it cannot be one.
    fn secret(
        &mut self,
        secret: Option<&Field<'_>>,
        slug: &str,
        env: Option<&'static str>,
    ) -> FieldResult<Result<Option<DraftCredential>, &'static str>> {
        let text = secret.map(|secret| secret.text()).transpose()?.map(str::trim);
        let stored = match text.filter(|text| !text.is_empty()) {
            Some(text) => self.draft.secrets.store(slug, text),
            None => match env {
                Some(env) => self.draft.secrets.reference(env),
                None => return Ok(Ok(None)),
            },
        };
        Ok(stored.map(|name| Some(DraftCredential::Env(name))))
    }

    /// Reads the rate limits of an integration.
    fn rates(&mut self, field: &Field<'_>) -> FieldResult<Rates> {
        let mut rates = Rates::default();
        let list = field.get("rate_limits").map(|list| list.elements()).transpose()?.unwrap_or_default();
        for field in list {
            field.members()?;
            let text = |key: &str| field.set(key).map(|field| field.text()).transpose();
            let (kind, unit) = (text("type")?.unwrap_or("requests"), text("unit")?.unwrap_or("rpm"));
            let Some(value) = field.set("value") else { continue };
            let value = value.integer()?;
            let minute = match unit {
                "rpm" => limit(value),
                "rph" => limit(value.div_ceil(60)),
                _ => {
                    let reason = "rates are of a minute, and this period is too long for that; limits.spend_per_day bounds a day";
                    self.report.impossible(&field, reason);
                    continue;
                }
            };
            let note =
                "of each model of the integration on its own, and of a minute: that part of the number";
            let target = if kind == "tokens" {
                rates.tokens = minute;
                "model.targets.tokens_per_minute"
            } else {
                rates.requests = minute;
                "model.targets.requests_per_minute"
            };
            self.report.changed(&field, target, note);
        }
        Ok(rates)
    }
}
