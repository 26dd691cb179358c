//! Targets for the configuration files.

use std::path::Path;

use config::{KeysFile, NoSecrets, effective, load_texts};

/// The three configuration files, separated by a line of `===`: every problem has a valid line number, and a valid
/// configuration can be shown.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut texts = text.split("\n===\n");
    let texts = [(); 3].map(|()| texts.next().unwrap_or_default());
    match load_texts(Path::new("conf"), texts, &NoSecrets) {
        Ok(loaded) => {
            let shown = effective(&loaded);
            let (gateway, rest) = shown.split_once("# routes.toml\n").unwrap();
            assert!(gateway.parse::<toml::Table>().is_ok(), "{gateway}");
            let routes = rest.rsplit_once("# keys.toml").unwrap().0;
            assert!(routes.parse::<toml::Table>().is_ok(), "{routes}");
        }
        Err(report) => {
            assert!(!report.problems.is_empty());
            for problem in &report.problems {
                let name = problem.file.file_name().and_then(|name| name.to_str()).unwrap();
                let index =
                    ["gateway.toml", "routes.toml", "keys.toml"].iter().position(|file| *file == name);
                let lines = texts[index.unwrap()].split('\n').count();
                assert!(problem.line <= lines, "{problem}");
            }
        }
    }
}

/// Editing of keys.toml: a key that is disabled is disabled when the file is read again, and nothing else changes.
pub fn keys_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = Path::new("keys.toml");
    let Ok(mut file) = KeysFile::parse(path, text) else { return };
    let Ok(before) = file.list() else { return };
    let Some(first) = before.first().map(|key| key.name.clone()) else { return };
    if file.set_enabled(&first, false).is_err() {
        return;
    }
    let mut again =
        KeysFile::parse(path, &file.text()).unwrap_or_else(|error| panic!("{error}: {}", file.text()));
    let after = again.list().unwrap();
    assert_eq!(after.len(), before.len());
    for (index, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!((&before.name, &before.hash, &before.models), (&after.name, &after.hash, &after.models));
        assert_eq!(after.enabled, before.enabled && (index > 0));
    }
    assert!(!again.set_enabled(&first, false).unwrap());
}
