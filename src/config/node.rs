//! Error-tolerant TOML reader: reports every wrong, unknown or missing key with its position and reads the rest.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::faults::Faults;
pub(super) use super::key_path::Position;
use super::key_path::{KeyPath, KeyStep};
use super::key_types::{Secrecy, has_secrets, secrecy};
use super::masking::MASK;
use super::overrides::Layer;
use super::report::{Problem, Report, closest, excerpt};
use super::values;
use codec::canonical::time;
use routing::account::amount;

/// TOML document with the faults found in it.
pub(super) struct TomlDocument<'t> {
    file: PathBuf,
    text: &'t str,
    before: Before,
    /// Values that take the place of those in the text.
    layers: &'t [Layer<'t>],
    /// Table in which the keys of layers stand whose table the text does not have.
    empty: DeValue<'t>,
    problems: Faults,
    warnings: Faults,
}

/// Contents of a file before the part that is parsed, to report positions in the whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// Number of lines.
    pub(super) lines: usize,
    /// Number of elements in lists of tables, by name of the list.
    pub(super) elements: Vec<(&'static str, usize)>,
}

impl<'t> TomlDocument<'t> {
    pub(super) fn new(file: &FilePath, text: &'t str) -> Self {
        TomlDocument::part(file, text, Before::default())
    }

    /// Creates a document of a part of a file that is valid TOML on its own.
    pub(super) fn part(file: &FilePath, text: &'t str, before: Before) -> Self {
        let (problems, warnings) = Default::default();
        let empty = DeValue::Table(DeTable::new());
        TomlDocument { file: file.to_owned(), text, before, layers: &[], empty, problems, warnings }
    }

    /// Sets the values that take the place of those in the text.
    pub(super) fn with_layers(self, layers: &'t [Layer<'t>]) -> Self {
        TomlDocument { layers, ..self }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// Parses the text. Returns `None` after a syntax error, which is reported.
    pub(super) fn parse(&self) -> Option<Spanned<DeTable<'_>>> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        let broken = !errors.is_empty();
        for error in errors {
            let span = error.span().unwrap_or_default();
            self.report(&span, String::new(), error.message().to_owned(), None);
        }
        if broken {
            // The parser recovers from a syntax error by guessing; faults that are found behind it would mislead.
            return None;
        }
        Some(root)
    }

    /// Returns the root table of the parsed text. It must be [finished](ConfigTable::finish).
    pub(super) fn root<'d>(&'d self, parsed: &'d Spanned<DeTable<'d>>) -> ConfigTable<'d> {
        let place = KeyPath { parent: None, step: KeyStep::Root };
        ConfigTable::new(self, parsed.get_ref(), parsed.span(), place)
    }

    /// Parses the text and reads its root table. Returns `None` after a syntax error.
    pub(super) fn read<T>(&self, read: impl FnOnce(&ConfigTable<'_>) -> T) -> Option<T> {
        let parsed = self.parse()?;
        let table = self.root(&parsed);
        let value = read(&table);
        table.finish();
        Some(value)
    }

    /// Returns all faults in the order of their positions.
    pub(super) fn into_report(self) -> Report {
        Report { problems: self.problems.in_order(&self.file, self.text, self.before.lines) }
    }

    /// Returns the warnings in the order of their positions.
    ///
    /// # Errors
    /// Returns all faults if there are any.
    pub(super) fn into_warnings(self) -> Result<Vec<Problem>, Report> {
        let (file, text, lines) = (&self.file, self.text, self.before.lines);
        Report { problems: self.problems.in_order(file, text, lines) }.into_result()?;
        Ok(self.warnings.in_order(file, text, lines))
    }

    pub(super) fn report(&self, span: &Range<usize>, key: String, message: String, hint: Option<String>) {
        self.problems.add(span.start, self.numbered(key), message, hint);
    }

    fn warn(&self, span: &Range<usize>, key: String, message: String, hint: Option<String>) {
        self.warnings.add(span.start, self.numbered(key), message, hint);
    }
}

