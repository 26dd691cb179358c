//! Request adaptation on the canonical model: settles semantic differences between formats (names, order, limits,
//! structured output) once for all pairs of formats. Differences in syntax are the encoders' task.

use bumpalo::Bump;

use super::call_ids;
use super::fit::fit;
use super::history;
use super::remote_parts::refuse_stored_media;
use super::restore::Restore;
use super::{hosted_choice, search_texts, unanswered};
use crate::canonical::dialect::{ReasoningParameter, Structured};
use crate::canonical::{
    Block, Dialect, Index, IndexKey, MediaSource, OutputFormat, Request, RequestFeatures, Role, Thinking,
    Tool, ToolChoice, ToolKind, Turn,
};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::refused_elements::NO_IMAGE;
use crate::wire::root_schema::plain_object;
use json::{JsonStr, RawJson};

/// Schema of the function that replaces a custom tool.
const FREE_TEXT: RawJson<'static> = RawJson::from_text(
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#,
);

/// Message for a request that has both tools and structured output.
const TOOLS_OR_FORMAT: &str =
    "This model does not support a response format together with tools; use one of both, or a newer model.";

/// Instruction for a model without JSON mode, or for a provider that requires the word JSON.
const ANY_JSON: &str = "Answer with one JSON object and nothing else.";

/// Name of the tool whose arguments are the response, for models without structured output.
const ANSWER_TOOL: &str = "respond";

/// Adapts a request and returns the adaptations to reverse in the response. `bump` owns text that must be created.
pub(super) fn adapt<'a>(
    request: &mut Request<'a>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    bump: &'a Bump,
) -> Restore {
    let mut restore = Restore::default();
    restore.tagged = dialect.think_tags;
    count_choices(request, notes);
    refuse_stored_media(request, notes);
    unanswered::settle(request, notes, bump);
    search_texts::write(request, dialect, notes);
    hosted_choice::recognize(request, notes);
    call_ids::settle(request, dialect, bump);
    fit(request, dialect, notes, bump);
    hosted_choice::settle(request, notes);
    settle_images(request, dialect, notes);
    settle_limit(request, dialect, notes);
    if let Thinking::Budget(wished @ 1..) = request.thinking
        && let ReasoningParameter::Budget(told) = dialect.reasoning.reasoning_parameter(request.thinking)
        && told != wished
    {
        notes.clamp(if notes.from() == Format::Generate { "thinkingBudget" } else { "budget_tokens" });
    }
    if notes.from() == Format::Generate && notes.to() != Format::Generate {
        request
            .turns
            .iter_mut()
            .flat_map(|turn| &mut turn.blocks)
            .for_each(|block| usual_base64(block, bump));
    }
    settle_tools(request, dialect, notes, &mut restore, bump);
    history::settle(request, dialect, notes, &restore, bump);
    settle_output(request, dialect, notes, &mut restore, bump);
    settle_prefill(request, dialect, notes);
    restore
}

