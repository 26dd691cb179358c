//! What an administrator sees of the configuration: every fault at its place and in plain words, the configuration in
//! effect, and never a secret.
//!
//! The files lie in `tests/config/`: a folder a case, beside the expected text. `UPDATE_GOLDEN=1` writes the expected
//! texts anew. Here must not live: the examples of `conf/`, which have tests of their own.

mod golden;
mod keys_file;
mod values;

use std::path::{Path, PathBuf};

use super::Vault;

/// What every secret in the cases holds, so that none can be shown unnoticed.
const SECRET: &str = "SECRET";

/// Secrets of the cases: every variable but those named `UNSET` is set, and no file is read.
struct Stage;

impl Vault for Stage {
    fn env(&self, name: &str) -> Option<String> {
        match name {
            "CREDENTIALS_DIRECTORY" => Some("/run/credentials/gateway".to_owned()),
            "EMPTY" => Some(" \n".to_owned()),
            "CONTROL" => Some(format!("{SECRET}\u{7}")),
            _ if name.starts_with("UNSET") => None,
            _ => Some(format!("{SECRET}-{name}")),
        }
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        match path.starts_with("/run/credentials/gateway") {
            true => Ok(format!("{SECRET}-file\n")),
            false => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        }
    }
}

/// The folders below `tests/config/` of one sort, in order. Relative, so that messages are the same everywhere.
fn cases(sort: &str) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(Path::new("tests/config").join(sort))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
}

/// Compares with the text in a file, or writes the file.
fn assert_golden(file: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(text, expected, "{} (UPDATE_GOLDEN=1 writes it anew)", file.display());
}
