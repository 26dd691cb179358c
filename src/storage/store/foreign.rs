//! Databases of other programs, for the importer: a SQLite file, or a dump of one as SQL text.
//!
//! A dump is run in memory. It comes from outside, so it may create and fill tables and nothing else, and its size
//! and its steps are bounded.

use std::path::Path;

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// Beginning of a SQLite file.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Largest row, text or statement (bytes).
const MAX_LENGTH: i32 = 16 << 20;
/// Largest database of a dump (pages of 4 KiB).
const MAX_PAGES: u32 = 262_144;
/// Steps of SQLite's virtual machine after which a dump is given up, in units of [`STEP`].
const MAX_STEPS: u32 = 200_000;
/// Steps between two calls of the progress handler.
const STEP: i32 = 1_000;
/// Most rows of a table.
const MAX_ROWS: usize = 2_000_000;

/// Failure of reading a foreign database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignError {
    /// The file is not a readable SQLite database.
    #[error("{0}")]
    Database(String),
    /// A statement of a dump failed.
    #[error("line {line}: {message}")]
    Statement {
        /// Line on which the statement begins, from 1.
        line: usize,
        /// Message of SQLite.
        message: String,
    },
    /// A table has more rows than the limit.
    #[error("the table {0} has more than {MAX_ROWS} rows")]
    TooLarge(String),
}

/// Value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Null, or a blob that is not UTF-8.
    Null,
    /// Whole number.
    Integer(i64),
    /// Number with a fraction.
    Real(f64),
    /// Text.
    Text(String),
}

/// Rows of a table.
#[derive(Clone, Debug, Default)]
pub struct ForeignTable {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, with one value for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// Foreign database, opened for reading.
#[derive(Debug)]
pub struct ForeignDatabase(Connection);

fn failed(error: rusqlite::Error) -> ForeignError {
    ForeignError::Database(error.to_string())
}

impl ForeignDatabase {
    /// Opens a SQLite file. It is not changed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a database.
    pub fn open(path: &Path) -> Result<ForeignDatabase, ForeignError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        // Views and triggers of the file must not run functions with effects.
        connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
        bound(&connection)?;
        Ok(ForeignDatabase(connection))
    }

    /// Runs a dump in memory.
    ///
    /// # Errors
    /// Returns an error that names the line if a statement fails, or does anything but create and fill tables.
    pub fn of_script(script: &str) -> Result<ForeignDatabase, ForeignError> {
        let connection = Connection::open_in_memory().map_err(failed)?;
        connection.pragma_update(None, "max_page_count", MAX_PAGES).map_err(failed)?;
        connection.authorizer(Some(authorize)).map_err(failed)?;
        bound(&connection)?;
        for (line, statement) in statements(script) {
            let run = connection.execute_batch(statement);
            run.map_err(|error| ForeignError::Statement { line, message: message(&error) })?;
        }
        Ok(ForeignDatabase(connection))
    }

    /// Returns the names of the tables.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn tables(&self) -> Result<Vec<String>, ForeignError> {
        let select =
            "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name";
        let mut statement = self.0.prepare(select).map_err(failed)?;
        let names = statement.query_map([], |row| row.get(0)).map_err(failed)?;
        names.collect::<Result<_, _>>().map_err(failed)
    }

    /// Returns the names of the columns of a table.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn columns(&self, name: &str) -> Result<Vec<String>, ForeignError> {
        let select = format!("select * from \"{}\" limit 0", name.replace('"', "\"\""));
        let statement = self.0.prepare(&select).map_err(failed)?;
        Ok(statement.column_names().iter().map(|&name| name.to_owned()).collect())
    }

    /// Reads a table; one that does not exist is empty.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read, or the table is too large.
    pub fn table(&self, name: &str) -> Result<ForeignTable, ForeignError> {
        if !self.tables()?.iter().any(|known| known == name) {
            return Ok(ForeignTable::default());
        }
        let select = format!("select * from \"{}\"", name.replace('"', "\"\""));
        let mut statement = self.0.prepare(&select).map_err(failed)?;
        let columns: Vec<String> = statement.column_names().iter().map(|&name| name.to_owned()).collect();
        let mut table = ForeignTable { columns, rows: Vec::new() };
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if table.rows.len() >= MAX_ROWS {
                return Err(ForeignError::TooLarge(name.to_owned()));
            }
            let cells = (0..table.columns.len()).map(|at| row.get_ref(at).map(cell));
            table.rows.push(cells.collect::<Result<_, _>>().map_err(failed)?);
        }
        Ok(table)
    }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            std::str::from_utf8(bytes).map_or(Cell::Null, |text| Cell::Text(text.to_owned()))
        }
    }
}

