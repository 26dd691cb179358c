//! TOML: keys are set and removed in the text, at the positions that the parser reports.

use serde_json::Value;
use toml_edit::{Document, Item, Table};

use super::{NewValue, SyntaxFault, TextEdit, line_end, line_start, next_line, slice};

fn parse(text: &str) -> Result<Document<&str>, SyntaxFault> {
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        SyntaxFault::at(text, at, error.message().lines().next().unwrap_or("not valid TOML"))
    })
}

pub(super) fn check(text: &str) -> Result<(), SyntaxFault> {
    parse(text).map(|_| ())
}

/// Returns the item at a path, or `None` if it is absent.
fn item<'d>(document: &'d Document<&str>, path: &[String]) -> Option<&'d Item> {
    let mut item = document.as_item();
    for name in path {
        item = item.get(name.as_str())?;
    }
    Some(item)
}

pub(super) fn get(text: &str, path: &[String]) -> Result<Option<String>, SyntaxFault> {
    let document = parse(text)?;
    let span = item(&document, path).and_then(Item::as_value).and_then(toml_edit::Value::span);
    Ok(span.map(|span| slice(text, span.start, span.end).to_owned()))
}

pub(super) fn has_table(text: &str, path: &[String]) -> Result<bool, SyntaxFault> {
    Ok(item(&parse(text)?, path).is_some())
}

pub(super) fn set(text: &str, path: &[String], value: NewValue<'_>) -> Result<Vec<TextEdit>, SyntaxFault> {
    let document = parse(text)?;
    let source = match value {
        NewValue::Source(source) => source.to_owned(),
        NewValue::Rendered(value) => render(value),
    };
    let Some((name, parents)) = path.split_last() else { return Ok(Vec::new()) };
    if let Some(there) = item(&document, path) {
        let Some(span) = there.as_value().and_then(toml_edit::Value::span) else {
            return Err(fault(text, &document, path, "is a table, not a value"));
        };
        if slice(text, span.start, span.end) == source {
            return Ok(Vec::new());
        }
        return Ok(vec![TextEdit { start: span.start, end: span.end, text: source }]);
    }
    let newline = line_end(text);
    let line = format!("{} = {source}{newline}", quoted(name));
    let edit = match item(&document, parents) {
        _ if parents.is_empty() => TextEdit::insert(behind_root_keys(text, document.as_table()), line),
        Some(Item::Table(table)) if table.is_dotted() => {
            return Err(fault(text, &document, parents, "is written with dotted keys; write it as a table"));
        }
        // A table that exists by its subtables only has no header yet.
        Some(Item::Table(table)) if !table.is_implicit() => TextEdit::insert(behind_keys(text, table), line),
        Some(Item::Table(_)) | None => {
            for length in 1..parents.len() {
                let parent = parents.get(..length).unwrap_or_default();
                if item(&document, parent).is_some_and(|item| !item.is_table()) {
                    return Err(fault(text, &document, parent, "is not a table with a header of its own"));
                }
            }
            let before = match text {
                "" => String::new(),
                _ if text.ends_with('\n') => newline.to_owned(),
                _ => newline.repeat(2),
            };
            let header: Vec<String> = parents.iter().map(|name| quoted(name)).collect();
            let table = format!("{before}[{}]{newline}{line}", header.join("."));
            TextEdit::insert(text.len(), table)
        }
        Some(_) => {
            return Err(fault(text, &document, parents, "is not a table with a header of its own"));
        }
    };
    // A file without a line end at its end.
    let text_before = slice(text, 0, edit.start);
    if edit.start == text.len()
        && !text_before.is_empty()
        && !text_before.ends_with('\n')
        && !edit.text.starts_with(newline)
    {
        return Ok(vec![TextEdit::insert(edit.start, format!("{newline}{}", edit.text))]);
    }
    Ok(vec![edit])
}

/// Returns the fault of an item.
fn fault(text: &str, document: &Document<&str>, path: &[String], what: &str) -> SyntaxFault {
    let parent = path.get(..path.len().saturating_sub(1)).unwrap_or_default();
    let table = item(document, parent).and_then(Item::as_table_like);
    let name = path.last().map_or("", String::as_str);
    let span = table.and_then(|table| table.key(name)).and_then(toml_edit::Key::span);
    SyntaxFault::at(text, span.map_or(0, |span| span.start), format!("{} {what}", path.join(".")))
}

/// Returns the end of the last value of a table, its subtables with headers not included. `None` if it has none.
fn end_of_values(table: &Table) -> Option<usize> {
    let ends = table.iter().filter_map(|(_, item)| match item {
        Item::Value(value) => value.span().map(|span| span.end),
        Item::Table(inner) if inner.is_dotted() => end_of_values(inner),
        _ => None,
    });
    ends.max()
}

/// Returns the position behind the last key of a table with a header.
fn behind_keys(text: &str, table: &Table) -> usize {
    let header = table.span().map_or(0, |span| span.start);
    next_line(text, end_of_values(table).unwrap_or(header))
}

/// Returns the position behind the last key at the top level: before the first header.
fn behind_root_keys(text: &str, root: &Table) -> usize {
    if let Some(end) = end_of_values(root) {
        return next_line(text, end);
    }
    // Comments at the top that are set off by a blank line describe the file. A schema directive is the first line.
    let mut at = 0;
    while slice(text, at, text.len()).starts_with('#') {
        at = next_line(text, at);
    }
    let rest = slice(text, at, text.len());
    let set_off = rest.is_empty() || rest.starts_with('\n') || rest.starts_with("\r\n");
    match set_off {
        true => at,
        false if text.starts_with("#:schema") => next_line(text, 0),
        false => 0,
    }
}

pub(super) fn remove(text: &str, path: &[String]) -> Result<Vec<TextEdit>, SyntaxFault> {
    let document = parse(text)?;
    let Some((name, parents)) = path.split_last() else { return Ok(Vec::new()) };
    let Some(value) = item(&document, path) else { return Ok(Vec::new()) };
    let Some(value) = value.as_value().and_then(toml_edit::Value::span) else {
        return Err(fault(text, &document, path, "is a table, not a value"));
    };
    let table = item(&document, parents).and_then(Item::as_table);
    let Some(key) = table.and_then(|table| table.key(name)).and_then(toml_edit::Key::span) else {
        return Err(fault(text, &document, path, "stands in an inline table"));
    };
    Ok(vec![TextEdit::delete(line_start(text, key.start), next_line(text, value.end))])
}

pub(super) fn remove_empty(text: &str, path: &[String]) -> Result<Vec<TextEdit>, SyntaxFault> {
    let document = parse(text)?;
    let Some(Item::Table(table)) = item(&document, path) else { return Ok(Vec::new()) };
    let Some(span) = table.span().filter(|_| table.is_empty() && !table.is_implicit()) else {
        return Ok(Vec::new());
    };
    let mut start = line_start(text, span.start);
    // The blank line before the header was inserted with it.
    let before = slice(text, 0, start);
    for blank in ["\r\n\r\n", "\n\n"] {
        if before.ends_with(blank) {
            start -= blank.len() / 2;
            break;
        }
    }
    Ok(vec![TextEdit::delete(start, next_line(text, span.start))])
}

/// Renders a value. Objects become inline tables.
fn render(value: &Value) -> String {
    match value {
        Value::String(text) => toml_edit::Value::from(text.as_str()).to_string(),
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(render).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{} = {}", quoted(name), render(value))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns a key, in quotes if its characters need them.
fn quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        name.to_owned()
    } else {
        toml_edit::Value::from(name).to_string()
    }
}
