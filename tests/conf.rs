//! Examples in conf/ and the page docs/configuration.md, checked against the configuration reader: the examples load,
//! and both name every key.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use model_gateway::account::price::TokenKind;
use model_gateway::config::{
    self, LedgerSettings, Limits, Loaded, LogSettings, NoSecrets, RetentionSettings,
};
use model_gateway::provider::{ProviderKind, Timeouts};
use toml::Value;

const FILES: [&str; 3] = ["gateway.toml", "routes.toml", "keys.toml"];
/// The file of the catalogue, which has no default, and keys of `[store]` that exclude another key or value of the full
/// example: they stand there in a comment.
const COMMENTED: [&str; 4] = ["valkey", "sentinel", "away_allowance", "catalogue"];
/// Key that is unknown and not similar to a known key, so that the reader suggests none.
const UNKNOWN: &str = "zzzzzzzzzzzzzzzzzzzzzzzz";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn example(name: &str) -> Loaded {
    let file = root().join("conf").join(name).join("gateway.toml");
    config::load(&file, &NoSecrets).unwrap_or_else(|report| panic!("conf/{name}: {report}"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Keys by the path of their table, without indexes: `model.targets` has the key `provider`.
type Keys = BTreeMap<String, BTreeSet<String>>;

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Records the keys of every table in `value` and adds an unknown key to each.
fn spoil(value: &mut Value, path: &str, keys: &mut Keys) {
    match value {
        Value::Table(table) => {
            let noted = keys.entry(path.to_owned()).or_default();
            noted.extend(table.keys().cloned());
            for (key, value) in table.iter_mut() {
                spoil(value, &join(path, key), keys);
            }
            table.insert(UNKNOWN.to_owned(), Value::Integer(1));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| spoil(value, path, keys)),
        _ => {}
    }
}

/// Returns the keys of the full example and the keys that the reader knows: its report lists them for every unknown
/// key.
fn given_and_known() -> (Keys, Keys) {
    let folder = tempfile::tempdir().unwrap();
    let mut given = Keys::new();
    for file in FILES {
        let mut value: Value = text(&format!("conf/full/{file}")).parse::<toml::Table>().unwrap().into();
        spoil(&mut value, "", &mut given);
        std::fs::write(folder.path().join(file), toml::to_string(&value).unwrap()).unwrap();
    }
    let report = config::load(&folder.path().join("gateway.toml"), &NoSecrets).unwrap_err();
    let mut known = Keys::new();
    for problem in report.problems.iter().filter(|problem| problem.message == "unknown key") {
        let mut path = problem.key.replace(UNKNOWN, "");
        while let Some(at) = path.find('[') {
            let end = path.find(']').unwrap();
            path.replace_range(at..=end, "");
        }
        let names = problem.hint.as_deref().unwrap().strip_prefix("known keys: ").unwrap();
        let names = names.split(", ").map(str::to_owned);
        known.entry(path.trim_end_matches('.').to_owned()).or_default().extend(names);
    }
    (given, known)
}

#[test]
fn examples_all_load() {
    let entries = std::fs::read_dir(root().join("conf")).unwrap().map(|entry| entry.unwrap());
    for folder in entries.filter(|entry| entry.file_type().unwrap().is_dir()) {
        let name = folder.file_name().into_string().unwrap();
        if name == "schema" {
            // JSON Schemas: tests/packaging/schemas.rs.
            continue;
        }
        let loaded = example(&name);
        assert!(!loaded.snapshot.routes.models().is_empty(), "{name}");
    }
}

#[test]
fn example_full_has_every_key_and_every_default() {
    let (given, known) = given_and_known();
    for table in
        ["", "server", "server.tls", "limits", "log", "store", "provider", "provider.timeouts", "model"]
    {
        assert!(known.contains_key(table), "the reader was not asked about {table:?}: {known:?}");
    }
    for (table, keys) in &known {
        for key in keys {
            let commented = ["", "store"].contains(&table.as_str()) && COMMENTED.contains(&key.as_str());
            let there = given[table].contains(key) || commented;
            assert!(there, "conf/full does not have {}", join(table, key));
        }
    }
    let gateway = text("conf/full/gateway.toml");
    assert!(COMMENTED.iter().all(|key| gateway.contains(&format!("\n# {key} = "))));

    let full = example("full");
    assert_eq!(full.settings.limits, Limits::default());
    assert_eq!(full.settings.log, LogSettings::default());
    assert_eq!(full.settings.retention, RetentionSettings::default());
    assert_eq!(full.settings.ledger, LedgerSettings::default());
    let minimal = example("minimal").settings;
    let telemetry = &full.settings.telemetry;
    assert!(telemetry.traces.is_some() && telemetry.logs.is_none() && telemetry.metrics.is_none());
    let (given, default) = (telemetry, &minimal.telemetry);
    assert_eq!(
        (given.sample, given.slow, given.conventions),
        (default.sample, default.slow, default.conventions)
    );
    assert_eq!((given.queue, given.batch, given.delay), (default.queue, default.batch, default.delay));
    assert_eq!(
        (given.propagate, given.names, given.interval),
        (default.propagate, default.names, default.interval)
    );
    assert_eq!(full.settings.admin, minimal.admin);
    assert_eq!((full.settings.threads, full.settings.drain), (minimal.threads, minimal.drain));
    let name = |path: &Path| path.file_name().unwrap().to_owned();
    assert_eq!(name(&full.settings.upgrade_socket), name(&minimal.upgrade_socket));
    let providers = full.snapshot.routes.providers();
    assert_eq!(providers[0].timeouts, Timeouts::default());
    assert_eq!(providers[0].apis, ProviderKind::OpenAi.default_apis());
    assert_eq!(providers[0].base.to_string(), ProviderKind::OpenAi.default_base_url().unwrap());
}

/// The price list is read completely, each name matches its own entry, and no price has a misplaced decimal point.
#[test]
fn price_list_is_consistent() {
    let list: toml::Table = text("conf/prices.toml").parse().unwrap();
    let prices = list["price"].as_array().unwrap();
    assert!(prices.len() > 40);
    let mut names: Vec<(String, Vec<Value>)> = Vec::new();
    let mut routes = "prices = \"prices.toml\"\n[[provider]]\nname = \"p\"\nkind = \"openai-compatible\"\n\
                      base_url = \"http://127.0.0.1:1/v1\"\n"
        .to_owned();
    for price in prices {
        for model in price["models"].as_array().unwrap() {
            let name = model.as_str().unwrap().replace('*', "-20250101");
            // Rows of one name by date follow each other.
            if let Some((_, rows)) = names.iter_mut().find(|(known, _)| *known == name) {
                rows.push(price.clone());
                continue;
            }
            routes += &format!(
                "[[model]]\nid = \"{name}\"\ntargets = [{{ provider = \"p\", model = \"{name}\" }}]\n"
            );
            names.push((name, vec![price.clone()]));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    put("gateway.toml", "[server]\nlisten = [\"127.0.0.1:0\"]\n");
    put("routes.toml", &routes);
    put("keys.toml", "");
    put("prices.toml", &text("conf/prices.toml"));
    let loaded = config::load(&folder.path().join("gateway.toml"), &NoSecrets).unwrap();
    for (name, listed) in names {
        let price = &loaded.snapshot.routes.model(&name).unwrap().price;
        assert_eq!(price.rows().count(), listed.len(), "{name}");
        for (given, listed) in price.rows().zip(&listed) {
            let number = |key: &str| {
                listed
                    .get(key)
                    .map(|value| value.as_float().or(value.as_integer().map(|n| n as f64)).unwrap())
            };
            for kind in TokenKind::ALL {
                let read = given.rates.configured(kind).map(|nanos| nanos as f64 / 1e9);
                assert_eq!(read, number(kind.name()), "{name}: another entry comes first");
            }
            let (input, output) = (given.rates.rate(TokenKind::Input), given.rates.rate(TokenKind::Output));
            assert!(given.rates.rate(TokenKind::CachedInput) <= input, "{name}");
            assert!(given.rates.rate(TokenKind::CacheWrite) >= input, "{name}");
            assert!(output == 0 || (input..=10 * input).contains(&output), "{name}: {input} {output}");
            assert!(input <= 30_000_000_000, "{name}");
        }
    }
}

#[test]
fn page_lists_every_key_and_no_other() {
    let (_, known) = given_and_known();
    let known: BTreeSet<String> =
        known.iter().flat_map(|(table, keys)| keys.iter().map(|key| join(table, key))).collect();
    let page = text("docs/configuration.md") + &text("docs/prices.md");
    // The first cell of a row is a key in backticks. A row may describe a whole table.
    let named: BTreeSet<String> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .filter(|name| !name.ends_with("()"))
        .collect();
    let missing: Vec<_> = known.difference(&named).collect();
    assert!(missing.is_empty(), "docs/configuration.md lacks {missing:?}");
    let invented: Vec<_> = named.difference(&known).collect();
    assert!(invented.is_empty(), "docs/configuration.md names {invented:?}, which the reader does not know");
}

#[test]
fn page_lists_the_effective_defaults() {
    let effective = config::effective(&example("minimal"));
    // The settings of the other files, after their headings, do not concern this test.
    let gateway = effective.split("# routes.toml").next().unwrap().parse::<toml::Table>().unwrap();
    let page = text("docs/configuration.md") + &text("docs/prices.md");
    for table in ["limits", "reload", "log", "store", "telemetry"] {
        for (key, value) in gateway[table].as_table().unwrap() {
            if key == "sqlite" {
                // The path depends on the folder of the example.
                continue;
            }
            let row = format!("| `{table}.{key}` | `{value}` |");
            // Durations on the page have the unit that the effective configuration has.
            assert!(page.contains(&row), "docs/configuration.md lacks the row: {row}");
        }
    }
    for key in ["admin", "threads", "drain"] {
        let row = format!("| `server.{key}` | `{}` |", gateway["server"][key]);
        assert!(page.contains(&row), "docs/configuration.md lacks the row: {row}");
    }
}

#[test]
fn page_lists_every_kind_with_its_apis() {
    let page = text("docs/configuration.md") + &text("docs/prices.md");
    for kind in ProviderKind::ALL {
        let apis: Vec<&str> = kind.default_apis().iter().map(|api| api.name()).collect();
        let base = kind.default_base_url().map_or("none".to_owned(), |base| format!("`{base}`"));
        let row = format!("| {} | {base} | {} |", kind.name(), apis.join(", "));
        assert!(page.contains(&row), "docs/configuration.md lacks the row: {row}");
    }
}

#[test]
fn readme_shows_the_minimal_example() {
    let readme = text("README.md");
    for file in FILES {
        for line in text(&format!("conf/minimal/{file}")).lines().filter(|line| !line.starts_with('#')) {
            assert!(readme.contains(line), "README.md lacks this line of conf/minimal/{file}: {line}");
        }
    }
}
