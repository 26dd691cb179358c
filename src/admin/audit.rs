//! Audit log: lines for each change and each refused attempt, in files of the state folder. Each line has the hash of the line
//! before, so that a removed or edited line shows.
//!
//! A change has two lines: one before, that it has begun, and one with its outcome afterwards, before it is answered. So the log
//! has what was answered, and what it has as applied was applied, also if the process is killed in between.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::process_stat::own_start;
use codec::canonical::time::rfc3339;
use config::FileHash;

/// Size in bytes at which a new file begins.
const FILE_SIZE: u64 = 10 << 20;
/// Number of older files.
pub(super) const OLD_FILES: usize = 9;
/// Number of texts of files before a change that are stored, for `undo`.
const TEXTS: usize = 200;

/// Outcome of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It is in effect.
    #[default]
    Applied,
    /// It begins: a further line has its outcome.
    Begun,
    /// It has no effect; the code of the error.
    Refused(&'static str),
    /// The process ended before its outcome was known.
    Unknown,
}

impl AuditOutcome {
    /// Names of all outcomes.
    pub(super) const NAMES: [&str; 4] = ["applied", "begun", "refused", "unknown"];

    /// Returns the name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            AuditOutcome::Applied => "applied",
            AuditOutcome::Begun => "begun",
            AuditOutcome::Refused(_) => "refused",
            AuditOutcome::Unknown => "unknown",
        }
    }
}

/// Topic of a line of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditTopic {
    /// A change, or an attempt at one.
    Changes,
    /// A sign-in, or an attempt at one.
    SignIns,
}

impl AuditTopic {
    /// Names of all topics.
    pub(super) const NAMES: [&str; 2] = ["changes", "sign_ins"];

    /// Returns the topic of a name. `None` if no topic has it.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "changes" => Some(AuditTopic::Changes),
            "sign_ins" => Some(AuditTopic::SignIns),
            _ => None,
        }
    }

    /// Returns the topic of a line, by its action.
    fn of(line: &Value) -> Self {
        let action = line.get("action").and_then(Value::as_str).unwrap_or_default();
        if action.starts_with("session.") { AuditTopic::SignIns } else { AuditTopic::Changes }
    }
}

/// Line of the audit log, as its writer knows it.
#[derive(Clone, Debug, Default)]
pub struct AuditEntry {
    /// Name of the caller: `token:NAME`, `oidc:NAME`, `uid:NUMBER`, `local`, `signal:NAME` or `watch`.
    pub actor: String,
    /// Role of the caller.
    pub role: Cow<'static, str>,
    /// Address of the caller. `None` for a Unix socket, a command and a signal.
    pub client: Option<String>,
    /// Id of the request; empty for a command and a signal.
    pub request_id: String,
    /// Operation: `key.update`.
    pub action: Cow<'static, str>,
    /// Thing that is changed: `key/ci`.
    pub object: String,
    /// Outcome.
    pub outcome: AuditOutcome,
    /// Further members: file, hashes, values before and afterwards.
    pub details: Map<String, Value>,
}

impl AuditEntry {
    /// Returns the line that announces the change.
    pub fn begun(&self) -> AuditEntry {
        let mut entry = AuditEntry { outcome: AuditOutcome::Begun, ..self.clone() };
        entry.details.insert("pid".to_owned(), std::process::id().into());
        if let Some(start) = own_start() {
            entry.details.insert("pid_start".to_owned(), start.into());
        }
        entry
    }

    /// Returns the line with the outcome of the change that the line `begun` has announced.
    pub fn ended(self, begun: u64, outcome: AuditOutcome) -> AuditEntry {
        let mut entry = AuditEntry { outcome, ..self };
        entry.details.insert("change".to_owned(), begun.into());
        entry
    }
}

/// Audit log of a state folder. Nothing is created before the first line.
#[derive(Debug)]
pub struct AuditLog {
    folder: PathBuf,
    end: Mutex<Option<LogEnd>>,
}

/// End of the log.
#[derive(Clone, Debug)]
struct LogEnd {
    next: u64,
    /// Hash of the last line.
    hash: String,
    /// Size of the current file in bytes.
    size: u64,
}

impl AuditLog {
    /// Creates the log of a state folder.
    pub fn new(folder: &Path) -> Self {
        AuditLog { folder: folder.to_owned(), end: Mutex::new(None) }
    }

