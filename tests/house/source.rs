//! The files of the repository as text, and what a Rust file refers to.

use std::path::{Path, PathBuf};

/// Folders that hold what is built or found, not what is written.
const NOT_WRITTEN: [&str; 7] =
    [".git", "target", "corpus", "artifacts", "coverage", "__pycache__", "proptest-regressions"];

/// Crates with several modules, each of which is a concern of its own.
pub(crate) const GROUPS: [&str; 4] = ["codec", "observe", "routing", "storage"];
/// Crates that are one module.
const ALONE: [&str; 10] =
    ["admin", "cli", "cloud", "config", "driver", "framing", "json", "proxy", "simulator", "sync"];

/// A file.
pub(crate) struct File {
    /// From the root of the repository.
    pub(crate) path: String,
    /// What stands in it.
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files that are kept, sorted.
pub(crate) fn committed() -> Vec<File> {
    let mut files = Vec::new();
    visit(&root(), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files.len() > 50, "the files of the repository are not found");
    files
}

/// The Rust files below a folder; none when there is no such folder.
pub(crate) fn rust(folder: &str) -> Vec<File> {
    let within = format!("{folder}/");
    committed()
        .into_iter()
        .filter(|file| file.path.starts_with(&within) && file.path.ends_with(".rs"))
        .collect()
}

fn visit(folder: &Path, files: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_symlink()
            || NOT_WRITTEN.contains(&name)
            || name.ends_with(".swp")
            || name.ends_with(".orig")
        {
            continue;
        }
        if path.is_dir() {
            visit(&path, files);
        } else if path.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let path = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            files.push(File { path, text });
        }
    }
}

impl File {
    /// What tests feed and compare with, and what tools record.
    pub(crate) fn is_data(&self) -> bool {
        // The bytes of a picture may be any text. The list of prices and the changelog have a row for each thing.
        self.path.ends_with(".webp")
            || ["conf/catalogue.toml", "conf/prices.toml", "CHANGELOG.md"].contains(&self.path.as_str())
            || !self.path.ends_with(".rs")
                && (self.path.starts_with("tests/") || self.path.starts_with("fuzz/"))
    }

    /// A module of tests within src/.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// The module that the file belongs to: a crate under src/, one of the modules of a crate with several ([`GROUPS`]), or
    /// one of the program's. `None` for the roots of the latter two.
    pub(crate) fn module(&self) -> Option<&str> {
        let path = self.path.strip_prefix("src/")?.trim_end_matches(".rs");
        let mut parts = path.split('/');
        let mut module = parts.next()?;
        if GROUPS.contains(&module) {
            module = parts.next()?;
        }
        (!matches!(module, "lib" | "main" | "build" | "examples")).then_some(module)
    }

    /// The modules above what the file defines: `["wire", "chat", "watch"]`.
    fn place(&self) -> Vec<&str> {
        let path = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut place: Vec<&str> =
            path.trim_end_matches("/mod").trim_end_matches("/lib").split('/').collect();
        if GROUPS.contains(&place[0]) {
            place.remove(0);
        }
        place
    }

    /// The paths within the workspace that it uses, from the module on: `codec::wire::b`, `crate::wire::b` and `super::b`
    /// give `["wire", "b"]`. A group gives one path each.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        let place = self.place();
        let code = code_of(&self.text);
        // In a crate that is one module, its own paths begin with its name.
        let own = self.path.strip_prefix("src/").and_then(|path| path.split('/').next()).unwrap_or_default();
        let mut paths = Vec::new();
        for start in ["crate", "super"].into_iter().chain(GROUPS).chain(ALONE) {
            for (at, _) in code.match_indices(&format!("{start}::")) {
                let before = code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let mut rest = &code[at..];
                let mut base: Vec<String> = match start {
                    "super" => place.iter().map(|part| (*part).to_owned()).collect(),
                    _ => {
                        rest = &rest[start.len() + 2..];
                        let named = if start == "crate" { own } else { start };
                        ALONE.contains(&named).then(|| named.to_owned()).into_iter().collect()
                    }
                };
                while let Some(after) = rest.strip_prefix("super::") {
                    rest = after;
                    base.pop();
                }
                follow(rest, &base, &mut paths);
            }
        }
        paths
    }
}