impl TomlDocument<'_> {
    /// Rewrites the index in a key's path to that in the whole file.
    fn numbered(&self, key: String) -> String {
        for (name, before) in self.before.elements.iter().filter(|(_, before)| *before > 0) {
            if let Some((number, rest)) = key
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('['))
                .and_then(|rest| rest.split_once(']'))
                && let Ok(number) = number.parse::<usize>()
            {
                return format!("{name}[{}]{rest}", number + before);
            }
        }
        key
    }
}

/// Returns whether the text of a value may have a secret: that of a secret's key, a table, and what stands in the place of a table
/// that may have one.
fn may_be_secret(value: &DeValue<'_>, path: &str) -> bool {
    let has_table = |list: &DeArray<'_>| list.iter().any(|element| element.get_ref().is_table());
    value.is_table()
        || value.as_array().is_some_and(has_table)
        || match secrecy(path) {
            Secrecy::Hidden | Secrecy::Digest => true,
            Secrecy::Url => value.as_str().is_none_or(|text| text.contains(['@', '?'])),
            Secrecy::Shown | Secrecy::Unknown => has_secrets(path),
        }
}

/// Value with its position.
#[derive(Clone)]
pub(super) struct Value<'d> {
    document: &'d TomlDocument<'d>,
    value: &'d DeValue<'d>,
    span: Range<usize>,
    place: KeyPath<'d>,
    hidden: bool,
}

impl<'d> Value<'d> {
    /// Hides the value in messages: it is a secret, or a field in which users put one by mistake.
    pub(super) fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Hides the value in messages if `secret` returns true for its text.
    pub(super) fn hidden_where(mut self, secret: impl FnOnce(&str) -> bool) -> Self {
        self.hidden |= matches!(self.value, DeValue::String(text) if secret(text));
        self
    }

    /// Returns the source text of the value for a message. A secret is masked, and what may have one below it.
    fn shown(&self) -> String {
        if self.hidden || may_be_secret(self.value, &self.place.key_type_path()) {
            return MASK.to_owned();
        }
        excerpt(self.document.text, &self.span)
    }

