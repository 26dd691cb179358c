//! Writer of `usageMetadata`. The reader is in [`watch`](super::watch).

use bytes::BytesMut;

use crate::canonical::Usage;
use crate::wire::tier_words::TierWords;
use json::Writer;

/// Writes `"usageMetadata":{...}` as a member; nothing if no count is known. Reasoning tokens are not part of
/// `candidatesTokenCount`. The total is computed, not copied.
pub(super) fn write(usage: &Usage, json: &mut Writer<'_, BytesMut>) {
    if !usage.is_known() {
        return;
    }
    json.key("usageMetadata").begin_object();
    if let Some(input) = usage.input {
        json.key("promptTokenCount").number(input);
    }
    if let Some(cached) = usage.cached {
        json.key("cachedContentTokenCount").number(cached);
    }
    if let Some(output) = usage.output {
        json.key("candidatesTokenCount").number(output.saturating_sub(usage.reasoning.unwrap_or(0)));
    }
    if let Some(reasoning) = usage.reasoning {
        json.key("thoughtsTokenCount").number(reasoning);
    }
    let total = usage.input.unwrap_or(0).saturating_add(usage.output.unwrap_or(0));
    json.key("totalTokenCount").number(total);
    if let Some(word) = usage.tier.and_then(|tier| TierWords::Generate.word(tier)) {
        json.key("serviceTier").string(word);
    }
    let input = usage.input.unwrap_or(0);
    details(json, "promptTokensDetails", input, [("AUDIO", usage.audio_input), ("IMAGE", None)]);
    let output = usage.output.unwrap_or(0).saturating_sub(usage.reasoning.unwrap_or(0));
    let parts = [("AUDIO", usage.audio_output), ("IMAGE", usage.image_output)];
    details(json, "candidatesTokensDetails", output, parts);
    json.end_object();
}

fn details(json: &mut Writer<'_, BytesMut>, name: &str, total: u64, parts: [(&str, Option<u64>); 2]) {
    let known = parts.iter().filter_map(|part| part.1).fold(0, u64::saturating_add);
    if known == 0 {
        return;
    }
    json.key(name).begin_array();
    let text = ("TEXT", Some(total.saturating_sub(known)));
    for (modality, count) in [text].into_iter().chain(parts) {
        if let Some(count) = count.filter(|count| *count > 0) {
            json.begin_object().key("modality").string(modality);
            json.key("tokenCount").number(count).end_object();
        }
    }
    json.end_array();
}
