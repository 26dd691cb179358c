//! Reading configuration files that another program may be writing at the same time.
//!
//! A file that is written in place is truncated or incomplete for a moment, and a part of it may be valid TOML. Three
//! checks detect this: the file's metadata and contents before and after the read ([`StableReader::read`]), the same
//! again once the file has not been modified for a while ([`StableReader::wait_until_stable`]), and the end of the
//! file compared with that of the version in use ([`FileEnding`]).

use std::cell::RefCell;
use std::hash::BuildHasher as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use foldhash::quality::RandomState;

use super::Report;
use super::sources::CandidateFile;

const CHANGED: &str = "changed while it was read; write a new file next to it and rename it over the old one";
/// Optional last line of a file. A file that has it is complete.
const END_MARKER: &str = "# end";

/// Metadata of a regular file. A write or a replacement changes at least one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStat {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStat {
    /// Returns the metadata of a regular file. `None` for a pipe, a socket or a device, whose metadata says nothing
    /// about its contents.
    fn of(path: &Path) -> io::Result<Option<FileStat>> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::metadata(path)?;
        Ok(metadata.is_file().then(|| FileStat {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }))
    }

    /// Returns the time since the last modification; zero if that lies in the future.
    fn age(&self) -> Duration {
        let (seconds, nanos) = self.modified;
        let modified = u64::try_from(seconds)
            .ok()
            .map(|seconds| Duration::new(seconds, u32::try_from(nanos).unwrap_or(0)))
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        modified.and_then(|modified| modified.elapsed().ok()).unwrap_or_default()
    }
}

/// Version of a file as it was read.
#[derive(Debug)]
struct FileVersion {
    path: PathBuf,
    stat: Option<FileStat>,
    /// Time since the last modification when it was read. `None` if it is not a regular file.
    age: Option<Duration>,
    hash: u64,
}

/// Reader of the files of one configuration. Remembers the version of each file.
#[derive(Debug, Default)]
pub(super) struct StableReader {
    versions: RefCell<Vec<FileVersion>>,
    hasher: RandomState,
    candidate: Option<CandidateFile>,
}

impl StableReader {
    /// Creates a reader that returns the candidate's text in place of that of its file.
    pub(super) fn with_candidate(candidate: CandidateFile) -> Self {
        StableReader { candidate: Some(candidate), ..StableReader::default() }
    }

    /// Returns the candidate. `None` if there is none.
    pub(super) fn candidate(&self) -> Option<&CandidateFile> {
        self.candidate.as_ref()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or changed during the read.
    pub(super) fn read(&self, path: &Path) -> io::Result<String> {
        if let Some(candidate) = self.candidate.as_ref().filter(|candidate| candidate.path == path) {
            return Ok(candidate.text.clone());
        }
        let before = FileStat::of(path)?;
        let text = std::fs::read_to_string(path)?;
        let after = FileStat::of(path)?;
        let complete = after.is_none_or(|stat| stat.size == text.len() as u64);
        if before != after || !complete {
            return Err(io::Error::other(CHANGED));
        }
        let version = FileVersion {
            path: path.to_owned(),
            stat: after,
            age: after.map(|stat| stat.age()),
            hash: self.hasher.hash_one(&text),
        };
        self.versions.borrow_mut().push(version);
        Ok(text)
    }

    /// If a file had been modified less than `time` before it was read: waits until that is `time` ago, and compares
    /// the files with the versions that were read. A program that writes in place pauses between two writes, and the
    /// metadata does not change in a pause.
    ///
    /// # Errors
    /// Returns [`Report`] with the files that changed.
    pub(super) fn wait_until_stable(&self, time: Duration) -> Result<(), Report> {
        let versions = self.versions.borrow();
        let is_young = |version: &FileVersion| version.age.is_some_and(|age| age < time);
        if !versions.iter().any(is_young) {
            return Ok(());
        }
        // Some of the time has passed while the configuration was checked.
        let ages = versions.iter().filter_map(|version| version.stat).map(|stat| stat.age());
        let wait = ages.min().map(|age| time.saturating_sub(age)).unwrap_or_default();
        #[allow(clippy::disallowed_methods, reason = "reloads run on a blocking thread")]
        std::thread::sleep(wait);
        let mut report = Report::default();
        for version in versions.iter().filter(|version| version.stat.is_some()) {
            // Two writes within one tick of the kernel's clock have equal time stamps, so compare the contents too.
            let same = FileStat::of(&version.path).is_ok_and(|stat| stat == version.stat)
                && std::fs::read_to_string(&version.path)
                    .is_ok_and(|text| self.hasher.hash_one(&text) == version.hash);
            if !same {
                report.merge(Report::of_file(&version.path, CHANGED));
            }
        }
        report.into_result()
    }
}

/// End of a file. A file that loses the end of its previous version was truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileEnding {
    /// The last byte is a line feed.
    newline: bool,
    /// The last line that is not empty is [`END_MARKER`].
    marker: bool,
}

