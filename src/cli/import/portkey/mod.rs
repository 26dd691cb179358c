//! Portkey: a config object that requests name or carry, or the conf.json of its gateway.
//!
//! A config is a tree of strategies with targets as leaves, which becomes one model: [`tree`] makes tiers of it, and
//! [`providers`] says where a target leads to. The integrations of conf.json are in [`integrations`].
//!
//! Source: <https://portkey.ai/docs/api-reference/inference-api/config-object> and the schemas of
//! <https://github.com/Portkey-AI/gateway>, November 2026.

mod integrations;
mod providers;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;

use super::document::{Field, FieldResult, SourceNode, SourceValue};
use super::draft::{ImportDraft, TargetDraft};
use super::file::read_text;
use super::litellm::whole_weights;
use super::report::FieldReport;
use super::{ImportError, Imported, MAX_CONFIG, json};
use tree::Leaf;

/// Address of Portkey's gateway.
const LISTEN: &str = "127.0.0.1:8787";
/// Most targets of a request in the configuration.
const MAX_ATTEMPTS: u64 = 16;

/// Members of a config or a target without a counterpart, with the reason.
const MEMBERS: &[(&str, &str)] = &[
    ("cache", "the gateway does not cache responses; model.prompt_cache uses the caches of the providers"),
    (
        "forward_headers",
        "headers of clients are not forwarded; provider.headers are the same for all requests",
    ),
    ("before_request_hooks", GUARDRAILS),
    ("after_request_hooks", GUARDRAILS),
    ("input_guardrails", GUARDRAILS),
    ("output_guardrails", GUARDRAILS),
    ("input_mutators", GUARDRAILS),
    ("output_mutators", GUARDRAILS),
    ("prompt_id", "the gateway has no prompts of its own"),
    ("strict_open_ai_compliance", "responses have what their format has"),
    ("openai_organization", "set provider.headers: { openai-organization = \"...\" }"),
    ("openai_project", "set provider.headers: { openai-project = \"...\" }"),
    ("anthropic_beta", "clients send this header themselves"),
    ("anthropic_version", "the gateway sends the version that it was made for"),
];
const GUARDRAILS: &str = "the gateway has no guardrails";

/// Imports a config or a conf.json. `name` is the id of the model; without it, that of the file.
///
/// # Errors
/// Returns an error if the file cannot be read, or has a field of the wrong type.
pub(super) fn import(file: &Path, name: Option<&str>) -> Result<Imported, ImportError> {
    let text = read_text(file, MAX_CONFIG)?;
    let fault = |fault| ImportError::Field { path: file.to_owned(), fault };
    let document = json::read(&text).map_err(fault)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let id = ModelName { text: name.unwrap_or(&stem), is_given: name.is_some() };
    read(&document, &id).map_err(fault)
}

/// Id of the model.
pub(super) struct ModelName<'n> {
    pub(super) text: &'n str,
    /// Whether it is the name that clients send, and not that of the file.
    pub(super) is_given: bool,
}

/// State of an import.
struct Import {
    draft: ImportDraft,
    report: FieldReport,
}

/// Reads a config or a conf.json.
///
/// # Errors
/// Returns a fault for a field of the wrong type.
pub(super) fn read(document: &SourceNode, name: &ModelName<'_>) -> FieldResult<Imported> {
    let root = Field::root(document);
    if !matches!(document.value, SourceValue::Map(_)) {
        return Err(root
            .fault("not a config of Portkey: expected an object with targets, a provider or integrations"));
    }
    let mut import = Import { draft: ImportDraft::default(), report: FieldReport::default() };
    import.draft.listen = LISTEN.to_owned();
    for key in ["$schema", "$comment"] {
        if let Some(field) = root.get(key) {
            import.report.changed(&field, "", "a remark for people and editors");
        }
    }
    if root.get("integrations").is_some() || root.get("plugins_enabled").is_some() {
        import.conf_json(&root)?;
    } else {
        import.config(&root, name)?;
    }
    for remark in import.draft.settle_models() {
        import.report.remark(remark);
    }
    import.report.complete(document);
    Ok(Imported { draft: import.draft, report: import.report })
}

