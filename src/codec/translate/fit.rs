//! Request adaptation to a provider's deviations from its format: unsupported elements are removed and recorded as
//! losses, numbers are clamped, and the tool choice becomes the nearest supported one. The deviations are data
//! ([`Quirks`]); no provider is named here.

use bumpalo::Bump;

use crate::canonical::quirks::ToolChoiceSupport;
use crate::canonical::{Block, Dialect, Index, IndexKey, MemberSet, Quirks, Request, Thinking, ToolChoice};
use crate::wire::codec::LossNotes;
use json::{JsonStr, RawJson};

/// Adapts a request. `bump` owns text that must be created.
pub(super) fn fit<'a>(
    request: &mut Request<'a>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    bump: &'a Bump,
) {
    let habits = dialect.quirks;
    // Most requests go to a provider without deviations.
    if *habits == Quirks::PLAIN && dialect.forced_tools && dialect.refused == MemberSet::EMPTY {
        return;
    }
    take_off(request, dialect, notes);
    if let Some(range) = habits.temperature {
        bring_into(&mut request.sampling.temperature, range, "temperature", notes);
    }
    if let Some(range) = habits.top_p {
        bring_into(&mut request.sampling.top_p, range, "top_p", notes);
    }
    choose(request, dialect, notes);
    if habits.nine_letter_ids {
        request.turns.iter_mut().flat_map(|turn| &mut turn.blocks).for_each(|block| match block {
            Block::ToolUse { id, .. } | Block::ToolResult { id, .. } => *id = nine_letters(*id, bump),
            _ => {}
        });
    }
}

/// Removes elements that the provider or the model does not support.
fn take_off(request: &mut Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    fn drop<T>(slot: &mut Option<T>, name: &'static str, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        if dialect.lacks(name) && slot.take().is_some() {
            notes.lose(name);
        }
    }
    let sampling = &mut request.sampling;
    drop(&mut sampling.temperature, "temperature", dialect, notes);
    drop(&mut sampling.top_p, "top_p", dialect, notes);
    drop(&mut sampling.presence_penalty, "presence_penalty", dialect, notes);
    drop(&mut sampling.frequency_penalty, "frequency_penalty", dialect, notes);
    drop(&mut sampling.seed, "seed", dialect, notes);
    drop(&mut request.choices, "n", dialect, notes);
    drop(&mut request.logprobs, "logprobs", dialect, notes);
    drop(&mut request.verbosity, "verbosity", dialect, notes);
    drop(&mut request.user, "user", dialect, notes);
    drop(&mut request.metadata, "metadata", dialect, notes);
    drop(&mut request.store, "store", dialect, notes);
    drop(&mut request.service_tier, "service_tier", dialect, notes);
    drop(&mut request.cache_key, "prompt_cache_key", dialect, notes);
    drop(&mut request.search, "web_search", dialect, notes);
    if dialect.lacks("parallel_tool_calls") {
        // `true` is the default of all providers, so dropping it is not a loss.
        request.parallel_tools = request.parallel_tools.filter(|several| !several);
        drop(&mut request.parallel_tools, "parallel_tool_calls", dialect, notes);
    }
    if dialect.lacks("stop") && !request.stop.is_empty() {
        request.stop.clear();
        notes.warn("stop");
    }
    if dialect.lacks("stream_options") {
        // The provider reports usage without being asked.
        request.usage_wanted = false;
    }
    for tool in &mut request.tools {
        drop(&mut tool.strict, "tool_strict", dialect, notes);
    }
    if dialect.lacks("name") {
        for turn in request.turns.iter_mut().filter(|turn| !turn.name.is_empty()) {
            turn.name = JsonStr::default();
            notes.lose("name");
        }
    }
    request.extra.retain(|extra| {
        let taken = !dialect.lacks(extra.name);
        if !taken {
            notes.lose(extra.name.to_owned());
        }
        taken
    });
}

/// Clamps a number to a range. A value that is not a number stays, and the provider refuses it.
fn bring_into(
    slot: &mut Option<RawJson<'_>>,
    (least, most): (&'static str, &'static str),
    name: &'static str,
    notes: &mut LossNotes,
) {
    let figure = |text: &str| text.parse::<f64>().ok();
    let Some(said) = slot.and_then(|value| figure(value.text())) else { return };
    let bound = match (figure(least), figure(most)) {
        (Some(least_figure), _) if said < least_figure => least,
        (_, Some(most_figure)) if said > most_figure => most,
        _ => return,
    };
    *slot = Some(RawJson::from_text(bound));
    notes.clamp(name);
}

/// Maps the tool choice to the nearest supported one. A tool that the client forbids stays forbidden.
fn choose<'a>(request: &mut Request<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    let choices = dialect.quirks.choices;
    if choices == ToolChoiceSupport::ALL && dialect.forced_tools || request.tools.is_empty() {
        return;
    }
    let is_forced = matches!(
        request.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Tool(_) | ToolChoice::Allowed { required: true, .. })
    );
    let is_default = request.thinking == Thinking::Unset && dialect.reasons_by_default;
    // The client asked for a call, and for no reasoning: the call is what it needs.
    if is_forced && is_default && dialect.forced_tools && !choices.while_reasoning && choices.any.is_some() {
        request.thinking = Thinking::Off;
    }
    let reasons = dialect.reasons(request.thinking);
    // Some providers refuse a forced tool call while the model reasons.
    let forced = dialect.forced_tools && (!reasons || choices.while_reasoning);
    let tools = &mut request.tools;
    let choice = match request.tool_choice.take() {
        None => None,
        // `auto` is the default and need not be sent.
        Some(ToolChoice::Auto) if !choices.none => None,
        Some(ToolChoice::None) if !choices.none => {
            // The choice "none" is not supported: remove the tools, so that the model cannot call any.
            tools.clear();
            None
        }
        Some(ToolChoice::Tool(name)) if !(choices.named && forced) => {
            tools.retain(|tool| tool.name == name);
            Some(ToolChoice::Required)
        }
        Some(ToolChoice::Allowed { names, required }) if !choices.some || required && !forced => {
            let names: Index = names.iter().map(|name| IndexKey::of(*name)).collect();
            tools.retain(|tool| names.has(IndexKey::of(tool.name)));
            Some(if required { ToolChoice::Required } else { ToolChoice::Auto })
        }
        said => said,
    };
    request.tool_choice = match choice {
        Some(ToolChoice::Required) if choices.any.is_none() || !forced => {
            notes.lose("tool_choice");
            choices.none.then_some(ToolChoice::Auto)
        }
        Some(ToolChoice::Auto) if !choices.none => None,
        choice => choice,
    };
}

/// Returns an id of nine letters and digits, always the same for the same id.
fn nine_letters<'a>(id: JsonStr<'a>, bump: &'a Bump) -> JsonStr<'a> {
    let text = id.escaped();
    if text.len() == 9 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id;
    }
    let made = crate::wire::codec::make_id("", text, 0);
    JsonStr::from_escaped(bump.alloc_str(made.get(..9).unwrap_or_default()))
}