impl FileEnding {
    pub(super) fn of(text: &str) -> FileEnding {
        let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
        FileEnding { newline: text.ends_with('\n'), marker: last.trim() == END_MARKER }
    }

    /// Returns why a file with the ending `new`, which replaces one with this ending, was truncated. `None` if it was
    /// not.
    pub(super) fn truncation(self, new: FileEnding) -> Option<&'static str> {
        if self.marker && !new.marker {
            Some("has lost its last line, `# end`: the file was truncated, or the line must be added again")
        } else if self.newline && !new.newline {
            Some(
                "has lost the line break at its end: the file was truncated, or the line break must be added again",
            )
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn write_with_age(path: &Path, text: &str, age: Duration) {
        std::fs::write(path, text).unwrap();
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn stable_read_of_an_old_file_does_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.toml");
        write_with_age(&path, "a = 1\n", HOUR * 2);
        let reader = StableReader::default();
        assert_eq!(reader.read(&path).unwrap(), "a = 1\n");
        // A wait would take an hour.
        reader.wait_until_stable(HOUR).unwrap();
    }

    #[test]
    fn stable_read_detects_a_change_after_the_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.toml");
        let beside = folder.path().join("new");
        type Change<'c> = &'c dyn Fn();
        let changes: [(&str, Change<'_>, bool); 5] = [
            ("none", &|| {}, false),
            ("append", &|| std::fs::write(&path, "a = 1\nb = 2\n").unwrap(), true),
            ("replace", &|| std::fs::rename(&beside, &path).unwrap(), true),
            ("same length", &|| std::fs::write(&path, "a = 2\n").unwrap(), true),
            ("remove", &|| std::fs::remove_file(&path).unwrap(), true),
        ];
        for (name, change, refused) in changes {
            for checked_for in [Duration::ZERO, HOUR] {
                write_with_age(&beside, "a = 1\n", Duration::ZERO);
                write_with_age(&path, "a = 1\n", checked_for);
                let reader = StableReader::default();
                reader.read(&path).unwrap();
                // Simulate a read right after the modification, however slow the test is.
                reader
                    .versions
                    .borrow_mut()
                    .iter_mut()
                    .for_each(|version| version.age = Some(Duration::ZERO));
                change();
                let report = reader.wait_until_stable(Duration::from_millis(50));
                assert_eq!(report.is_err(), refused, "{name}: {report:?}");
                assert!(
                    report.err().is_none_or(|report| report.to_string().contains("changed while")),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn file_ending_reveals_truncation() {
        for (before, after, truncated) in [
            ("a = 1\n", "b = 2\n", false),
            ("a = 1\n", "b = 2", true),
            ("a = 1", "b = 2", false),
            ("a = 1", "b = 2\n", false),
            ("a = 1\n# end\n", "a = 1\n", true),
            ("a = 1\n# end\n", "b = 2\n# end\n\n", false),
            ("a = 1\n# end", "b = 2\n  # end  \r\n", false),
            ("a = 1\n", "", true),
        ] {
            let reason = FileEnding::of(before).truncation(FileEnding::of(after));
            assert_eq!(reason.is_some(), truncated, "{before:?} -> {after:?}: {reason:?}");
        }
    }

    #[test]
    fn file_ending_mark_reveals_truncation_at_every_byte() {
        let whole = "[[key]]\nname = \"a\"\n\n[[key]]\nname = \"b\" # end\n\n# end\n";
        for at in 0..whole.trim_end().len() {
            let cut = FileEnding::of(&whole[..at]);
            assert!(FileEnding::of(whole).truncation(cut).is_some(), "{:?}", &whole[..at]);
        }
    }
}