/// Replaces images by a text for a model that reads none: an image stays in the conversation, so that a refusal would be
/// one of every further turn.
fn settle_images(request: &mut Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    fn replace(blocks: &mut [Block<'_>], notes: &mut LossNotes) {
        for block in blocks {
            match block {
                Block::Image { cache, .. } => {
                    let text = JsonStr::from_escaped(NO_IMAGE);
                    *block = Block::Text { text, cache: *cache, signature: None };
                    notes.lose("image");
                }
                Block::ToolResult { content, .. } => replace(content, notes),
                _ => {}
            }
        }
    }
    if !dialect.image_input {
        request.turns.iter_mut().for_each(|turn| replace(&mut turn.blocks, notes));
    }
}

/// Lowers an output token limit that the model refuses.
fn settle_limit(request: &mut Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    if let (Some(limit), Some(most)) = (request.max_output, dialect.highest_limit(request.stream))
        && limit > most
    {
        request.max_output = Some(most);
        notes.clamp("max_tokens");
    }
}

/// Drops the number of choices for formats without it: only chat and generate have several choices.
fn count_choices(request: &mut Request<'_>, notes: &mut LossNotes) {
    // The default of every format: dropping it is no loss.
    if request.choices == Some(1) {
        request.choices = None;
    }
    if request.choices.is_some()
        && matches!(notes.to(), Format::Messages | Format::Responses | Format::Converse)
    {
        notes.lose("n");
    }
}

/// Returns true if the target supports custom tools.
pub(super) fn has_custom_tools(to: Format, dialect: &Dialect<'_>) -> bool {
    matches!(to, Format::Chat | Format::Responses) && dialect.quirks.custom_tools
}

/// Returns true if the target's format allows the tool name.
fn is_legal(name: &str, to: Format) -> bool {
    let limit = match to {
        Format::Chat | Format::Responses | Format::Converse => 64,
        Format::Messages | Format::Generate => 128,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = |byte: u8| plain(byte) || (to == Format::Generate && matches!(byte, b'.' | b':'));
    let begins = |byte: u8| to != Format::Generate || byte.is_ascii_alphabetic() || byte == b'_';
    (1..=limit).contains(&name.len()) && name.bytes().all(fits) && name.bytes().next().is_some_and(begins)
}

/// Makes a legal name from an illegal one: its legal characters, with a number that keeps it unique.
fn legal_name(name: &str, number: usize) -> String {
    let mut legal = String::from("t");
    legal.push_str(&number.to_string());
    legal.push('_');
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    legal.extend(name.chars().map(|c| if fits(&c) { c } else { '_' }).take(48));
    legal
}

/// Returns the name of a tool at the target. The same name is used in the definition, the tool choice and the history.
pub(super) fn renamed<'a>(
    name: JsonStr<'a>,
    namespace: JsonStr<'a>,
    to: Format,
    restore: &mut Restore,
    bump: &'a Bump,
) -> JsonStr<'a> {
    let flat = to != Format::Responses && !namespace.is_empty();
    if !flat && is_legal(name.escaped(), to) {
        return name;
    }
    let wanted =
        if flat { format!("{}__{}", namespace.decode(), name.decode()) } else { name.decode().into_owned() };
    let here = restore.name_at_target(name, namespace).map(str::to_owned).unwrap_or_else(|| {
        let legal = if is_legal(&wanted, to) { wanted.clone() } else { legal_name(&wanted, restore.names()) };
        restore.rename(&legal, name, namespace);
        legal
    });
    JsonStr::from_escaped(bump.alloc_str(&here))
}

