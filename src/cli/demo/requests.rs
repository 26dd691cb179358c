//! Human-readable access log lines of the demo.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::style;

/// Width of the path column: the longest path of an SDK without the model name.
const PATH: usize = 38;
/// Width of the model column: the longest model name of an SDK example.
const MODEL: usize = 22;

/// Formats an access log line. Any other text is returned unchanged.
pub(super) fn pretty(line: &str) -> String {
    match serde_json::from_str(line) {
        Ok(entry) => request(&entry),
        Err(_) => format!("{line}\n"),
    }
}

fn request(entry: &Value) -> String {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| entry.get(name).and_then(Value::as_u64);
    let model = text("model");
    let mut path = text("path").to_owned();
    if !model.is_empty() {
        // The model has its own column.
        path = path.replace(model, "*");
    }
    let status = number("status").unwrap_or(0);
    let mut out = format!("{:4} {path:PATH$} ", text("method"));
    let _ = if status < 400 {
        write!(out, "{}", style::good(status))
    } else {
        write!(out, "{}", style::bad(status))
    };
    let tokens = match (number("input_tokens"), number("output_tokens")) {
        (None, None) => String::new(),
        (input, output) => {
            format!("{} in {} out", input.unwrap_or_default(), output.unwrap_or_default())
        }
    };
    let millis = entry.get("duration_ms").and_then(Value::as_f64).unwrap_or_default();
    let _ = write!(out, "  {model:MODEL$}  {tokens:14} {millis:>7.1} ms");
    if entry.get("stream").and_then(Value::as_bool).unwrap_or_default() {
        let _ = write!(out, "  {}", style::faint("stream"));
    }
    let error = text("error");
    if !error.is_empty() {
        let _ = write!(out, "  {}", style::bad(error));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn request_is_shown_as_one_line() {
        let line = r#"{"method":"POST","path":"/v1beta/models/gemini-2.5-flash:generateContent","status":200,
            "model":"gemini-2.5-flash","stream":false,"input_tokens":3,"output_tokens":20,"duration_ms":12.345}"#;
        assert_eq!(
            pretty(line),
            "POST /v1beta/models/*:generateContent       200  gemini-2.5-flash        3 in 20 out       12.3 ms\n"
        );
    }

    #[test]
    fn request_error_is_shown_by_name() {
        let line = r#"{"method":"POST","path":"/v1/responses","status":429,"stream":true,"error":"upstream_rate_limit",
            "duration_ms":1.0}"#;
        let shown = pretty(line);
        assert!(shown.contains(" 429 ") && shown.ends_with("stream  upstream_rate_limit\n"), "{shown}");
    }

    #[test]
    fn request_log_keeps_other_lines_unchanged() {
        assert_eq!(pretty("a warning"), "a warning\n");
    }
}
