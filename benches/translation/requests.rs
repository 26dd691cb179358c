//! Requests with the same content in all formats: a conversation with tools, and one with an image.

use model_gateway::wire::Format;

const WORDS: &str = "Read what it must, \\\"as it is\\\", and say what stands in it.\\n";

const SCHEMA: &str = "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":\"Where the file is.\"},\
    \"lines\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}},\"required\":[\"path\"]}";

const TOOLS: [&str; 4] = ["read_file", "write_file", "search", "run"];

/// Returns a conversation of ten turns with tools: each has a question, a tool call, its result and an answer.
pub(crate) fn conversation(format: Format) -> String {
    conversation_of(format, 10)
}

/// Same as [`conversation`], of this many turns of about 2 kB each.
pub(crate) fn conversation_of(format: Format, count: usize) -> String {
    let mut turns = Vec::new();
    for n in 0..count {
        turn(format, n, &mut turns);
    }
    whole(format, &turns)
}

/// Returns a request of 1 MB with a question about an image of 900 kB.
pub(crate) fn image(format: Format) -> String {
    let data = "iVBORw0KGgoAAAANSUhEUgAA".repeat(900_000 / 24);
    let text = WORDS.repeat(100_000 / WORDS.len());
    let turn = match format {
        Format::Chat => format!(
            "{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}},\
             {{\"type\":\"image_url\",\"image_url\":{{\"url\":\"data:image/png;base64,{data}\"}}}}]}}"
        ),
        Format::Messages => format!(
            "{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}},\
             {{\"type\":\"image\",\"source\":{{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"{data}\"}}}}]}}"
        ),
        Format::Responses => format!(
            "{{\"role\":\"user\",\"content\":[{{\"type\":\"input_text\",\"text\":\"{text}\"}},\
             {{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,{data}\"}}]}}"
        ),
        Format::Generate => format!(
            "{{\"role\":\"user\",\"parts\":[{{\"text\":\"{text}\"}},\
             {{\"inlineData\":{{\"mimeType\":\"image/png\",\"data\":\"{data}\"}}}}]}}"
        ),
        Format::Converse => format!(
            "{{\"role\":\"user\",\"content\":[{{\"text\":\"{text}\"}},\
             {{\"image\":{{\"format\":\"png\",\"source\":{{\"bytes\":\"{data}\"}}}}}}]}}"
        ),
    };
    whole(format, &[turn])
}

fn turn(format: Format, n: usize, turns: &mut Vec<String>) {
    let (question, answer, result) = (WORDS.repeat(3), WORDS.repeat(5), WORDS.repeat(20));
    let name = TOOLS.get(n % TOOLS.len()).copied().unwrap_or_default();
    let arguments = format!("{{\\\"path\\\":\\\"src/file_{n}.rs\\\",\\\"lines\\\":[{n},20]}}");
    let object = arguments.replace('\\', "");
    match format {
        Format::Chat => turns.extend([
            format!("{{\"role\":\"user\",\"content\":\"{question}\"}}"),
            format!(
                "{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"call_{n}\",\"type\":\"function\",\
                 \"function\":{{\"name\":\"{name}\",\"arguments\":\"{arguments}\"}}}}]}}"
            ),
            format!("{{\"role\":\"tool\",\"tool_call_id\":\"call_{n}\",\"content\":\"{result}\"}}"),
            format!("{{\"role\":\"assistant\",\"content\":\"{answer}\"}}"),
        ]),
        Format::Messages => turns.extend([
            format!("{{\"role\":\"user\",\"content\":\"{question}\"}}"),
            format!(
                "{{\"role\":\"assistant\",\"content\":[{{\"type\":\"tool_use\",\"id\":\"call_{n}\",\"name\":\"{name}\",\
                 \"input\":{object}}}]}}"
            ),
            format!(
                "{{\"role\":\"user\",\"content\":[{{\"type\":\"tool_result\",\"tool_use_id\":\"call_{n}\",\
                 \"content\":\"{result}\"}}]}}"
            ),
            format!("{{\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":\"{answer}\"}}]}}"),
        ]),
        Format::Responses => turns.extend([
            format!("{{\"role\":\"user\",\"content\":\"{question}\"}}"),
            format!(
                "{{\"type\":\"function_call\",\"call_id\":\"call_{n}\",\"name\":\"{name}\",\"arguments\":\"{arguments}\"}}"
            ),
            format!("{{\"type\":\"function_call_output\",\"call_id\":\"call_{n}\",\"output\":\"{result}\"}}"),
            format!(
                "{{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{{\"type\":\"output_text\",\"text\":\"{answer}\"}}]}}"
            ),
        ]),
        Format::Generate => turns.extend([
            format!("{{\"role\":\"user\",\"parts\":[{{\"text\":\"{question}\"}}]}}"),
            format!(
                "{{\"role\":\"model\",\"parts\":[{{\"functionCall\":{{\"name\":\"{name}\",\"args\":{object}}}}}]}}"
            ),
            format!(
                "{{\"role\":\"user\",\"parts\":[{{\"functionResponse\":{{\"name\":\"{name}\",\
                 \"response\":{{\"output\":\"{result}\"}}}}}}]}}"
            ),
            format!("{{\"role\":\"model\",\"parts\":[{{\"text\":\"{answer}\"}}]}}"),
        ]),
        Format::Converse => turns.extend([
            format!("{{\"role\":\"user\",\"content\":[{{\"text\":\"{question}\"}}]}}"),
            format!(
                "{{\"role\":\"assistant\",\"content\":[{{\"toolUse\":{{\"toolUseId\":\"call_{n}\",\"name\":\"{name}\",\
                 \"input\":{object}}}}}]}}"
            ),
            format!(
                "{{\"role\":\"user\",\"content\":[{{\"toolResult\":{{\"toolUseId\":\"call_{n}\",\
                 \"content\":[{{\"text\":\"{result}\"}}]}}}}]}}"
            ),
            format!("{{\"role\":\"assistant\",\"content\":[{{\"text\":\"{answer}\"}}]}}"),
        ]),
    }
}

