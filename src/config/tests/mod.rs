//! Configuration tests: all faults with positions, the configuration in effect, and masking of secrets.
//!
//! The cases are folders in `tests/config/`, each beside its expected text. `UPDATE_GOLDEN=1` rewrites the expected
//! texts. The examples in `conf/` have tests of their own and must not be tested here.

mod aws;
mod catalogue;
mod cloud;
mod entries;
mod golden;
mod keys_file;
mod linear;
mod price_file;
mod values;

use std::path::{Path, PathBuf};

use super::Vault;

/// Text that every secret of the cases contains, so that a leak is detected.
const SECRET: &str = "SECRET";

/// Secrets of the cases: every variable except those named `UNSET` is set, and no file can be read.
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

/// Makes the root of the repository the current folder: the cases name their files from there.
fn enter_repository() {
    static ENTERED: std::sync::Once = std::sync::Once::new();
    ENTERED.call_once(|| {
        std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    });
}

/// Returns the case folders below `tests/config/` of one kind, sorted. The paths are relative, so that messages are the
/// same on every machine.
fn cases(sort: &str) -> Vec<PathBuf> {
    enter_repository();
    let mut cases: Vec<PathBuf> = std::fs::read_dir(Path::new("tests/config").join(sort))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
}

/// Compares `text` with a golden file, or rewrites the file.
fn assert_golden(file: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(text, expected, "{} (UPDATE_GOLDEN=1 writes it anew)", file.display());
}
