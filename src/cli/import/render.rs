//! The texts of the result: gateway.toml, routes.toml, keys.toml, and a script for the accounts of the ledger.

use std::fmt::Write as _;

use super::draft::{
    DraftCredential, ImportDraft, KeyDraft, LimitDraft, ModelDraft, ProviderDraft, TargetDraft, printable,
};
use routing::account::Losses;

/// Returns a text as a TOML string.
fn text(value: &str) -> String {
    toml_edit::Value::from(value).to_string()
}

fn texts(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| text(value)).collect();
    format!("[{}]", values.join(", "))
}

/// Adds a comment. Text of the source cannot leave it.
fn comment(out: &mut String, words: &str) {
    let words = printable(words);
    if !words.is_empty() {
        let _ = writeln!(out, "# {words}");
    }
}

fn duration(millis: u64) -> String {
    let unit = if millis.is_multiple_of(1000) { (millis / 1000, "s") } else { (millis, "ms") };
    format!("\"{}{}\"", unit.0, unit.1)
}

/// Adds `key = value` if there is a value.
fn line(out: &mut String, key: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        let _ = writeln!(out, "{key} = {value}");
    }
}

/// Returns an inline table of the values that there are, or `None` if there are none.
fn inline(values: &[(&str, Option<String>)]) -> Option<String> {
    let set = values.iter().filter_map(|(key, value)| Some(format!("{key} = {}", value.as_ref()?)));
    let set: Vec<String> = set.collect();
    (!set.is_empty()).then(|| format!("{{ {} }}", set.join(", ")))
}

/// Returns gateway.toml.
pub(super) fn gateway(draft: &ImportDraft, origin: &str) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        &format!("Imported from {origin}. Every other key has its default: docs/configuration.md."),
    );
    out.push_str("[server]\n");
    comment(
        &mut out,
        "The port of the source. \"0.0.0.0\" serves other machines too; use [[server.tls]] then.",
    );
    let _ = writeln!(out, "listen = [{}]", text(&draft.listen));
    if !draft.origins.is_empty() {
        let _ = write!(out, "\n[[server.cors]]\norigins = {}\n", texts(&draft.origins));
    }
    if draft.requests.is_some() || draft.body_mebibytes.is_some() {
        out.push_str("\n[limits]\n");
        line(&mut out, "requests", draft.requests);
        line(&mut out, "body", draft.body_mebibytes.map(|size| format!("\"{size}MiB\"")));
    }
    if let Some(level) = draft.log_level {
        let _ = write!(out, "\n[log]\nlevel = {}\n", text(level));
    }
    if !draft.accounts.is_empty() || draft.keys.iter().any(|key| key.account.is_some()) {
        out.push_str("\n[accounts]\n");
        comment(
            &mut out,
            "A request of an account for a model without a price is refused; free on purpose: price = { free = true }.",
        );
        out.push_str("unpriced = \"refuse\"\n");
    }
    out
}

/// Returns routes.toml.
pub(super) fn routes(draft: &ImportDraft, origin: &str) -> String {
    let mut out = String::new();
    comment(&mut out, &format!("Imported from {origin}. Credentials are in the environment: secrets.env."));
    if !draft.prices.is_empty() {
        out.push_str("prices = \"prices.toml\"\n");
    }
    for provider in &draft.providers {
        write_provider(&mut out, provider);
    }
    if draft.failures.is_some() || draft.cooldown.is_some() {
        out.push_str("\n[breaker]\n");
        line(&mut out, "failures", draft.failures);
        line(&mut out, "cooldown", draft.cooldown.map(duration));
        // The maximum of the cooldown must not be below it.
        line(&mut out, "longest", draft.cooldown.filter(|cooldown| *cooldown > 120_000).map(duration));
    }
    if let Some(attempts) = draft.attempts {
        let _ = write!(out, "\n[retry]\nattempts = {attempts}\n");
    }
    for model in &draft.models {
        write_model(&mut out, model);
    }
    for wildcard in &draft.wildcards {
        out.push('\n');
        let origin = &wildcard.origin;
        comment(
            &mut out,
            &format!("{origin}: one entry for each model that clients use, with its name in place of NAME."),
        );
        comment(&mut out, "[[model]]");
        let [id, targets] = wildcard.members("NAME");
        comment(&mut out, &id);
        comment(&mut out, &targets);
    }
    out
}