    /// Reports a fault of this value.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.report(&self.span, self.place.path(), message.into(), hint.into());
    }

    /// Warns of this value, which is valid but has no effect.
    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.warn(&self.span, self.place.path(), message.into(), hint.into());
    }

    fn wrong_type(&self, expected: &str) {
        let found = self.value.type_str();
        self.wrong(format!("expected {expected}, found {found} `{}`", self.shown()), None);
    }

    pub(super) fn as_str(&self) -> Option<&'d str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.wrong_type("true or false");
        }
        value
    }

    pub(super) fn as_integer(&self, range: &RangeInclusive<i64>) -> Option<i64> {
        let Some(integer) = self.value.as_integer() else {
            self.wrong_type("a whole number");
            return None;
        };
        match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(n) if range.contains(&n) => Some(n),
            _ => {
                let hint = format!("write a number from {} to {}", range.start(), range.end());
                self.wrong(format!("{} is out of range", integer.as_str()), hint);
                None
            }
        }
    }

    /// Reads an amount of money, with or without a fraction. Returns nano-units; reports a fault and returns `None` for
    /// anything else.
    pub(super) fn as_amount(&self) -> Option<i64> {
        let text = match self.value {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => {
                self.wrong_type("a number");
                return None;
            }
        };
        match amount::parse(text) {
            Ok(nanos) => Some(nanos),
            Err(error) => {
                self.wrong(format!("{text} is not an amount"), error.to_string());
                None
            }
        }
    }

    /// Returns whether the value is a table.
    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// Returns whether the value is a list.
    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// Reads a text with a parser whose error is a hint for the user.
    pub(super) fn parsed<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.as_str()?) {
            Ok(value) => Some(value),
            Err(hint) => {
                self.wrong(format!("{} is not valid", self.shown()), hint);
                None
            }
        }
    }

    /// Returns the position, for faults that are detected after the file has been read.
    pub(super) fn position(&self) -> Position {
        Position { span: self.span.clone(), key: self.place.path() }
    }

    /// Calls `each` for the elements of a list. Returns their number, or `None` if the value is not a list.
    pub(super) fn elements(&self, mut each: impl FnMut(&Value<'_>)) -> Option<usize> {
        let Some(list) = self.value.as_array() else {
            self.wrong_type("a list");
            return None;
        };
        for (index, element) in list.iter().enumerate() {
            let place = KeyPath { parent: Some(&self.place), step: KeyStep::Index(index) };
            let (document, value, span) = (self.document, element.get_ref(), element.span());
            each(&Value { document, value, span, place, hidden: self.hidden });
        }
        Some(list.len())
    }

    /// Reads the value as a table. Unknown keys are reported afterwards.
    pub(super) fn as_table<T>(&self, read: impl FnOnce(&ConfigTable<'_>) -> T) -> Option<T> {
        let Some(table) = self.value.as_table() else {
            self.wrong_type("a table");
            return None;
        };
        let table = ConfigTable::new(self.document, table, self.span.clone(), self.place);
        let value = read(&table);
        table.finish();
        Some(value)
    }

    /// Reads a TOML date as days since 1970.
    pub(super) fn as_day(&self) -> Option<i64> {
        let date = if let DeValue::Datetime(date) = self.value { date.to_string() } else { String::new() };
        let midnight = time::unix_seconds(&format!("{date}T00:00:00Z"));
        if midnight.is_none() {
            self.wrong_type("a date such as 2027-01-31");
        }
        Some(midnight?.div_euclid(time::DAY_SECONDS))
    }

    /// Reads a TOML date-time with an offset as Unix seconds.
    pub(super) fn as_time(&self) -> Option<i64> {
        let DeValue::Datetime(text) = self.value else {
            self.wrong_type("a date and time such as 2027-01-31T00:00:00Z");
            return None;
        };
        let text = text.to_string();
        let time = time::unix_seconds(&text);
        if time.is_none() {
            let hint = "write a date, a time and an offset, such as 2027-01-31T00:00:00Z".to_owned();
            self.wrong(format!("{text} is not a point in time"), hint);
        }
        time
    }
}

/// Table whose keys are read by name. When it is finished, the keys that were not read are reported as unknown.
pub(super) struct ConfigTable<'d> {
    document: &'d TomlDocument<'d>,
    table: &'d DeTable<'d>,
    span: Range<usize>,
    place: KeyPath<'d>,
    known: RefCell<Vec<&'static str>>,
    open: Cell<bool>,
}

impl<'d> ConfigTable<'d> {
    fn new(
        document: &'d TomlDocument<'d>,
        table: &'d DeTable<'d>,
        span: Range<usize>,
        place: KeyPath<'d>,
    ) -> Self {
        ConfigTable { document, table, span, place, known: RefCell::default(), open: Cell::new(false) }
    }

