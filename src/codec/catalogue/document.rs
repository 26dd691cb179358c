//! Reader of catalogue files: every wrong, unknown or missing key is reported with its place, and the rest is read.

use std::cell::RefCell;
use std::ops::Range;

use jiff::civil::Date;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::factor::{self, PriceFactor};
use super::fault::FaultList;

/// Place of a row or value: number of the file, and offset in its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowPlace {
    pub(super) file: usize,
    pub(super) offset: usize,
}

/// Value with its place and the path of its key.
pub(super) struct TomlValue<'d> {
    faults: &'d FaultList,
    file: usize,
    value: &'d DeValue<'d>,
    span: Range<usize>,
    path: String,
}

impl<'d> TomlValue<'d> {
    /// Reports a fault of this value.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.faults.add(self.place(), &self.path, message.into(), Some(hint.into()));
    }

    pub(super) fn place(&self) -> RowPlace {
        RowPlace { file: self.file, offset: self.span.start }
    }

    fn wrong_type(&self, expected: &str) {
        self.wrong(
            format!("expected {expected}, found {}", self.value.type_str()),
            format!("write {expected}"),
        );
    }

    /// Returns whether the value says that the fact is not known.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.value, DeValue::String(text) if text == "?")
    }

    pub(super) fn text(&self) -> Option<&'d str> {
        match self.value {
            DeValue::String(text) if !text.trim().is_empty() => Some(text),
            DeValue::String(_) => {
                self.wrong("is empty", "write a text, or leave the key out");
                None
            }
            _ => {
                self.wrong_type("a text");
                None
            }
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.wrong_type("true or false");
        }
        value
    }

    /// Reads a number of tokens, images or the like.
    pub(super) fn count(&self) -> Option<u64> {
        const MAX: u64 = 1_000_000_000;
        let Some(integer) = self.value.as_integer() else {
            self.wrong_type("a whole number");
            return None;
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if number <= MAX => Some(number),
            _ => {
                self.wrong(format!("{} is out of range", integer.as_str()), format!("write 0 to {MAX}"));
                None
            }
        }
    }

    fn decimal(&self) -> Option<&str> {
        match self.value {
            DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str()),
            DeValue::Float(float) => Some(float.as_str()),
            _ => None,
        }
    }

    /// Reads a price in nano-units.
    pub(super) fn price(&self) -> Option<i64> {
        let Some(text) = self.decimal() else {
            self.wrong_type("a price such as 2.5");
            return None;
        };
        let price = factor::nanos(text);
        if price.is_none() {
            self.wrong(format!("{text} is not a price"), "write 0 to 10000, with at most 9 decimal places");
        }
        price
    }

    /// Reads a factor: a decimal, or a ratio such as `"5/3"`.
    pub(super) fn factor(&self) -> Option<PriceFactor> {
        let text = match self.value {
            DeValue::String(text) => Some(&**text),
            _ => self.decimal(),
        };
        let factor = text.and_then(PriceFactor::parse);
        if factor.is_none() {
            let found = text.unwrap_or_else(|| self.value.type_str());
            let hint = "write 0 to 1000 with at most 6 decimal places, or a ratio such as \"5/3\"";
            self.wrong(format!("{found} is not a factor"), hint);
        }
        factor
    }

    /// Reads a day such as `2026-12-01`.
    pub(super) fn day(&self) -> Option<Date> {
        let day = match self.value {
            DeValue::Datetime(value) => match (value.date, value.time, value.offset) {
                (Some(date), None, None) => date_of(date.year, date.month, date.day),
                _ => None,
            },
            _ => None,
        };
        if day.is_none() {
            self.wrong(
                "expected a day",
                "write a date without quotes and without a time, such as 2026-12-01",
            );
        }
        day
    }

    /// Calls `each` for the elements of a list.
    pub(super) fn elements(&self, mut each: impl FnMut(&TomlValue<'d>)) {
        let Some(list) = self.value.as_array() else {
            self.wrong_type("a list");
            return;
        };
        for (index, element) in list.iter().enumerate() {
            let path = format!("{}[{index}]", self.path);
            let (faults, file, value) = (self.faults, self.file, element.get_ref());
            each(&TomlValue { faults, file, value, span: element.span(), path });
        }
    }

    /// Reads a list of texts; a single text stands for a list of one.
    pub(super) fn texts(&self) -> Vec<Box<str>> {
        if self.value.is_str() {
            return self.text().map(Box::from).into_iter().collect();
        }
        let mut texts = Vec::new();
        self.elements(|element| texts.extend(element.text().map(Box::from)));
        texts
    }

    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// Calls `each` for the keys of a table whose keys the file chooses.
    pub(super) fn entries(&self, mut each: impl FnMut(&'d str, &TomlValue<'d>)) {
        let Some(table) = self.value.as_table() else {
            self.wrong_type("a table");
            return;
        };
        for (key, value) in table {
            let path = format!("{}.{}", self.path, key.get_ref());
            let (faults, file) = (self.faults, self.file);
            each(
                key.get_ref(),
                &TomlValue { faults, file, value: value.get_ref(), span: value.span(), path },
            );
        }
    }

    /// Reads the value as a table whose keys are known.
    pub(super) fn table<T>(&self, read: impl FnOnce(&TomlTable<'d>) -> T) -> Option<T> {
        let Some(table) = self.value.as_table() else {
            self.wrong_type("a table");
            return None;
        };
        let (faults, file, span, path) = (self.faults, self.file, self.span.clone(), self.path.clone());
        let table = TomlTable { faults, file, table, span, path, known: RefCell::default() };
        let value = read(&table);
        table.finish();
        Some(value)
    }
}

fn date_of(year: u16, month: u8, day: u8) -> Option<Date> {
    let (year, month, day) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    Date::new(year, month, day).ok().filter(|date| (2000..2200).contains(&date.year()))
}

/// Table whose keys are read by name. When it is finished, the keys that were not read are reported.
pub(super) struct TomlTable<'d> {
    faults: &'d FaultList,
    file: usize,
    table: &'d DeTable<'d>,
    span: Range<usize>,
    path: String,
    known: RefCell<Vec<&'static str>>,
}

