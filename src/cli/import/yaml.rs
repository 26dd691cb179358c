//! Reader of YAML: a bounded tree of the events of `saphyr-parser`, with the scalars of YAML 1.1, which PyYAML reads.
//!
//! Aliases and merge keys are copied, so the number of nodes is counted with the copies: a document of a few lines
//! cannot become a tree of gigabytes.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::document::{FieldResult, SourceFault, SourceNode, SourceValue};

/// Largest number of nodes, with those of aliases. A deployment has about ten.
const MAX_NODES: usize = 1_000_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// Reads the first document of a text. An empty one is null.
///
/// # Errors
/// Returns [`SourceFault`] for a syntax error, a key that is no scalar, an unknown alias, or a document beyond the bounds.
pub(super) fn read(text: &str) -> FieldResult<SourceNode> {
    let mut reader = Reader { events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd => return Ok(SourceNode { line: 1, column: 1, value: SourceValue::Null }),
            event => {
                let node = reader.node(event, span, 0)?;
                return reader.finish(node);
            }
        }
    }
}

struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// Anchored nodes, with their sizes.
    anchors: HashMap<usize, (SourceNode, usize)>,
    /// Nodes so far, with copies.
    nodes: usize,
}

fn place(span: &Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> FieldResult<(Event<'t>, Span)> {
        let fault = |error: ScanError| {
            let mark = error.marker();
            SourceFault::at(mark.line(), mark.col() + 1, format!("not valid YAML: {}", error.info()))
        };
        match self.events.next_event() {
            Some(event) => event.map_err(fault),
            None => Err(SourceFault::at(0, 0, "not valid YAML: the document does not end")),
        }
    }

    /// Checks what follows the first document: the file must have no other one, which would be ignored silently.
    fn finish(mut self, node: SourceNode) -> FieldResult<SourceNode> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(node),
                (Event::DocumentStart(_), span) => {
                    let (line, column) = place(&span);
                    return Err(SourceFault::at(
                        line,
                        column,
                        "a second document: the file must have one only",
                    ));
                }
                _ => {}
            }
        }
    }

    fn count(&mut self, nodes: usize, span: &Span) -> FieldResult<()> {
        self.nodes = self.nodes.saturating_add(nodes);
        let (line, column) = place(span);
        if self.nodes > MAX_NODES {
            return Err(SourceFault::at(
                line,
                column,
                format!("more than {MAX_NODES} values, with those of aliases"),
            ));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> FieldResult<SourceNode> {
        self.count(1, &span)?;
        let (line, column) = place(&span);
        if depth > MAX_DEPTH {
            return Err(SourceFault::at(line, column, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let before = self.nodes;
        let (value, anchor) = match event {
            Event::Alias(id) => {
                let (node, size) =
                    self.anchors.get(&id).ok_or_else(|| SourceFault::at(line, column, "an unknown alias"))?;
                let (value, size) = (node.value.clone(), *size);
                self.count(size, &span)?;
                return Ok(SourceNode { line, column, value });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain;
                let texted = tag.is_some_and(|tag| tag.suffix == "str");
                let value =
                    if quoted || texted { SourceValue::Text(text.into_owned()) } else { plain(&text) };
                (value, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            _ => return Err(SourceFault::at(line, column, "not valid YAML")),
        };
        let node = SourceNode { line, column, value };
        if anchor != 0 {
            // A copy for the anchor counts too.
            let size = self.nodes.saturating_sub(before).saturating_add(1);
            self.count(size, &span)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> FieldResult<SourceValue> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(SourceValue::List(list)),
                (event, span) => list.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> FieldResult<SourceValue> {
        let mut members: Vec<(String, SourceNode)> = Vec::new();
        let mut merged: Vec<(String, SourceNode)> = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, _) => break,
                next => next,
            };
            let key = self.node(event, span, depth + 1)?;
            let name = match key.value {
                SourceValue::Text(text) | SourceValue::Number(text) => text,
                SourceValue::Bool(value) => value.to_string(),
                SourceValue::Null => "null".to_owned(),
                SourceValue::List(_) | SourceValue::Map(_) => {
                    return Err(SourceFault::at(key.line, key.column, "a key must be a text"));
                }
            };
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if name == "<<" {
                merge(value, &mut merged)?;
            } else {
                members.push((name, value));
            }
        }
        // Own keys have precedence over merged ones, and earlier merged ones over later ones.
        let mut known: std::collections::HashSet<String> =
            members.iter().map(|(key, _)| key.clone()).collect();
        for (key, node) in merged {
            if known.insert(key.clone()) {
                members.push((key, node));
            }
        }
        Ok(SourceValue::Map(members))
    }
}

/// Adds the members of the value of a merge key: a mapping, or a list of mappings.
fn merge(node: SourceNode, merged: &mut Vec<(String, SourceNode)>) -> FieldResult<()> {
    match node.value {
        SourceValue::Map(members) => merged.extend(members),
        SourceValue::List(list) => {
            for node in list {
                merge(node, merged)?;
            }
        }
        _ => return Err(SourceFault::at(node.line, node.column, "only a mapping can be merged")),
    }
    Ok(())
}

/// Reads an unquoted scalar. Source: <https://yaml.org/type/>, the types of YAML 1.1.
fn plain(text: &str) -> SourceValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return SourceValue::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return SourceValue::Bool(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return SourceValue::Bool(false);
        }
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || "._eE+-".contains(c))
        && text.replace('_', "").parse::<f64>().is_ok();
    if numeric { SourceValue::Number(text.to_owned()) } else { SourceValue::Text(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> SourceValue {
        read(text).unwrap().value
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        let text = |text: &str| SourceValue::Text(text.to_owned());
        for (written, read) in [
            ("True", SourceValue::Bool(true)),
            ("'True'", text("True")),
            ("off", SourceValue::Bool(false)),
            ("~", SourceValue::Null),
            ("0.000420", SourceValue::Number("0.000420".to_owned())),
            ("1.25e-06", SourceValue::Number("1.25e-06".to_owned())),
            ("2025-01-01", text("2025-01-01")),
            ("1.2.3", text("1.2.3")),
            ("gpt-4o", text("gpt-4o")),
            ("\"6329\"", text("6329")),
            ("!!str 12", text("12")),
        ] {
            assert_eq!(value(written), read, "{written}");
        }
    }

    #[test]
    fn positions_are_those_of_the_file() {
        let node = read("a:\n  - b: 1\n    c: x\n").unwrap();
        let root = super::super::document::Field::root(&node);
        let item = root.get("a").unwrap().elements().unwrap().remove(0);
        let field = item.get("c").unwrap();
        assert_eq!((field.node.line, field.node.column, field.path.as_str()), (3, 8, "a[0].c"));
    }

    #[test]
    fn merge_key_is_overridden_by_own_keys() {
        let node = read("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n").unwrap();
        let root = super::super::document::Field::root(&node);
        let used = root.get("use").unwrap();
        assert_eq!(used.get("x").unwrap().text(), Ok("1"));
        assert_eq!(used.get("y").unwrap().text(), Ok("3"));
    }

    #[test]
    fn aliases_cannot_multiply_a_document() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{below}]\n");
        }
        let fault = read(&bomb).unwrap_err();
        assert!(fault.message.contains("more than"), "{fault:?}");
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(read(&deep).is_err());
    }

    #[test]
    fn syntax_error_has_its_position() {
        let fault = read("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(fault.line >= 2 && fault.message.starts_with("not valid YAML"), "{fault:?}");
        assert!(read("a: 1\n---\nb: 2\n").unwrap_err().message.contains("second document"));
    }
}
