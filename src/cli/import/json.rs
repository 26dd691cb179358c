//! Reader of JSON with positions.

use jsonc_parser::ast::Value as Ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions};

use super::document::{FieldResult, SourceFault, SourceNode, SourceValue};

/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// Reads a document of strict JSON.
///
/// # Errors
/// Returns [`SourceFault`] for a syntax error and a document that is nested too deeply.
pub(super) fn read(text: &str) -> FieldResult<SourceNode> {
    let lines = LineIndex::new(text);
    let options = ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    let parsed = jsonc_parser::parse_to_ast(text, &collect, &options).map_err(|error| {
        let (line, column) = lines.place(text, error.range().start);
        SourceFault::at(line, column, format!("not valid JSON: {}", error.kind()))
    })?;
    match parsed.value {
        Some(value) => node(&value, text, &lines, 0),
        None => Ok(SourceNode { line: 1, column: 1, value: SourceValue::Null }),
    }
}

fn node(value: &Ast<'_>, text: &str, lines: &LineIndex, depth: usize) -> FieldResult<SourceNode> {
    let (line, column) = lines.place(text, value.range().start);
    if depth > MAX_DEPTH {
        return Err(SourceFault::at(line, column, format!("nested deeper than {MAX_DEPTH} levels")));
    }
    let value = match value {
        Ast::NullKeyword(_) => SourceValue::Null,
        Ast::BooleanLit(literal) => SourceValue::Bool(literal.value),
        Ast::NumberLit(literal) => SourceValue::Number(literal.value.to_owned()),
        Ast::StringLit(literal) => SourceValue::Text(literal.value.to_string()),
        Ast::Array(array) => {
            let elements = array.elements.iter().map(|element| node(element, text, lines, depth + 1));
            SourceValue::List(elements.collect::<FieldResult<Vec<SourceNode>>>()?)
        }
        Ast::Object(object) => {
            let members = object.properties.iter().map(|property| {
                Ok((property.name.as_str().to_owned(), node(&property.value, text, lines, depth + 1)?))
            });
            SourceValue::Map(members.collect::<FieldResult<Vec<(String, SourceNode)>>>()?)
        }
    };
    Ok(SourceNode { line, column, value })
}

/// Offsets of the lines of a text, so that a position is found without a search from the beginning.
struct LineIndex(Vec<usize>);

impl LineIndex {
    fn new(text: &str) -> LineIndex {
        let after = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        LineIndex(std::iter::once(0).chain(after).collect())
    }

    /// Returns the line and column of a byte offset, both from 1. Only the beginning of a very long line is counted
    /// in characters; a document of one line must not cost quadratic time.
    fn place(&self, text: &str, offset: usize) -> (usize, usize) {
        const COUNTED: usize = 1_000;
        let line = self.0.partition_point(|start| *start <= offset).max(1);
        let start = self.0.get(line - 1).copied().unwrap_or(0);
        let column = match text.get(start..offset) {
            Some(before) if before.len() <= COUNTED => before.chars().count(),
            _ => offset.saturating_sub(start),
        };
        (line, column + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_positions_and_numbers_their_digits() {
        let root = read("{\n  \"a\": [1.50, \"\\u00fc\", null],\n  \"b\": {}\n}").unwrap();
        let field = super::super::document::Field::root(&root);
        let list = field.get("a").unwrap().elements().unwrap();
        assert_eq!(list[0].text(), Ok("1.50"));
        assert_eq!(list[1].text(), Ok("\u{fc}"));
        assert_eq!((list[1].node.line, list[1].node.column), (2, 15));
    }

    #[test]
    fn anything_but_strict_json_is_an_error_with_its_position() {
        for text in ["{a: 1}", "{\"a\": 1,}", "// x\n{}", "{\"a\": 'x'}", "[1 2]", "{\"a\":", "[0x1]"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("{\n \"a\": x}").unwrap_err().line, 2);
        assert!(read(&("[".repeat(100) + &"]".repeat(100))).is_err());
    }
}
