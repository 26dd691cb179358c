//! The table of providers as docs/providers.md shows it, made from the data itself.

use super::{BaseUrl, Kind, Preset, Provider, Setup};
use crate::canonical::dialect::{Reasoning, Sampling, Structured};
use crate::canonical::quirks::Choices;
use crate::canonical::{Dialect, Quirks};
use crate::wire::Api;

/// The models that stand for a row: those whose families differ.
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

/// The table of providers, as Markdown.
pub fn sheet() -> String {
    let mut out = String::from(
        "| Dialect | Model | Reasoning is asked for | Schema | Must call | Not sent | Sent as | Knows besides |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in Preset::ALL {
        let (kind, api) = match row {
            Preset::OpenAi => (Kind::OpenAi, Api::Chat),
            Preset::Anthropic => (Kind::Anthropic, Api::Messages),
            Preset::Gemini => (Kind::Gemini, Api::Generate),
            _ => (Kind::OpenAiCompatible, Api::Chat),
        };
        let Ok(base) = BaseUrl::parse("http://localhost/v1") else { continue };
        let mut provider = Provider::new(Setup { name: row.name().to_owned(), kind, apis: vec![api], base });
        provider.row = row;
        for model in models(row) {
            let dialect = provider.dialect(api, model);
            let cells = [
                format!("`{}`", row.name()),
                format!("`{model}`"),
                reasoning(&dialect),
                structured(dialect.structured).to_owned(),
                choices(dialect.habits.choices),
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
        Reasoning::Fixed => "cannot be told".to_owned(),
        Reasoning::Budget { min, max, off: can } => format!("{min} to {max} tokens{}", off(can)),
        Reasoning::Effort { min, max, off: can } if dialect.habits.lacks("reasoning_effort") => {
            let _ = (min, max);
            format!("on{}", off(can))
        }
        Reasoning::Effort { min, max, off: can } => {
            format!("`{}` to `{}`{}", min.name(), max.name(), off(can))
        }
        Reasoning::Adaptive { max, off: can } => format!("adaptive, to `{}`{}", max.name(), off(can)),
    }
}

fn structured(structured: Structured) -> &'static str {
    match structured {
        Structured::Native => "held to",
        Structured::NativeWithoutTools => "held to, without tools",
        Structured::Json => "any JSON, and told",
        Structured::Tool => "by a tool",
        Structured::Hint => "told",
    }
}

fn choices(choices: Choices) -> String {
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
    if can.is_empty() { "cannot be told".to_owned() } else { can.join(", ") }
}

fn lacking(dialect: &Dialect<'_>) -> String {
    let Quirks { lacks, custom_tools, .. } = dialect.habits;
    let sampling: &[&str] = match dialect.sampling {
        Sampling::All => &[],
        Sampling::One => &["top_p beside temperature"],
        Sampling::None => &["temperature", "top_p"],
    };
    let media: &[&str] = if dialect.media_urls { &[] } else { &["image_url"] };
    let custom: &[&str] = if *custom_tools { &[] } else { &["custom tools"] };
    let lists = [sampling, media, custom];
    // What all of them lack is said once, on the page.
    let own = lacks.iter().filter(|list| !list.contains(&"moderation")).flat_map(|list| list.iter());
    words(own.chain(lists.into_iter().flatten()).copied())
}

fn renamed(dialect: &Dialect<'_>, api: Api) -> String {
    let habits = dialect.habits;
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
        (habits.joins_texts, "texts joined"),
        (habits.nine_letter_ids, "ids of nine letters"),
        (habits.flat_files, "files flat"),
        (habits.streams_only, "always a stream"),
        (habits.calls_need_reasoning, "calls with reasoning"),
        (habits.template_switch, "reasoning switched in the template"),
        (habits.quiet_whole, "no reasoning outside of streams"),
        (habits.search_tool.is_some(), "search as a tool"),
        (dialect.prefill, "beginnings continued"),
        (habits.repeats_prefill, "and repeated"),
        (habits.tool_stream.is_some(), "streams of arguments asked for"),
    ];
    said.extend(plain.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()));
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table_and_every_host() {
        let page = include_str!("../../docs/providers.md");
        assert!(page.contains(&sheet()), "docs/providers.md must hold what this prints:\n{}", sheet());
        for host in Preset::ALL.iter().flat_map(|row| row.hosts()) {
            assert!(page.contains(&format!("`{host}`")), "docs/providers.md lacks the host {host}");
        }
    }
}
