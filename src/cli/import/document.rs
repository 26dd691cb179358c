//! Imported documents: a tree of values with positions, and paths of fields in it.

use std::fmt::Write as _;

/// Value with its position in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SourceNode {
    /// Line, from 1.
    pub(super) line: usize,
    /// Column in characters, from 1.
    pub(super) column: usize,
    /// The value.
    pub(super) value: SourceValue,
}

/// Value of YAML or JSON.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SourceValue {
    /// Null, or nothing.
    Null,
    /// Boolean.
    Bool(bool),
    /// Number, as written: amounts of money must not pass through binary fractions.
    Number(String),
    /// Text.
    Text(String),
    /// List.
    List(Vec<SourceNode>),
    /// Mapping, in the order of the file. Of several equal keys, the last one applies.
    Map(Vec<(String, SourceNode)>),
}

/// Fault of a document: a syntax error, or a field of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFault {
    /// Line, from 1; 0 for the file as a whole.
    pub(super) line: usize,
    /// Column in characters, from 1.
    pub(super) column: usize,
    /// Path of the field; empty for a syntax error.
    pub(super) path: String,
    /// Description without any value of the file, which may be a secret.
    pub(super) message: String,
}

impl SourceFault {
    /// Creates a fault of a position.
    pub(super) fn at(line: usize, column: usize, message: impl Into<String>) -> SourceFault {
        SourceFault { line, column, path: String::new(), message: message.into() }
    }
}

/// Result of reading a field.
pub(super) type FieldResult<T> = Result<T, SourceFault>;

/// Value with its path in the document: `model_list[0].litellm_params.model`.
#[derive(Clone, Debug)]
pub(super) struct Field<'n> {
    /// The value.
    pub(super) node: &'n SourceNode,
    /// The path; empty for the whole document.
    pub(super) path: String,
}

/// Appends a key to a path. A key with other characters than those of names is quoted.
fn append_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    let plain = |c: char| c.is_alphanumeric() || "_-/$*:@".contains(c);
    if !key.is_empty() && key.chars().all(plain) {
        path.push_str(key);
    } else {
        let _ = write!(path, "{key:?}");
    }
}

impl<'n> Field<'n> {
    /// Returns the whole document.
    pub(super) fn root(node: &'n SourceNode) -> Field<'n> {
        Field { node, path: String::new() }
    }

    /// Returns a member, or `None` if it is missing or this is no mapping.
    pub(super) fn get(&self, key: &str) -> Option<Field<'n>> {
        let SourceValue::Map(members) = &self.node.value else { return None };
        let (_, node) = members.iter().rev().find(|(name, _)| name == key)?;
        let mut path = self.path.clone();
        append_key(&mut path, key);
        Some(Field { node, path })
    }

    /// Returns a member that is neither missing nor null.
    pub(super) fn set(&self, key: &str) -> Option<Field<'n>> {
        self.get(key).filter(|field| field.node.value != SourceValue::Null)
    }

    /// Returns the members that apply: of several equal keys, the last one. Null counts as an empty mapping.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn members(&self) -> FieldResult<Vec<(&'n str, Field<'n>)>> {
        match &self.node.value {
            SourceValue::Null => Ok(Vec::new()),
            SourceValue::Map(members) => {
                let mut seen = std::collections::HashSet::new();
                let mut found: Vec<(&'n str, Field<'n>)> = Vec::with_capacity(members.len());
                for (key, node) in members.iter().rev() {
                    if seen.insert(key.as_str()) {
                        let mut path = self.path.clone();
                        append_key(&mut path, key);
                        found.push((key, Field { node, path }));
                    }
                }
                found.reverse();
                Ok(found)
            }
            _ => Err(self.fault("expected a mapping")),
        }
    }

    /// Returns the elements of a list. Null counts as an empty list.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn elements(&self) -> FieldResult<Vec<Field<'n>>> {
        match &self.node.value {
            SourceValue::Null => Ok(Vec::new()),
            SourceValue::List(list) => {
                let field = |(index, node)| Field { node, path: format!("{}[{index}]", self.path) };
                Ok(list.iter().enumerate().map(field).collect())
            }
            _ => Err(self.fault("expected a list")),
        }
    }

    /// Returns a text. A number counts as its digits.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn text(&self) -> FieldResult<&'n str> {
        match &self.node.value {
            SourceValue::Text(text) | SourceValue::Number(text) => Ok(text),
            _ => Err(self.fault("expected a text")),
        }
    }

    /// Returns the texts of a list of texts, or of a single one.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn texts(&self) -> FieldResult<Vec<&'n str>> {
        match &self.node.value {
            SourceValue::Text(text) => Ok(vec![text]),
            _ => self.elements()?.iter().map(Field::text).collect(),
        }
    }

    /// Returns a boolean.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn boolean(&self) -> FieldResult<bool> {
        match &self.node.value {
            SourceValue::Bool(value) => Ok(*value),
            SourceValue::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            SourceValue::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(self.fault("expected true or false")),
        }
    }

    /// Returns a number that is not negative, as written without digit separators.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn number(&self) -> FieldResult<String> {
        let text = match &self.node.value {
            SourceValue::Number(text) | SourceValue::Text(text) => text.trim().replace('_', ""),
            _ => return Err(self.fault("expected a number")),
        };
        let sound = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 && text.chars().all(sound) => Ok(text),
            Ok(number) if number < 0.0 => Err(self.fault("expected a number that is not negative")),
            _ => Err(self.fault("expected a number")),
        }
    }

    /// Returns a whole number; a fraction is cut off.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn integer(&self) -> FieldResult<u64> {
        // Values beyond 2^53 lose precision, and are above every limit of the configuration.
        let number = self.number()?.parse::<f64>().unwrap_or(0.0);
        Ok(number as u64)
    }

    /// Returns a duration in milliseconds that is written in seconds.
    ///
    /// # Errors
    /// Returns [`SourceFault`] for any other value.
    pub(super) fn millis(&self) -> FieldResult<u64> {
        let seconds = self.number()?.parse::<f64>().unwrap_or(0.0);
        Ok((seconds * 1000.0).round() as u64)
    }

    /// Creates a fault of this field.
    pub(super) fn fault(&self, message: impl Into<String>) -> SourceFault {
        let SourceNode { line, column, .. } = *self.node;
        SourceFault { line, column, path: self.path.clone(), message: message.into() }
    }

    /// Calls `visit` for this field and everything below it, in the order of the file; for leaves with `true`:
    /// scalars, and empty lists and mappings.
    pub(super) fn walk(&self, visit: &mut impl FnMut(&Field<'n>, bool)) {
        match &self.node.value {
            SourceValue::Map(members) if !members.is_empty() => {
                visit(self, false);
                for (key, node) in members {
                    let mut path = self.path.clone();
                    append_key(&mut path, key);
                    Field { node, path }.walk(visit);
                }
            }
            SourceValue::List(list) if !list.is_empty() => {
                visit(self, false);
                for (index, node) in list.iter().enumerate() {
                    Field { node, path: format!("{}[{index}]", self.path) }.walk(visit);
                }
            }
            _ => visit(self, true),
        }
    }
}
