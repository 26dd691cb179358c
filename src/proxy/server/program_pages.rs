//! Return of the program's own pages to the system after the start (Linux only).
//!
//! The start runs code that nothing runs again: command line, configuration, migrations, certificates. With what the
//! kernel maps around each page it is some 10 MB, which count as the memory of an idle gateway. Here the mapping
//! forgets them; what is used again comes back from the page cache, some 16 pages with a fault of a microsecond.

/// Part of a process's address space, from a line of `/proc/PID/smaps` (proc_pid_smaps(5)).
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'t> {
    start: usize,
    end: usize,
    permissions: &'t str,
    /// Device and inode of the file, as they are written there.
    file: (&'t str, &'t str),
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
        let (permissions, _offset) = (words.next()?, words.next()?);
        let file = (words.next()?, words.next()?);
        Some(Mapping { start, end, permissions, file, anonymous: None })
    }

    /// Returns whether every page is as it is in the file: nothing may write to it, and nothing ever has.
    fn is_clean(&self) -> bool {
        matches!(self.permissions, "r-xp" | "r--p") && self.file.1 != "0" && self.anonymous == Some(0)
    }
}

/// Returns the mappings of the file that has this address.
#[cfg(target_os = "linux")]
fn mappings_of(address: usize, smaps: &str) -> Vec<Mapping<'_>> {
    let mut all: Vec<Mapping<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            all.push(mapping);
        } else if let (Some(size), Some(mapping)) = (line.strip_prefix("Anonymous:"), all.last_mut()) {
            mapping.anonymous = size.trim().strip_suffix(" kB").and_then(|size| size.parse().ok());
        }
    }
    let program = all.iter().find(|mapping| (mapping.start..mapping.end).contains(&address));
    let file = program.map(|mapping| mapping.file);
    all.retain(|mapping| Some(mapping.file) == file);
    all
}

/// Makes this process forget the pages of the program's code and constants. Blocks for about a millisecond.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the advice has no safe interface")]
pub(in crate::proxy) fn release() {
    // A hardened system may hide the file. Then the pages stay.
    let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") else { return };
    for mapping in mappings_of(release as fn() as usize, &smaps).iter().filter(|mapping| mapping.is_clean()) {
        let start = std::ptr::without_provenance_mut::<libc::c_void>(mapping.start);
        // SAFETY: the range belongs to the file of the program that runs, whose mappings stay until the process ends.
        // It is private, cannot be written to, and has no page that differs from the file, so the system restores
        // each page as it was when it is next used.
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
";

    fn clean(address: usize) -> Vec<(usize, usize)> {
        let mappings = mappings_of(address, SMAPS);
        mappings
            .iter()
            .filter(|mapping| mapping.is_clean())
            .map(|mapping| (mapping.start, mapping.end))
            .collect()
    }

    #[test]
    fn pages_of_the_program_are_those_that_nothing_wrote_to() {
        assert_eq!(clean(0x3500), [(0x1000, 0x3000), (0x3000, 0x9000)]);
        // An address of no file, and one of no mapping.
        assert_eq!(clean(0xb800), []);
        assert_eq!(clean(0xe0000), []);
    }

    /// Returns the resident pages of the program's clean mappings, in KiB.
    fn resident() -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let clean = mappings_of(release as fn() as usize, &smaps).into_iter().filter(Mapping::is_clean);
        let starts: Vec<usize> = clean.map(|mapping| mapping.start).collect();
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
