//! Return of the pages of the program and its libraries to the system after the start (Linux only).
//!
//! The start runs code that nothing runs again: command line, configuration, migrations, certificates, and the linking of
//! the libraries. With what the kernel maps around each page it is some 12 MB, which count as the memory of an idle
//! gateway. Here the mappings forget them; what is used again comes back from the page cache, some 16 pages with a fault
//! of a microsecond.

/// Part of a process's address space, from a line of `/proc/PID/smaps` (proc_pid_smaps(5)).
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'t> {
    start: usize,
    end: usize,
    permissions: &'t str,
    /// Inode of the file; 0 if there is none.
    inode: &'t str,
    /// Memory that is not that of the file, in KiB. `None` if no line says it.
    anonymous: Option<u64>,
}

#[cfg(target_os = "linux")]
impl<'t> Mapping<'t> {
    /// Reads the first line of a mapping. `None` if it is another line.
    fn parse(line: &'t str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let (permissions, _offset, _device) = (words.next()?, words.next()?, words.next()?);
        Some(Mapping { start, end, permissions, inode: words.next()?, anonymous: None })
    }

    /// Returns whether every page is as it is in the file: nothing may write to it, and nothing ever has.
    fn is_clean(&self) -> bool {
        matches!(self.permissions, "r-xp" | "r--p") && self.inode != "0" && self.anonymous == Some(0)
    }
}

/// Returns the mappings of files whose pages are all as they are in the file.
#[cfg(target_os = "linux")]
fn clean_mappings(smaps: &str) -> Vec<Mapping<'_>> {
    let mut all: Vec<Mapping<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            all.push(mapping);
        } else if let (Some(size), Some(mapping)) = (line.strip_prefix("Anonymous:"), all.last_mut()) {
            mapping.anonymous = size.trim().strip_suffix(" kB").and_then(|size| size.parse().ok());
        }
    }
    all.retain(Mapping::is_clean);
    all
}

/// Makes this process forget the pages of code and constants, the program's and its libraries'. Blocks for about a
/// millisecond.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the advice has no safe interface")]
pub(in crate::proxy) fn release() {
    // A hardened system may hide the file. Then the pages stay.
    let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") else { return };
    for mapping in clean_mappings(&smaps) {
        let start = std::ptr::without_provenance_mut::<libc::c_void>(mapping.start);
        // SAFETY: the range is of a file that is mapped privately, cannot be written to, and has no page that differs from
        // the file, so the system restores each page as it was when it is next used. The files are the program's and its
        // libraries': nothing else here maps one, and their mappings stay until the process ends.
        unsafe {
            libc::madvise(start, mapping.end - mapping.start, libc::MADV_DONTNEED);
        }
    }
}

/// Does nothing: only Linux shows the mappings.
#[cfg(not(target_os = "linux"))]
pub(in crate::proxy) fn release() {}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 77                         /usr/bin/model-gateway
Size:                  8 kB
Rss:                   8 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 fe:00 77                         /usr/bin/model-gateway
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
9000-a000 r--p 00008000 fe:00 77                         /usr/bin/model-gateway
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 77                         /usr/bin/model-gateway
Anonymous:             4 kB
b000-f000 rw-p 00000000 00:00 0                          [heap]
Anonymous:            16 kB
f0000-f4000 r-xp 00000000 fe:00 78                       /usr/lib/libc.so.6
Anonymous:             0 kB
f4000-f8000 r--s 00000000 fe:00 79                       /var/lib/model-gateway/state.db-shm
Anonymous:             0 kB
ff000-ff800 r-xp 00000000 00:00 0                        [vdso]
Anonymous:             0 kB
";

    #[test]
    fn pages_of_the_program_are_those_that_nothing_wrote_to() {
        let clean = clean_mappings(SMAPS).into_iter().map(|mapping| (mapping.start, mapping.end));
        assert_eq!(clean.collect::<Vec<_>>(), [(0x1000, 0x3000), (0x3000, 0x9000), (0xf0000, 0xf4000)]);
    }

    /// Returns the resident pages of the clean mappings, in KiB.
    fn resident() -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let starts: Vec<usize> = clean_mappings(&smaps).into_iter().map(|mapping| mapping.start).collect();
        let mut of_program = false;
        let mut sum = 0;
        for line in smaps.lines() {
            if let Some(mapping) = Mapping::parse(line) {
                of_program = starts.contains(&mapping.start);
            } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| of_program) {
                sum += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        sum
    }

    #[test]
    fn released_pages_leave_the_process_and_come_back_when_they_are_used() {
        // Tests beside this one run code that was not resident yet.
        let fell = (0..20).any(|_| {
            let before = resident();
            release();
            resident() < before
        });
        assert!(fell);
        let sorted = std::collections::BTreeMap::from([("a", 1), ("b", 2)]);
        assert_eq!(format!("{sorted:?}"), r#"{"a": 1, "b": 2}"#);
    }
}
