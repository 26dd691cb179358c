//! JSON with comments: members are set and removed in the text, at the positions that the parser reports.

use jsonc_parser::ast::{Object, ObjectProp, Value as Node};
use jsonc_parser::common::{Range, Ranged as _};
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, ParseResult};
use serde_json::Value;

use super::{NewValue, SyntaxFault, TextEdit, line_end, line_start, next_line, slice};

/// Extensions of JSON that clients read: comments and trailing commas.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

fn parse(text: &str) -> Result<ParseResult<'_>, SyntaxFault> {
    parse_with(text, &OPTIONS)
}

fn parse_with<'t>(text: &'t str, options: &ParseOptions) -> Result<ParseResult<'t>, SyntaxFault> {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: true };
    jsonc_parser::parse_to_ast(text, &collect, options)
        .map_err(|error| SyntaxFault { line: error.line_display(), what: error.kind().to_string() })
}

/// Returns the top-level object, or `None` if the file has no value.
fn root<'a, 't>(text: &str, parsed: &'a ParseResult<'t>) -> Result<Option<&'a Object<'t>>, SyntaxFault> {
    match &parsed.value {
        None => Ok(None),
        Some(Node::Object(object)) => Ok(Some(object)),
        Some(other) => Err(SyntaxFault::at(text, other.range().start, "the top level is not an object")),
    }
}

/// Result of a walk along a path.
enum Found<'a, 't> {
    /// The member, the object that has it, and its index there.
    Member(&'a Object<'t>, usize, &'a ObjectProp<'t>),
    /// The innermost object that exists, and the number of components that lead to it.
    Missing(&'a Object<'t>, usize),
}

fn find<'a, 't>(text: &str, object: &'a Object<'t>, path: &[String]) -> Result<Found<'a, 't>, SyntaxFault> {
    let mut object = object;
    for (depth, name) in path.iter().enumerate() {
        let mut named = object.properties.iter().enumerate().filter(|(_, prop)| prop.name.as_str() == name);
        let Some((index, prop)) = named.next() else { return Ok(Found::Missing(object, depth)) };
        if let Some((_, second)) = named.next() {
            let what = format!("the key {name:?} appears twice in one object; remove one of them");
            return Err(SyntaxFault::at(text, second.range.start, what));
        }
        if depth + 1 == path.len() {
            return Ok(Found::Member(object, index, prop));
        }
        match &prop.value {
            Node::Object(inner) => object = inner,
            other => {
                let what = format!("{name:?} is not an object");
                return Err(SyntaxFault::at(text, other.range().start, what));
            }
        }
    }
    Ok(Found::Missing(object, path.len()))
}

pub(super) fn check(text: &str, strict: bool) -> Result<(), SyntaxFault> {
    let options = ParseOptions { allow_comments: !strict, allow_trailing_commas: !strict, ..OPTIONS };
    root(text, &parse_with(text, &options)?).map(|_| ())
}

pub(super) fn get(text: &str, path: &[String]) -> Result<Option<String>, SyntaxFault> {
    let parsed = parse(text)?;
    let Some(root) = root(text, &parsed)? else { return Ok(None) };
    Ok(match find(text, root, path)? {
        Found::Member(_, _, prop) => {
            let Range { start, end } = prop.value.range();
            Some(slice(text, start, end).to_owned())
        }
        Found::Missing(..) => None,
    })
}

/// Returns a value without layout and comments. Text that is no value is returned as it is.
pub(super) fn comparable(source: &str) -> String {
    let value = parse(source).ok().and_then(|parsed| parsed.value.as_ref().map(plain));
    value.map_or_else(|| source.to_owned(), |value| value.to_string())
}

/// Parses a settings file as a tree. Returns `None` if the file has no value.
pub(super) fn tree(text: &str) -> Result<Option<Value>, SyntaxFault> {
    let parsed = parse(text)?;
    Ok(root(text, &parsed)?.map(|object| object_of(object)))
}

fn plain(node: &Node<'_>) -> Value {
    match node {
        Node::StringLit(text) => Value::String(text.value.to_string()),
        Node::NumberLit(number) => {
            number.value.parse().map_or_else(|_| Value::String(number.value.to_owned()), Value::Number)
        }
        Node::BooleanLit(boolean) => Value::Bool(boolean.value),
        Node::NullKeyword(_) => Value::Null,
        Node::Array(array) => Value::Array(array.elements.iter().map(plain).collect()),
        Node::Object(object) => object_of(object),
    }
}

