//! Markdown table of the provider presets in docs/providers.md, generated from the data.

use super::{BaseUrl, Preset, Provider, ProviderKind, Setup};
use crate::canonical::dialect::{ReasoningOff, ReasoningSupport, SamplingSupport, Structured};
use crate::canonical::quirks::ToolChoiceSupport;
use crate::canonical::{Dialect, Effort, EffortSet, Quirks};
use crate::wire::Api;

/// Returns example models of a preset, one for each family with its own profile.
const fn models(row: Preset) -> &'static [&'static str] {
    match row {
        Preset::OpenAi | Preset::Azure => &["gpt-4.1", "gpt-5.2", "o3"],
        Preset::Anthropic => &["claude-3-5-sonnet", "claude-sonnet-4-5", "claude-opus-4-7"],
        Preset::Gemini => &["gemini-2.0-flash", "gemini-2.5-flash", "gemini-3-pro"],
        Preset::DeepSeek => &["deepseek-chat", "deepseek-r1"],
        Preset::Qwen => &["qwen3.5-plus", "qwen3-32b", "qwq-plus"],
        Preset::Moonshot => &["moonshot-v1-8k", "kimi-k2.5", "kimi-k3"],
        Preset::Glm => &["glm-4.5", "glm-5.3"],
        Preset::Xai => &["grok-3-mini", "grok-4"],
        Preset::Groq => &["llama-3.3-70b-versatile", "openai/gpt-oss-120b", "qwen/qwen3-32b"],
        Preset::Mistral => &["mistral-large-latest"],
        Preset::OpenRouter => &["openai/gpt-5.2", "anthropic/claude-sonnet-4.5"],
        Preset::Together => &["openai/gpt-oss-20b", "zai-org/GLM-4.6"],
        Preset::Fireworks => &["accounts/fireworks/models/glm-4p6"],
        Preset::Ark => &["doubao-seed-1-6"],
        Preset::Vllm => &["any"],
        Preset::Ollama => &["any"],
        Preset::Compatible => &["any"],
    }
}

/// Returns the table of presets as Markdown.
pub fn preset_table() -> String {
    let mut out = String::from(
        "| Dialect | Model | Reasoning settings | Schema | Tool choice | Not sent | Sent as | Extensions |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in Preset::ALL {
        let (kind, api) = match row {
            Preset::OpenAi => (ProviderKind::OpenAi, Api::Chat),
            Preset::Anthropic => (ProviderKind::Anthropic, Api::Messages),
            Preset::Gemini => (ProviderKind::Gemini, Api::Generate),
            _ => (ProviderKind::OpenAiCompatible, Api::Chat),
        };
        let Ok(base) = BaseUrl::parse("http://localhost/v1") else { continue };
        let mut provider = Provider::new(Setup { name: row.name().to_owned(), kind, apis: vec![api], base });
        provider.preset = row;
        for model in models(row) {
            let dialect = provider.dialect(api, model);
            let cells = [
                format!("`{}`", row.name()),
                format!("`{model}`"),
                reasoning(&dialect),
                structured(dialect.structured).to_owned(),
                choices(dialect.quirks.choices),
                lacking(&dialect),
                renamed(&dialect, api),
                words(dialect.extensions.iter().copied()),
            ];
            out.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
    }
    out
}

fn words<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<String> =
        words.map(|word| if word == "*" { word.into() } else { format!("`{word}`") }).collect();
    words.join(" ")
}

fn reasoning(dialect: &Dialect<'_>) -> String {
    let off = |off: bool| if off { ", off" } else { "" };
    match dialect.reasoning {
        ReasoningSupport::Fixed => "not configurable".to_owned(),
        ReasoningSupport::Budget { min, max, off: can } => format!("{min} to {max} tokens{}", off(can)),
        ReasoningSupport::Effort { off: can, .. } if dialect.lacks("reasoning_effort") => {
            format!("on{}", switched(can))
        }
        ReasoningSupport::Effort { efforts, off: can } => format!("{}{}", listed(efforts), switched(can)),
        ReasoningSupport::Adaptive { efforts, off: can } => {
            format!("adaptive, {}{}", listed(efforts), switched(can))
        }
    }
}

/// Returns whether reasoning can be off, behind the efforts.
fn switched(off: ReasoningOff) -> String {
    match off {
        ReasoningOff::Never => String::new(),
        ReasoningOff::Full => ", off".to_owned(),
        ReasoningOff::UpTo(effort) => format!(", off up to `{}`", effort.name()),
        ReasoningOff::BetweenTools => ", off but between tools".to_owned(),
    }
}