/// Bounds the size of values and the number of steps.
fn bound(connection: &Connection) -> Result<(), ForeignError> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_LENGTH).map_err(failed)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_LENGTH).map_err(failed)?;
    let mut calls = 0_u32;
    let exhausted = move || {
        calls = calls.saturating_add(1);
        calls > MAX_STEPS
    };
    connection.progress_handler(STEP, Some(exhausted)).map_err(failed)
}

/// Message of SQLite without the statement, which can have secrets.
fn message(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}

/// Permits what dumps of tables consist of.
fn authorize(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::CreateTable { .. }
        | AuthAction::CreateIndex { .. }
        | AuthAction::DropTable { .. }
        | AuthAction::DropIndex { .. }
        | AuthAction::Insert { .. }
        | AuthAction::Delete { .. }
        | AuthAction::Update { .. }
        | AuthAction::Read { .. }
        | AuthAction::Select
        | AuthAction::Reindex { .. }
        | AuthAction::Transaction { .. } => Authorization::Allow,
        AuthAction::Function { function_name } if function_name != "load_extension" => Authorization::Allow,
        // `sqlite3 .dump` begins with one; it has no effect here.
        AuthAction::Pragma { .. } => Authorization::Ignore,
        _ => Authorization::Deny,
    }
}

/// Splits a script at semicolons outside of texts, names and comments. Returns each statement with the line on which
/// it begins.
fn statements(script: &str) -> Vec<(usize, &str)> {
    let bytes = script.as_bytes();
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    let find = |from: usize, needle: &[u8]| {
        let rest = bytes.get(from..).unwrap_or_default();
        memchr::memmem::find(rest, needle).map_or(bytes.len(), |end| from + end + needle.len())
    };
    while let Some(&byte) = bytes.get(at) {
        at = match (byte, bytes.get(at + 1)) {
            (b'\'' | b'"' | b'`', _) => find(at + 1, &[byte]),
            (b'[', _) => find(at + 1, b"]"),
            (b'-', Some(b'-')) => find(at + 2, b"\n"),
            (b'/', Some(b'*')) => find(at + 2, b"*/"),
            (b';', _) => {
                found.push((start, at + 1));
                start = at + 1;
                at + 1
            }
            _ => at + 1,
        };
    }
    found.push((start, bytes.len()));
    let mut line = 1;
    let mut counted = 0;
    let mut numbered = Vec::with_capacity(found.len());
    for (from, to) in found {
        let Some(text) = script.get(from..to) else { continue };
        let begins = from + (text.len() - text.trim_start().len());
        line += memchr::memchr_iter(b'\n', bytes.get(counted..begins).unwrap_or_default()).count();
        counted = begins;
        if !text.trim().is_empty() {
            numbered.push((line, text));
        }
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_is_read_with_its_types() {
        let script = "-- a; comment\nPRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n\
                      CREATE TABLE t (id integer PRIMARY KEY, \"a;b\" text, n real);\n\
                      INSERT INTO t VALUES (1, 'x;' || char(10) || 'y', 0.5), (2, NULL, 3);\nCOMMIT;\n";
        let database = ForeignDatabase::of_script(script).unwrap();
        assert_eq!(database.tables().unwrap(), ["t"]);
        let table = database.table("t").unwrap();
        assert_eq!(table.columns, ["id", "a;b", "n"]);
        let first = [Cell::Integer(1), Cell::Text("x;\ny".to_owned()), Cell::Real(0.5)];
        assert_eq!(table.rows.first().map(Vec::as_slice), Some(&first[..]));
        assert!(database.table("other").unwrap().rows.is_empty());
    }

    #[test]
    fn dump_that_does_anything_else_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.db");
        for statement in [
            format!("ATTACH '{}' AS other", file.display()),
            format!("VACUUM INTO '{}'", file.display()),
            "SELECT load_extension('x')".to_owned(),
            "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END".to_owned(),
            "CREATE VIRTUAL TABLE v USING fts5(x)".to_owned(),
            "CREATE TABLE `x` (`id` bigint) ENGINE=InnoDB".to_owned(),
        ] {
            let script = format!("CREATE TABLE t (x);\n\n{statement};\n");
            let error = ForeignDatabase::of_script(&script).unwrap_err();
            assert!(matches!(error, ForeignError::Statement { line: 3, .. }), "{statement}: {error:?}");
        }
        assert!(!file.exists());
    }

    #[test]
    fn dump_that_does_not_end_is_given_up() {
        let script = "CREATE TABLE t (x);INSERT INTO t VALUES (zeroblob(1000000));\
                      INSERT INTO t SELECT a.x FROM t a, t b, t c;"
            .to_owned()
            + &"INSERT INTO t SELECT a.x FROM t a, t b;".repeat(20);
        assert!(ForeignDatabase::of_script(&script).is_err());
    }
}
