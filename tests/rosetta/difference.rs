//! Difference of two JSON documents: one line for each path that differs, in the order of the expected document.

use serde_json::Value;

/// Maximum length of a value in a line, in characters.
const SHOWN: usize = 100;

/// Returns the differences of `found` from `expected`: `-` a missing value, `+` an additional value, `~` another value.
/// The order of object members is ignored.
pub(crate) fn lines(found: &Value, expected: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", found, expected, &mut lines);
    lines
}

fn compare(path: &str, found: &Value, expected: &Value, lines: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (name, value) in expected {
                let path = inside(path, name);
                match found.get(name) {
                    Some(found) => compare(&path, found, value, lines),
                    None => lines.push(format!("- {path}: {}", shown(value))),
                }
            }
            for (name, value) in found.iter().filter(|(name, _)| !expected.contains_key(*name)) {
                lines.push(format!("+ {}: {}", inside(path, name), shown(value)));
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            for (at, value) in expected.iter().enumerate() {
                let path = format!("{path}[{at}]");
                match found.get(at) {
                    Some(found) => compare(&path, found, value, lines),
                    None => lines.push(format!("- {path}: {}", shown(value))),
                }
            }
            for (at, value) in found.iter().enumerate().skip(expected.len()) {
                lines.push(format!("+ {path}[{at}]: {}", shown(value)));
            }
        }
        _ if found == expected => {}
        _ => lines.push(format!("~ {path}: {} instead of {}", shown(found), shown(expected))),
    }
}

fn inside(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
