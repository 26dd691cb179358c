//! Request adaptation on the canonical model: settles semantic differences between formats (names, order, limits,
//! structured output) once for all pairs of formats. Differences in syntax are the encoders' task.

use bumpalo::Bump;

use super::fit::fit;
use super::opaque::keep_opaque;
use super::remote_parts::refuse_stored_media;
use super::restore::Restore;
use super::results::ToolOutput;
use super::{hosted_choice, open_reasoning, search_texts};
use crate::canonical::dialect::{ReasoningParameter, Structured};
use crate::canonical::{
    Block, Dialect, Index, IndexKey, Input, MediaSource, OutputFormat, ProviderSignature, Request, Role,
    Thinking, Tool, ToolChoice, ToolKind, Turn,
};
use crate::json::{JsonStr, RawJson, Writer};
use crate::wire::Format;
use crate::wire::codec::LossNotes;

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
    search_texts::write(request, dialect, notes);
    hosted_choice::recognize(request, notes);
    fit(request, dialect, notes, bump);
    hosted_choice::settle(request, notes);
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
    settle_history(request, dialect, notes, &restore, bump);
    settle_output(request, dialect, notes, &mut restore, bump);
    settle_prefill(request, dialect, notes);
    restore
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
fn has_custom_tools(to: Format, dialect: &Dialect<'_>) -> bool {
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
fn renamed<'a>(
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
    if request.tools.is_empty() && request.search.is_none() {
        request.tool_choice = None;
        request.parallel_tools = None;
    }
}

/// Adapts earlier turns: tool names, provider signatures, and the order of tool results.
fn settle_history<'a>(
    request: &mut Request<'a>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    tools: &Restore,
    bump: &'a Bump,
) {
    let to = notes.to();
    let custom_tools = has_custom_tools(to, dialect);
    // Names of tools that are only in the history are renamed in a copy: the model cannot call these tools, so the
    // response needs no entry for them.
    let mut restore = tools.clone();
    // Calls of the latest assistant turns, in order; their results are expected next.
    let mut calls = Index::default();
    let (mut all_calls, mut names) = (Index::default(), Vec::new());
    let mut behind = Vec::new();
    for turn in &mut request.turns {
        if turn.role == Role::Assistant && !calls.is_empty() && !has_calls(turn) {
            calls.clear();
        }
        for block in &mut turn.blocks {
            match block {
                Block::ToolUse { id, name, namespace, kind, input, signature: seal, .. } => {
                    keep_own_seal(seal, dialect, notes);
                    if *kind == ToolKind::Custom && !custom_tools {
                        *kind = ToolKind::Function;
                        *input = wrap_input(*input, bump);
                    }
                    *name = renamed(*name, *namespace, to, &mut restore, bump);
                    if to != Format::Responses {
                        *namespace = JsonStr::default();
                    }
                    let key = IndexKey::of(*id);
                    calls.push(key);
                    all_calls.push(key);
                    names.push(*name);
                }
                Block::ToolResult { id, name, kind, content, object, error, .. } => {
                    // Before the encoders choose the form of the result by its blocks.
                    let mut output = ToolOutput { content, object, error };
                    output.values_as_text(notes, bump);
                    output.content.retain(|block| keep_opaque(block, notes));
                    output.settle(notes, &mut behind, bump);
                    if !custom_tools {
                        *kind = ToolKind::Function;
                    }
                    let called = all_calls.last(IndexKey::of(*id)).and_then(|at| names.get(at));
                    match called {
                        Some(called) => *name = *called,
                        // The call is not in this request. The generate format identifies results by tool name, which
                        // is unknown here.
                        None if name.is_empty() && to == Format::Generate => {
                            let message =
                                format!("No tool call has the id '{}' of this result.", id.escaped());
                            notes.refuse("tool_call_id", message);
                        }
                        None => *name = renamed(*name, JsonStr::default(), to, &mut restore, bump),
                    }
                }
                Block::Reasoning { signature: seal, .. }
                | Block::Text { signature: seal, .. }
                | Block::Image { signature: seal, .. } => {
                    keep_own_seal(seal, dialect, notes);
                }
                _ => {}
            }
        }
        turn.blocks.retain(|block| match block {
            Block::Reasoning { text, signature: None, hidden } => !hidden && !text.is_empty(),
            block => keep_opaque(block, notes),
        });
        turn.blocks.append(&mut behind);
        order_results(turn, &calls);
    }
    open_reasoning::leave_out(request, dialect, notes);
    order_result_turns(&mut request.turns);
}

fn has_calls(turn: &Turn<'_>) -> bool {
    turn.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }))
}

/// Removes a provider signature that another issuer issued. A signature without an envelope comes from a provider of
/// the client's own format, and stays only if the format does not change.
fn keep_own_seal(seal: &mut Option<ProviderSignature<'_>>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    let same_format = notes.from() == notes.to();
    let foreign = |seal: &ProviderSignature<'_>| match &seal.issuer {
        None => !same_format,
        Some(issuer) => **issuer != *dialect.issuer,
    };
    if seal.as_ref().is_some_and(foreign) {
        *seal = None;
        notes.lose("thinking_signature");
    }
}

/// Wraps the free-text input of a custom tool into function arguments.
fn wrap_input<'a>(input: Input<'a>, bump: &'a Bump) -> Input<'a> {
    let Input::Text(text) = input else { return input };
    let mut out = Vec::with_capacity(text.escaped().len() + 12);
    Writer::new(&mut out).begin_object().key("input").paste(text).end_object();
    let out = bump.alloc_slice_copy(&out);
    Input::Object(RawJson::from_text(std::str::from_utf8(out).unwrap_or("{}")))
}

/// Sorts the tool results of a turn by the order of their calls. Other blocks follow behind them, in their order.
fn order_results(turn: &mut Turn<'_>, calls: &Index) {
    let place = |block: &Block<'_>| match block {
        Block::ToolResult { id, .. } => calls.first(IndexKey::of(*id)).unwrap_or(usize::MAX - 1),
        _ => usize::MAX,
    };
    if turn.role == Role::User && turn.blocks.iter().any(|block| matches!(block, Block::ToolResult { .. })) {
        turn.blocks.sort_by_cached_key(place);
    }
}

/// Sorts adjacent turns that have only tool results by the order of the calls before them.
fn order_result_turns(turns: &mut [Turn<'_>]) {
    let is_results = |turn: &Turn<'_>| {
        turn.role == Role::User
            && !turn.blocks.is_empty()
            && turn.blocks.iter().all(|block| matches!(block, Block::ToolResult { .. }))
    };
    let mut at = 0;
    while at < turns.len() {
        let run = turns.get(at..).unwrap_or_default().iter().take_while(|turn| is_results(turn)).count();
        if run > 1 {
            let calls = calls_before(turns.get(..at).unwrap_or_default());
            let place = |turn: &Turn<'_>| match turn.blocks.first() {
                Some(Block::ToolResult { id, .. }) => calls.first(IndexKey::of(*id)).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            if let Some(run) = turns.get_mut(at..at + run) {
                run.sort_by_cached_key(place);
            }
        }
        at += run.max(1);
    }
}

/// Returns the ids of the calls in the assistant turns directly before.
fn calls_before(turns: &[Turn<'_>]) -> Index {
    let run = turns.iter().rev().take_while(|turn| turn.role == Role::Assistant).count();
    let turns = turns.get(turns.len() - run..).unwrap_or_default();
    let calls = turns.iter().flat_map(|turn| &turn.blocks).filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(IndexKey::of(*id)),
        _ => None,
    });
    calls.collect()
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
    crate::json::push_escaped(&mut escaped, &text);
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
