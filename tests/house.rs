//! The rules of the house (docs/architecture.md), held against the source text: which module may use which, what a file
//! looks like, and what must not be written anywhere.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "house/glossary.rs"]
mod glossary;
#[path = "house/models.rs"]
mod models;
#[path = "house/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};

use source::{code_of, committed, rust, without_inline_tests, words};

/// Crates without sockets, files and clocks.
const CODECS: [&str; 4] = ["cloud", "codec", "framing", "json"];
/// A file with more lines has more than one reason to change; how long one may be short of that, its reasons decide.
const MAX_LINES: usize = 800;

/// Fails with all faults at once.
fn assert_none(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}

fn page() -> String {
    std::fs::read_to_string(source::root().join("docs/architecture.md")).unwrap()
}

/// The modules in a cell of a table of the page: what stands in backticks, without `.rs`.
fn modules_in(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(|name| name.trim_end_matches(".rs").to_owned()).collect()
}

/// The rows of the first table of a section, as the two cells of each.
fn rows(page: &str, section: &str) -> Vec<(String, String)> {
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let rows = rest.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let (module, rest) = row.trim_matches('|').split_once(" | ").unwrap();
            (module.to_owned(), rest.to_owned())
        })
        .collect()
}

/// Which modules a module may use, as the page says.
fn permitted() -> BTreeMap<String, BTreeSet<String>> {
    let mut table = BTreeMap::new();
    for (left, right) in rows(&page(), "Dependencies") {
        let used = modules_in(&right);
        for module in modules_in(&left) {
            assert!(table.insert(module.clone(), used.clone()).is_none(), "{module} has two rows");
        }
    }
    table
}

/// The crates that there are: folders of src/ with a manifest.
fn crates() -> BTreeMap<String, String> {
    let manifests = committed().into_iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let named = manifests.filter_map(|file| {
        let name = file.path.strip_prefix("src/")?.strip_suffix("/Cargo.toml")?.to_owned();
        Some((name, file.text))
    });
    named.collect()
}

/// The modules that there are: the program's, and those of crates with several.
fn modules() -> BTreeSet<String> {
    let alone = crates();
    let there = rust("src").into_iter().filter_map(|file| file.module().map(str::to_owned));
    there.filter(|module| !alone.contains_key(module)).collect()
}

