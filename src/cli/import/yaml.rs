//! Reader of YAML: a bounded tree of the events of `saphyr-parser`, with the scalars of YAML 1.1, which PyYAML reads.
//!
//! Aliases and merge keys are copied, so the number of nodes is counted with the copies: a document of a few lines
//! cannot become a tree of gigabytes.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::document::{Fault, Node, Read, Value};

/// Largest number of nodes, with those of aliases. A deployment has about ten.
const MAX_NODES: usize = 1_000_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// Reads the first document of a text. An empty one is null.
///
/// # Errors
/// Returns [`Fault`] for a syntax error, a key that is no scalar, an unknown alias, or a document beyond the bounds.
pub(super) fn read(text: &str) -> Read<Node> {
    let mut reader = Reader { events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd => return Ok(Node { line: 1, column: 1, value: Value::Null }),
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
    anchors: HashMap<usize, (Node, usize)>,
    /// Nodes so far, with copies.
    nodes: usize,
}

fn place(span: &Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Read<(Event<'t>, Span)> {
        let fault = |error: ScanError| {
            let mark = error.marker();
            Fault::at(mark.line(), mark.col() + 1, format!("not valid YAML: {}", error.info()))
        };
        match self.events.next_event() {
            Some(event) => event.map_err(fault),
            None => Err(Fault::at(0, 0, "not valid YAML: the document does not end")),
        }
    }

    /// Checks what follows the first document: the file must have no other one, which would be ignored silently.
    fn finish(mut self, node: Node) -> Read<Node> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(node),
                (Event::DocumentStart(_), span) => {
                    let (line, column) = place(&span);
                    return Err(Fault::at(line, column, "a second document: the file must have one only"));
                }
                _ => {}
            }
        }
    }

    fn count(&mut self, nodes: usize, span: &Span) -> Read<()> {
        self.nodes = self.nodes.saturating_add(nodes);
        let (line, column) = place(span);
        if self.nodes > MAX_NODES {
            return Err(Fault::at(
                line,
                column,
                format!("more than {MAX_NODES} values, with those of aliases"),
            ));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Read<Node> {
        self.count(1, &span)?;
        let (line, column) = place(&span);
        if depth > MAX_DEPTH {
            return Err(Fault::at(line, column, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let before = self.nodes;
        let (value, anchor) = match event {
            Event::Alias(id) => {
                let (node, size) =
                    self.anchors.get(&id).ok_or_else(|| Fault::at(line, column, "an unknown alias"))?;
                let (value, size) = (node.value.clone(), *size);
                self.count(size, &span)?;
                return Ok(Node { line, column, value });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain;
                let texted = tag.is_some_and(|tag| tag.suffix == "str");
                let value = if quoted || texted { Value::Text(text.into_owned()) } else { plain(&text) };
                (value, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            _ => return Err(Fault::at(line, column, "not valid YAML")),
        };
        let node = Node { line, column, value };
        if anchor != 0 {
            // A copy for the anchor counts too.
            let size = self.nodes.saturating_sub(before).saturating_add(1);
            self.count(size, &span)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Read<Value> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(list)),
                (event, span) => list.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Read<Value> {
        let mut members: Vec<(String, Node)> = Vec::new();
        let mut merged: Vec<(String, Node)> = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, _) => break,
                next => next,
            };
            let key = self.node(event, span, depth + 1)?;
            let name = match key.value {
                Value::Text(text) | Value::Number(text) => text,
                Value::Bool(value) => value.to_string(),
                Value::Null => "null".to_owned(),
                Value::List(_) | Value::Map(_) => {
                    return Err(Fault::at(key.line, key.column, "a key must be a text"));
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
        Ok(Value::Map(members))
    }
}

/// Adds the members of the value of a merge key: a mapping, or a list of mappings.
fn merge(node: Node, merged: &mut Vec<(String, Node)>) -> Read<()> {
    match node.value {
        Value::Map(members) => merged.extend(members),
        Value::List(list) => {
            for node in list {
                merge(node, merged)?;
            }
        }
        _ => return Err(Fault::at(node.line, node.column, "only a mapping can be merged")),
    }
    Ok(())
}

/// Reads an unquoted scalar. Source: <https://yaml.org/type/>, the types of YAML 1.1.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || "._eE+-".contains(c))
        && text.replace('_', "").parse::<f64>().is_ok();
    if numeric { Value::Number(text.to_owned()) } else { Value::Text(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        read(text).unwrap().value
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        let text = |text: &str| Value::Text(text.to_owned());
        for (written, read) in [
            ("True", Value::Bool(true)),
            ("'True'", text("True")),
            ("off", Value::Bool(false)),
            ("~", Value::Null),
            ("0.000420", Value::Number("0.000420".to_owned())),
            ("1.25e-06", Value::Number("1.25e-06".to_owned())),
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
