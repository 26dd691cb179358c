//! Texts of the frames of responses.

use super::Said;

const WORDS: [&str; 16] = [
    " the",
    " gateway",
    " passes",
    " a",
    " frame",
    ",",
    " and",
    " reads",
    " what",
    " it",
    " \\\"must\\\"",
    " für",
    " every",
    " provider",
    ".",
    "\\n",
];

/// Members at the start of every chunk of a chat stream.
pub(super) const HEAD: &str = "\"id\":\"chatcmpl-CfZ2aXbFvYtq1mKq0WwH7rPz3uJ8N\",\"object\":\"chat.completion.chunk\",\
    \"created\":1750000000,\"model\":\"gpt-4o-2024-08-06\"";

pub(super) fn chunk(delta: &str, finish: &str) -> String {
    format!(
        "data: {{{HEAD},\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}],\"usage\":null}}\n\n"
    )
}

pub(super) fn event(name: &str, rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{rest}}}\n\n")
}

pub(super) fn generate(part: &str, finish: &str, n: usize) -> String {
    format!(
        "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{part}],\"role\": \"model\"}},{finish}\"index\": 0}}],\
         \"usageMetadata\": {{\"promptTokenCount\": 90,\"candidatesTokenCount\": {n},\"totalTokenCount\": {},\
         \"promptTokensDetails\": [{{\"modality\": \"TEXT\",\"tokenCount\": 90}}]}},\
         \"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \"aBcDeFgHiJkLmNoPqRsTuV\"}}\r\n\r\n",
        n + 90
    )
}

/// Returns the names of a responses stream: the event prefix of a content, its index member, and its text member.
pub(super) fn names(said: Said) -> (&'static str, &'static str, &'static str) {
    match said {
        Said::Text => ("response.output_text", "\"content_index\":0,", "text"),
        Said::Reasoning => ("response.reasoning_summary_text", "\"summary_index\":0,", "text"),
        Said::Arguments => ("response.function_call_arguments", "", "arguments"),
    }
}

pub(super) fn id(said: Said) -> &'static str {
    match said {
        Said::Text => "msg_68a1f0c2d3e4b5a69788796a5b4c3d2e",
        Said::Reasoning => "rs_68a1f0c2d3e4b5a69788796a5b4c3d2e",
        Said::Arguments => "fc_68a1f0c2d3e4b5a69788796a5b4c3d2e",
    }
}

pub(super) fn item(said: Said, block: usize, status: &str, held: &str) -> String {
    let id = id(said);
    match said {
        Said::Text => {
            let content = match held {
                "" => String::new(),
                held => format!(
                    "{{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"{held}\"}}"
                ),
            };
            format!(
                "{{\"id\":\"{id}\",\"type\":\"message\",\"status\":\"{status}\",\"content\":[{content}],\"role\":\"assistant\"}}"
            )
        }
        Said::Reasoning => {
            let summary = match held {
                "" => String::new(),
                held => format!("{{\"type\":\"summary_text\",\"text\":\"{held}\"}}"),
            };
            format!("{{\"id\":\"{id}\",\"type\":\"reasoning\",\"summary\":[{summary}]}}")
        }
        Said::Arguments => format!(
            "{{\"id\":\"{id}\",\"type\":\"function_call\",\"status\":\"{status}\",\"arguments\":\"{held}\",\
             \"call_id\":\"call_{block}w7Tq2nVb0sK9fYcXhRjLpMz\",\"name\":\"write_lines\"}}"
        ),
    }
}

pub(super) fn word(n: usize) -> &'static str {
    WORDS.get(n % WORDS.len()).copied().unwrap_or_default()
}
