//! Table of the body members of Converse requests.

use super::features::{look_at_id, look_at_seal};
use super::fields::{ARRAY, CONTENT, Fields, IS_ARRAY, IS_OBJECT, NOTHING, bits, name, value};
use super::ranges::RangeRule;
use json::WantedMembers;

static CONVERSE_SOUGHT: WantedMembers = WantedMembers::new(
    &["modelId", "stream", "toolConfig", "messages", "inferenceConfig", "system", "serviceTier"],
    &[
        name("oneOf", 7, 7),
        name("anyOf", 7, 7),
        name("allOf", 7, 7),
        name("image", 5, 8),
        name("cachePoint", 3, 9),
        name("reasoningText", 6, 6),
    ],
)
.with_values(&[
    value("signature", 7, look_at_seal),
    value("redactedContent", 6, look_at_seal),
    value("toolUseId", 6, look_at_id),
])
.with_tails();
pub(super) static CONVERSE: Fields = Fields {
    sought: &CONVERSE_SOUGHT,
    rules: &[
        (converse::INFERENCE_CONFIG, IS_OBJECT),
        (converse::INFERENCE_CONFIG, RangeRule::InferenceConfig),
        (converse::TOOL_CONFIG, IS_OBJECT),
        (converse::SYSTEM, IS_ARRAY),
        (CONTENT, RangeRule::NotEmpty),
    ],
    required: &[(CONTENT, ARRAY)],
    caps: 1 << converse::INFERENCE_CONFIG,
    tiers: bits(&[6]),
    ..NOTHING
};
/// Indexes of members of a Converse request.
pub(super) mod converse {
    pub(in crate::wire) const TOOL_CONFIG: usize = crate::wire::fields::EXTRA;
    pub(in crate::wire) const INFERENCE_CONFIG: usize = 4;
    pub(in crate::wire) const SYSTEM: usize = 5;
    /// Unions at the roots of the schemas of tools.
    pub(in crate::wire) const UNION: u32 = 0b111;
    /// An image in a message or in the result of a call.
    pub(in crate::wire) const IMAGE: u32 = 0b1000;
    /// A cache mark.
    pub(in crate::wire) const CACHE_POINT: u32 = 1 << 4;
    /// Reasoning with its text.
    pub(in crate::wire) const REASONING_TEXT: u32 = 1 << 5;
}