fn settle_tools<'a>(
    request: &mut Request<'a>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    restore: &mut Restore,
    bump: &'a Bump,
) {
    let to = notes.to();
    let custom_tools = has_custom_tools(to, dialect);
    let is_grouped = |tool: &Tool<'_>| tool.kind == ToolKind::Custom && !tool.namespace.is_empty();
    // Names of functions are needed only where a custom tool in a namespace could be taken for one of them.
    let is_ambiguous = !custom_tools && request.tools.iter().any(is_grouped);
    let functions = request.tools.iter().filter(|tool| is_ambiguous && tool.kind == ToolKind::Function);
    let functions: Index = functions.map(|tool| IndexKey::of(tool.name)).collect();
    for tool in &mut request.tools {
        if tool.kind == ToolKind::Custom && !custom_tools {
            if tool.format.take().is_some() {
                notes.lose("custom_tool_grammar");
            }
            tool.kind = ToolKind::Function;
            tool.schema = Some(FREE_TEXT);
            restore.add_custom(tool.name, tool.namespace);
            // A provider of the responses format may leave out the namespace of a call.
            if !tool.namespace.is_empty() && !functions.has(IndexKey::of(tool.name)) {
                restore.add_custom(tool.name, JsonStr::default());
            }
        }
        let merges = dialect.refuses.intersects(RequestFeatures::ROOT_UNION);
        if (merges || to == Format::Converse)
            && let Some(plain) = tool.schema.and_then(|schema| plain_object(schema, merges))
        {
            tool.schema = Some(RawJson::from_text(bump.alloc_str(&plain)));
        }
        tool.name = renamed(tool.name, tool.namespace, to, restore, bump);
        if to != Format::Responses {
            tool.namespace = JsonStr::default();
        }
    }
    let chosen = matches!(request.tool_choice, Some(ToolChoice::Tool(_) | ToolChoice::Allowed { .. }));
    let tools: Index = request.tools.iter().filter(|_| chosen).map(|tool| IndexKey::of(tool.name)).collect();
    let mut choose = |name: &mut JsonStr<'a>| {
        // A tool choice has no namespace. If no tool has exactly this name, it means a tool in a namespace.
        let known = tools.has(IndexKey::of(*name));
        *name = match restore.name_at_target(*name, JsonStr::default()).filter(|_| !known) {
            Some(here) => JsonStr::from_escaped(bump.alloc_str(here)),
            None => renamed(*name, JsonStr::default(), to, restore, bump),
        };
    };
    match &mut request.tool_choice {
        Some(ToolChoice::Tool(name)) => choose(name),
        Some(ToolChoice::Allowed { names, .. }) => names.iter_mut().for_each(choose),
        _ => {}
    }
    // Some formats refuse a tool choice in a request without tools.
    let has_own = notes.from() == to && request.extra.iter().any(|extra| extra.name == "server_tool");
    if request.tools.is_empty() && request.search.is_none() && !has_own {
        request.tool_choice = None;
        request.parallel_tools = None;
    }
}

/// Adapts structured output to the model's capabilities.
fn settle_output<'a>(
    request: &mut Request<'a>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    restore: &mut Restore,
    bump: &'a Bump,
) {
    let to = notes.to();
    let any_json = dialect.structured == Structured::Json;
    let native = match dialect.structured {
        Structured::Native => true,
        Structured::NativeWithoutTools => request.tools.is_empty() && request.search.is_none(),
        Structured::Json | Structured::Tool | Structured::Hint => false,
    };
    match request.output {
        OutputFormat::Text => {}
        // Messages and Converse have no JSON mode without a schema.
        OutputFormat::Json if !lacks_json_mode(to) && (native || any_json) => {
            // Providers of both formats refuse JSON mode if the conversation does not mention JSON.
            if matches!(to, Format::Chat | Format::Responses) && !speaks_of_json(request) {
                hint(request, ANY_JSON.to_owned(), to, bump);
            }
        }
        // The provider refuses tools together with JSON mode on this model.
        _ if dialect.structured == Structured::NativeWithoutTools && !native => {
            notes.refuse("response_format", TOOLS_OR_FORMAT);
        }
        OutputFormat::Json => {
            // A client of JSON mode had to mention JSON in the conversation; only if it did not, an instruction is
            // added.
            if !speaks_of_json(request) {
                hint(request, ANY_JSON.to_owned(), to, bump);
            }
            notes.lose("response_format");
            request.output = OutputFormat::Text;
        }
        OutputFormat::Choice { .. } if to == Format::Generate && native => {}
        OutputFormat::Schema { .. } if native => {}
        OutputFormat::Schema { schema, .. } | OutputFormat::Choice { schema } => {
            let by_tool = dialect.structured == Structured::Tool && request.tools.is_empty();
            request.output = match request.output {
                OutputFormat::Choice { .. } if native => OutputFormat::Schema {
                    name: JsonStr::default(),
                    description: JsonStr::default(),
                    schema,
                    openapi: true,
                    strict: None,
                },
                _ => OutputFormat::Text,
            };
            if request.output != OutputFormat::Text {
                return;
            }
            if by_tool {
                offer_answer_tool(request, schema, restore);
            } else {
                let text =
                    format!("Answer with JSON that this schema allows, and nothing else: {}", schema.text());
                hint(request, text, to, bump);
                notes.warn("output_schema");
                if any_json && !lacks_json_mode(to) {
                    request.output = OutputFormat::Json;
                }
            }
        }
    }
}

