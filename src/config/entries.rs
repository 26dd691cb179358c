//! Entries of routes and keys files as JSON: created, changed and removed in place, with comments and order kept.

use serde_json::{Map, Value as Json};
use toml_edit::{Array, ArrayOfTables, Datetime, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::key_types::{KeyType, shape};
use super::reference::{self, ConfigFile};
use super::sources::SourceKind;
use routing::account::amount::is_plain;

/// Maximum nesting of an entry. The deepest key has four levels.
const MAX_DEPTH: usize = 8;

/// Kind of an entry: `[[key]]`, `[[account]]`, `[[provider]]` or `[[model]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Key of clients.
    Key,
    /// Limits of an account.
    Account,
    /// Provider.
    Provider,
    /// Model.
    Model,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [EntryKind; 4] =
        [EntryKind::Key, EntryKind::Account, EntryKind::Provider, EntryKind::Model];

    /// Returns the name of the list of tables, which is also that of an entry.
    pub const fn name(self) -> &'static str {
        match self {
            EntryKind::Key => "key",
            EntryKind::Account => "account",
            EntryKind::Provider => "provider",
            EntryKind::Model => "model",
        }
    }

    /// Returns the member that identifies an entry.
    pub const fn id(self) -> &'static str {
        match self {
            EntryKind::Model => "id",
            EntryKind::Key | EntryKind::Account | EntryKind::Provider => "name",
        }
    }

    /// Returns the kind of the files that have such entries.
    pub const fn source(self) -> SourceKind {
        match self {
            EntryKind::Key | EntryKind::Account => SourceKind::Keys,
            EntryKind::Provider | EntryKind::Model => SourceKind::Routes,
        }
    }
}

/// Returns whether entries of a kind have a member of this name.
pub fn is_member(kind: EntryKind, name: &str) -> bool {
    let file = match kind.source() {
        SourceKind::Keys => ConfigFile::Keys,
        SourceKind::Routes => ConfigFile::Routes,
    };
    let path = format!("{}.{name}", kind.name());
    reference::keys(file).iter().any(|key| key.path == path)
}

/// Member of a JSON entry that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Path of the member: `limits.spend_per_day`.
    pub field: String,
    /// Description of the fault.
    pub message: String,
}

fn wrong(field: &str, message: impl Into<String>) -> FieldError {
    FieldError { field: field.to_owned(), message: message.into() }
}

/// Entries of one kind in a document.
pub(super) struct Entries<'d> {
    document: &'d mut DocumentMut,
    kind: EntryKind,
}

impl<'d> Entries<'d> {
    pub(super) fn new(document: &'d mut DocumentMut, kind: EntryKind) -> Self {
        Entries { document, kind }
    }

    /// Returns the list, which is created if there is none. `None` if it is not a list of tables.
    fn list(&mut self) -> Option<&mut ArrayOfTables> {
        let entry = self.document.entry(self.kind.name());
        entry.or_insert(Item::ArrayOfTables(ArrayOfTables::new())).as_array_of_tables_mut()
    }

    fn index(&self, id: &str) -> Option<usize> {
        let list = self.document.get(self.kind.name())?.as_array_of_tables()?;
        list.iter().position(|entry| entry.get(self.kind.id()).and_then(Item::as_str) == Some(id))
    }

    /// Returns the entry with this id; `None` if the document has none.
    pub(super) fn get(&self, id: &str) -> Option<&Table> {
        self.document.get(self.kind.name())?.as_array_of_tables()?.get(self.index(id)?)
    }

    /// Appends an entry. `comment` is written above it.
    ///
    /// # Errors
    /// Returns [`FieldError`] if a member cannot be written.
    pub(super) fn create(&mut self, members: &Map<String, Json>, comment: &str) -> Result<(), FieldError> {
        let name = self.kind.name();
        let mut table = Table::new();
        merge(&mut table, members, name, "")?;
        let above = take_head(self.document);
        let follows = !self.document.is_empty();
        table.decor_mut().set_prefix(format!("{above}{}# {comment}\n", if follows { "\n" } else { "" }));
        let list = self.list().ok_or_else(|| wrong("", format!("`{name}` is not a list of tables")))?;
        list.push(table);
        Ok(())
    }

