//! The files of the console, without a browser: their size, what they must not contain, and that the API has what they ask
//! for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

const FOLDER: &str = "src/admin/console/assets";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The files of our own, with their text.
fn own() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root().join(FOLDER), &mut found);
    let own = found.into_iter().filter(|path| !path.components().any(|part| part.as_os_str() == "vendor"));
    own.map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(root().join(FOLDER)).unwrap().display().to_string(), text)
    })
    .collect()
}

#[test]
fn console_files_have_nothing_that_the_policy_refuses() {
    let mut faults = Vec::new();
    for (name, text) in own() {
        let forbidden = [
            "eval(",
            "new Function",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "dangerouslySetInnerHTML",
            "style=",
            "javascript:",
            "import(",
            "WebSocket(",
            "XMLHttpRequest",
        ];
        faults.extend(
            forbidden.iter().filter(|word| text.contains(*word)).map(|word| format!("{name}: {word}")),
        );
        if name.ends_with(".html") {
            faults.extend(
                [" on", "<style"].iter().filter(|w| text.contains(*w)).map(|w| format!("{name}: {w}")),
            );
            assert!(!text.contains("<script>"), "a script in the page itself");
        }
        // Addresses of other origins: only the namespace of SVG, and what is shown as an example of the gateway's own.
        for (_, rest) in text.match_indices("http").map(|(at, _)| text.split_at(at)) {
            let address: String = rest.chars().take_while(|c| !" \"'`<>)\n".contains(*c)).collect();
            let is_absolute = address.starts_with("http://") || address.starts_with("https://");
            if is_absolute && address != "http://www.w3.org/2000/svg" && !address.contains("://${") {
                faults.push(format!("{name}: {address}"));
            }
        }
        let lines = text.lines().count();
        if lines > 500 {
            faults.push(format!("{name}: {lines} lines"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The operations that the pages call, found in their text: `api.get("/keys")`, `` api.post(`${pathOf(key)}/rotate`) ``.
#[test]
fn console_asks_for_nothing_that_the_api_does_not_have() {
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(root().join("docs/openapi.json")).unwrap()).unwrap();
    let known: BTreeSet<String> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(|path| {
            path.trim_start_matches("/admin/v1").split('{').next().unwrap().trim_end_matches('/').to_owned()
        })
        .collect();
    let mut asked = BTreeSet::new();
    for (name, text) in own().into_iter().filter(|(name, _)| name.ends_with(".js")) {
        for call in
            ["get(", "post(", "patch(", "remove(", "all(", "usePages(", "text(", "download(", "stream("]
        {
            for (at, _) in text.match_indices(call) {
                let rest = &text[at + call.len()..];
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_uppercase() || "\"`', ".contains(c));
                if !rest.starts_with('/') {
                    continue;
                }
                let path: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "/_".contains(*c)).collect();
                asked.insert((path.trim_end_matches('/').to_owned(), name.clone()));
            }
        }
    }
    assert!(asked.len() > 20, "the test sees only {} calls: it has gone blind", asked.len());
    let unknown: Vec<_> = asked.iter().filter(|(path, _)| !known.contains(path)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn console_has_advice_on_every_kind_of_error() {
    let (_, text) = own().into_iter().find(|(name, _)| name == "pages/errors.js").unwrap();
    let page = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let (_, table) = page.split_once("## Troubleshooting").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let kinds = rows.take_while(|line| line.starts_with('|')).flat_map(|row| {
        row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    let missing: Vec<String> = kinds.filter(|kind| !text.contains(&format!("\n  {kind}: \""))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Files of other projects are as published, but for the one import that a browser cannot resolve.
#[test]
fn console_vendored_files_are_as_published() {
    let folder = root().join(FOLDER).join("vendor");
    let page = std::fs::read_to_string(root().join("src/admin/console/VENDOR.md")).unwrap();
    for name in ["preact.js", "hooks.js", "htm.js"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let published = text.replace("from\"./preact.js\"", "from\"preact\"");
        let hash: String =
            Sha256::digest(published.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page.contains(&hash), "{name} has the hash {hash}, which VENDOR.md does not name");
    }
}
