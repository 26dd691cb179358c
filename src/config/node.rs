//! A reader over a parsed TOML document that goes on after a fault: every key that is wrong, unknown or missing is
//! reported with its place, and what can be read is read.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::ops::{Range, RangeInclusive};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{Problem, Report, closest, excerpt, place};
use super::values;
use crate::account::amount;

/// A file under reading and what was found wrong with it.
pub(super) struct Document<'t> {
    file: PathBuf,
    text: &'t str,
    before: Before,
    problems: RefCell<Vec<Problem>>,
}

/// What stands in a file before the part of it that is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// Lines.
    pub(super) lines: usize,
    /// Elements of its lists of tables, by name.
    pub(super) elements: Vec<(&'static str, usize)>,
}

/// Where a value stands: a chain of keys and indexes, turned into text only for a message.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl<'t> Document<'t> {
    pub(super) fn new(file: &FilePath, text: &'t str) -> Self {
        Document::part(file, text, Before::default())
    }

    /// A part of a file, which is TOML by itself.
    pub(super) fn part(file: &FilePath, text: &'t str, before: Before) -> Self {
        Document { file: file.to_owned(), text, before, problems: RefCell::default() }
    }

    /// Parses the text and reads its outermost table.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Table<'_>) -> T) -> Option<T> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        let broken = !errors.is_empty();
        for error in errors {
            let span = error.span().unwrap_or_default();
            self.report(&span, String::new(), error.message().to_owned(), None);
        }
        if broken {
            // What follows a syntax error was recovered by guessing; complaints about it would mislead.
            return None;
        }
        let place = Place { parent: None, step: Step::Root };
        let table = Table::new(self, root.get_ref(), root.span(), place);
        let value = read(&table);
        table.finish();
        Some(value)
    }

    /// All faults, in the order of their places.
    pub(super) fn into_report(self) -> Report {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Report { problems }
    }

    fn report(&self, span: &Range<usize>, key: String, message: String, hint: Option<String>) {
        let (line, column) = place(self.text, span.start);
        let (line, key) = (line + self.before.lines, self.numbered(key));
        let problem = Problem { file: self.file.clone(), line, column, key, message, hint };
        self.problems.borrow_mut().push(problem);
    }
}

impl Document<'_> {
    /// A key's path with the number that its element has in the whole file.
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

impl Place<'_> {
    fn write(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        match self.step {
            Step::Root => {}
            Step::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            Step::Index(index) => {
                let _ = write!(out, "[{index}]");
            }
        }
    }

    fn path(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// A value with its place.
#[derive(Clone)]
pub(super) struct Value<'d> {
    document: &'d Document<'d>,
    value: &'d DeValue<'d>,
    span: Range<usize>,
    place: Place<'d>,
    hidden: bool,
}

impl<'d> Value<'d> {
    /// The same value, never shown in a message: it is a secret, or somebody may have put one here by mistake.
    pub(super) fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// The same value, hidden if it looks like a secret.
    pub(super) fn hidden_where(mut self, secret: impl FnOnce(&str) -> bool) -> Self {
        self.hidden |= matches!(self.value, DeValue::String(text) if secret(text));
        self
    }

    /// The value as it is written, for a message.
    fn shown(&self) -> String {
        if self.hidden { "***".to_owned() } else { excerpt(self.document.text, &self.span) }
    }

    /// Reports this value.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.report(&self.span, self.place.path(), message.into(), hint.into());
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
                let hint = format!("from {} to {} is possible", range.start(), range.end());
                self.wrong(format!("{} is out of range", integer.as_str()), hint);
                None
            }
        }
    }

    /// An amount of money, written with or without a fraction, in nano-units.
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

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// Text in a form of its own; the parser says what would be right.
    pub(super) fn parsed<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.as_str()?) {
            Ok(value) => Some(value),
            Err(hint) => {
                self.wrong(format!("{} is not understood", self.shown()), hint);
                None
            }
        }
    }

    /// Its place, for what is found wrong only when everything has been read.
    pub(super) fn mark(&self) -> Mark {
        Mark { span: self.span.clone(), key: self.place.path() }
    }

    /// The elements of a list.
    pub(super) fn elements(&self, mut each: impl FnMut(&Value<'_>)) -> Option<usize> {
        let Some(list) = self.value.as_array() else {
            self.wrong_type("a list");
            return None;
        };
        for (index, element) in list.iter().enumerate() {
            let place = Place { parent: Some(&self.place), step: Step::Index(index) };
            let (document, value, span) = (self.document, element.get_ref(), element.span());
            each(&Value { document, value, span, place, hidden: self.hidden });
        }
        Some(list.len())
    }

    /// The value as a table.
    pub(super) fn as_table<T>(&self, read: impl FnOnce(&Table<'_>) -> T) -> Option<T> {
        let Some(table) = self.value.as_table() else {
            self.wrong_type("a table");
            return None;
        };
        let table = Table::new(self.document, table, self.span.clone(), self.place);
        let value = read(&table);
        table.finish();
        Some(value)
    }

    /// A point in time: a TOML date-time with an offset, in Unix seconds.
    pub(super) fn as_time(&self) -> Option<i64> {
        let text = match self.value {
            DeValue::Datetime(time) => time.to_string(),
            _ => {
                self.wrong_type("a date and time such as 2027-01-31T00:00:00Z");
                return None;
            }
        };
        let time = crate::wire::time::unix_seconds(&text);
        if time.is_none() {
            let hint = "write it with its offset, such as 2027-01-31T00:00:00Z".to_owned();
            self.wrong(format!("{text} is not a point in time"), hint);
        }
        time
    }
}

/// The place of a value, to be kept.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    span: Range<usize>,
    key: String,
}