    /// Changes the members of an entry that the patch has; a null removes a member. Returns false if there is no such
    /// entry.
    ///
    /// # Errors
    /// Returns [`FieldError`] if a member cannot be written.
    pub(super) fn merge(&mut self, id: &str, patch: &Map<String, Json>) -> Result<bool, FieldError> {
        let (Some(index), kind) = (self.index(id), self.kind) else { return Ok(false) };
        match self.list().and_then(|list| list.get_mut(index)) {
            Some(entry) => merge(entry, patch, kind.name(), "").map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes an entry. Returns false if there is no such entry.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let (Some(index), kind) = (self.index(id), self.kind) else { return false };
        let Some(list) = self.list() else { return false };
        let removed = list.get(index).and_then(|entry| entry.decor().prefix()?.as_str()).unwrap_or_default();
        // What a blank line separates from the entry is not about it, such as the comments at the top of the file.
        let above = removed.rsplit_once("\n\n").map_or("", |(above, _)| above).trim().to_owned();
        list.remove(index);
        if let Some(next) = list.get_mut(index).filter(|_| !above.is_empty()) {
            let own = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            let own = own.trim_start_matches('\n').to_owned();
            next.decor_mut().set_prefix(format!("{above}\n\n{own}"));
        }
        if list.is_empty() {
            self.document.remove(kind.name());
            if self.document.is_empty() && !above.is_empty() {
                let rest = self.document.trailing().as_str().unwrap_or_default().to_owned();
                self.document.set_trailing(format!("{above}\n{rest}"));
            }
        }
        true
    }
}

/// Takes the comments of a document without entries, which stand at its end: they are to stand above the first entry, because
/// editors read `#:schema` in the first line only. Empty if there are entries.
fn take_head(document: &mut DocumentMut) -> String {
    let is_entry = |item: &Item| item.as_array_of_tables().is_none_or(|tables| !tables.is_empty());
    if document.iter().any(|(_, item)| is_entry(item)) {
        return String::new();
    }
    let text = document.trailing().as_str().unwrap_or_default().trim_end().to_owned();
    document.set_trailing("");
    if text.is_empty() { text } else { text + "\n\n" }
}

/// Writes the comments of a document without entries above its first entry.
pub(super) fn put_below_head(entry: &mut Table, document: &mut DocumentMut) {
    let above = take_head(document);
    if !above.is_empty() {
        entry.decor_mut().set_prefix(above);
    }
}

/// Sets a value and keeps the comment after it.
pub(super) fn set_value(table: &mut dyn TableLike, key: &str, mut new: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(slot) => {
            *new.decor_mut() = slot.decor().clone();
            *slot = new;
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
}

/// Merges JSON members into a table, as RFC 7396 describes. `schema` is the path for the types, `path` that of the
/// member in the entry.
fn merge(
    table: &mut dyn TableLike,
    patch: &Map<String, Json>,
    schema: &str,
    path: &str,
) -> Result<(), FieldError> {
    for (key, new) in patch {
        let (schema, path) = (join(schema, key), join(path, key));
        match new {
            Json::Null => {
                table.remove(key);
            }
            Json::Object(members) if is_table(table.get(key)) => {
                if let Some(below) = table.get_mut(key).and_then(Item::as_table_like_mut) {
                    merge(below, members, &schema, &path)?;
                }
            }
            new => set_value(table, key, value(new, &schema, &path, 0)?),
        }
    }
    Ok(())
}

fn is_table(item: Option<&Item>) -> bool {
    item.is_some_and(Item::is_table_like)
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Converts a JSON value to TOML, by the type that the schema has for its path: amounts may be decimal strings, and
/// points in time are strings.
fn value(json: &Json, schema: &str, path: &str, depth: usize) -> Result<Value, FieldError> {
    if depth > MAX_DEPTH {
        return Err(wrong(path, "is nested too deeply"));
    }
    Ok(match json {
        Json::Null => return Err(wrong(path, "null is not a value in a list")),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => number_of(&number.to_string(), path)?,
        Json::String(text) => match shape(schema) {
            Some(KeyType::Amount | KeyType::AmountOrTables) if is_plain(text) => number_of(text, path)?,
            Some(KeyType::Amount | KeyType::AmountOrTables) => {
                return Err(wrong(path, "write a decimal number such as 2.5"));
            }
            Some(KeyType::Day | KeyType::Days) => {
                let day =
                    text.parse::<Datetime>().ok().filter(|day| day.date.is_some() && day.time.is_none());
                Value::from(day.ok_or_else(|| wrong(path, "write a day such as 2027-01-31"))?)
            }
            Some(KeyType::Time) => {
                let time = text.parse::<Datetime>();
                Value::from(time.map_err(|_| wrong(path, "write a time such as 2027-01-31T00:00:00Z"))?)
            }
            _ => Value::from(text.as_str()),
        },
        Json::Array(list) => {
            let mut array = Array::new();
            for (index, element) in list.iter().enumerate() {
                array.push(value(element, schema, &format!("{path}[{index}]"), depth + 1)?);
            }
            Value::Array(array)
        }
        Json::Object(members) => {
            let mut table = InlineTable::new();
            for (key, json) in members.iter().filter(|(_, json)| !json.is_null()) {
                let below = value(json, &join(schema, key), &join(path, key), depth + 1)?;
                table.insert(key, below);
            }
            Value::InlineTable(table)
        }
    })
}

/// Converts a decimal to a TOML number, digit by digit: a binary fraction in between would change amounts.
fn number_of(text: &str, path: &str) -> Result<Value, FieldError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let parsed = is_number.then(|| text.parse::<Value>().ok()).flatten();
    let number = parsed.filter(|value| value.is_integer() || value.is_float());
    number.ok_or_else(|| wrong(path, "write a decimal number such as 2.5"))
}