fn object_of(object: &Object<'_>) -> Value {
    let members = object.properties.iter();
    Value::Object(members.map(|prop| (prop.name.as_str().to_owned(), plain(&prop.value))).collect())
}

pub(super) fn set(text: &str, path: &[String], value: NewValue<'_>) -> Result<Vec<TextEdit>, SyntaxFault> {
    let parsed = parse(text)?;
    let newline = line_end(text);
    let Some(root) = root(text, &parsed)? else {
        let layout = Layout { newline, unit: "  ".to_owned() };
        let member = layout.member(path, value, "  ");
        let start = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
        let object = format!("{start}{{{newline}  {member}{newline}}}{newline}");
        return Ok(vec![TextEdit::insert(text.len(), object)]);
    };
    let layout = Layout { newline, unit: unit(text, root) };
    match find(text, root, path)? {
        Found::Member(_, _, prop) => {
            let Range { start, end } = prop.value.range();
            let new = layout.value(value, indent_of(text, prop.range.start));
            if slice(text, start, end) == new {
                return Ok(Vec::new());
            }
            Ok(vec![TextEdit { start, end, text: new }])
        }
        Found::Missing(object, depth) => {
            let rest = path.get(depth..).unwrap_or_default();
            Ok(insert(text, &parsed, object, rest, value, &layout))
        }
    }
}

/// Inserts a member at the end of an object.
fn insert(
    text: &str,
    parsed: &ParseResult<'_>,
    object: &Object<'_>,
    rest: &[String],
    value: NewValue<'_>,
    layout: &Layout,
) -> Vec<TextEdit> {
    let newline = layout.newline;
    let outer = indent_of(text, object.range.start);
    let Some(last) = object.properties.last() else {
        let inner = format!("{outer}{}", layout.unit);
        let member = layout.member(rest, value, &inner);
        let (start, end) = (object.range.start + 1, object.range.end.saturating_sub(1));
        // A comment in an empty object stays behind the new member.
        return if slice(text, start, end).trim().is_empty() {
            vec![TextEdit { start, end, text: format!("{newline}{inner}{member}{newline}{outer}") }]
        } else {
            vec![TextEdit::insert(start, format!("{newline}{inner}{member}"))]
        };
    };
    let end = last.value.range().end;
    let comma = comma_after(parsed, end, object.range.end);
    if !slice(text, object.range.start, object.range.end).contains('\n') {
        let member = layout.member(rest, value, outer);
        return vec![match comma {
            Some(comma) => TextEdit::insert(comma.end, format!(" {member},")),
            None => TextEdit::insert(end, format!(", {member}")),
        }];
    }
    let first_on_line = slice(text, line_start(text, last.range.start), last.range.start).trim().is_empty();
    let inner = if first_on_line {
        indent_of(text, last.range.start).to_owned()
    } else {
        format!("{outer}{}", layout.unit)
    };
    let member = layout.member(rest, value, &inner);
    let behind = end_of_comment(text, comma.map_or(end, |comma| comma.end), object.range.end);
    match comma {
        Some(_) => vec![TextEdit::insert(behind, format!("{newline}{inner}{member},"))],
        None if behind == end => vec![TextEdit::insert(end, format!(",{newline}{inner}{member}"))],
        None => {
            vec![TextEdit::insert(end, ","), TextEdit::insert(behind, format!("{newline}{inner}{member}"))]
        }
    }
}

/// Returns the position behind a comment that follows on the same line, or the given position if there is none.
fn end_of_comment(text: &str, at: usize, limit: usize) -> usize {
    let rest = slice(text, at, limit);
    let comment = rest.trim_start_matches([' ', '\t']);
    let start = at + (rest.len() - comment.len());
    if comment.starts_with("//") {
        let line = comment.lines().next().unwrap_or_default();
        return start + line.trim_end_matches('\r').len();
    }
    match comment.find("*/") {
        Some(end) if comment.starts_with("/*") && !slice(comment, 0, end).contains('\n') => start + end + 2,
        _ => at,
    }
}

/// Returns the comma that follows a position, if it is the next token before `limit`.
fn comma_after(parsed: &ParseResult<'_>, at: usize, limit: usize) -> Option<Range> {
    let token = parsed.tokens.as_ref()?.iter().find(|token| token.range.start >= at)?;
    (token.token == Token::Comma && token.range.start < limit).then_some(token.range)
}

