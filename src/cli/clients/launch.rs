//! `model-gateway run`: the process of a client, with its temporary folder, its signals and its exit status.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::client::CodingClient;
use super::error::ClientSetupError;
use super::plan::{LaunchPlan, UserEnvironment};

/// Time-out of `--version` of a client.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Exit status of a shell for a program that a signal ended, minus the signal.
const SIGNALLED: i32 = 128;

/// Returns the path of a client's program.
///
/// # Errors
/// Returns [`ClientSetupError::NotInstalled`] if no folder of the PATH has it.
pub(super) fn program(client: CodingClient, user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    let folders = std::env::split_paths(user.get("PATH").unwrap_or_default());
    let mut candidates = folders.map(|folder| user.current.join(folder).join(client.name()));
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    candidates
        .find(is_program)
        .ok_or(ClientSetupError::NotInstalled { program: client.name(), install: client.install() })
}

/// Returns what a program prints for `--version`. Blocks at most for [`VERSION_TIMEOUT`].
///
/// # Errors
/// Returns an error if the program cannot be started, fails, or does not end in time.
pub(super) fn version(program: &Path) -> Result<String, ClientSetupError> {
    let what = || format!("{} --version", program.display());
    let error = |error| ClientSetupError::io(what(), error);
    runtime()?.block_on(async {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(VERSION_TIMEOUT, command.output()).await;
        let output = output.map_err(|_| error(io::ErrorKind::TimedOut.into()))?.map_err(error)?;
        if !output.status.success() {
            return Err(ClientSetupError::Refused(format!("{} failed ({})", what(), output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, ClientSetupError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| ClientSetupError::io("a runtime", error))
}

/// Creates the temporary folder of a start, readable by the owner only: below the user's runtime folder, which is in
/// memory, or else below the folder for temporary files.
///
/// # Errors
/// Returns an error if it cannot be created.
pub(super) fn temporary_folder(user: &UserEnvironment) -> Result<TempDir, ClientSetupError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("model-gateway-run-").permissions(std::fs::Permissions::from_mode(0o700));
    let runtime_folder = user.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let Some(Ok(created)) = runtime_folder.map(|folder| builder.tempdir_in(folder)) {
        return Ok(created);
    }
    builder.tempdir().map_err(|error| ClientSetupError::io("temporary folder", error))
}

/// Starts a client and waits for its end. Returns the exit status of a shell: that of the client, or 128 plus the
/// number of the signal that ended it. The temporary folder is removed.
///
/// # Errors
/// Returns an error if a temporary file cannot be written, or the client cannot be started.
pub(super) fn launch(program: &Path, plan: &LaunchPlan, temporary: TempDir) -> Result<u8, ClientSetupError> {
    fill(temporary.path(), plan)?;
    let status = runtime()?.block_on(start(program, plan));
    // Also if the client could not be started.
    let removed = temporary.close();
    let status = status.map_err(|error| ClientSetupError::io(program.display().to_string(), error))?;
    removed.map_err(|error| ClientSetupError::io("temporary folder", error))?;
    Ok(exit_code(status))
}

/// Output of a client that ran without a terminal.
pub(super) struct Captured {
    /// Exit status as [`launch`] returns it.
    pub(super) code: u8,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Starts a client without a terminal in the folder `work`, and waits for its end, at most for `limit`. The temporary
/// folder is removed.
///
/// # Errors
/// Returns an error if a temporary file cannot be written, or the client cannot be started or does not end in time.
pub(super) fn capture(
    program: &Path,
    plan: &LaunchPlan,
    temporary: TempDir,
    work: &Path,
    limit: Duration,
) -> Result<Captured, ClientSetupError> {
    fill(temporary.path(), plan)?;
    let fault = |error| ClientSetupError::io(program.display().to_string(), error);
    let output = runtime()?.block_on(async {
        let mut command = command(program, plan);
        command.current_dir(work).stdin(Stdio::null()).kill_on_drop(true);
        tokio::time::timeout(limit, command.output()).await
    });
    let removed = temporary.close();
    let output = output.map_err(|_| fault(io::ErrorKind::TimedOut.into()))?.map_err(fault)?;
    removed.map_err(|error| ClientSetupError::io("temporary folder", error))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Captured {
        code: exit_code(output.status),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

/// Writes the files and links of a plan into the temporary folder.
fn fill(folder: &Path, plan: &LaunchPlan) -> Result<(), ClientSetupError> {
    let failed = |path: &Path, error| ClientSetupError::io(path.display().to_string(), error);
    let names = plan
        .files
        .iter()
        .map(|(name, _)| Path::new(name))
        .chain(plan.links.iter().map(|(name, _)| name.as_path()));
    for parent in names.filter_map(Path::parent) {
        let parent = folder.join(parent);
        std::fs::create_dir_all(&parent).map_err(|error| failed(&parent, error))?;
    }
    for (name, text) in &plan.files {
        let path = folder.join(name);
        let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        created
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
            .map_err(|error| failed(&path, error))?;
    }
    for (name, target) in &plan.links {
        // Where the home folder cannot be written, the client makes the folder in the temporary one.
        if plan.folders.contains(target)
            && std::fs::DirBuilder::new().recursive(true).mode(0o700).create(target).is_err()
        {
            continue;
        }
        let path = folder.join(name);
        std::os::unix::fs::symlink(target, &path).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Returns the command that starts a client.
fn command(program: &Path, plan: &LaunchPlan) -> Command {
    let mut command = Command::new(program);
    command.args(&plan.arguments);
    for name in &plan.unset {
        command.env_remove(name);
    }
    command.envs(&plan.set);
    command
}

async fn start(program: &Path, plan: &LaunchPlan) -> io::Result<ExitStatus> {
    // Before the client starts: a signal in between would end this process without it.
    let mut signals = ForwardedSignals::new()?;
    let mut child = command(program, plan).spawn()?;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            number = signals.next() => forward(&child, number),
        }
    }
}

/// Signals that would end this process before the client.
struct ForwardedSignals([(i32, Signal); 4]);

impl ForwardedSignals {
    fn new() -> io::Result<Self> {
        let [a, b, c, d] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP]
            .map(|number| signal(SignalKind::from_raw(number)).map(|signal| (number, signal)));
        Ok(ForwardedSignals([a?, b?, c?, d?]))
    }

    /// Waits for a signal and returns its number.
    async fn next(&mut self) -> i32 {
        let [(int, interrupt), (quit, quit_signal), (term, terminate), (hup, hangup)] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => *int,
            _ = quit_signal.recv() => *quit,
            _ = terminate.recv() => *term,
            _ = hangup.recv() => *hup,
        }
    }
}

/// Sends a signal to the client. A terminal sends Ctrl-C and Ctrl-\ to the client too, which must not get them twice.
#[allow(unsafe_code, reason = "the standard library sends SIGKILL only")]
fn forward(child: &Child, number: i32) {
    if (number == libc::SIGINT || number == libc::SIGQUIT) && io::stdin().is_terminal() {
        return;
    }
    let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) else { return };
    // SAFETY: kill() takes two integers and touches no memory of this process. The client has not been waited for
    // (`id` is then `None`), so its id belongs to no other process.
    unsafe {
        libc::kill(id, number);
    }
}

/// Returns the lines that show a start. Files stand in the temporary folder `temporary`.
pub(super) fn lines(program: &str, plan: &LaunchPlan, temporary: &Path) -> Vec<String> {
    let mut lines: Vec<String> = plan.unset.iter().map(|name| format!("unset {name}")).collect();
    lines.extend(plan.set.iter().map(|(name, value)| format!("export {name}={}", shell_word(value))));
    for (name, text) in &plan.files {
        lines.push(format!("cat > {} <<'EOF'", temporary.join(name).display()));
        lines.extend(text.lines().map(str::to_owned));
        lines.push("EOF".to_owned());
    }
    lines.extend(plan.folders.iter().map(|folder| format!("mkdir -p {}", folder.display())));
    for (name, target) in &plan.links {
        lines.push(format!("ln -s {} {}", target.display(), temporary.join(name).display()));
    }
    let words = plan.arguments.iter().map(|argument: &OsString| shell_word(&argument.to_string_lossy()));
    lines.push(std::iter::once(program.to_owned()).chain(words).collect::<Vec<_>>().join(" "));
    lines
}

/// Quotes a text for the shell, if it needs it.
fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+=,<>".contains(&byte);
    let is_plain = !text.is_empty() && text.bytes().all(plain);
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