/// Returns the request around the turns.
fn whole(format: Format, turns: &[String]) -> String {
    let (turns, system) = (turns.join(","), WORDS.repeat(10));
    let tool = |name: &&str| match format {
        Format::Chat => {
            format!(
                "{{\"type\":\"function\",\"function\":{{\"name\":\"{name}\",\"description\":\"{WORDS}\",\"parameters\":{SCHEMA}}}}}"
            )
        }
        Format::Messages => {
            format!("{{\"name\":\"{name}\",\"description\":\"{WORDS}\",\"input_schema\":{SCHEMA}}}")
        }
        Format::Responses => {
            format!(
                "{{\"type\":\"function\",\"name\":\"{name}\",\"description\":\"{WORDS}\",\"parameters\":{SCHEMA}}}"
            )
        }
        Format::Generate => {
            format!("{{\"name\":\"{name}\",\"description\":\"{WORDS}\",\"parametersJsonSchema\":{SCHEMA}}}")
        }
        Format::Converse => {
            format!(
                "{{\"toolSpec\":{{\"name\":\"{name}\",\"description\":\"{WORDS}\",\"inputSchema\":{{\"json\":{SCHEMA}}}}}}}"
            )
        }
    };
    let tools = TOOLS.iter().map(tool).collect::<Vec<_>>().join(",");
    match format {
        Format::Chat => format!(
            "{{\"model\":\"the-model\",\"stream\":true,\"temperature\":0.2,\"max_tokens\":1000,\"messages\":\
             [{{\"role\":\"system\",\"content\":\"{system}\"}},{turns}],\"tools\":[{tools}]}}"
        ),
        Format::Messages => format!(
            "{{\"model\":\"the-model\",\"stream\":true,\"temperature\":0.2,\"max_tokens\":1000,\"system\":\"{system}\",\
             \"messages\":[{turns}],\"tools\":[{tools}]}}"
        ),
        Format::Responses => format!(
            "{{\"model\":\"the-model\",\"stream\":true,\"temperature\":0.2,\"max_output_tokens\":1000,\
             \"instructions\":\"{system}\",\"input\":[{turns}],\"tools\":[{tools}]}}"
        ),
        Format::Generate => format!(
            "{{\"systemInstruction\":{{\"parts\":[{{\"text\":\"{system}\"}}]}},\"generationConfig\":{{\"temperature\":0.2,\
             \"maxOutputTokens\":1000}},\"contents\":[{turns}],\"tools\":[{{\"functionDeclarations\":[{tools}]}}]}}"
        ),
        Format::Converse => format!(
            "{{\"system\":[{{\"text\":\"{system}\"}}],\"inferenceConfig\":{{\"temperature\":0.2,\"maxTokens\":1000}},\
             \"messages\":[{turns}],\"toolConfig\":{{\"tools\":[{tools}]}}}}"
        ),
    }
}

/// Returns the frame of an event of an event stream.
pub(crate) fn union(name: &str, members: &str) -> String {
    format!("data: {{\"{name}\":{{{members}}}}}\n\n")
}