impl<'d> TomlTable<'d> {
    /// Parses a file and reads its root table. Returns `None` after a syntax error, which is reported.
    pub(super) fn parse<T>(
        faults: &FaultList,
        file: usize,
        text: &str,
        read: impl FnOnce(&TomlTable<'_>) -> T,
    ) -> Option<T> {
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let offset = error.span().unwrap_or_default().start;
            faults.add(RowPlace { file, offset }, "", error.message().to_owned(), None);
        }
        // The parser recovers by guessing: faults behind a syntax error would mislead.
        if !errors.is_empty() {
            return None;
        }
        let (table, span) = (root.get_ref(), root.span());
        let table = TomlTable { faults, file, table, span, path: String::new(), known: RefCell::default() };
        let value = read(&table);
        table.finish();
        Some(value)
    }

    pub(super) fn place(&self) -> RowPlace {
        RowPlace { file: self.file, offset: self.span.start }
    }

    /// Reports a fault of the table as a whole.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.faults.add(self.place(), &self.path, message.into(), Some(hint.into()));
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the value of a key, or `None` if the key is missing.
    pub(super) fn get(&self, key: &'static str) -> Option<TomlValue<'d>> {
        self.known.borrow_mut().push(key);
        let value: &'d Spanned<DeValue<'d>> = self.table.get(key)?;
        let (faults, file, path) = (self.faults, self.file, self.path_of(key));
        Some(TomlValue { faults, file, value: value.get_ref(), span: value.span(), path })
    }

    /// Returns the value of a key; a missing key is a fault.
    pub(super) fn require(&self, key: &'static str, example: &str) -> Option<TomlValue<'d>> {
        let value = self.get(key);
        if value.is_none() {
            let hint = Some(format!("for example: {example}"));
            self.faults.add(self.place(), &self.path_of(key), "is missing".to_owned(), hint);
        }
        value
    }

    pub(super) fn text(&self, key: &'static str) -> Option<Box<str>> {
        self.get(key)?.text().map(Box::from)
    }

    pub(super) fn count(&self, key: &'static str) -> Option<u64> {
        self.get(key)?.count()
    }

    pub(super) fn day(&self, key: &'static str) -> Option<Date> {
        self.get(key)?.day()
    }

    /// Reads each table of a list of tables.
    pub(super) fn tables(&self, key: &'static str, mut read: impl FnMut(&TomlTable<'d>)) {
        if let Some(list) = self.get(key) {
            list.elements(|element| {
                element.table(&mut read);
            });
        }
    }

    fn finish(self) {
        let mut known = self.known.take();
        known.sort_unstable();
        known.dedup();
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let place = RowPlace { file: self.file, offset: key.span().start };
                let hint = Some(format!("known keys: {}", known.join(", ")));
                self.faults.add(place, &self.path_of(name), "unknown key".to_owned(), hint);
            }
        }
    }
}
