//! Tables of the body members that matter to each API before a request is routed.

use super::Api;
use super::converse_fields::CONVERSE;
pub(super) use super::converse_fields::converse;
use super::features::{look_at_id, look_at_item_id, look_at_seal};
use super::plain_fields::{BATCH_EMBED, EMBED_CONTENT, EMBEDDINGS, IMAGES, PREDICT, RERANK};
use super::ranges::{REASONING, RangeRule, WEB_SEARCH};
use json::{ValueKind, ValueLook, WantedMembers, WantedValue, WantedWord};

/// Members of the outermost object of a body that matter to one API. Sets of members are bit masks of their indexes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    /// Member names, in the order of the indexes below, and words whose presence is noted.
    pub(super) sought: &'static WantedMembers,
    /// Rules for values of members.
    pub(super) rules: &'static [(usize, RangeRule)],
    /// Members that may need a rewrite because of a spelling that only this gateway accepts (`super::spelling`), one
    /// bit each.
    pub(super) spelled: u32,
    /// Required members, each with the JSON kinds that it may have.
    pub(super) required: &'static [(usize, &'static [ValueKind])],
    /// Members that limit the output or contain such a limit, one bit each. The largest value counts.
    pub(super) caps: u32,
    /// Output limits in spellings of other APIs, which some providers accept as well.
    pub(super) loose: u32,
    /// Members that set the number of responses.
    pub(super) counts: u32,
    /// Members that name fallback models.
    pub(super) models: u32,
    /// Members that refer to a response or conversation that the provider has stored.
    pub(super) stored_refs: u32,
    /// Members that ask for a service tier or a region, one bit each.
    pub(super) tiers: u32,
    /// Index of the member that identifies the conversation or its user. `None` if the API has no such member.
    pub(super) label: Option<usize>,
}

impl Fields {
    /// Returns the name of the member with this index.
    pub(super) fn name(&self, index: usize) -> &'static str {
        self.sought.names().get(index).copied().unwrap_or_default()
    }
}

/// Returns the bit mask of these indexes.
#[allow(clippy::indexing_slicing, reason = "evaluated when the gateway is built")]
pub(super) const fn bits(indexes: &[usize]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < indexes.len() {
        bits |= 1 << indexes[at];
        at += 1;
    }
    bits
}

/// Index of `model` in every list of names below.
pub(super) const MODEL: usize = 0;
/// Index of `stream` in every list of names below.
pub(super) const STREAM: usize = 1;
/// Index of one further member, different for each API: `stream_options`, `prompt`, `max_tokens`, `query`,
/// `generateContentRequest` or another one.
pub(super) const EXTRA: usize = 2;
/// Index of the content: messages, input, documents, contents or prompt.
pub(super) const CONTENT: usize = 3;
/// Index of the other spelling of [`EXTRA`], only for the generate API.
pub(super) const EXTRA_SNAKE: usize = 4;

/// Index of `store` in the responses API: whether the provider may store the response.
pub(super) const STORE: usize = 22;

pub(super) const STRING: &[ValueKind] = &[ValueKind::String];
pub(super) const ARRAY: &[ValueKind] = &[ValueKind::Array];
const NUMBER: &[ValueKind] = &[ValueKind::Number];
pub(super) const TEXT_OR_ARRAY: &[ValueKind] = &[ValueKind::String, ValueKind::Array];
pub(super) const OBJECT: &[ValueKind] = &[ValueKind::Object];

/// Rules for the kind of a value.
pub(super) const IS_ARRAY: RangeRule = RangeRule::Kinds(ARRAY, "an array");
pub(super) const IS_OBJECT: RangeRule = RangeRule::Kinds(OBJECT, "an object");
const IS_TEXT_OR_ARRAY: RangeRule = RangeRule::Kinds(TEXT_OR_ARRAY, "a string or an array");
/// An array of objects, or one object alone, which Google's API takes for an array of one.
const ARE_OBJECTS: RangeRule =
    RangeRule::Kinds(&[ValueKind::Array, ValueKind::Object], "an array of objects");

/// Empty table, as the base of the others.
pub(super) const NOTHING: Fields = Fields {
    sought: &const { WantedMembers::new(&[], &[]) },
    rules: &[],
    spelled: 0,
    required: &[],
    caps: 0,
    loose: 0,
    counts: 0,
    models: 0,
    stored_refs: 0,
    tiers: 0,
    label: None,
};
/// Returns the word that is a member's name within this range of depths.
pub(super) const fn name(text: &'static str, least: usize, most: usize) -> WantedWord {
    WantedWord { text, is_name: true, depth: (least, most) }
}