/// Returns the comma that precedes a position, if it is the token directly before it.
fn comma_before(parsed: &ParseResult<'_>, at: usize) -> Option<Range> {
    let token = parsed.tokens.as_ref()?.iter().rev().find(|token| token.range.end <= at)?;
    (token.token == Token::Comma).then_some(token.range)
}

pub(super) fn remove(text: &str, path: &[String]) -> Result<Vec<TextEdit>, SyntaxFault> {
    let parsed = parse(text)?;
    let Some(root) = root(text, &parsed)? else { return Ok(Vec::new()) };
    let Found::Member(object, index, prop) = find(text, root, path)? else { return Ok(Vec::new()) };
    let Range { mut start, mut end } = prop.range;
    let mut edits = Vec::new();
    if let Some(comma) = comma_after(&parsed, end, object.range.end) {
        if slice(text, end, comma.start).trim().is_empty() {
            end = comma.end;
        } else {
            edits.push(TextEdit::delete(comma.start, comma.end));
        }
    } else if let Some(comma) = comma_before(&parsed, start).filter(|_| index > 0) {
        // JSON has no comma behind the last member, so the one before it goes.
        if slice(text, comma.end, start).trim().is_empty() {
            start = comma.start;
        } else {
            edits.push(TextEdit::delete(comma.start, comma.end));
        }
    }
    let line = line_start(text, start);
    let next = next_line(text, end);
    let blank_before = slice(text, line, start).trim().is_empty();
    let behind = slice(text, end, next);
    if blank_before && behind.trim().is_empty() && behind.ends_with('\n') {
        (start, end) = (line, next);
    } else if !behind.trim().is_empty() {
        end += behind.len() - behind.trim_start_matches([' ', '\t']).len();
    }
    edits.push(TextEdit::delete(start, end));
    Ok(edits)
}

pub(super) fn remove_empty(text: &str, path: &[String]) -> Result<Vec<TextEdit>, SyntaxFault> {
    let empty = get(text, path)?.is_some_and(|source| {
        let inner = source.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        inner.is_some_and(|inner| inner.trim().is_empty())
    });
    if empty { remove(text, path) } else { Ok(Vec::new()) }
}

/// Returns the indentation of the line with a position.
fn indent_of(text: &str, at: usize) -> &str {
    let line = slice(text, line_start(text, at), text.len());
    slice(line, 0, line.len() - line.trim_start_matches([' ', '\t']).len())
}

/// Returns the indentation of one level: that of the first member, or two spaces.
fn unit(text: &str, root: &Object<'_>) -> String {
    let first = root.properties.first().map(|prop| prop.range.start);
    let indent = first.map_or("", |start| {
        let before = slice(text, line_start(text, start), start);
        if before.trim().is_empty() { before } else { "" }
    });
    if indent.is_empty() { "  ".to_owned() } else { indent.to_owned() }
}

/// Layout of the file: line end, and indentation of one level.
struct Layout {
    newline: &'static str,
    unit: String,
}

impl Layout {
    /// Renders a member, with the objects between it and its key.
    fn member(&self, path: &[String], value: NewValue<'_>, indent: &str) -> String {
        let Some((name, rest)) = path.split_first() else { return String::new() };
        let name = Value::from(name.as_str());
        if rest.is_empty() {
            return format!("{name}: {}", self.value(value, indent));
        }
        let inner = format!("{indent}{}", self.unit);
        let newline = self.newline;
        format!("{name}: {{{newline}{inner}{}{newline}{indent}}}", self.member(rest, value, &inner))
    }

    fn value(&self, value: NewValue<'_>, indent: &str) -> String {
        match value {
            NewValue::Source(source) => source.to_owned(),
            NewValue::Rendered(value) => self.render(value, indent),
        }
    }

    fn render(&self, value: &Value, indent: &str) -> String {
        let inner = format!("{indent}{}", self.unit);
        let newline = self.newline;
        let (open, close, items): (_, _, Vec<String>) = match value {
            Value::Object(members) if !members.is_empty() => {
                let item = |(name, value): (&String, &Value)| {
                    format!("{inner}{}: {}", Value::from(name.as_str()), self.render(value, &inner))
                };
                ('{', '}', members.iter().map(item).collect())
            }
            Value::Array(elements) if !elements.is_empty() => {
                let item = |value: &Value| format!("{inner}{}", self.render(value, &inner));
                ('[', ']', elements.iter().map(item).collect())
            }
            other => return other.to_string(),
        };
        format!("{open}{newline}{}{newline}{indent}{close}", items.join(&format!(",{newline}")))
    }
}