/// Returns the efforts: a range if none is missing.
fn listed(efforts: EffortSet) -> String {
    let all: Vec<Effort> = efforts.iter().collect();
    match all.as_slice() {
        [first, .., last] if efforts == EffortSet::range(*first, *last) => {
            format!("`{}` to `{}`", first.name(), last.name())
        }
        all => words(all.iter().map(|effort| effort.name())),
    }
}

fn structured(structured: Structured) -> &'static str {
    match structured {
        Structured::Native => "enforced",
        Structured::NativeWithoutTools => "enforced without tools",
        Structured::Json => "JSON mode with instructions",
        Structured::Tool => "forced tool call",
        Structured::Hint => "instructions only",
    }
}

fn choices(choices: ToolChoiceSupport) -> String {
    let mut can = Vec::new();
    if choices.none {
        can.push("`none`".to_owned());
    }
    can.extend(choices.any.map(|word| format!("`{word}`")));
    if choices.named {
        can.push("one".to_owned());
    }
    if choices.some {
        can.push("some".to_owned());
    }
    if !choices.while_reasoning && choices.named {
        can.push("not while reasoning".to_owned());
    }
    if can.is_empty() { "not supported".to_owned() } else { can.join(", ") }
}

fn lacking(dialect: &Dialect<'_>) -> String {
    let Quirks { lacks, custom_tools, .. } = dialect.quirks;
    let sampling: &[&str] = match dialect.sampling {
        SamplingSupport::All => &[],
        SamplingSupport::One => &["top_p with temperature"],
        SamplingSupport::IfOff => &["temperature while reasoning", "top_p while reasoning"],
        SamplingSupport::None => &["temperature", "top_p"],
    };
    let media: &[&str] = if dialect.media_urls { &[] } else { &["image_url"] };
    let custom: &[&str] = if *custom_tools { &[] } else { &["custom tools"] };
    let lists = [sampling, media, custom];
    // The page lists the elements that only OpenAI supports once, above the table, and who takes a cache key.
    let is_above = |list: &&[&str]| list.contains(&"moderation") || list.contains(&"prompt_cache_key");
    let own = lacks.iter().filter(|list| !is_above(list)).flat_map(|list| list.iter()).copied();
    let has = |name: &&str| !dialect.quirks.lacks(name);
    words(own.chain(dialect.refused.names().filter(has)).chain(lists.into_iter().flatten().copied()))
}

fn renamed(dialect: &Dialect<'_>, api: Api) -> String {
    let habits = dialect.quirks;
    let mut said: Vec<String> =
        habits.renames.iter().map(|(usual, own)| format!("`{usual}`: `{own}`")).collect();
    if api == Api::Chat {
        let limit = if dialect.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        said.push(format!("limit: `{limit}`"));
        if dialect.developer_role {
            said.push("instructions: `developer`".to_owned());
        }
    }
    let range = |name: &str, range: Option<(&str, &str)>| {
        range.map(|(least, most)| format!("`{name}`: {least} to {most}"))
    };
    said.extend(range("temperature", habits.temperature));
    said.extend(range("top_p", habits.top_p));
    said.extend(habits.efforts.map(|words| format!("efforts: {}", words.join(" "))));
    said.extend(habits.adds.iter().map(|(name, value)| format!("`{name}`: `{value}` added")));
    let plain = [
        (habits.joins_texts, "text parts joined"),
        (habits.nine_letter_ids, "nine-character ids"),
        (habits.flat_files, "flat file parts"),
        (habits.streams_only, "streams only"),
        (habits.calls_need_reasoning, "tool calls with reasoning"),
        (habits.template_switch, "reasoning set in the template"),
        (habits.quiet_whole, "no reasoning outside of streams"),
        (habits.search_tool.is_some(), "search as a tool"),
        (dialect.prefill, "prefill"),
        (habits.repeats_prefill, "prefill repeated"),
        (habits.tool_stream.is_some(), "argument streaming requested"),
    ];
    said.extend(plain.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()));
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_table_and_every_host_are_on_the_page() {
        let page = include_str!("../../../docs/providers.md");
        assert!(
            page.contains(&preset_table()),
            "docs/providers.md must hold what this prints:\n{}",
            preset_table()
        );
        for host in Preset::ALL.iter().flat_map(|row| row.hosts()) {
            assert!(page.contains(&format!("`{host}`")), "docs/providers.md lacks the host {host}");
        }
    }
}