fn write_provider(out: &mut String, provider: &ProviderDraft) {
    out.push('\n');
    comment(out, &provider.origin);
    out.push_str("[[provider]]\n");
    let _ = writeln!(out, "name = {}", text(&provider.name));
    let _ = writeln!(out, "kind = {}", text(provider.kind.name()));
    line(out, "base_url", provider.base_url.as_deref().map(text));
    line(out, "dialect", provider.dialect.map(text));
    line(out, "api_version", provider.api_version.as_deref().map(text));
    let apis: Vec<String> = provider.apis.iter().map(|api| api.name().to_owned()).collect();
    line(out, "apis", (!apis.is_empty()).then(|| texts(&apis)));
    line(
        out,
        "credential",
        provider.credential.as_ref().map(|credential| match credential {
            DraftCredential::Env(name) => format!("{{ env = {} }}", text(name)),
            DraftCredential::File(path) => format!("{{ file = {} }}", text(path)),
        }),
    );
    let aws: Vec<(&str, Option<String>)> =
        provider.aws.iter().map(|(key, value)| (*key, Some(text(value)))).collect();
    line(out, "aws", inline(&aws));
    if !provider.headers.is_empty() {
        let headers =
            provider.headers.iter().map(|(name, value)| format!("{} = {}", text(name), text(value)));
        let _ = writeln!(out, "headers = {{ {} }}", headers.collect::<Vec<_>>().join(", "));
    }
    let times = &provider.timeouts;
    line(
        out,
        "timeouts",
        inline(&[("first_byte", times.first_byte.map(duration)), ("idle", times.idle.map(duration))]),
    );
}

fn write_model(out: &mut String, model: &ModelDraft) {
    out.push('\n');
    comment(out, &model.origin);
    out.push_str("[[model]]\n");
    let _ = writeln!(out, "id = {}", text(&model.id));
    line(out, "context_window", model.context_window);
    line(out, "max_output_tokens", model.max_output_tokens);
    out.push_str("targets = [\n");
    for target in &model.targets {
        write_target(out, target);
    }
    out.push_str("]\n");
    line(out, "policy", model.policy.map(text));
    if !model.fallback.is_empty() {
        let _ = writeln!(out, "fallback = {}", texts(&model.fallback));
    }
    let times = &model.timeouts;
    line(
        out,
        "timeouts",
        inline(&[("first_byte", times.first_byte.map(duration)), ("idle", times.idle.map(duration))]),
    );
    if model.also_context {
        out.push_str("retry = { also = [\"context_length\"] }\n");
    }
    let price: Vec<(&str, Option<String>)> =
        model.price.iter().map(|(key, amount)| (*key, Some(amount.clone()))).collect();
    line(out, "price", inline(&price));
}

fn write_target(out: &mut String, target: &TargetDraft) {
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let values = [
        ("provider", Some(text(&target.provider))),
        ("model", Some(text(&target.model))),
        ("family", target.family.as_deref().map(text)),
        ("weight", number(Some(target.weight).filter(|weight| *weight != 1))),
        ("tier", number(Some(u64::from(target.tier)).filter(|tier| *tier != 0))),
        ("concurrent", number(target.concurrent)),
        ("requests_per_minute", number(target.requests_per_minute)),
        ("tokens_per_minute", number(target.tokens_per_minute)),
        ("price", target.price.as_deref().map(text)),
    ];
    let _ = writeln!(out, "    {},", inline(&values).unwrap_or_default());
}