/// Reads `a::b`, or `{a, b::c}`, behind the modules in `base`.
fn follow(rest: &str, base: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = base.to_vec();
    let mut rest = rest.trim_start();
    while path.len() < base.len() + 3 {
        if let Some(group) = rest.strip_prefix('{') {
            for item in items(group) {
                follow(item, &path, paths);
            }
            return;
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        path.push(rest[..end].to_owned());
        let Some(after) = rest[end..].strip_prefix("::") else { break };
        rest = after.trim_start();
    }
    paths.push(path);
}

/// The items of a group up to its closing brace.
fn items(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut items) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(&group[from..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.retain(|item| !item.trim().is_empty());
    items
}

/// The words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// A Rust text up to its inline module of tests, which is the last item of a file. `mod tests;`, which names another file,
/// ends nothing.
pub(crate) fn without_inline_tests(text: &str) -> &str {
    const MARK: &str = "#[cfg(test)]\n";
    let inline = text.match_indices(MARK).find(|(at, _)| {
        let item = text[at + MARK.len()..].lines().find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    });
    inline.map_or(text, |(at, _)| &text[..at])
}

/// A Rust text without its comments and without what stands in strings; line ends stay.
pub(crate) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if rest.starts_with('"') {
            string(rest)
        } else if let Some(length) = character(rest) {
            length
        } else {
            let c = rest.chars().next().unwrap();
            code.push(c);
            at += c.len_utf8();
            continue;
        };
        if !rest.starts_with('/') {
            code.push_str("\"\"");
        }
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        at += skipped;
    }
    code
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    if !body[hashes..].starts_with('"') {
        return None;
    }
    let opening = rest.len() - body.len() + hashes + 1;
    let closing = format!("\"{}", "#".repeat(hashes));
    Some(rest[opening..].find(&closing).map_or(rest.len(), |end| opening + end + closing.len()))
}

/// A character literal; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if let Some(escape) = inner.strip_prefix('\\') {
        return escape.char_indices().skip(1).find(|(_, c)| *c == '\'').map(|(at, _)| at + 3);
    }
    let c = inner.chars().next()?;
    inner[c.len_utf8()..].starts_with('\'').then_some(c.len_utf8() + 2)
}

#[test]
fn inline_tests_are_cut_off_and_modules_in_files_are_not() {
    let text = "#[cfg(test)]\nmod tests;\n\nstruct A;\n\n#[cfg(test)]\nfn b() {}\n\n";
    for tests in ["#[cfg(test)]\nmod tests {\n}\n", "#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n"] {
        assert_eq!(without_inline_tests(&format!("{text}{tests}")), text);
    }
    assert_eq!(without_inline_tests(text), text);
}

#[test]
fn what_is_no_code_is_left_out() {
    let text = "use crate::a; // crate::b\nlet x: &'a str = \"crate::c \\\" crate::d\"; '\"'; r#\"crate::\"e\"#; '\\''; crate::f";
    let code = code_of(text);
    assert_eq!(words(&code).filter(|word| *word == "crate").count(), 2, "{code}");
    let file = File {
        path: "src/codec/wire/chat/watch.rs".to_owned(),
        text: "use super::super::{path::Action, watch::{End, Sight}}; super::X; use super::super::super::json::Y;"
            .to_owned(),
    };
    let paths: Vec<String> = file.paths().iter().map(|path| path.join("::")).collect();
    let expected =
        ["wire::path::Action", "wire::watch::End", "wire::watch::Sight", "wire::chat::X", "json::Y"];
    assert_eq!(paths, expected);
}
