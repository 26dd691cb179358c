//! Return of the pages of the program and its libraries to the system after the start (Linux only).
//!
//! The start runs code that nothing runs again: command line, configuration, migrations, certificates, and the linking of
//! the libraries. With what the kernel maps around each page it is some 12 MB, which count as the memory of an idle
//! gateway. Here the mappings forget them; what is used again comes back from the page cache, some 16 pages with a fault
//! of a microsecond.

#[cfg(target_os = "linux")]
use std::io::BufRead;
#[cfg(target_os = "linux")]
use std::ops::Range;

/// Reads the first line of a mapping in `/proc/PID/smaps` (proc_pid_smaps(5)). Returns its addresses, and whether it is of
/// a file and nothing may write to it. `None` if it is another line.
#[cfg(target_os = "linux")]
fn parse_mapping(line: &str) -> Option<(Range<usize>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let (permissions, _offset, _device) = (words.next()?, words.next()?, words.next()?);
    let inode = words.next()?;
    Some((start..end, matches!(permissions, "r-xp" | "r--p") && inode != "0"))
}

/// Returns the mappings of files whose pages are all as they are in the file: nothing may write to them, and nothing ever
/// has.
#[cfg(target_os = "linux")]
fn clean_mappings(smaps: impl BufRead) -> Vec<Range<usize>> {
    let mut clean = Vec::new();
    let mut current = None;
    for line in smaps.lines().map_while(Result::ok) {
        if let Some((mapping, constant)) = parse_mapping(&line) {
            current = constant.then_some(mapping);
        } else if let Some(size) = line.strip_prefix("Anonymous:")
            && size.trim().strip_suffix(" kB") == Some("0")
        {
            clean.extend(current.take());
        }
    }
    clean
}

/// Makes this process forget the pages of code and constants, the program's and its libraries'. Blocks for about a
/// millisecond.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the advice has no safe interface")]
pub(crate) fn release() {
    // A hardened system may hide the file. Then the pages stay.
    let Ok(smaps) = std::fs::File::open("/proc/self/smaps") else { return };
    // Read line by line: the whole text is 100 KB, which the heap of an idle process would keep.
    for mapping in clean_mappings(std::io::BufReader::new(smaps)) {
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
pub(crate) fn release() {}

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
        assert_eq!(clean_mappings(SMAPS.as_bytes()), [0x1000..0x3000, 0x3000..0x9000, 0xf0000..0xf4000]);
    }

    /// Returns the resident pages of the clean mappings, in KiB.
    fn resident() -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let clean = clean_mappings(smaps.as_bytes());
        let mut of_program = false;
        let mut sum = 0;
        for line in smaps.lines() {
            if let Some((mapping, _)) = parse_mapping(line) {
                of_program = clean.contains(&mapping);
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
