//! Guardrail of a provider of the kind `bedrock`.

use super::node::Value;
use super::routes::one_of;
use codec::provider::ProviderKind;
use codec::provider::guardrail::{Guardrail, GuardrailTrace, is_guardrail_id, is_guardrail_version};

/// Reads `guardrail`. `None` after a fault.
pub(super) fn read(value: &Value<'_>, kind: Option<ProviderKind>) -> Option<Box<Guardrail>> {
    if kind.is_some_and(|kind| kind != ProviderKind::Bedrock) {
        value
            .wrong("only providers of the kind \"bedrock\" have guardrails", "remove `guardrail`".to_owned());
    }
    let read = value.as_table(|table| {
        let id = table.require("id", "id = \"ff6ujrregl1q\"").and_then(|value| {
            value.parsed(|text| {
                let hint = || "write the identifier or the ARN of a guardrail".to_owned();
                is_guardrail_id(text).then(|| Box::from(text)).ok_or_else(hint)
            })
        });
        let version = table.require("version", "version = \"1\"").and_then(|value| {
            value.parsed(|text| {
                let hint = || "write a number, such as \"1\", or \"DRAFT\"".to_owned();
                is_guardrail_version(text).then(|| Box::from(text)).ok_or_else(hint)
            })
        });
        let trace = table.get("trace").map(|value| {
            value.parsed(|text| {
                let known = GuardrailTrace::ALL.map(GuardrailTrace::name);
                let trace = GuardrailTrace::ALL.into_iter().find(|trace| trace.name() == text);
                trace.ok_or_else(|| one_of(text, &known))
            })
        });
        let trace = trace.unwrap_or(Some(GuardrailTrace::default()));
        Some(Box::new(Guardrail { id: id?, version: version?, trace: trace? }))
    });
    read.flatten()
}
