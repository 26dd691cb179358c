//! Check of the audit log's chain: whether a line is missing, was added or was edited.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::audit::{OLD_FILES, file_of};
use config::FileHash;

/// Longest line that is read, in bytes. Values of a change are at most some hundred kilobytes.
const LONGEST: u64 = 16 << 20;

/// Result of a check without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSummary {
    /// Number of lines.
    pub lines: u64,
    /// Numbers of the first and the last line. `None` without lines.
    pub range: Option<(u64, u64)>,
    /// Hash of the last line: who keeps it elsewhere can tell later whether the end was cut off. Empty without lines.
    pub last_hash: String,
}

/// Fault of the audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditFault {
    /// A file cannot be read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A line does not follow the one before.
    #[error("{}:{line}: {reason}", .path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line from 1.
        line: u64,
        /// Reason.
        reason: String,
    },
}

#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: String,
}

/// Checks the audit log of a state folder, from its oldest line to its last one. With `known`, one of the lines must have
/// this hash: that of the last line at an earlier time. Files that were rotated away are no
/// fault: the oldest line that is there begins the chain.
///
/// # Errors
/// Returns the first fault.
pub fn verify_audit(folder: &Path, known: Option<&str>) -> Result<AuditSummary, AuditFault> {
    let mut is_found = known.is_none();
    let mut summary = AuditSummary { lines: 0, range: None, last_hash: String::new() };
    let mut has_begun = false;
    for age in (0..=OLD_FILES).rev() {
        let path = file_of(folder, age);
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if has_begun {
                    return Err(AuditFault::Line { path, line: 0, reason: "the file is missing".to_owned() });
                }
                continue;
            }
            Err(source) => return Err(AuditFault::Io { path, source }),
        };
        has_begun = true;
        check_file(&path, file, &mut summary, &mut |hash| is_found |= known == Some(hash))?;
    }
    if !is_found {
        let reason =
            "no line has the given hash: lines after an earlier check were replaced, or have expired";
        return Err(AuditFault::Line { path: file_of(folder, 0), line: 0, reason: reason.to_owned() });
    }
    Ok(summary)
}

fn check_file(
    path: &Path,
    file: std::fs::File,
    summary: &mut AuditSummary,
    seen: &mut dyn FnMut(&str),
) -> Result<(), AuditFault> {
    let mut reader = BufReader::new(file);
    for number in 1u64.. {
        let wrong = |reason: String| AuditFault::Line { path: path.to_owned(), line: number, reason };
        let mut text = String::new();
        let read = io::Read::take(&mut reader, LONGEST).read_line(&mut text);
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(source) => return Err(AuditFault::Io { path: path.to_owned(), source }),
        }
        let Some(line) = text.strip_suffix('\n') else {
            return Err(wrong(
                "the line is incomplete; a crash may have left it, the next change removes it".to_owned(),
            ));
        };
        let link: Link =
            serde_json::from_str(line).map_err(|_| wrong("the line is none of the audit log".to_owned()))?;
        match summary.range {
            None if link.seq == 1 && !link.prev.is_empty() => {
                return Err(wrong("the first line follows another one".to_owned()));
            }
            Some((_, last)) if link.seq != last.saturating_add(1) => {
                return Err(wrong(format!("line {} follows line {last}", link.seq)));
            }
            Some((_, last)) if link.prev != summary.last_hash => {
                return Err(wrong(format!(
                    "line {last} was edited: it has another hash than line {} names",
                    link.seq
                )));
            }
            _ => {}
        }
        summary.lines = summary.lines.saturating_add(1);
        let first = summary.range.map_or(link.seq, |(first, _)| first);
        summary.range = Some((first, link.seq));
        summary.last_hash = FileHash::of(line).to_hex();
        seen(&summary.last_hash);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditEntry, AuditLog};

    #[test]
    fn audit_check_finds_every_line_that_was_edited_removed_added_or_moved() {
        let folder = tempfile::tempdir().unwrap();
        let check = || verify_audit(folder.path(), None);
        assert_eq!(check().unwrap().lines, 0);
        let log = AuditLog::new(folder.path());
        for object in ["a", "b", "c", "d"] {
            log.append(&AuditEntry { object: object.to_owned(), ..AuditEntry::default() }).unwrap();
        }
        let summary = check().unwrap();
        assert_eq!((summary.lines, summary.range), (4, Some((1, 4))));
        assert!(verify_audit(folder.path(), Some(&summary.last_hash)).is_ok());
        assert!(verify_audit(folder.path(), Some("0123")).is_err());
        let path = file_of(folder.path(), 0);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (what, changed) in [
            ("edited", [lines[0], &lines[1].replace("\"b\"", "\"x\""), lines[2], lines[3]].join("\n") + "\n"),
            ("first edited", text.replacen("\"a\"", "\"x\"", 1)),
            ("removed", [lines[0], lines[2], lines[3]].join("\n") + "\n"),
            ("twice", [lines[0], lines[1], lines[1], lines[2], lines[3]].join("\n") + "\n"),
            ("moved", [lines[0], lines[2], lines[1], lines[3]].join("\n") + "\n"),
            ("foreign", format!("{text}{{}}\n")),
            ("cut", text[..text.len() - 3].to_owned()),
        ] {
            std::fs::write(&path, changed).unwrap();
            assert!(check().is_err(), "{what}");
        }
        // Older files: one in between that is missing is a fault, those before the oldest are not.
        std::fs::write(&path, format!("{}\n", lines[3])).unwrap();
        std::fs::write(file_of(folder.path(), 2), format!("{}\n{}\n", lines[1], lines[2])).unwrap();
        assert!(check().is_err());
        std::fs::rename(file_of(folder.path(), 2), file_of(folder.path(), 1)).unwrap();
        assert_eq!(check().unwrap().range, Some((2, 4)));
    }
}
