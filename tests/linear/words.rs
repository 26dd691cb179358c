//! Parts of requests in each format.

use codec::wire::Format;

use crate::converse;

pub(crate) const SCHEMA: &str = r#"{"type":"object","properties":{"x":{"type":"string"}}}"#;

/// Returns `n` elements that `make` makes, joined with commas.
pub(crate) fn list(n: usize, make: impl Fn(usize) -> String) -> String {
    (0..n).map(make).collect::<Vec<_>>().join(",")
}

/// Returns `n` unknown members. Their names have one length, so that four times as many have four times as many bytes.
pub(crate) fn members(n: usize) -> String {
    list(n, |i| format!(r#""k{i:05}":1"#))
}

pub(crate) fn settings(format: Format, n: usize) -> Option<String> {
    let name = match format {
        Format::Generate => "generationConfig",
        Format::Responses => "text",
        Format::Chat => "stream_options",
        Format::Messages => "thinking",
        Format::Converse => "inferenceConfig",
    };
    let kind = if format == Format::Messages { r#""type":"disabled","# } else { "" };
    Some(whole(format, &asks(format), &format!(r#""{name}":{{{kind}{}}}"#, members(n))))
}

/// Returns a request with these turns and members.
pub(crate) fn whole(format: Format, turns: &str, members: &str) -> String {
    let head = match format {
        Format::Chat => format!(r#""model":"m","messages":[{turns}]"#),
        Format::Messages => format!(r#""model":"m","max_tokens":100,"messages":[{turns}]"#),
        Format::Responses => format!(r#""model":"m","input":[{turns}]"#),
        Format::Generate => format!(r#""contents":[{turns}]"#),
        Format::Converse => format!(r#""messages":[{turns}]"#),
    };
    let comma = if members.is_empty() { "" } else { "," };
    format!("{{{head}{comma}{members}}}")
}

pub(crate) fn one(format: Format, turn: &str) -> String {
    whole(format, turn, "")
}

pub(crate) fn asks(format: Format) -> String {
    turn(format, "user", &text(format, "hello"))
}

pub(crate) fn text(format: Format, text: &str) -> String {
    match format {
        Format::Chat | Format::Messages => format!(r#"{{"type":"text","text":"{text}"}}"#),
        Format::Responses => format!(r#"{{"type":"input_text","text":"{text}"}}"#),
        Format::Generate | Format::Converse => converse::text(text),
    }
}

pub(crate) fn image(format: Format, i: usize) -> String {
    let data = format!("iVBORw0KGgoAAAANSUhEUgAA{:04}", i % 10_000);
    match format {
        Format::Chat => {
            format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#)
        }
        Format::Messages => format!(
            r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}"#
        ),
        Format::Responses => {
            format!(r#"{{"type":"input_image","image_url":"data:image/png;base64,{data}"}}"#)
        }
        Format::Generate => format!(r#"{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}"#),
        Format::Converse => converse::image(&data),
    }
}

pub(crate) fn turn(format: Format, role: &str, parts: &str) -> String {
    turn_with(format, role, parts, "")
}

pub(crate) fn turn_with(format: Format, role: &str, parts: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    match format {
        Format::Generate => {
            let role = if role == "assistant" { "model" } else { role };
            format!(r#"{{"role":"{role}","parts":[{parts}]{comma}{members}}}"#)
        }
        _ => format!(r#"{{"role":"{role}","content":[{parts}]{comma}{members}}}"#),
    }
}

pub(crate) fn tool(format: Format, name: &str, schema: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    match format {
        Format::Chat => format!(
            r#"{{"type":"function","function":{{"name":"{name}","description":"x","parameters":{schema}}}{comma}{members}}}"#
        ),
        Format::Messages => {
            format!(r#"{{"name":"{name}","description":"x","input_schema":{schema}{comma}{members}}}"#)
        }
        Format::Responses => format!(
            r#"{{"type":"function","name":"{name}","description":"x","parameters":{schema}{comma}{members}}}"#
        ),
        Format::Generate => format!(
            r#"{{"name":"{name}","description":"x","parametersJsonSchema":{schema}{comma}{members}}}"#
        ),
        Format::Converse => converse::tool(name, schema),
    }
}

pub(crate) fn with_tools(format: Format, turns: &str, tools: &str, choice: &str) -> String {
    let tools = match format {
        Format::Generate => format!(r#""tools":[{{"functionDeclarations":[{tools}]}}]"#),
        Format::Converse => {
            let comma = if choice.is_empty() { "" } else { "," };
            return whole(format, turns, &format!(r#""toolConfig":{{"tools":[{tools}]{comma}{choice}}}"#));
        }
        _ => format!(r#""tools":[{tools}]"#),
    };
    let comma = if choice.is_empty() { "" } else { "," };
    whole(format, turns, &format!("{tools}{comma}{choice}"))
}

pub(crate) fn chosen(format: Format, name: &str) -> String {
    match format {
        Format::Chat => format!(r#""tool_choice":{{"type":"function","function":{{"name":"{name}"}}}}"#),
        Format::Messages => format!(r#""tool_choice":{{"type":"tool","name":"{name}"}}"#),
        Format::Responses => format!(r#""tool_choice":{{"type":"function","name":"{name}"}}"#),
        Format::Generate => format!(
            r#""toolConfig":{{"functionCallingConfig":{{"mode":"ANY","allowedFunctionNames":["{name}"]}}}}"#
        ),
        Format::Converse => format!(r#""toolChoice":{{"tool":{{"name":"{name}"}}}}"#),
    }
}

pub(crate) fn allowed(format: Format, n: usize, name: &str) -> Option<String> {
    let backwards = |make: fn(&str, usize) -> String| list(n, |i| make(name, n - 1 - i));
    Some(match format {
        Format::Chat => {
            let names =
                backwards(|name, i| format!(r#"{{"type":"function","function":{{"name":"{name}{i}"}}}}"#));
            format!(
                r#""tool_choice":{{"type":"allowed_tools","allowed_tools":{{"mode":"auto","tools":[{names}]}}}}"#
            )
        }
        Format::Responses => {
            let names = backwards(|name, i| format!(r#"{{"type":"function","name":"{name}{i}"}}"#));
            format!(r#""tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{names}]}}"#)
        }
        Format::Generate => {
            let names = backwards(|name, i| format!(r#""{name}{i}""#));
            format!(
                r#""toolConfig":{{"functionCallingConfig":{{"mode":"ANY","allowedFunctionNames":[{names}]}}}}"#
            )
        }
        Format::Messages | Format::Converse => return None,
    })
}

/// Returns a turn with one tool call.
pub(crate) fn call_turn(format: Format, i: usize) -> String {
    let call = call(format, i, "get", "");
    match format {
        Format::Chat => format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#),
        Format::Responses => call,
        _ => turn(format, "assistant", &call),
    }
}

pub(crate) fn call(format: Format, i: usize, name: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    match format {
        Format::Chat => format!(
            r#"{{"id":"call_{i}","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}{comma}{members}}}"#
        ),
        Format::Messages => {
            format!(r#"{{"type":"tool_use","id":"call_{i}","name":"{name}","input":{{}}{comma}{members}}}"#)
        }
        Format::Responses => format!(
            r#"{{"type":"function_call","call_id":"call_{i}","name":"{name}","arguments":"{{}}"{comma}{members}}}"#
        ),
        Format::Generate => {
            format!(r#"{{"functionCall":{{"id":"call_{i}","name":"{name}","args":{{}}}}{comma}{members}}}"#)
        }
        Format::Converse => converse::call(i, name),
    }
}

/// Returns a turn with `n` tool calls.
pub(crate) fn calls(format: Format, n: usize, members: impl Fn(usize) -> String) -> String {
    collected(format, list(n, |i| call(format, i, "get", &members(i))))
}

pub(crate) fn calls_of(format: Format, n: usize, name: &str) -> String {
    collected(format, list(n, |i| call(format, i, &format!("{name}{i}"), "")))
}

pub(crate) fn collected(format: Format, calls: String) -> String {
    match format {
        Format::Chat => format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#),
        Format::Responses => calls,
        _ => turn(format, "assistant", &calls),
    }
}

pub(crate) fn result(format: Format, i: usize) -> String {
    match format {
        Format::Chat => format!(r#"{{"role":"tool","tool_call_id":"call_{i}","content":"done"}}"#),
        Format::Messages => {
            format!(r#"{{"type":"tool_result","tool_use_id":"call_{i}","content":"done"}}"#)
        }
        Format::Responses => {
            format!(r#"{{"type":"function_call_output","call_id":"call_{i}","output":"done"}}"#)
        }
        Format::Generate => {
            format!(r#"{{"functionResponse":{{"id":"call_{i}","name":"get","response":{{"x":1}}}}}}"#)
        }
        Format::Converse => converse::result(i, &converse::text("done")),
    }
}

/// Returns the result of the first call, with these parts.
pub(crate) fn result_of(format: Format, parts: &str) -> String {
    match format {
        Format::Messages => {
            let block = format!(r#"{{"type":"tool_result","tool_use_id":"call_0","content":[{parts}]}}"#);
            turn(format, "user", &block)
        }
        Format::Chat => format!(r#"{{"role":"tool","tool_call_id":"call_0","content":[{parts}]}}"#),
        Format::Responses => {
            format!(r#"{{"type":"function_call_output","call_id":"call_0","output":[{parts}]}}"#)
        }
        Format::Generate => {
            let part = format!(
                r#"{{"functionResponse":{{"name":"get","id":"call_0","response":{{}},"parts":[{parts}]}}}}"#
            );
            turn(format, "user", &part)
        }
        Format::Converse => turn(format, "user", &converse::result(0, parts)),
    }
}

/// Returns one turn with these tool results, or one turn for each in formats that require it.
pub(crate) fn results(format: Format, which: impl IntoIterator<Item = usize>) -> String {
    let results: Vec<String> = which.into_iter().map(|i| result(format, i)).collect();
    let results = results.join(",");
    match format {
        Format::Chat | Format::Responses => results,
        _ => turn(format, "user", &results),
    }
}

pub(crate) fn called(format: Format, n: usize, order: fn(usize) -> Vec<usize>) -> String {
    let turns = [asks(format), calls(format, n, |_| String::new()), results(format, order(n))];
    whole(format, &turns.join(","), "")
}

/// Returns a request for a response of this schema.
pub(crate) fn answered(format: Format, schema: &str) -> String {
    let member = match format {
        Format::Chat => format!(
            r#""response_format":{{"type":"json_schema","json_schema":{{"name":"x","strict":true,"schema":{schema}}}}}"#
        ),
        Format::Messages => {
            format!(r#""output_config":{{"format":{{"type":"json_schema","schema":{schema}}}}}"#)
        }
        Format::Responses => format!(
            r#""text":{{"format":{{"type":"json_schema","name":"x","strict":true,"schema":{schema}}}}}"#
        ),
        Format::Generate => format!(
            r#""generationConfig":{{"responseMimeType":"application/json","responseJsonSchema":{schema}}}"#
        ),
        Format::Converse => converse::answered(schema),
    };
    whole(format, &asks(format), &member)
}