impl Import {
    /// Makes a model of a config.
    fn config(&mut self, root: &Field<'_>, name: &ModelName<'_>) -> FieldResult<()> {
        let id = name.text.trim();
        if id.is_empty() || id.len() > 256 {
            return Err(root.fault("the name of the model must have 1 to 256 bytes: --name"));
        }
        let leaves = self.leaves(root)?;
        let mut resolved = Vec::new();
        for leaf in &leaves {
            if let Some((provider, model)) = self.target(leaf, name)? {
                resolved.push((leaf, provider, model));
            }
        }
        let leaves: Vec<&Leaf<'_>> = resolved.iter().map(|(leaf, ..)| *leaf).collect();
        let weights = weights(&leaves);
        let mut retries = None;
        for ((leaf, provider, model), weight) in resolved.into_iter().zip(weights) {
            let origin = format!("{} (line {})", leaf.shown(), leaf.field.node.line);
            let provider = self.draft.provider(provider);
            let tier = u8::try_from(leaf.tier.min(15)).unwrap_or(15);
            let target = TargetDraft { weight, tier, ..TargetDraft::new(provider, model) };
            retries = retries.max(leaf.retries);
            if !self.draft.target(id, &origin, target) {
                self.report.impossible(&leaf.field, "a model can have at most 64 targets");
            }
        }
        let targets = self.draft.model(id).map_or(0, |model| model.targets.len() as u64);
        // Three are tried by default.
        if retries.is_some() || targets > 3 {
            let attempts = retries.unwrap_or(0).saturating_add(1).max(targets);
            self.draft.attempts = Some(attempts.clamp(1, MAX_ATTEMPTS));
        }
        Ok(())
    }

    /// Returns where a target leads to, with the name of its model there. `None` if it is reported as impossible.
    fn target(
        &mut self,
        leaf: &Leaf<'_>,
        name: &ModelName<'_>,
    ) -> FieldResult<Option<(super::draft::ProviderDraft, String)>> {
        let field = &leaf.field;
        for (member, reason) in MEMBERS {
            if let Some(field) = field.get(member) {
                self.report.impossible(&field, reason);
            }
        }
        for member in ["name", "id", "metadata", "trace_id"] {
            if let Some(field) = field.get(member) {
                self.report.changed(&field, "", "targets are named by their provider and model");
            }
        }
        let model = match &leaf.model {
            Some(model) => model.text()?.trim().to_owned(),
            None if name.is_given => name.text.trim().to_owned(),
            None if providers::deployment(field).is_some() => String::new(),
            None => {
                let reason = "the target has no override_params.model and serves the model that a request names: give that name with --name";
                self.report.impossible(field, reason);
                return Ok(None);
            }
        };
        let mut endpoint = match providers::resolve(self, leaf, &model)? {
            Ok(endpoint) => endpoint,
            Err(reason) => {
                self.report.impossible(field, &reason);
                return Ok(None);
            }
        };
        if let Some(timeout) = &leaf.timeout {
            endpoint.provider.timeouts.first_byte = Some(timeout.integer()?.max(1));
            let note = "the time until the response begins";
            // Several targets may have it from the strategy around them.
            if !self.report.has(timeout) {
                self.report.changed(timeout, "provider.timeouts.first_byte", note);
            }
        }
        if let Err(reason) = providers::credential(self, field, &mut endpoint)? {
            self.report.impossible(field, &reason);
            return Ok(None);
        }
        if let Some(model) = leaf.model.as_ref().filter(|model| !self.report.has(model)) {
            self.report.taken(model, "model.targets.model");
        }
        Ok(Some((endpoint.provider, endpoint.model)))
    }
}

/// Returns the weights of targets, which count within a tier: 1 for one that is alone in its own.
fn weights(leaves: &[&Leaf<'_>]) -> Vec<u64> {
    let mut tiers: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, leaf) in leaves.iter().enumerate() {
        tiers.entry(leaf.tier).or_default().push((at, leaf.weight));
    }
    let mut weights = vec![1; leaves.len()];
    for tier in tiers.values().filter(|tier| tier.len() > 1) {
        let parts: Vec<Option<f64>> = tier.iter().map(|(_, weight)| Some(*weight)).collect();
        for ((at, _), weight) in tier.iter().zip(whole_weights(&parts)) {
            if let Some(of_target) = weights.get_mut(*at) {
                *of_target = weight;
            }
        }
    }
    weights
}