/// Returns true if the format has structured output with a schema only.
fn lacks_json_mode(to: Format) -> bool {
    matches!(to, Format::Messages | Format::Converse)
}

/// Returns true if any text of the conversation contains "JSON", ignoring case.
fn speaks_of_json(request: &Request<'_>) -> bool {
    let says = |text: &str| text.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"json"));
    request.turns.iter().flat_map(|turn| &turn.blocks).any(|block| match block {
        Block::Text { text, .. } => says(text.escaped()),
        _ => false,
    })
}

/// Adds a tool that must be called, whose arguments are the response.
fn offer_answer_tool<'a>(request: &mut Request<'a>, schema: RawJson<'a>, restore: &mut Restore) {
    request.tools.push(Tool {
        description: JsonStr::from_escaped("Give the answer."),
        schema: Some(schema),
        ..Tool::new(JsonStr::from_escaped(ANSWER_TOOL), ToolKind::Function)
    });
    request.tool_choice = Some(ToolChoice::Tool(JsonStr::from_escaped(ANSWER_TOOL)));
    restore.set_answer_tool(ANSWER_TOOL);
}

/// Adds an instruction behind the existing ones, so that the cached prompt prefix stays the same.
fn hint<'a>(request: &mut Request<'a>, text: String, to: Format, bump: &'a Bump) {
    let mut escaped = Vec::with_capacity(text.len() + 16);
    json::push_escaped(&mut escaped, &text);
    let escaped = std::str::from_utf8(bump.alloc_slice_copy(&escaped)).unwrap_or_default();
    let mut leading = request.turns.iter().take_while(|turn| turn.role.is_system()).count();
    if to == Format::Responses {
        // The provider looks for the word in the input, which does not include the leading instructions.
        leading = (leading + 1).min(request.turns.len());
    }
    let turn = Turn::new(Role::System, vec![Block::text(JsonStr::from_escaped(escaped))]);
    request.turns.insert(leading, turn);
}

/// Records the loss of a prefill for models that refuse a conversation that ends with the assistant.
fn settle_prefill(request: &mut Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    let ends_with_assistant = request.turns.last().is_some_and(|turn| turn.role == Role::Assistant);
    if ends_with_assistant && !dialect.prefill {
        notes.lose("prefill");
    }
}

/// Converts base64 to the standard alphabet with padding. Clients of the generate format may use the URL-safe alphabet,
/// which other formats do not accept. Text that is not base64 stays escaped as the client wrote it: decoded, it could
/// contain a quote and end the JSON string that it is inserted into.
fn usual_base64<'a>(block: &mut Block<'a>, bump: &'a Bump) {
    let source = match block {
        Block::Image { source, .. }
        | Block::File { source, .. }
        | Block::Audio { source }
        | Block::Video { source } => source,
        Block::ToolResult { content, .. } => {
            content.iter_mut().for_each(|block| usual_base64(block, bump));
            return;
        }
        _ => return,
    };
    let MediaSource::Base64 { data, .. } = source else { return };
    let text = data.escaped();
    // Standard alphabet and padded, as most media is: no copy is needed.
    if memchr::memchr2(b'-', b'_', text.as_bytes()).is_none() && text.len().is_multiple_of(4) {
        return;
    }
    let usual = |byte: u8| match byte {
        b'-' => '+',
        b'_' => '/',
        other => char::from(other),
    };
    let digits = data.decode();
    let digits = digits.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    if !digits.bytes().all(is_digit) {
        return;
    }
    let missing = digits.len().next_multiple_of(4) - digits.len();
    let padded = digits.bytes().map(usual).chain(std::iter::repeat_n('=', missing));
    let made: String = padded.collect();
    *data = JsonStr::from_escaped(bump.alloc_str(&made));
}