    /// Returns the text of a file of the log, the current one with the age 0. `None` if there is none.
    pub(super) fn text_of(&self, age: usize) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.file(age)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        belong_to(&file, &self.folder)?;
        Ok(file)
    }

    fn file(&self, age: usize) -> PathBuf {
        file_of(&self.folder, age)
    }

    /// Appends a line, which is on the disk when this returns. Returns its number.
    ///
    /// # Errors
    /// Returns the error of the operating system; the change must not take place then.
    pub fn append(&self, entry: &AuditEntry) -> io::Result<u64> {
        let mut end = self.end.lock();
        create_folder(&self.folder, 0o750)?;
        let mut file = self.open(&self.file(0))?;
        // Another process may write too: one that takes over from this one.
        file.lock()?;
        let size = file.metadata()?.len();
        let known = end.take().filter(|end| end.size == size);
        let mut last = match known {
            Some(last) => last,
            None => self.read_end(&mut file, size)?,
        };
        if size >= FILE_SIZE {
            for age in (0..OLD_FILES).rev() {
                match std::fs::rename(self.file(age), self.file(age.saturating_add(1))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            file = self.open(&self.file(0))?;
            last.size = 0;
        }
        let number = last.next;
        let line = line(entry, number, &last.hash);
        let mut bytes = line.clone().into_bytes();
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        file.sync_data()?;
        let size = last.size.saturating_add(bytes.len() as u64);
        *end = Some(LogEnd { next: number.saturating_add(1), hash: FileHash::of(&line).to_hex(), size });
        Ok(number)
    }

    /// Reads the last line. An incomplete one, which a crash has left, is cut off.
    fn read_end(&self, file: &mut File, size: u64) -> io::Result<LogEnd> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |at| at.saturating_add(1));
        if whole < text.len() {
            file.set_len(whole as u64)?;
            text.truncate(whole);
        }
        let mut last = text.lines().next_back().map(str::to_owned);
        if last.is_none() {
            let older = std::fs::read_to_string(self.file(1)).unwrap_or_default();
            last = older.lines().next_back().map(str::to_owned);
        }
        let size = size.min(whole as u64);
        let Some(last) = last else { return Ok(LogEnd { next: 1, hash: String::new(), size }) };
        let number =
            number_of(&last).ok_or_else(|| io::Error::other("the last line of the audit log is damaged"))?;
        Ok(LogEnd { next: number.saturating_add(1), hash: FileHash::of(&last).to_hex(), size })
    }

    /// Returns at most `most` lines, the latest first, of those with a number below `before` whose members have the wanted
    /// values. The second value is that of `before` for the next page; `None` at the end.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub(super) fn page(
        &self,
        before: u64,
        most: usize,
        wanted: &[(&str, Value)],
    ) -> io::Result<(Vec<Value>, Option<u64>)> {
        self.page_of(None, before, most, wanted)
    }

    /// Returns a page of the lines of a topic, as [`AuditLog::page`] does. `None` stands for all topics.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub(super) fn page_of(
        &self,
        topic: Option<AuditTopic>,
        before: u64,
        most: usize,
        wanted: &[(&str, Value)],
    ) -> io::Result<(Vec<Value>, Option<u64>)> {
        // Text that a line with this value has. Parsing every line of ten files would take a second.
        let texts: Vec<String> = wanted.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let finders: Vec<_> = texts.iter().map(memchr::memmem::Finder::new).collect();
        let has_texts = |line: &str| finders.iter().all(|finder| finder.find(line.as_bytes()).is_some());
        // A change is shown by its outcome, unless its beginning is asked for.
        let is_begun = |line: &Value| line.get("outcome").is_some_and(|outcome| outcome == "begun");
        let begun = wanted.iter().any(|(name, value)| *name == "seq" || value == "begun");
        let matches = |line: &Value| {
            wanted.iter().all(|(name, value)| line.get(*name) == Some(value))
                && (begun || !is_begun(line))
                && topic.is_none_or(|topic| topic == AuditTopic::of(line))
        };
        let mut found: Vec<Value> = Vec::new();
        for age in 0..=OLD_FILES {
            let Some(text) = self.text_of(age)? else { break };
            for line in text.lines().rev() {
                if number_of(line).is_none_or(|number| number >= before) || !has_texts(line) {
                    continue;
                }
                let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
                if !matches(&value) {
                    continue;
                }
                if found.len() == most {
                    let last = found.last().and_then(|value| value.get("seq")).and_then(Value::as_u64);
                    return Ok((found, last));
                }
                found.push(value);
            }
        }
        Ok((found, None))
    }

    /// Stores the text of a file before a change, for `undo`. Older texts are removed.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn store_text(&self, number: u64, text: &str) -> io::Result<()> {
        let folder = self.folder.join("history");
        create_folder(&folder, 0o700)?;
        let path = |number: u64| folder.join(format!("{number}.toml"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path(number))?;
        belong_to(&file, &self.folder)?;
        file.write_all(text.as_bytes())?;
        // The change takes place afterwards, and must be one that can be undone, also after a power failure.
        file.sync_all()?;
        File::open(&folder)?.sync_all()?;
        File::open(&self.folder)?.sync_all()?;
        remove_old_texts(&folder);
        Ok(())
    }

    /// Returns the text of a file before a change. `None` if it is not stored any more.
    pub(super) fn text(&self, number: u64) -> Option<String> {
        std::fs::read_to_string(self.folder.join("history").join(format!("{number}.toml"))).ok()
    }
}