/// Returns prices.toml, or `None` if every target has the price of its model.
pub(super) fn prices(draft: &ImportDraft, origin: &str) -> Option<String> {
    if draft.prices.is_empty() {
        return None;
    }
    let mut out = String::new();
    comment(
        &mut out,
        &format!("Imported from {origin}: prices of targets that are not those of their models."),
    );
    for (name, price) in &draft.prices {
        let _ = write!(out, "\n[[price]]\nmodels = [{}]\n", text(name));
        for (key, amount) in price {
            let _ = writeln!(out, "{key} = {amount}");
        }
    }
    Some(out)
}

/// Returns keys.toml.
pub(super) fn keys(draft: &ImportDraft, origin: &str) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        &format!("Imported from {origin}. The file has hashes: clients go on with the keys that they have."),
    );
    if draft.keys.is_empty() {
        comment(
            &mut out,
            "No key was imported. Create one: model-gateway keys create NAME --conf gateway.toml",
        );
    }
    for key in &draft.keys {
        write_key(&mut out, key);
    }
    for account in draft.accounts.iter().filter(|account| account.limits != LimitDraft::default()) {
        let _ = write!(out, "\n[[account]]\nname = {}\n", text(&account.name));
        write_limits(&mut out, &account.limits);
    }
    out
}

fn write_key(out: &mut String, key: &KeyDraft) {
    out.push('\n');
    comment(out, &key.origin);
    out.push_str("[[key]]\n");
    let _ = writeln!(out, "name = {}", text(&key.name));
    let _ = writeln!(out, "sha256 = \"{}\"", key.hash.to_hex());
    line(out, "enabled", (!key.enabled).then_some(false));
    line(out, "expires", key.expires.as_ref());
    line(out, "account", key.account.as_deref().map(text));
    line(out, "models", (!key.models.is_empty()).then(|| texts(&key.models)));
    line(out, "networks", (!key.networks.is_empty()).then(|| texts(&key.networks)));
    line(out, "losses", (key.losses != Losses::default()).then(|| text(key.losses.name())));
    // All sources answer requests for images as OpenAI does.
    line(out, "images", Some(text("plain")));
    write_limits(out, &key.limits);
}

fn write_limits(out: &mut String, limits: &LimitDraft) {
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let values = [
        ("requests_per_minute", number(limits.requests_per_minute)),
        ("tokens_per_minute", number(limits.tokens_per_minute)),
        ("concurrent", number(limits.concurrent)),
        ("spend_per_day", limits.spend_per_day.clone()),
        ("spend_per_month", limits.spend_per_month.clone()),
    ];
    line(out, "limits", inline(&values));
}

/// Returns the script that creates the accounts and credits their balances, or `None` if there are none. It can be
/// run again: a credit with the same reference counts once.
pub(super) fn accounts(draft: &ImportDraft, origin: &str) -> Option<String> {
    if draft.accounts.is_empty() {
        return None;
    }
    let mut out = "#!/bin/sh\n".to_owned();
    comment(
        &mut out,
        &format!(
            "Accounts of {origin} with their balances. Keys of an account that does not exist are refused."
        ),
    );
    comment(&mut out, "Run it once; a second run has no further effect.");
    out.push_str(
        "set -eu\nconf=\"$(dirname -- \"$0\")/gateway.toml\"\ngateway=\"${MODEL_GATEWAY:-model-gateway}\"\n",
    );
    out.push_str(
        "account() {\n    \"$gateway\" accounts show --conf \"$conf\" -- \"$1\" >/dev/null 2>&1 ||\n        \
         \"$gateway\" accounts create --conf \"$conf\" -- \"$1\"\n    \
         [ \"$2\" = 0 ] || \"$gateway\" accounts credit --conf \"$conf\" --reference \"$3\" --note import -- \"$1\" \"$2\"\n}\n",
    );
    for account in &draft.accounts {
        let (name, reference) = (shell(&account.name), shell(&account.reference));
        let _ = writeln!(out, "account {name} {} {reference}", account.credit);
        if !account.enabled {
            let _ = writeln!(out, "\"$gateway\" accounts disable --conf \"$conf\" -- {name}");
        }
    }
    Some(out)
}

/// Returns a word for a shell.
fn shell(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
