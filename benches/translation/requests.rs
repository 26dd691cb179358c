//! Requests with the same content in all formats: a conversation with tools, that of a coding agent, and one with an
//! image.

use codec::wire::Format;
use json::push_escaped;

const WORDS: &str = "Read what it must, \\\"as it is\\\", and say what stands in it.\\n";

const SCHEMA: &str = "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":\"Where the file is.\"},\
    \"lines\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}},\"required\":[\"path\"]}";

const TOOLS: [&str; 4] = ["read_file", "write_file", "search", "run"];

/// Source code that the coding agent reads and changes. Escapes are a few to some dozen bytes apart, as in real code.
const SOURCE: &str = r#"//! Sessions: who is signed in, and until when.
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lifetime of a session that is not renewed. Größer als nötig — see the RFC.
const LIFETIME: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub struct Sessions {
    by_token: HashMap<String, Session>,
}

impl Sessions {
    /// Returns the user of a token, or an error that names the reason ("expired", "unknown").
    pub fn user(&self, token: &str, now: Instant) -> Result<&User, SessionError> {
        let Some(session) = self.by_token.get(token) else {
            return Err(SessionError::new("unknown", format!("no session "{token}"")));
        };
        if now.duration_since(session.began) > LIFETIME {
            log::debug!("session of {} expired
", session.user.name);
            return Err(SessionError::new("expired", session.user.name.clone()));
        }
        Ok(&session.user)
    }

	pub fn insert(&mut self, token: String, user: User, began: Instant) -> Option<Session> {
		self.by_token.insert(token, Session { user, began })
	}
}

#[test]
fn expired_session_is_refused() {
    let mut sessions = Sessions::default();
    let began = Instant::now();
    sessions.insert("a1".to_owned(), User { name: "Zoë".into(), roles: vec!["admin"] }, began);
    assert!(sessions.user("a1", began + LIFETIME).is_ok(), "it is as old as it may be");
    let error = sessions.user("a1", began + LIFETIME + Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.to_string(), "expired: Zoë");
    assert_eq!(sessions.user("b2", began).unwrap_err().reason(), "unknown");
}
"#;

/// Sizes of the conversations of a coding agent, in bytes, with the name of each.
pub(crate) const AGENT_SIZES: [(&str, usize); 3] =
    [("agent-40k", 40_000), ("agent-100k", 100_000), ("agent-1m", 1_000_000)];

/// Texts of a turn, escaped.
struct Texts {
    question: String,
    /// Arguments of the tool call, a JSON object.
    arguments: String,
    result: String,
    answer: String,
}

/// Returns a conversation of ten turns with tools: each has a question, a tool call, its result and an answer.
pub(crate) fn conversation(format: Format) -> String {
    conversation_of(format, 10)
}

/// Same as [`conversation`], of this many turns of about 2 kB each.
pub(crate) fn conversation_of(format: Format, count: usize) -> String {
    let mut turns = Vec::new();
    for n in 0..count {
        let texts = Texts {
            question: WORDS.repeat(3),
            arguments: format!("{{\"path\":\"src/file_{n}.rs\",\"lines\":[{n},20]}}"),
            result: WORDS.repeat(20),
            answer: WORDS.repeat(5),
        };
        turn(format, n, &texts, &mut turns);
    }
    whole(format, &turns)
}

/// Returns the conversation of a coding agent, of about this many bytes: each turn of 6 kB has a question, a tool call
/// with a change of source code, source code as its result, and an answer.
pub(crate) fn agent(format: Format, bytes: usize) -> String {
    let (mut turns, mut length) = (Vec::new(), 0);
    for n in 0.. {
        let (old, new) = (source(n * 5, 6), source(n * 5 + 2, 9));
        let texts = Texts {
            question: "Now the same for the next one, and leave the \\\"rest\\\" as it is.".to_owned(),
            arguments: format!(
                "{{\"path\":\"src/session/file_{n}.rs\",\"old_string\":\"{old}\",\"new_string\":\"{new}\",\"replace_all\":false}}"
            ),
            // Most tools are given little and return much.
            result: source(n * 11, 60 + n % 7 * 15),
            answer: WORDS.repeat(5),
        };
        let before = turns.len();
        turn(format, n, &texts, &mut turns);
        length += turns.iter().skip(before).map(String::len).sum::<usize>();
        if length >= bytes {
            break;
        }
    }
    whole(format, &turns)
}

/// Returns this many lines of source code, escaped. Behind its last line follows the first.
fn source(first: usize, lines: usize) -> String {
    let skipped = first % SOURCE.lines().count();
    let text: Vec<&str> = SOURCE.split_inclusive('\n').cycle().skip(skipped).take(lines).collect();
    escaped(&text.concat())
}

fn escaped(plain: &str) -> String {
    let mut out = Vec::new();
    push_escaped(&mut out, plain);
    String::from_utf8(out).unwrap_or_default()
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

fn turn(format: Format, n: usize, texts: &Texts, turns: &mut Vec<String>) {
    let Texts { question, arguments: object, result, answer } = texts;
    let name = TOOLS.get(n % TOOLS.len()).copied().unwrap_or_default();
    let arguments = escaped(object);
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