    /// Reports a fault of the table itself.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.report(&self.span, self.place.path(), message.into(), hint.into());
    }

    /// Warns of the table: it is valid, but a later operation cannot succeed with it.
    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.warn(&self.span, self.place.path(), message.into(), hint.into());
    }

    /// Returns whether further faults of the document are only counted.
    pub(super) fn has_too_many_faults(&self) -> bool {
        self.document.problems.is_full()
    }

    /// Reports a fault at a marked position.
    pub(super) fn wrong_at(
        &self,
        mark: &Position,
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) {
        self.document.report(&mark.span, mark.key.clone(), message.into(), hint.into());
    }

    /// Returns the value of a key, or `None` if the key is missing.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'_>> {
        // Missing keys are recorded too: the hint for an unknown key lists them.
        self.known.borrow_mut().push(key);
        let place = KeyPath { parent: Some(&self.place), step: KeyStep::Key(key) };
        if let Some(value) = self.layered(key, place) {
            return Some(value);
        }
        let value: &Spanned<DeValue<'_>> = self.table.get(key)?;
        let (document, span) = (self.document, value.span());
        Some(Value { document, value: value.get_ref(), span, place, hidden: false })
    }

    /// Returns the value that overrides that of a key. `None` for nearly all keys.
    fn layered<'v>(&'v self, key: &str, place: KeyPath<'v>) -> Option<Value<'v>> {
        let document = self.document;
        if document.layers.is_empty() {
            return None;
        }
        let path = place.path();
        if let Some(layer) = document.layers.iter().find(|layer| layer.key() == path) {
            let (value, span) = (layer.value().get_ref(), layer.value().span());
            return Some(Value { document: layer.document(), value, span, place, hidden: false });
        }
        let is_needed =
            !self.table.contains_key(key) && document.layers.iter().any(|layer| layer.is_below(&path));
        is_needed.then(|| Value {
            document,
            value: &document.empty,
            span: self.span.clone(),
            place,
            hidden: false,
        })
    }

    /// Returns the value of a key; a missing key is a fault.
    pub(super) fn require(&self, key: &'static str, example: &str) -> Option<Value<'_>> {
        let value = self.get(key);
        if value.is_none() {
            let path = KeyPath { parent: Some(&self.place), step: KeyStep::Key(key) }.path();
            let hint = format!("for example: {example}");
            self.document.report(&self.span, path, "is missing".to_owned(), Some(hint));
        }
        value
    }

    /// Calls `each` for every key, for tables with user-defined keys. The values are hidden in messages, because they
    /// may be secrets.
    pub(super) fn entries(&self, mut each: impl FnMut(&str, &Value<'_>)) {
        self.open.set(true);
        for (key, value) in self.table {
            let place = KeyPath { parent: Some(&self.place), step: KeyStep::Key(key.get_ref()) };
            let (document, span) = (self.document, value.span());
            each(key.get_ref(), &Value { document, value: value.get_ref(), span, place, hidden: true });
        }
    }

    pub(super) fn string(&self, key: &'static str) -> Option<String> {
        self.get(key)?.as_str().map(str::to_owned)
    }

    pub(super) fn amount(&self, key: &'static str) -> Option<i64> {
        self.get(key)?.as_amount()
    }

    pub(super) fn boolean(&self, key: &'static str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    pub(super) fn integer(&self, key: &'static str, range: &RangeInclusive<i64>) -> Option<i64> {
        self.get(key)?.as_integer(range)
    }

    /// Reads a size in bytes, such as `"64MiB"`.
    pub(super) fn size(&self, key: &'static str) -> Option<usize> {
        self.get(key)?.parsed(values::size)
    }

    /// Reads a duration, such as `"30s"`.
    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.get(key)?.parsed(values::duration)
    }

    /// Reads a nested table; returns `None` if it is missing.
    pub(super) fn table<T>(&self, key: &'static str, read: impl FnOnce(&ConfigTable<'_>) -> T) -> Option<T> {
        self.get(key)?.as_table(read)
    }

    /// Reads each table of a list of tables, such as `[[model]]`. Returns their number.
    pub(super) fn tables(&self, key: &'static str, mut read: impl FnMut(&ConfigTable<'_>)) -> usize {
        let list = self.get(key);
        let count = list.and_then(|list| {
            list.elements(|element| {
                element.as_table(&mut read);
            })
        });
        count.unwrap_or(0)
    }

    /// Reports the keys that were not read as unknown.
    pub(super) fn finish(self) {
        // Tables with user-defined keys have no unknown keys.
        if self.open.get() {
            return;
        }
        let known = self.known.into_inner();
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            if self.document.problems.is_full() {
                self.document.problems.count();
                continue;
            }
            let mut names = known.clone();
            names.sort_unstable();
            names.dedup();
            let hint = match closest(name, names.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known keys: {}", names.join(", ")),
            };
            let path = KeyPath { parent: Some(&self.place), step: KeyStep::Key(name) }.path();
            self.document.report(&key.span(), path, "unknown key".to_owned(), Some(hint));
        }
    }
}