#[test]
fn crates_are_on_the_page_with_what_they_use() {
    let page = page();
    let listed: BTreeMap<String, BTreeSet<String>> = rows(&page, "Crates")
        .iter()
        .map(|(name, rest)| {
            let (_, used) = rest.rsplit_once(" | ").unwrap();
            (name.trim().trim_matches('`').to_owned(), modules_in(used))
        })
        .collect();
    let manifests = crates();
    let there: BTreeMap<String, BTreeSet<String>> = manifests
        .iter()
        .map(|(name, manifest)| {
            let (_, rest) = manifest.split_once("\n[dependencies]\n").unwrap();
            let lines = rest.split("\n[").next().unwrap().lines();
            let used = lines.filter_map(|line| line.split('.').next());
            (name.clone(), used.filter(|used| manifests.contains_key(*used)).map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(listed, there, "docs/architecture.md, Crates");
}

#[test]
fn modules_are_on_the_page_and_in_the_tour() {
    let there = modules();
    let listed: BTreeSet<String> =
        rows(&page(), "Modules").iter().flat_map(|(module, _)| modules_in(module)).collect();
    assert_eq!(listed, there, "docs/architecture.md, Modules");
    assert_eq!(permitted().into_keys().collect::<BTreeSet<_>>(), there, "Dependencies");
    let tour = rust("src").into_iter().find(|file| file.path == "src/lib.rs").unwrap().text;
    for module in there {
        assert!(tour.contains(&format!("[`{module}`]")), "src/lib.rs does not name {module}");
    }
}

#[test]
fn dependencies_are_those_of_the_page() {
    let permitted = permitted();
    let manifests = crates();
    let known: BTreeSet<String> = permitted.keys().chain(manifests.keys()).cloned().collect();
    let mut faults = Vec::new();
    let mut seen = 0;
    // Tests may bring modules together.
    for file in rust("src").into_iter().filter(|file| !file.is_test()) {
        let Some(module) = file.module() else { continue };
        let Some(row) = permitted.get(module) else { continue };
        for used in file.paths() {
            let Some(name) = used.first() else { continue };
            if name == module || !known.contains(name) {
                continue;
            }
            // A module of the crate's own may have the name of a crate that it does not depend on.
            let manifest =
                file.path.strip_prefix("src/").and_then(|path| manifests.get(path.split('/').next()?));
            let depends = |manifest: &String| manifest.contains(&format!("\n{name}.workspace = true"));
            if manifests.contains_key(name) && !manifest.is_none_or(depends) {
                continue;
            }
            seen += 1;
            if !row.contains(name) {
                faults.push(format!("{}: {module} uses {name}", file.path));
            }
        }
    }
    assert!(seen > 50, "the rule sees only {seen} uses: it has gone blind");
    assert_none("docs/architecture.md says who may use whom", &faults);
}

#[test]
fn dependencies_on_the_page_are_used() {
    let mut unused = permitted();
    for file in rust("src").into_iter().filter(|file| !file.is_test()) {
        if let Some(row) = file.module().and_then(|module| unused.get_mut(module)) {
            for used in file.paths() {
                row.retain(|name| used.first() != Some(name));
            }
        }
    }
    let faults: Vec<String> = unused
        .iter()
        .filter(|(_, row)| !row.is_empty())
        .map(|(module, row)| format!("{module}: {row:?}"))
        .collect();
    assert_none("docs/architecture.md permits what nobody needs", &faults);
}

#[test]
fn formats_do_not_use_each_other() {
    const FORMATS: [&str; 5] = ["chat", "converse", "generate", "messages", "responses"];
    let mut faults = Vec::new();
    for file in rust("src/codec/wire") {
        let Some(own) =
            FORMATS.into_iter().find(|name| file.path.starts_with(&format!("src/codec/wire/{name}/")))
        else {
            continue;
        };
        for used in file.paths() {
            let [first, second, ..] = &used[..] else { continue };
            if first == "wire" && second != own && FORMATS.contains(&second.as_str()) {
                faults.push(format!("{}: uses {second}", file.path));
            }
        }
    }
    assert_none("a format never uses another one", &faults);
}

/// Bodies are not the business of who answers, nor of the route to it: they see which formats and APIs there are.
#[test]
fn formats_are_used_by_name_outside_the_exchange() {
    const NAMES: [&str; 3] = ["Api", "Format", "path"];
    let mut faults = Vec::new();
    for file in rust("src") {
        if !matches!(file.module(), Some("provider" | "route" | "config" | "snapshot")) {
            continue;
        }
        for used in file.paths() {
            let [first, second, ..] = &used[..] else { continue };
            if first == "wire" && !NAMES.contains(&second.as_str()) {
                faults.push(format!("{}: uses wire::{second}", file.path));
            }
        }
    }
    assert_none("formats, APIs and paths, never bodies", &faults);
}

#[test]
fn canonical_names_no_format_and_no_provider() {
    const NAMES: [&str; 9] = [
        "anthropic",
        "chat",
        "claude",
        "converse",
        "gemini",
        "generate",
        "google",
        "openai",
        "generatecontent",
    ];
    let mut faults = Vec::new();
    for file in rust("src/codec/canonical") {
        // A test may take a provider for an example.
        let text = without_inline_tests(&file.text);
        for word in words(text).filter(|_| !file.is_test()) {
            if NAMES.contains(&word.to_ascii_lowercase().as_str()) {
                faults.push(format!("{}: {word}", file.path));
            }
        }
    }
    assert_none("canonical is nobody's format", &faults);
}

#[test]
fn codecs_use_no_sockets_files_or_clocks() {
    let mut faults = Vec::new();
    for (name, manifest) in crates().iter().filter(|(name, _)| CODECS.contains(&name.as_str())) {
        for dependency in ["tokio", "pingora", "ureq", "rusqlite", "rustls"] {
            if manifest.lines().any(|line| line.starts_with(dependency)) {
                faults.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    let files = CODECS.into_iter().flat_map(|name| rust(&format!("src/{name}")));
    for file in files.filter(|file| !file.path.contains("/examples/")) {
        // A cursor reads memory: the parser of frame headers takes one.
        let code = code_of(&file.text).replace("std::io::Cursor", "");
        for name in
            ["std::fs", "std::io", "std::process", "std::thread", "Instant", "SystemTime", "TcpStream"]
                .into_iter()
                .chain(["TcpListener", "UdpSocket", "ToSocketAddrs"])
        {
            if code.contains(name) {
                faults.push(format!("{}: {name}", file.path));
            }
        }
        if code.contains("feature = ") {
            faults.push(format!("{}: depends on a feature", file.path));
        }
    }
    assert_none("the formats build and run without the gateway", &faults);
}

#[test]
fn pingora_is_named_by_driver_and_proxy_only() {
    let named: BTreeSet<String> = rust("src")
        .iter()
        .filter(|file| code_of(&file.text).contains("pingora"))
        .filter_map(|file| file.module().map(str::to_owned))
        .collect();
    assert_eq!(named, ["driver", "proxy"].map(str::to_owned).into());
}

#[test]
fn databases_are_named_by_store_ledger_and_kv_only() {
    let named: BTreeSet<String> = rust("src")
        .iter()
        .filter(|file| ["rusqlite", "redis"].iter().any(|name| code_of(&file.text).contains(name)))
        .filter_map(|file| file.module().map(str::to_owned))
        .collect();
    assert_eq!(named, ["kv", "ledger", "store"].map(str::to_owned).into());
}

/// The demo writes its own configuration; the proxy's and the log's files are their own.
#[test]
fn files_are_read_by_config_only() {
    const READERS: [&str; 5] = ["fs::read", " File::open", "(File::open", "read_to_string(", "read_dir"];
    let mut faults = Vec::new();
    for file in rust("src") {
        // A command reads the file that its user names.
        let named = ["src/cli/catalogue/mod.rs", "src/cli/explain.rs", "src/cli/replay.rs"]
            .contains(&file.path.as_str());
        // The commands for coding clients edit the settings of those clients.
        let clients = file.path == "src/cli/clients/file.rs";
        // The import reads configurations of other gateways.
        let imports = file.path == "src/cli/import/file.rs";
        // A journal, or a state file, is read back by the code that wrote it.
        let own = file.path.starts_with("src/storage/ledger/wal/")
            || ["src/storage/store/journal_files.rs", "src/storage/store/store_lock.rs"]
                .contains(&file.path.as_str())
            || ["src/admin/audit.rs", "src/admin/drain_state.rs", "src/admin/fleet.rs"]
                .contains(&file.path.as_str());
        // What the kernel says of processes is no file of an operator.
        let of_kernel =
            ["src/proxy/server/program_pages.rs", "src/admin/process_stat.rs"].contains(&file.path.as_str());
        let config = file.module() == Some("config");
        if config || file.is_test() || named || clients || imports || own || of_kernel {
            continue;
        }
        let code = code_of(&file.text);
        // A module of tests at the end of a file may read what it wrote.
        let code = without_inline_tests(&code);
        for reader in READERS.into_iter().filter(|reader| code.contains(reader)) {
            faults.push(format!("{}: {reader}", file.path));
        }
    }
    assert_none("only config reads files", &faults);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut faults = Vec::new();
    for file in committed() {
        let lines = file.text.lines().count();
        // Generated: the dashboard and the schemas of the configuration, and compressed vocabularies.
        let generated =
            file.path == "Cargo.lock" || [".json", ".br"].iter().any(|end| file.path.ends_with(end));
        if lines > MAX_LINES && !generated && !file.is_data() {
            faults.push(format!("{}: {lines} lines", file.path));
        }
    }
    for folder in ["src", "tests", "benches", "fuzz"] {
        for file in rust(folder) {
            // The name of a module of tests says all.
            if !file.is_test() && !file.text.starts_with("//! ") {
                faults.push(format!("{}: does not begin with a line of //!", file.path));
            }
            // What lives there, and what must not.
            let opening: String = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
            let module = file.module().map(str::to_owned);
            let opens_a_module = module.is_some_and(|name| {
                ["mod", "lib"].iter().any(|root| file.path.ends_with(&format!("/{name}/{root}.rs")))
            });
            if opens_a_module && !opening.to_ascii_lowercase().contains("must not") {
                faults.push(format!("{}: does not say what must not live there", file.path));
            }
        }
    }
    assert_none("files", &faults);
}

#[test]
fn unsafe_code_has_a_safety_comment() {
    let mut faults = Vec::new();
    for file in ["src", "tests", "benches", "fuzz"].into_iter().flat_map(rust) {
        let code = code_of(&file.text);
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in code.lines().enumerate() {
            if !words(line).any(|word| word == "unsafe") {
                continue;
            }
            let above = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("//"));
            if !above.clone().any(|line| line.contains("SAFETY:")) {
                faults.push(format!("{}:{}", file.path, at + 1));
            }
        }
    }
    assert_none("unsafe without a SAFETY comment", &faults);
}

#[test]
fn marks_of_unfinished_work_are_absent() {
    let marks =
        ["TO DO", "FIX ME", "XX X", "to do!", "un implemented!", "HA CK"].map(|mark| mark.replace(' ', ""));
    let mut faults = Vec::new();
    for file in committed() {
        let own = file.path == "tests/house.rs";
        for (at, line) in file.text.lines().enumerate().filter(|_| !own && !file.is_data()) {
            let begins_a_word = |mark: &String| {
                line.match_indices(mark.as_str()).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    let after = line[at + mark.len()..].chars().next();
                    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
                })
            };
            if marks.iter().any(begins_a_word) {
                faults.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    assert_none("left for later", &faults);
}

/// A path that is right on one machine only.
#[test]
fn absolute_paths_are_absent() {
    let homes = ["home", "Users", "root", "work"].map(|home| format!("/{home}/"));
    let mut faults = Vec::new();
    for file in committed() {
        for (at, line) in file.text.lines().enumerate().filter(|_| !file.is_data()) {
            for home in &homes {
                let absolute = line.match_indices(home.as_str()).any(|(at, _)| {
                    !line[..at]
                        .chars()
                        .next_back()
                        .is_some_and(|c| c.is_alphanumeric() || "._-~})".contains(c))
                });
                if absolute {
                    faults.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
                }
            }
        }
    }
    assert_none("absolute paths", &faults);
}

/// A row of the page of the specification, or of that of the memory bounds, is proven by a test that is there.
#[test]
fn specification_page_names_existing_tests() {
    let page = |name: &str| std::fs::read_to_string(source::root().join(name)).unwrap();
    let memory = page("docs/memory.md");
    let unproven = memory.lines().filter(|line| line.starts_with("| ") && !line.contains(".rs`"));
    assert_eq!(unproven.count(), 1, "docs/memory.md: each row but the heading names a test");
    let text = page("docs/specification.md") + &memory;
    let mut faults = Vec::new();
    let mut named = 0;
    for row in text.lines().filter(|line| line.starts_with("| ") && line.contains(".rs`")) {
        let cell = row.trim_matches('|').rsplit(" | ").next().unwrap();
        // A cell names a file and tests of it, and then maybe another file with its own.
        let mut current = None;
        for word in cell.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                current = std::fs::read_to_string(source::root().join(word)).ok().map(|text| (word, text));
                if current.is_none() {
                    faults.push(format!("{word} is not there"));
                    break;
                }
                continue;
            }
            named += 1;
            match &current {
                Some((_, source)) if source.contains(&format!("fn {word}()")) => {}
                Some((path, _)) => faults.push(format!("{path} has no test {word}")),
                None => faults.push(format!("{word} stands before the name of its file")),
            }
        }
    }
    assert!(named > 30, "the rule sees only {named} tests: it has gone blind");
    assert_none("docs/specification.md names tests", &faults);
}