/// Removes all but the latest texts. A file that cannot be removed now is removed later.
fn remove_old_texts(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let number = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let mut texts: Vec<(u64, PathBuf)> =
        entries.flatten().filter_map(|entry| Some((number(&entry.path())?, entry.path()))).collect();
    texts.sort_unstable();
    for (_, path) in texts.iter().take(texts.len().saturating_sub(TEXTS)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the path of a file of the log: the current one has the age 0.
pub(super) fn file_of(folder: &Path, age: usize) -> PathBuf {
    folder.join(if age == 0 { "audit.jsonl".to_owned() } else { format!("audit.{age}.jsonl") })
}

/// Creates a folder and those above it, with the owner of the nearest one that exists.
fn create_folder(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        create_folder(above, 0o750)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    belong_to(&File::open(folder)?, above.unwrap_or(Path::new(".")))
}

/// Gives what root has created to the owner of the folder: a command of root must leave no log that the gateway cannot write.
fn belong_to(file: &File, folder: &Path) -> io::Result<()> {
    let (owner, now) = (std::fs::metadata(folder)?, file.metadata()?);
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || (now.uid(), now.gid()) == (owner.uid(), owner.gid()) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid()))
}

/// Returns the number of a line, which is its first member.
fn number_of(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("{\"seq\":")?;
    rest.split(',').next()?.parse().ok()
}

fn line(entry: &AuditEntry, number: u64, previous: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut members = Map::new();
    members.insert("seq".to_owned(), number.into());
    members.insert("prev".to_owned(), previous.into());
    members.insert("time".to_owned(), rfc3339(i64::try_from(now).unwrap_or(0)).into());
    members.insert("actor".to_owned(), entry.actor.as_str().into());
    members.insert("role".to_owned(), entry.role.as_ref().into());
    members.insert("client".to_owned(), json!(entry.client));
    members.insert("request_id".to_owned(), entry.request_id.as_str().into());
    members.insert("action".to_owned(), entry.action.as_ref().into());
    members.insert("object".to_owned(), entry.object.as_str().into());
    members.insert("outcome".to_owned(), entry.outcome.name().into());
    if let AuditOutcome::Refused(code) = entry.outcome {
        members.insert("code".to_owned(), code.into());
    }
    members.extend(entry.details.clone());
    Value::Object(members).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str) -> AuditEntry {
        AuditEntry { actor: "token:a".to_owned(), object: object.to_owned(), ..AuditEntry::default() }
    }

    #[test]
    fn audit_lines_are_numbered_and_chained_across_processes_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("admin");
        let log = AuditLog::new(&state);
        assert_eq!(log.page(u64::MAX, 5, &[]).unwrap(), (Vec::new(), None));
        assert_eq!((log.append(&entry("a")).unwrap(), log.append(&entry("b")).unwrap()), (1, 2));
        // Another process appends, and the next line follows it.
        assert_eq!(AuditLog::new(&state).append(&entry("c")).unwrap(), 3);
        assert_eq!(log.append(&entry("d")).unwrap(), 4);
        // A crash has left a part of a line.
        OpenOptions::new().append(true).open(log.file(0)).unwrap().write_all(b"{\"seq\":5,\"pr").unwrap();
        assert_eq!(log.append(&entry("e")).unwrap(), 5);
        // The file is full, and a new one begins.
        let filler = json!({ "seq": 6, "filler": "x".repeat(FILE_SIZE as usize) }).to_string();
        OpenOptions::new()
            .append(true)
            .open(log.file(0))
            .unwrap()
            .write_all(format!("{filler}\n").as_bytes())
            .unwrap();
        assert_eq!(log.append(&entry("f")).unwrap(), 7);
        assert!(log.file(1).exists());
        let (lines, next) = log.page(u64::MAX, 3, &[("actor", json!("token:a"))]).unwrap();
        let objects: Vec<&str> = lines.iter().map(|line| line["object"].as_str().unwrap()).collect();
        assert_eq!((objects, next), (vec!["f", "e", "d"], Some(4)));
        let (lines, next) = log.page(4, 3, &[]).unwrap();
        assert_eq!((lines.len(), next), (3, None));
        // Sign-ins are a topic of their own.
        let sign_in = AuditEntry { action: "session.begin".into(), ..entry("session/token:a") };
        assert_eq!(log.append(&sign_in).unwrap(), 8);
        let numbers = |topic| {
            let (lines, _) = log.page_of(topic, u64::MAX, 2, &[]).unwrap();
            lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(Some(AuditTopic::SignIns)), [8]);
        assert_eq!(numbers(Some(AuditTopic::Changes)), [7, 6]);
        assert_eq!(numbers(None), [8, 7]);
        // Each line names the hash of the one before.
        let text =
            std::fs::read_to_string(log.file(1)).unwrap() + &std::fs::read_to_string(log.file(0)).unwrap();
        let mut before = String::new();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(value["seq"] == 6 || value["prev"] == before, "{value}");
            before = FileHash::of(line).to_hex();
        }
    }
}