/// Returns the member at this depth whose value is looked at.
pub(super) const fn value(name: &'static str, depth: usize, look: ValueLook) -> WantedValue {
    WantedValue { name, depth: (depth, depth), look }
}

static CHAT_SOUGHT: WantedMembers = WantedMembers::new(
    &[
        "model",
        "stream",
        "stream_options",
        "messages",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "prompt_cache_key",
        "temperature",
        "top_p",
        "web_search_options",
        "parameters",
        "models",
        "fallbacks",
        "fallback_models",
        "providerOptions",
        "best_of",
        "max_output_tokens",
        "max_new_tokens",
        "tools",
        "reasoning",
        "reasoning_effort",
        "thinking",
        "enable_thinking",
        "thinking_budget",
        "include_reasoning",
        "service_tier",
    ],
    &[
        name("reasoning_details", 3, 3),
        name("thinking_blocks", 3, 3),
        name("oneOf", 5, 5),
        name("anyOf", 5, 5),
        name("allOf", 5, 5),
        name("image_url", 5, 5),
        name("reasoning_content", 3, 3),
        name("reasoning", 3, 3),
        name("provider_specific_fields", 3, 6),
        name("extra_content", 3, 5),
    ],
)
.with_values(&[
    value("tool_call_id", 3, look_at_id),
    value("id", 5, look_at_id),
    WantedValue { name: "thought_signature", depth: (5, 7), look: look_at_seal },
]);
/// Indexes of members of a chat request.
pub(super) mod chat {
    pub(in crate::wire) const MAX_COMPLETION_TOKENS: usize = 4;
    pub(in crate::wire) const MAX_TOKENS: usize = 5;
    pub(in crate::wire) const TEMPERATURE: usize = 8;
    pub(in crate::wire) const TOP_P: usize = 9;
    pub(in crate::wire) const WEB_SEARCH_OPTIONS: usize = 10;
    pub(in crate::wire) const PARAMETERS: usize = 11;
    pub(in crate::wire) const TOOLS: usize = 19;
    pub(in crate::wire) const REASONING: usize = 20;
    pub(in crate::wire) const REASONING_EFFORT: usize = 21;
    /// Members that other providers, or the gateway's own specification, have added to OpenAI's.
    pub(in crate::wire) const ADDED: [usize; 6] = [PARAMETERS, REASONING, 22, 23, 24, 25];
    /// Members in which clients send signatures back.
    pub(in crate::wire) const SIGNED: u32 = 0b11;
    /// Unions at the roots of the schemas of tools.
    pub(in crate::wire) const UNION: u32 = 0b1_1100;
    /// An image in a message.
    pub(in crate::wire) const IMAGE: u32 = 1 << 5;
    /// Members that other providers have added to messages.
    pub(in crate::wire) const MESSAGE_MEMBER: u32 = 0b11 | 0b1111 << 6;
}
static CHAT: Fields = Fields {
    sought: &CHAT_SOUGHT,
    rules: &[
        (chat::TEMPERATURE, RangeRule::Figure { least: 0.0, most: 2.0 }),
        (chat::TOP_P, RangeRule::Figure { least: 0.0, most: 1.0 }),
        (chat::MAX_TOKENS, RangeRule::Positive),
        (chat::MAX_COMPLETION_TOKENS, RangeRule::Positive),
        (chat::PARAMETERS, RangeRule::Parameters),
        (chat::WEB_SEARCH_OPTIONS, WEB_SEARCH),
        (chat::TOOLS, IS_ARRAY),
        (chat::REASONING, RangeRule::Reasoning),
    ],
    spelled: 1 << chat::WEB_SEARCH_OPTIONS | 1 << chat::MAX_TOKENS,
    required: &[(MODEL, STRING), (CONTENT, ARRAY)],
    caps: bits(&[4, 5]),
    loose: bits(&[17, 18]),
    counts: bits(&[6, 16]),
    models: bits(&[12, 13, 14, 15]),
    stored_refs: 0,
    tiers: bits(&[26]),
    label: Some(7),
};
static MESSAGES_SOUGHT: WantedMembers = WantedMembers::new(
    &[
        "model",
        "stream",
        "max_tokens",
        "messages",
        "metadata",
        "temperature",
        "top_p",
        "thinking",
        "system",
        "tools",
        "cache_control",
        "mcp_servers",
        "context_management",
        "stop_sequences",
        "models",
        "fallbacks",
        "fallback_models",
        "providerOptions",
        "anthropic_version",
        "anthropic_beta",
        "output_config",
        "tool_choice",
        "top_k",
        "service_tier",
        "speed",
        "inference_geo",
    ],
    // Depths at which a cache mark can occur: the request itself, its system prompt and tools, the blocks of its
    // messages, and the content of those blocks.
    &[
        WantedWord { text: "persistent", is_name: false, depth: (2, 16) },
        WantedWord { text: "cache_control", is_name: true, depth: (1, 16) },
        WantedWord { text: "defer_loading", is_name: true, depth: (3, 3) },
        WantedWord { text: "redacted_thinking", is_name: false, depth: (5, 5) },
        WantedWord { text: "system", is_name: false, depth: (3, 3) },
        WantedWord { text: "image", is_name: false, depth: (5, 7) },
        name("oneOf", 4, 4),
        name("anyOf", 4, 4),
        name("allOf", 4, 4),
    ],
)
.with_values(&[
    value("signature", 5, look_at_seal),
    value("tool_use_id", 5, look_at_id),
    value("id", 5, look_at_id),
])
.with_tails();
/// Indexes of members of a messages request, and bit masks of its wanted words.
pub(super) mod messages {
    pub(in crate::wire) const TEMPERATURE: usize = 5;
    pub(in crate::wire) const TOP_P: usize = 6;
    pub(in crate::wire) const THINKING: usize = 7;
    pub(in crate::wire) const SYSTEM: usize = 8;
    pub(in crate::wire) const TOOLS: usize = 9;
    pub(in crate::wire) const CACHE_CONTROL: usize = 10;
    pub(in crate::wire) const MCP_SERVERS: usize = 11;
    pub(in crate::wire) const CONTEXT_MANAGEMENT: usize = 12;
    pub(in crate::wire) const STOP_SEQUENCES: usize = 13;
    /// Version of the API in the body, as cloud platforms have it.
    pub(in crate::wire) const VERSION: usize = 18;
    /// Beta features in the body, as cloud platforms have them.
    pub(in crate::wire) const BETAS: usize = 19;
    pub(in crate::wire) const OUTPUT_CONFIG: usize = 20;
    pub(in crate::wire) const TOOL_CHOICE: usize = 21;
    pub(in crate::wire) const TOP_K: usize = 22;
    /// Type of a cache mark that only the gateway's specification defines.
    pub(in crate::wire) const PERSISTENT: u32 = 0b01;
    /// Name of a cache mark.
    pub(in crate::wire) const MARK: u32 = 0b10;
    /// Member of a tool that is loaded on demand.
    pub(in crate::wire) const DEFERRED: u32 = 0b100;
    /// Type of a block with reasoning that the provider withheld.
    pub(in crate::wire) const REDACTED: u32 = 1 << 3;
    /// Role of instructions in the conversation.
    pub(in crate::wire) const SYSTEM_ROLE: u32 = 1 << 4;
    /// Type of an image.
    pub(in crate::wire) const IMAGE: u32 = 1 << 5;
    /// Unions at the roots of the schemas of tools.
    pub(in crate::wire) const UNION: u32 = 0b111 << 6;
}
static MESSAGES: Fields = Fields {
    sought: &MESSAGES_SOUGHT,
    rules: &[
        (EXTRA, RangeRule::Positive),
        (CONTENT, RangeRule::NotEmpty),
        (messages::TEMPERATURE, RangeRule::Figure { least: 0.0, most: 1.0 }),
        (messages::TOP_P, RangeRule::FractionOrUnset),
        (messages::THINKING, IS_OBJECT),
        (messages::THINKING, RangeRule::Thinking),
        (messages::SYSTEM, IS_TEXT_OR_ARRAY),
        (messages::TOOLS, IS_ARRAY),
        (messages::STOP_SEQUENCES, IS_ARRAY),
        (messages::MCP_SERVERS, IS_ARRAY),
        (messages::CONTEXT_MANAGEMENT, IS_OBJECT),
    ],
    spelled: 1 << messages::THINKING,
    required: &[(MODEL, STRING), (CONTENT, ARRAY), (EXTRA, NUMBER)],
    caps: bits(&[EXTRA]),
    loose: 0,
    counts: 0,
    models: bits(&[14, 15, 16, 17]),
    stored_refs: 0,
    tiers: bits(&[23, 24, 25]),
    label: Some(4),
};
static COUNT_TOKENS: Fields = Fields {
    sought: &const { WantedMembers::new(&["model", "stream", "max_tokens", "messages", "anthropic_version"], &[]) },
    required: &[(MODEL, STRING), (CONTENT, ARRAY)],
    ..NOTHING
};
static RESPONSES_SOUGHT: WantedMembers = WantedMembers::new(
    &[
        "model",
        "stream",
        "prompt",
        "input",
        "max_output_tokens",
        "prompt_cache_key",
        "previous_response_id",
        "conversation",
        "temperature",
        "top_p",
        "reasoning",
        "tools",
        "tool_choice",
        "truncation",
        "max_tool_calls",
        "metadata",
        "models",
        "fallbacks",
        "fallback_models",
        "providerOptions",
        "max_tokens",
        "max_completion_tokens",
        "store",
        "instructions",
        "service_tier",
    ],
    &[
        WantedWord { text: "input_text", is_name: false, depth: (3, 3) },
        WantedWord { text: "input_image", is_name: false, depth: (3, 3) },
        WantedWord { text: "input_file", is_name: false, depth: (3, 3) },
        WantedWord { text: "function", is_name: true, depth: (3, 3) },
        WantedWord { text: "custom", is_name: true, depth: (3, 3) },
        WantedWord { text: "user_location", is_name: true, depth: (3, 3) },
        WantedWord { text: "compaction", is_name: false, depth: (3, 3) },
        WantedWord { text: "compaction_trigger", is_name: false, depth: (3, 3) },
        // The name `id` in any letter case, and what a name is searched for that has escapes: the text behind the last one.
        WantedWord { text: "id", is_name: true, depth: (3, 3) },
        WantedWord { text: "ID", is_name: true, depth: (3, 3) },
        WantedWord { text: "Id", is_name: true, depth: (3, 3) },
        WantedWord { text: "iD", is_name: true, depth: (3, 3) },
        WantedWord { text: "d", is_name: true, depth: (3, 3) },
        WantedWord { text: "D", is_name: true, depth: (3, 3) },
        WantedWord { text: "", is_name: true, depth: (3, 3) },
        WantedWord { text: "input_image", is_name: false, depth: (5, 5) },
        name("oneOf", 4, 4),
        name("anyOf", 4, 4),
        name("allOf", 4, 4),
    ],
)
.with_values(&[
    value("encrypted_content", 3, look_at_seal),
    value("call_id", 3, look_at_id),
    value("id", 3, look_at_item_id),
]);
/// Indexes of members of a responses request, and bit masks of its wanted words.
pub(super) mod responses {
    pub(in crate::wire) const MAX_OUTPUT_TOKENS: usize = 4;
    pub(in crate::wire) const PREVIOUS_RESPONSE_ID: usize = 6;
    pub(in crate::wire) const CONVERSATION: usize = 7;
    pub(in crate::wire) const TEMPERATURE: usize = 8;
    pub(in crate::wire) const TOP_P: usize = 9;
    pub(in crate::wire) const REASONING: usize = 10;
    pub(in crate::wire) const TOOLS: usize = 11;
    pub(in crate::wire) const TOOL_CHOICE: usize = 12;
    pub(in crate::wire) const TRUNCATION: usize = 13;
    pub(in crate::wire) const MAX_TOOL_CALLS: usize = 14;
    pub(in crate::wire) const METADATA: usize = 15;
    pub(in crate::wire) const INSTRUCTIONS: usize = 23;
    /// Content part types that occur directly in `input`, where the API expects items.
    pub(in crate::wire) const PARTS: u32 = 0b111;
    /// Tools in the nested form of the chat format, and the location of web search users.
    pub(in crate::wire) const NESTED: u32 = 0b11_1000;
    /// Types of items that stand for an earlier conversation, or request such an item.
    pub(in crate::wire) const COMPACTION: u32 = 0b1100_0000;
    /// Name of the id of an item, in any spelling.
    pub(in crate::wire) const ITEM_ID: u32 = 0b111_1111_0000_0000;
    /// Type of an image in a message or in the output of a call.
    pub(in crate::wire) const IMAGE: u32 = 1 << 15;
    /// Unions at the roots of the schemas of tools.
    pub(in crate::wire) const UNION: u32 = 0b111 << 16;
}
static RESPONSES: Fields = Fields {
    sought: &RESPONSES_SOUGHT,
    rules: &[
        (responses::TEMPERATURE, RangeRule::Figure { least: 0.0, most: 2.0 }),
        (responses::TOP_P, RangeRule::Figure { least: 0.0, most: 1.0 }),
        (responses::MAX_OUTPUT_TOKENS, RangeRule::Positive),
        (responses::MAX_TOOL_CALLS, RangeRule::Whole),
        (responses::TRUNCATION, RangeRule::OneOf(&["auto", "disabled"])),
        (responses::METADATA, IS_OBJECT),
        (responses::REASONING, REASONING),
        (responses::TOOLS, IS_ARRAY),
    ],
    spelled: 1 << responses::REASONING | 1 << responses::TOOL_CHOICE,
    required: &[(MODEL, STRING), (CONTENT, TEXT_OR_ARRAY)],
    caps: bits(&[4]),
    loose: bits(&[20, 21]),
    counts: 0,
    models: bits(&[16, 17, 18, 19]),
    stored_refs: bits(&[6, 7]),
    tiers: bits(&[24]),
    label: Some(5),
};
static GENERATE_SOUGHT: WantedMembers = WantedMembers::new(
    &[
        "model",
        "stream",
        "generateContentRequest",
        "contents",
        "generate_content_request",
        "generationConfig",
        "generation_config",
        "functionCallingConfig",
        "function_calling_config",
        "toolConfig",
        "tool_config",
        "tools",
        "systemInstruction",
        "system_instruction",
        "safetySettings",
        "safety_settings",
        "serviceTier",
        "service_tier",
    ],
    &[
        WantedWord { text: "groundingSearch", is_name: true, depth: (2, 3) },
        WantedWord { text: "grounding_search", is_name: true, depth: (2, 3) },
        name("functionCall", 5, 5),
        name("function_call", 5, 5),
    ],
)
.with_values(&[value("thoughtSignature", 5, look_at_seal), value("thought_signature", 5, look_at_seal)]);
/// Indexes of members of a generate request.
pub(super) mod generate {
    pub(in crate::wire) const GENERATION_CONFIG: [usize; 2] = [5, 6];
    pub(in crate::wire) const FUNCTION_CALLING_CONFIG: [usize; 2] = [7, 8];
    pub(in crate::wire) const TOOL_CONFIG: [usize; 2] = [9, 10];
    pub(in crate::wire) const TOOLS: usize = 11;
    pub(in crate::wire) const SYSTEM_INSTRUCTION: [usize; 2] = [12, 13];
    pub(in crate::wire) const SAFETY_SETTINGS: [usize; 2] = [14, 15];
    /// Search settings in a spelling that only the gateway's specification defines.
    pub(in crate::wire) const SEARCH: u32 = 0b11;
    /// A call of the model.
    pub(in crate::wire) const CALL: u32 = 0b1100;
}
static GENERATE: Fields = Fields {
    sought: &GENERATE_SOUGHT,
    rules: &[
        (generate::GENERATION_CONFIG[0], RangeRule::GenerationConfig),
        (generate::GENERATION_CONFIG[1], RangeRule::GenerationConfig),
        (generate::GENERATION_CONFIG[0], IS_OBJECT),
        (generate::GENERATION_CONFIG[1], IS_OBJECT),
        (generate::TOOLS, ARE_OBJECTS),
        (generate::TOOL_CONFIG[0], IS_OBJECT),
        (generate::TOOL_CONFIG[1], IS_OBJECT),
        (generate::SYSTEM_INSTRUCTION[0], ARE_OBJECTS),
        (generate::SYSTEM_INSTRUCTION[1], ARE_OBJECTS),
        (generate::SAFETY_SETTINGS[0], ARE_OBJECTS),
        (generate::SAFETY_SETTINGS[1], ARE_OBJECTS),
    ],
    spelled: 1 << generate::FUNCTION_CALLING_CONFIG[0] | 1 << generate::FUNCTION_CALLING_CONFIG[1],
    required: &[(CONTENT, ARRAY)],
    caps: bits(&[5, 6]),
    tiers: bits(&[16, 17]),
    ..NOTHING
};
pub(super) fn fields(api: Api, batch: bool) -> &'static Fields {
    match api {
        Api::Messages => &MESSAGES,
        Api::CountTokens => &COUNT_TOKENS,
        Api::Responses => &RESPONSES,
        Api::Generate => &GENERATE,
        Api::Converse => &CONVERSE,
        Api::EmbedContent if batch => &BATCH_EMBED,
        Api::EmbedContent => &EMBED_CONTENT,
        Api::Embeddings => &EMBEDDINGS,
        Api::Rerank => &RERANK,
        Api::Images if batch => &PREDICT,
        Api::Images => &IMAGES,
        _ => &CHAT,
    }
}
