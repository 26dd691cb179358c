//! Requests with many of one element, in each format that has the element.
//!
//! Here live texts. What measures them lives in `measured`.

use codec::wire::Format;

use crate::converse;
use crate::words::{
    SCHEMA, allowed, asks, call_turn, called, calls, calls_of, chosen, image, list, members, one, result_of,
    results, settings, text, tool, turn, turn_with, whole, with_tools,
};

/// Builds a request with `n` elements. `None` if the format does not have the element.
pub(crate) type Build = fn(Format, usize) -> Option<String>;

/// Name and builder of each shape of a request.
pub(crate) const SHAPES: [(&str, Build); 48] = [
    ("unknown members", |format, n| Some(whole(format, &asks(format), &members(n)))),
    ("unknown members of settings", settings),
    ("unknown members of a turn", |format, n| {
        Some(one(format, &turn_with(format, "user", &text(format, "x"), &members(n))))
    }),
    ("unknown members of a part", |format, n| {
        let part = text(format, "x").replace('}', &format!(",{}}}", members(n)));
        Some(one(format, &turn(format, "user", &part)))
    }),
    ("unknown members of a tool", |format, n| {
        let tool = tool(format, "get", SCHEMA, &members(n));
        Some(with_tools(format, &asks(format), &tool, ""))
    }),
    ("unknown members of a call", |format, n| {
        let turns = [asks(format), calls(format, 1, |_| members(n)), results(format, 0..1)];
        Some(whole(format, &turns.join(","), ""))
    }),
    ("calls, results in order", |format, n| Some(called(format, n, |n| (0..n).collect()))),
    ("calls, results in reverse", |format, n| Some(called(format, n, |n| (0..n).rev().collect()))),
    ("calls, results in some order", |format, n| {
        Some(called(format, n, |n| (0..n).map(|i| (i * 7 + 3) % n).collect()))
    }),
    ("calls, each with its result", |format, n| {
        let turns = list(n, |i| [call_turn(format, i), results(format, i..i + 1)].join(","));
        Some(whole(format, &[asks(format), turns].join(","), ""))
    }),
    ("calls, a result in a turn", |format, n| {
        let results = list(n, |i| results(format, n - 1 - i..n - i));
        Some(whole(format, &[asks(format), calls(format, n, |_| String::new()), results].join(","), ""))
    }),
    ("calls in turns of the model", |format, n| {
        let calls = list(n, |i| call_turn(format, i));
        let turns = [asks(format), calls, results(format, 0..n)];
        Some(whole(format, &turns.join(","), ""))
    }),
    ("calls of one name, without ids", |format, n| {
        let bare = |kind: &str| {
            list(n, |i| match kind {
                "call" => format!(r#"{{"functionCall":{{"name":"get","args":{{"i":{i}}}}}}}"#),
                _ => format!(r#"{{"functionResponse":{{"name":"get","response":{{"i":{i}}}}}}}"#),
            })
        };
        (format == Format::Generate).then(|| {
            let turns = [
                asks(format),
                turn(format, "assistant", &bare("call")),
                turn(format, "user", &bare("result")),
            ];
            whole(format, &turns.join(","), "")
        })
    }),
    ("calls of many names, without ids", |format, n| {
        let calls = list(n, |i| format!(r#"{{"functionCall":{{"name":"get_{i}","args":{{}}}}}}"#));
        let results = list(n, |i| {
            let i = n - 1 - i;
            format!(r#"{{"functionResponse":{{"name":"get_{i}","id":"other_{i}","response":{{}}}}}}"#)
        });
        (format == Format::Generate).then(|| {
            let turns = [asks(format), turn(format, "assistant", &calls), turn(format, "user", &results)];
            whole(format, &turns.join(","), "")
        })
    }),
    ("results without calls", |format, n| {
        let turns = [asks(format), calls(format, 1, |_| String::new()), results(format, 0..n)];
        Some(whole(format, &turns.join(","), ""))
    }),
    ("a result with many parts", |format, n| {
        let parts = list(n, |i| match format {
            Format::Generate => {
                let data = format!("iVBORw0KGg{:02}", i % 100);
                format!(r#"{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}"#)
            }
            _ => text(format, &format!("part {i}")),
        });
        let turns = [asks(format), calls(format, 1, |_| String::new()), result_of(format, &parts)];
        Some(whole(format, &turns.join(","), ""))
    }),
    // Long enough that a copy of all of them for each costs more than the rest.
    ("a result with many long texts", |format, n| {
        let parts = list(n, |_| text(format, &"long ".repeat(400)));
        let turns = [asks(format), calls(format, 1, |_| String::new()), result_of(format, &parts)];
        (format != Format::Generate).then(|| whole(format, &turns.join(","), ""))
    }),
    ("tools", |format, n| {
        let tools = list(n, |i| tool(format, &format!("tool_{i}"), SCHEMA, ""));
        Some(with_tools(format, &asks(format), &tools, ""))
    }),
    ("tools, one of them chosen", |format, n| {
        let tools = list(n, |i| tool(format, &format!("tool_{i}"), SCHEMA, ""));
        let choice = chosen(format, &format!("tool_{}", n - 1));
        Some(with_tools(format, &asks(format), &tools, &choice))
    }),
    ("tools, all of them allowed", |format, n| {
        let tools = list(n, |i| tool(format, &format!("tool_{i}"), SCHEMA, ""));
        Some(with_tools(format, &asks(format), &tools, &allowed(format, n, "tool_")?))
    }),
    ("tools with names of their own kind", |format, n| {
        let tools = list(n, |i| tool(format, &format!("some tool/{i}"), SCHEMA, ""));
        Some(with_tools(format, &asks(format), &tools, ""))
    }),
    ("names of their own kind, allowed and called", |format, n| {
        let tools = list(n, |i| tool(format, &format!("some tool/{i}"), SCHEMA, ""));
        let choice = allowed(format, n, "some tool/").unwrap_or_default();
        let turns = [asks(format), calls_of(format, n, "some tool/"), results(format, 0..n)].join(",");
        Some(with_tools(format, &turns, &tools, &choice))
    }),
    ("names of their own kind, not declared", |format, n| {
        let turns = [asks(format), calls_of(format, n, "some tool/"), results(format, 0..n)].join(",");
        Some(whole(format, &turns, ""))
    }),
    ("custom tools, called", |format, n| {
        let tools = list(n, |i| match format {
            Format::Chat => {
                format!(r#"{{"type":"custom","custom":{{"name":"custom_{i}","description":"x"}}}}"#)
            }
            _ => format!(r#"{{"type":"custom","name":"custom_{i}","description":"x"}}"#),
        });
        let history = match format {
            Format::Chat => {
                let calls = list(n, |i| {
                    format!(
                        r#"{{"id":"call_{i}","type":"custom","custom":{{"name":"custom_{i}","input":"x"}}}}"#
                    )
                });
                let call = format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#);
                [call, results(format, 0..n)].join(",")
            }
            _ => {
                let calls = list(n, |i| {
                    format!(
                        r#"{{"type":"custom_tool_call","call_id":"call_{i}","name":"custom_{i}","input":"x"}}"#
                    )
                });
                let results = list(n, |i| {
                    format!(r#"{{"type":"custom_tool_call_output","call_id":"call_{i}","output":"x"}}"#)
                });
                [calls, results].join(",")
            }
        };
        let turns = [asks(format), history].join(",");
        matches!(format, Format::Chat | Format::Responses).then(|| with_tools(format, &turns, &tools, ""))
    }),
    ("namespaces", |format, n| {
        let tools = list(n, |i| {
            let inner = tool(format, "get", SCHEMA, "");
            format!(r#"{{"type":"namespace","name":"space_{i}","description":"x","tools":[{inner}]}}"#)
        });
        let calls = list(n, |i| {
            format!(
                r#"{{"type":"function_call","call_id":"call_{i}","name":"get","namespace":"space_{i}","arguments":"{{}}"}}"#
            )
        });
        let turns = [asks(format), calls, results(format, 0..n)].join(",");
        (format == Format::Responses).then(|| with_tools(format, &turns, &tools, ""))
    }),
    ("tools in one namespace", |format, n| {
        let tools = list(n, |i| tool(format, &format!("tool_{i}"), SCHEMA, ""));
        let space = format!(r#"{{"type":"namespace","name":"space","description":"x","tools":[{tools}]}}"#);
        let choice = allowed(format, n, "tool_")?;
        (format == Format::Responses).then(|| with_tools(format, &asks(format), &space, &choice))
    }),
    ("tools that the provider runs", |format, n| {
        let tools = list(n, |i| match format {
            Format::Chat => format!(r#"{{"type":"hosted_{i}"}}"#),
            Format::Messages => format!(r#"{{"type":"hosted_{i}","name":"tool_{i}"}}"#),
            Format::Responses => format!(r#"{{"type":"mcp","server_label":"server_{i}"}}"#),
            Format::Generate => format!(r#"{{"hosted{i}":{{}}}}"#),
            Format::Converse => format!(r#"{{"systemTool":{{"name":"hosted_{i}"}}}}"#),
        });
        Some(match format {
            Format::Generate => whole(format, &asks(format), &format!(r#""tools":[{tools}]"#)),
            _ => with_tools(format, &asks(format), &tools, ""),
        })
    }),
    ("reasoning", |format, n| {
        let turns = match format {
            Format::Chat => list(n, |i| {
                format!(
                    r#"{{"role":"assistant","content":"x","reasoning_content":"thought {i}"}},{{"role":"user","content":"x"}}"#
                )
            }),
            Format::Messages => {
                let blocks = list(n, |i| {
                    format!(r#"{{"type":"thinking","thinking":"thought {i}","signature":"c2lnbmVk{i}"}}"#)
                });
                turn(format, "assistant", &[blocks, text(format, "x")].join(","))
            }
            Format::Responses => list(n, |i| {
                format!(
                    r#"{{"type":"reasoning","id":"rs_{i}","summary":[{{"type":"summary_text","text":"thought {i}"}}],"encrypted_content":"c2lnbmVk"}}"#
                )
            }),
            Format::Generate => {
                let parts = list(n, |i| {
                    format!(
                        r#"{{"text":"thought {i}","thought":true}},{{"text":"x","thoughtSignature":"c2ln"}}"#
                    )
                });
                turn(format, "assistant", &parts)
            }
            Format::Converse => turn(format, "assistant", &list(n, converse::reasoning)),
        };
        Some(whole(format, &[asks(format), turns, asks(format)].join(","), ""))
    }),
    ("reasoning and calls", |format, n| {
        let turns = list(n, |i| {
            let thought = match format {
                Format::Responses => {
                    format!(
                        r#"{{"type":"reasoning","id":"rs_{i}","summary":[{{"type":"summary_text","text":"thought"}}],"encrypted_content":"c2ln"}}"#
                    )
                }
                Format::Messages => turn(
                    format,
                    "assistant",
                    r#"{"type":"thinking","thinking":"thought","signature":"c2lnbmVk"}"#,
                ),
                Format::Generate => turn(
                    format,
                    "assistant",
                    r#"{"text":"thought","thought":true,"thoughtSignature":"c2ln"}"#,
                ),
                Format::Chat => {
                    r#"{"role":"assistant","content":null,"reasoning_content":"thought"}"#.to_owned()
                }
                Format::Converse => turn(format, "assistant", &converse::reasoning(i)),
            };
            [thought, call_turn(format, i)].join(",")
        });
        Some(whole(format, &[asks(format), turns, results(format, 0..n)].join(","), ""))
    }),
    ("images", |format, n| Some(one(format, &turn(format, "user", &list(n, |i| image(format, i)))))),
    ("images by address", |format, n| {
        let images = list(n, |i| match format {
            Format::Chat => {
                format!(r#"{{"type":"image_url","image_url":{{"url":"https://example.com/{i}.png"}}}}"#)
            }
            Format::Messages => {
                format!(r#"{{"type":"image","source":{{"type":"url","url":"https://example.com/{i}.png"}}}}"#)
            }
            Format::Responses => {
                format!(r#"{{"type":"input_image","image_url":"https://example.com/{i}.png"}}"#)
            }
            Format::Generate => {
                format!(
                    r#"{{"fileData":{{"mimeType":"image/png","fileUri":"https://example.com/{i}.png"}}}}"#
                )
            }
            // Images have no address.
            Format::Converse => image(format, i),
        });
        Some(one(format, &turn(format, "user", &images)))
    }),
    ("images in results", |format, n| {
        let turns = list(n, |i| {
            let result = match format {
                Format::Chat => format!(
                    r#"{{"role":"tool","tool_call_id":"call_{i}","content":[{},{}]}}"#,
                    text(format, "x"),
                    image(format, i)
                ),
                Format::Messages => {
                    let image = image(format, i);
                    turn(
                        format,
                        "user",
                        &format!(r#"{{"type":"tool_result","tool_use_id":"call_{i}","content":[{image}]}}"#),
                    )
                }
                Format::Responses => {
                    let image = image(format, i);
                    format!(r#"{{"type":"function_call_output","call_id":"call_{i}","output":[{image}]}}"#)
                }
                Format::Generate => results(format, i..i + 1),
                Format::Converse => turn(format, "user", &converse::result(i, &image(format, i))),
            };
            [call_turn(format, i), result].join(",")
        });
        Some(whole(format, &[asks(format), turns].join(","), ""))
    }),
    ("files", |format, n| {
        let files = list(n, |i| {
            let data = "JVBERi0xLjQKJQ==";
            match format {
                Format::Chat => {
                    format!(
                        r#"{{"type":"file","file":{{"filename":"{i}.pdf","file_data":"data:application/pdf;base64,{data}"}}}}"#
                    )
                }
                Format::Messages => {
                    format!(
                        r#"{{"type":"document","title":"{i}","source":{{"type":"base64","media_type":"application/pdf","data":"{data}"}}}}"#
                    )
                }
                Format::Responses => {
                    format!(
                        r#"{{"type":"input_file","filename":"{i}.pdf","file_data":"data:application/pdf;base64,{data}"}}"#
                    )
                }
                Format::Generate => {
                    format!(
                        r#"{{"inlineData":{{"mimeType":"application/pdf","data":"{data}","displayName":"{i}"}}}}"#
                    )
                }
                Format::Converse => converse::document_block(i, data),
            }
        });
        Some(one(format, &turn(format, "user", &files)))
    }),
    ("sounds", |format, n| {
        let sounds = list(n, |i| match format {
            Format::Chat => {
                format!(
                    r#"{{"type":"input_audio","input_audio":{{"data":"UklGRiQA{:04}","format":"wav"}}}}"#,
                    i % 9999
                )
            }
            _ => format!(r#"{{"inlineData":{{"mimeType":"audio/wav","data":"UklGRiQA{:04}"}}}}"#, i % 9999),
        });
        matches!(format, Format::Chat | Format::Generate).then(|| one(format, &turn(format, "user", &sounds)))
    }),
    ("stop sequences", |format, n| {
        let stops = list(n, |i| format!("\"stop {i}\""));
        let name = match format {
            Format::Chat => format!(r#""stop":[{stops}]"#),
            Format::Messages => format!(r#""stop_sequences":[{stops}]"#),
            Format::Generate => format!(r#""generationConfig":{{"stopSequences":[{stops}]}}"#),
            Format::Converse => format!(r#""inferenceConfig":{{"stopSequences":[{stops}]}}"#),
            Format::Responses => return None,
        };
        Some(whole(format, &asks(format), &name))
    }),
    ("instructions", |format, n| {
        let blocks = list(n, |i| match format {
            Format::Messages | Format::Generate | Format::Converse => text(format, &format!("rule {i}")),
            _ => turn(format, "system", &text(format, &format!("rule {i}"))),
        });
        Some(match format {
            Format::Messages | Format::Converse => {
                whole(format, &asks(format), &format!(r#""system":[{blocks}]"#))
            }
            Format::Generate => {
                whole(format, &asks(format), &format!(r#""systemInstruction":{{"parts":[{blocks}]}}"#))
            }
            _ => whole(format, &[blocks, asks(format)].join(","), ""),
        })
    }),
    ("instructions in between", |format, n| {
        let turns = list(n, |i| {
            [
                turn(format, "user", &text(format, "x")),
                turn(format, "system", &text(format, &format!("rule {i}"))),
            ]
            .join(",")
        });
        matches!(format, Format::Chat | Format::Responses)
            .then(|| whole(format, &[turns, asks(format)].join(","), ""))
    }),
    ("marks for the cache", |format, n| {
        let blocks = list(n, |i| {
            format!(r#"{{"type":"text","text":"part {i}","cache_control":{{"type":"ephemeral"}}}}"#)
        });
        matches!(format, Format::Messages | Format::Chat).then(|| one(format, &turn(format, "user", &blocks)))
    }),
    ("texts", |format, n| {
        Some(one(format, &turn(format, "user", &list(n, |i| text(format, &format!("part {i}"))))))
    }),
    ("texts of the model", |format, n| {
        let answer = match format {
            Format::Responses => {
                let parts =
                    list(n, |i| format!(r#"{{"type":"output_text","text":"part {i}","annotations":[]}}"#));
                format!(r#"{{"type":"message","role":"assistant","content":[{parts}]}}"#)
            }
            _ => turn(format, "assistant", &list(n, |i| text(format, &format!("part {i}")))),
        };
        Some(whole(format, &[asks(format), answer, asks(format)].join(","), ""))
    }),
    ("turns", |format, n| {
        let turns = list(n, |i| {
            let answer = match format {
                Format::Responses => format!(r#"{{"role":"assistant","content":"answer {i}"}}"#),
                _ => turn(format, "assistant", &text(format, &format!("answer {i}"))),
            };
            [asks(format), answer].join(",")
        });
        Some(whole(format, &[turns, asks(format)].join(","), ""))
    }),
    ("turns of one speaker", |format, n| Some(whole(format, &list(n, |_| asks(format)), ""))),
    ("turns of the model", |format, n| {
        let turns = list(n, |i| match format {
            Format::Responses => format!(r#"{{"role":"assistant","content":"answer {i}"}}"#),
            _ => turn(format, "assistant", &text(format, &format!("answer {i}"))),
        });
        Some(whole(format, &[asks(format), turns].join(","), ""))
    }),
    ("empty turns", |format, n| {
        let turns = list(n, |i| turn(format, if i % 2 == 0 { "user" } else { "assistant" }, ""));
        Some(whole(format, &[asks(format), turns, asks(format)].join(","), ""))
    }),
    ("parts of an unknown kind", |format, n| {
        let parts = list(n, |i| match format {
            Format::Generate => format!(r#"{{"executableCode":{{"language":"PYTHON","code":"{i}"}}}}"#),
            Format::Converse => converse::server_call(i),
            _ => format!(
                r#"{{"type":"server_tool_use","id":"srvtoolu_{i}","name":"web_search","input":{{}}}}"#
            ),
        });
        match format {
            Format::Messages | Format::Generate | Format::Converse => {
                let answer = turn(format, "assistant", &parts);
                Some(whole(format, &[asks(format), answer, asks(format)].join(","), ""))
            }
            Format::Responses => {
                let items = list(n, |i| {
                    format!(r#"{{"type":"web_search_call","id":"ws_{i}","status":"completed"}}"#)
                });
                Some(whole(format, &[asks(format), items, asks(format)].join(","), ""))
            }
            Format::Chat => None,
        }
    }),
    ("calls with seals apart", |format, n| {
        let calls = list(n, |i| {
            format!(r#"{{"id":"call_{i}","type":"function","function":{{"name":"get","arguments":"{{}}"}}}}"#)
        });
        let details = list(n, |i| {
            format!(
                r#"{{"type":"reasoning.encrypted","id":"call_{i}","data":"gw1.provider.c2lnbmVk","index":{i}}}"#
            )
        });
        let turn = format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{calls}],"reasoning_details":[{details}]}}"#
        );
        (format == Format::Chat)
            .then(|| whole(format, &[asks(format), turn, results(format, 0..n)].join(","), ""))
    }),
    ("texts, then results", |format, n| {
        let texts = turn(format, "user", &list(n, |i| text(format, &format!("part {i}"))));
        let turns = [asks(format), calls(format, n, |_| String::new()), texts, results(format, 0..n)];
        Some(whole(format, &turns.join(","), ""))
    }),
    ("domains, words and other lists", |format, n| {
        let words = list(n, |i| format!("\"word{i}.example.com\""));
        let member = match format {
            Format::Chat => format!(r#""modalities":[{words}]"#),
            Format::Messages => {
                format!(
                    r#""tools":[{{"type":"web_search_20250305","name":"web_search","allowed_domains":[{words}]}}]"#
                )
            }
            Format::Responses => {
                format!(
                    r#""include":[{words}],"tools":[{{"type":"web_search","filters":{{"allowed_domains":[{words}]}}}}]"#
                )
            }
            Format::Generate => {
                format!(r#""safetySettings":[{}]"#, list(n, |i| format!(r#"{{"category":"{i}"}}"#)))
            }
            Format::Converse => format!(r#""additionalModelResponseFieldPaths":[{words}]"#),
        };
        Some(whole(format, &asks(format), &member))
    }),
];

/// Returns a request with `n` tools whose names are not valid in every format.
pub(crate) fn with_other_names(n: usize) -> String {
    let tools = list(n, |i| tool(Format::Responses, &format!("some tool/{i}"), SCHEMA, ""));
    with_tools(Format::Responses, &asks(Format::Responses), &tools, "")
}
