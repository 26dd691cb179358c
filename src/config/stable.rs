//! Files that must not change while they are read: a file that is being written would be taken half.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Report;

/// Why a file is refused that was written to.
const CHANGED: &str = "changed while it was read; write a new file beside it and rename that over it";
/// The last line of a file that says so itself.
const END: &str = "# end";

/// What the file system says of a file. A file that is replaced or written to differs in at least one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a regular file; pipes and the like have none.
    fn of(file: &Path) -> io::Result<Option<Stamp>> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::metadata(file)?;
        Ok(metadata.is_file().then(|| Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }))
    }

    /// For how long nobody has written to the file. A time in the future counts as now.
    fn age(&self) -> Duration {
        let (seconds, nanos) = self.modified;
        let modified = u64::try_from(seconds)
            .ok()
            .map(|seconds| Duration::new(seconds, u32::try_from(nanos).unwrap_or(0)))
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        modified.and_then(|modified| modified.elapsed().ok()).unwrap_or_default()
    }
}

/// A file that was read.
#[derive(Debug)]
struct Seen {
    file: PathBuf,
    stamp: Option<Stamp>,
    hash: u64,
}

/// The files of one configuration, as they are read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    seen: RefCell<Vec<Seen>>,
    hasher: RandomState,
}

impl Reading {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or changed meanwhile.
    pub(super) fn read(&self, file: &Path) -> io::Result<String> {
        let before = Stamp::of(file)?;
        let text = std::fs::read_to_string(file)?;
        let after = Stamp::of(file)?;
        let whole = after.is_none_or(|stamp| stamp.size == text.len() as u64);
        if before != after || !whole {
            return Err(io::Error::other(CHANGED));
        }
        let seen = Seen { file: file.to_owned(), stamp: after, hash: self.hasher.hash_one(&text) };
        self.seen.borrow_mut().push(seen);
        Ok(text)
    }

    /// Waits until the youngest file is this old, and looks at all of them again: who writes a file in place is between two
    /// writes for a moment, in which nothing changes.
    ///
    /// # Errors
    /// The files that are not as they were read.
    pub(super) fn settle(&self, time: Duration) -> Result<(), Report> {
        let seen = self.seen.borrow();
        let age = seen.iter().filter_map(|seen| seen.stamp).map(|stamp| stamp.age()).min();
        let Some(wait) = age.and_then(|age| time.checked_sub(age)).filter(|wait| !wait.is_zero()) else {
            return Ok(());
        };
        std::thread::sleep(wait);
        let mut report = Report::default();
        for seen in seen.iter().filter(|seen| seen.stamp.is_some()) {
            let same = Stamp::of(&seen.file).is_ok_and(|stamp| stamp == seen.stamp)
                && std::fs::read_to_string(&seen.file)
                    .is_ok_and(|text| self.hasher.hash_one(&text) == seen.hash);
            if !same {
                report.merge(Report::of_file(&seen.file, CHANGED));
            }
        }
        report.into_result()
    }
}

/// How a file ends. One that has lost its end was cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// The last line is a whole one.
    line: bool,
    /// The last line that is not empty is `# end`.
    mark: bool,
}

impl Ending {
    pub(super) fn of(text: &str) -> Ending {
        let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
        Ending { line: text.ends_with('\n'), mark: last.trim() == END }
    }

    /// What a file lacks that had this ending before.
    pub(super) fn lacks(self, now: Ending) -> Option<&'static str> {
        if self.mark && !now.mark {
            Some("has lost its last line, `# end`: it was cut off, or that line must be written again")
        } else if self.line && !now.line {
            Some("has lost the line break at its end: it was cut off, or that must be written again")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    fn aged(file: &Path, text: &str, age: Duration) {
        std::fs::write(file, text).unwrap();
        let opened = std::fs::File::options().append(true).open(file).unwrap();
        opened.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn a_file_that_nobody_writes_to_is_taken_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.toml");
        aged(&file, "a = 1\n", LONG * 2);
        let reading = Reading::default();
        assert_eq!(reading.read(&file).unwrap(), "a = 1\n");
        // Otherwise this test takes an hour.
        reading.settle(LONG).unwrap();
    }

    #[test]
    fn what_happens_to_a_file_after_it_was_read_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.toml");
        let beside = folder.path().join("new");
        let settle = Duration::from_millis(50);
        type Change<'c> = &'c dyn Fn();
        let changes: [(&str, Change<'_>, bool); 5] = [
            ("nothing", &|| {}, false),
            ("written on", &|| std::fs::write(&file, "a = 1\nb = 2\n").unwrap(), true),
            ("replaced", &|| std::fs::rename(&beside, &file).unwrap(), true),
            ("other text of the same length", &|| std::fs::write(&file, "a = 2\n").unwrap(), true),
            ("removed", &|| std::fs::remove_file(&file).unwrap(), true),
        ];
        for (name, change, refused) in changes {
            aged(&beside, "a = 1\n", Duration::ZERO);
            aged(&file, "a = 1\n", Duration::ZERO);
            let reading = Reading::default();
            reading.read(&file).unwrap();
            change();
            let report = reading.settle(settle);
            assert_eq!(report.is_err(), refused, "{name}: {report:?}");
            assert!(report.err().is_none_or(|report| report.to_string().contains("changed while")), "{name}");
        }
    }

    #[test]
    fn a_cut_is_seen_by_the_end_that_is_missing() {
        for (before, after, lacks) in [
            ("a = 1\n", "b = 2\n", false),
            ("a = 1\n", "b = 2", true),
            ("a = 1", "b = 2", false),
            ("a = 1", "b = 2\n", false),
            ("a = 1\n# end\n", "a = 1\n", true),
            ("a = 1\n# end\n", "b = 2\n# end\n\n", false),
            ("a = 1\n# end", "b = 2\n  # end  \r\n", false),
            ("a = 1\n", "", true),
        ] {
            let missing = Ending::of(before).lacks(Ending::of(after));
            assert_eq!(missing.is_some(), lacks, "{before:?} -> {after:?}: {missing:?}");
        }
    }

    /// Of every cut of a file that ends in `# end`, none passes.
    #[test]
    fn no_cut_of_a_marked_file_passes() {
        let whole = "[[key]]\nname = \"a\"\n\n[[key]]\nname = \"b\" # end\n\n# end\n";
        for at in 0..whole.trim_end().len() {
            assert!(Ending::of(whole).lacks(Ending::of(&whole[..at])).is_some(), "{:?}", &whole[..at]);
        }
    }
}