/// A table whose keys are asked for by name; at the end the keys that nobody asked for are reported.
pub(super) struct Table<'d> {
    document: &'d Document<'d>,
    table: &'d DeTable<'d>,
    span: Range<usize>,
    place: Place<'d>,
    known: RefCell<Vec<&'static str>>,
    open: Cell<bool>,
}

impl<'d> Table<'d> {
    fn new(document: &'d Document<'d>, table: &'d DeTable<'d>, span: Range<usize>, place: Place<'d>) -> Self {
        Table { document, table, span, place, known: RefCell::default(), open: Cell::new(false) }
    }

    /// Reports the table itself.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.report(&self.span, self.place.path(), message.into(), hint.into());
    }

    /// Reports something whose place was noted.
    pub(super) fn wrong_at(&self, mark: &Mark, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.document.report(&mark.span, mark.key.clone(), message.into(), hint.into());
    }

    /// A key's value, if the key is there.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'_>> {
        self.known.borrow_mut().push(key);
        let value: &Spanned<DeValue<'_>> = self.table.get(key)?;
        let place = Place { parent: Some(&self.place), step: Step::Key(key) };
        let (document, span) = (self.document, value.span());
        Some(Value { document, value: value.get_ref(), span, place, hidden: false })
    }

    /// A key's value; its absence is a fault.
    pub(super) fn require(&self, key: &'static str, example: &str) -> Option<Value<'_>> {
        let value = self.get(key);
        if value.is_none() {
            let path = Place { parent: Some(&self.place), step: Step::Key(key) }.path();
            let hint = format!("for example: {example}");
            self.document.report(&self.span, path, "is missing".to_owned(), Some(hint));
        }
        value
    }

    /// Every key with its value, for tables with keys of the user's own; the values may be secrets.
    pub(super) fn entries(&self, mut each: impl FnMut(&str, &Value<'_>)) {
        self.open.set(true);
        for (key, value) in self.table {
            let place = Place { parent: Some(&self.place), step: Step::Key(key.get_ref()) };
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

    /// A number of bytes, such as `"64MiB"`.
    pub(super) fn size(&self, key: &'static str) -> Option<usize> {
        self.get(key)?.parsed(values::size)
    }

    /// A time span, such as `"30s"`.
    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.get(key)?.parsed(values::duration)
    }

    /// Reads a table inside this one, if it is there.
    pub(super) fn table<T>(&self, key: &'static str, read: impl FnOnce(&Table<'_>) -> T) -> Option<T> {
        self.get(key)?.as_table(read)
    }

    /// Reads each table of a list of tables, such as `[[model]]`; gives how many there are.
    pub(super) fn tables(&self, key: &'static str, mut read: impl FnMut(&Table<'_>)) -> usize {
        let list = self.get(key);
        let count = list.and_then(|list| {
            list.elements(|element| {
                element.as_table(&mut read);
            })
        });
        count.unwrap_or(0)
    }

    fn finish(self) {
        if self.open.get() {
            return;
        }
        let known = self.known.into_inner();
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let mut names = known.clone();
            names.sort_unstable();
            names.dedup();
            let hint = match closest(name, names.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known here: {}", names.join(", ")),
            };
            let path = Place { parent: Some(&self.place), step: Step::Key(name) }.path();
            self.document.report(&key.span(), path, "unknown key".to_owned(), Some(hint));
        }
    }
}
