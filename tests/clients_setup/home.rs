//! Home folder of a user, with the program under test.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Key of the tests; no gateway has it.
pub(crate) const KEY: &str = "mgw_testkey0123456789abcdefABCDEF";

/// Temporary home folder.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let home = Home(tempfile::tempdir().unwrap());
        fs::create_dir_all(home.path("bin")).unwrap();
        home
    }

    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes a file with a mode.
    pub(crate) fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Installs a script under the name of a client.
    pub(crate) fn install(&self, client: &str, script: &str) {
        let path = self.path("bin").join(client);
        // Written by a process of its own: a program that this process has open for writing cannot be started.
        let mut writer =
            Command::new("tee").arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns the command with an environment of its own.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_model-gateway"));
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("TMPDIR", self.path("tmp"))
            .env("PATH", path)
            .env("MODEL_GATEWAY_KEY", KEY)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        fs::create_dir_all(self.path("tmp")).unwrap();
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail with status 1, and returns its standard error.
    pub(crate) fn fails<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns all files and folders below the home folder, with the bytes of files and the modes of both.
    pub(crate) fn snapshot(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let bytes = if metadata.is_symlink() {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                } else if metadata.is_dir() {
                    folders.push(path.clone());
                    Vec::new()
                } else if metadata.is_file() {
                    fs::read(&path).unwrap()
                } else {
                    Vec::new()
                };
                found.push((path, metadata.permissions().mode(), bytes));
            }
        }
        found.sort();
        found
    }

    /// Returns the receipts.
    pub(crate) fn receipts(&self) -> Vec<PathBuf> {
        self.kept("json")
    }

    /// Returns the copies of settings from before `configure`.
    pub(crate) fn backups(&self) -> Vec<PathBuf> {
        self.kept("backup")
    }

    fn kept(&self, extension: &str) -> Vec<PathBuf> {
        let folder = self.path(".local/state/model-gateway/clients");
        let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
    }
}

/// Returns everything that a command printed.
pub(crate) fn text(output: &Output) -> String {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{error}", output.status)
}
