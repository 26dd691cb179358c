//! Files of independent lines: environment files, YAML with a block mapping, and shell scripts.
//!
//! Written lines stand in one marked block at the end. A line that the block replaces is commented out with a mark, so
//! that it can be put back at its place.

use serde_json::Value;

use super::{FileSyntax, SyntaxFault, TextEdit, line_end};

/// First line of the block.
const BEGIN: &str = "# >>> model-gateway >>>";
/// Last line of the block.
const END: &str = "# <<< model-gateway <<<";
/// Mark of a line that the block replaces.
const REPLACED: &str = "# model-gateway replaces: ";

/// Line with its position.
#[derive(Clone, Copy)]
struct Line<'t> {
    /// Number, from 1.
    number: usize,
    start: usize,
    /// Position behind the line end.
    end: usize,
    /// Text without the line end.
    text: &'t str,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    text.split_inclusive('\n').enumerate().map(move |(index, whole)| {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = Line {
            number: index + 1,
            start,
            end: start + whole.len(),
            text: line.strip_suffix('\r').unwrap_or(line),
        };
        start = line.end;
        line
    })
}

/// Marked block: its first line, its inner lines, its last line.
struct Block<'t> {
    begin: Line<'t>,
    inner: Vec<Line<'t>>,
    end: Line<'t>,
}

/// Returns the block, or `None` if there is no complete one.
fn block(text: &str) -> Option<Block<'_>> {
    let mut lines = lines(text).skip_while(|line| line.text != BEGIN);
    let begin = lines.next()?;
    let mut inner = Vec::new();
    for line in lines {
        if line.text == END {
            return Some(Block { begin, inner, end: line });
        }
        inner.push(line);
    }
    None
}

/// Returns the key that a line sets, with its value. `None` for a comment, a blank line and a line of another kind.
fn assignment(syntax: FileSyntax, line: &str) -> Option<(&str, &str)> {
    let (name, value) = match syntax {
        FileSyntax::Env => {
            let line = line.trim_start();
            let line = line.strip_prefix("export ").unwrap_or(line);
            line.split_once('=')?
        }
        FileSyntax::Yaml if line.starts_with([' ', '\t', '#', '-']) => return None,
        FileSyntax::Yaml => {
            let (name, value) = line.split_once(':')?;
            (name.trim_matches(['"', '\'']), value)
        }
        _ => return None,
    };
    let name = name.trim();
    let word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    (!name.is_empty() && name.chars().all(word)).then_some((name, value.trim()))
}

pub(super) fn check(syntax: FileSyntax, text: &str) -> Result<(), SyntaxFault> {
    let fault = |line: Line<'_>, what: String| Err(SyntaxFault { line: line.number, what });
    let marks: Vec<Line<'_>> = lines(text).filter(|line| line.text == BEGIN || line.text == END).collect();
    match marks.as_slice() {
        [] => {}
        [begin, end] if begin.text == BEGIN && end.text == END => {}
        [first, ..] => {
            return fault(*first, "the marks of model-gateway are not one pair; remove them".to_owned());
        }
    }
    if syntax == FileSyntax::Shell {
        let last = lines(text).last();
        return match last.filter(|line| line.text.ends_with('\\')) {
            Some(line) => fault(line, "the last line ends with a backslash".to_owned()),
            None => Ok(()),
        };
    }
    // Indented YAML lines belong to the value before them.
    let mut within = false;
    for line in lines(text) {
        let content = line.text.trim();
        if content.is_empty()
            || content.starts_with('#')
            || (syntax == FileSyntax::Yaml && line.number == 1 && content == "---")
        {
            continue;
        }
        let nested = syntax == FileSyntax::Yaml && line.text.starts_with([' ', '\t', '-']);
        match assignment(syntax, line.text) {
            Some((_, value)) if syntax == FileSyntax::Env => {
                if let Some(quote) = open_quote(value) {
                    return fault(line, format!("the value has no closing {quote} on this line"));
                }
            }
            Some(_) => within = true,
            None if nested && within && !content.starts_with("---") => {}
            None => {
                let expected = if syntax == FileSyntax::Env { "NAME=value" } else { "name: value" };
                return fault(line, format!("the line is not of the form {expected}"));
            }
        }
    }
    Ok(())
}

/// Returns the quote that a value begins with and does not close; otherwise `None`.
fn open_quote(value: &str) -> Option<char> {
    let quote = value.chars().next().filter(|c| ['"', '\'', '`'].contains(c))?;
    value.get(1..).is_some_and(|rest| !rest.contains(quote)).then_some(quote)
}

