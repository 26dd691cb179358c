//! Processes by their id and the time of their start: an id alone may have another process by now.

/// State of a process, of `/proc/PID/stat` (proc_pid_stat(5)).
pub(super) struct ProcessStat {
    /// Whether it has ended, and its parent has not asked for its status yet.
    pub(super) is_zombie: bool,
    /// Time of its start since that of the machine, in clock ticks: with the id, it names a process.
    pub(super) start: u64,
}

impl ProcessStat {
    /// Reads the state of a process. `None` if there is no such process, or no such file system.
    pub(super) fn of(pid: &str) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program stands in parentheses, and may have spaces and parentheses itself.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        // The state is the third field, the start the 22nd.
        let start = fields.nth(18)?.parse().ok()?;
        Some(ProcessStat { is_zombie, start })
    }
}

/// Returns the time at which this process has started. `None` if the system does not tell it.
pub(super) fn own_start() -> Option<u64> {
    ProcessStat::of("self").map(|stat| stat.start)
}

/// Returns whether another process with this id runs, and has started at this time. Lines of earlier versions have no time.
pub(super) fn is_running(pid: u64, start: Option<u64>) -> bool {
    let pid = i32::try_from(pid).ok().filter(|pid| pid.unsigned_abs() != std::process::id());
    let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return false };
    match ProcessStat::of(&pid.to_string()) {
        Some(stat) => !stat.is_zombie && start.is_none_or(|start| start == stat.start),
        // A process of another user may be hidden, and exists.
        None => !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH)),
    }
}