/// Returns the active value of a key: that of its last line. For a script, the text of the block.
pub(super) fn get(syntax: FileSyntax, text: &str, name: &str) -> Option<String> {
    if syntax == FileSyntax::Shell {
        let block = block(text)?;
        let inner: Vec<&str> = block.inner.iter().map(|line| line.text).collect();
        return Some(inner.join("\n"));
    }
    let values = lines(text).filter_map(|line| assignment(syntax, line.text));
    values.filter(|(key, _)| *key == name).last().map(|(_, value)| value.to_owned())
}

pub(super) fn set(
    syntax: FileSyntax,
    text: &str,
    name: &str,
    value: &Value,
) -> Result<Vec<TextEdit>, SyntaxFault> {
    check(syntax, text)?;
    let newline = line_end(text);
    let new = match syntax {
        FileSyntax::Env => format!("{name}={}", env_value(value)),
        // A JSON string is a valid YAML scalar.
        FileSyntax::Yaml => format!("{name}: {value}"),
        _ => value.as_str().unwrap_or_default().replace('\n', newline),
    };
    if syntax == FileSyntax::Yaml
        && let Some(line) = continued(text, name)
    {
        let what = format!("the value of {name} continues on the next line; write it on one line");
        return Err(SyntaxFault { line, what });
    }
    let block = block(text);
    let mut edits = comment_out_except(syntax, text, name, block.as_ref());
    edits.push(match block {
        Some(block) => {
            let same = |line: &&Line<'_>| {
                syntax == FileSyntax::Shell
                    || assignment(syntax, line.text).is_some_and(|(key, _)| key == name)
            };
            let old: Vec<&Line<'_>> = block.inner.iter().filter(same).collect();
            let start = old.first().map_or(block.end.start, |line| line.start);
            let end = old.last().map_or(start, |line| line.end);
            TextEdit { start, end, text: format!("{new}{newline}") }
        }
        None => {
            let before = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
            let block = format!("{before}{BEGIN}{newline}{new}{newline}{END}{newline}");
            TextEdit::insert(text.len(), block)
        }
    });
    Ok(edits)
}

/// Returns the line of a key whose value is continued by indented lines.
fn continued(text: &str, name: &str) -> Option<usize> {
    let mut current = None;
    for line in lines(text) {
        match assignment(FileSyntax::Yaml, line.text) {
            Some((key, _)) => current = (key == name).then_some(line.number),
            None if line.text.trim().is_empty() || line.text.starts_with('#') => {}
            None => {
                if current.is_some() {
                    return current;
                }
            }
        }
    }
    None
}

fn env_value(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+~=,".contains(&byte);
    if text.bytes().all(plain) { text } else { format!("'{text}'") }
}

/// Comments out the lines that set a key, outside of the block.
pub(super) fn comment_out(syntax: FileSyntax, text: &str, name: &str) -> Vec<TextEdit> {
    comment_out_except(syntax, text, name, block(text).as_ref())
}

fn comment_out_except(
    syntax: FileSyntax,
    text: &str,
    name: &str,
    block: Option<&Block<'_>>,
) -> Vec<TextEdit> {
    let within =
        |line: &Line<'_>| block.is_some_and(|block| (block.begin.start..block.end.end).contains(&line.start));
    lines(text)
        .filter(|line| !within(line))
        .filter(|line| assignment(syntax, line.text).is_some_and(|(key, _)| key == name))
        .map(|line| TextEdit::insert(line.start, REPLACED))
        .collect()
}

/// Removes a key from the block, and makes the lines that it replaced active again. An empty block is removed.
pub(super) fn restore(syntax: FileSyntax, text: &str, name: &str) -> Vec<TextEdit> {
    let mut edits = Vec::new();
    if let Some(block) = block(text) {
        let same = |line: &&Line<'_>| {
            syntax == FileSyntax::Shell || assignment(syntax, line.text).is_some_and(|(key, _)| key == name)
        };
        let ours: Vec<&Line<'_>> = block.inner.iter().filter(same).collect();
        if ours.len() == block.inner.len() {
            edits.push(TextEdit::delete(block.begin.start, block.end.end));
        } else {
            edits.extend(ours.iter().map(|line| TextEdit::delete(line.start, line.end)));
        }
    }
    for line in lines(text) {
        let original = line.text.strip_prefix(REPLACED);
        if original.and_then(|original| assignment(syntax, original)).is_some_and(|(key, _)| key == name) {
            edits.push(TextEdit::delete(line.start, line.start + REPLACED.len()));
        }
    }
    edits
}
