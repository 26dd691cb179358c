//! The file of `catalogue`: prices of models that have none in the configuration, faults, and reload.

use std::path::Path;

use super::super::{Loaded, NoSecrets, Reloader, Report, load};
use codec::canonical::Usage;
use codec::catalogue::Catalogue;
use routing::account::price::{self, Terms, TokenKind};

/// Routes of the tests.
const ROUTES: &str = r#"
prices = "prices.toml"

[[provider]]
name = "openai"
kind = "openai"
credential = { value = "secret" }

[[provider]]
name = "aws"
kind = "bedrock"
aws = { region = "us-east-1", access_key_id = "ASIAIOSFODNN7EXAMPLE" }
credential = { value = "secret" }

[[provider]]
name = "ours"
kind = "openai-compatible"
base_url = "http://127.0.0.1:1/v1"

[[model]]
id = "listed"
targets = [{ provider = "openai", model = "gpt-5.2-2025-12-11" }, { provider = "aws", model = "us.anthropic.claude-opus-5" }]

[[model]]
id = "guessed"
targets = [{ provider = "openai", model = "gpt-9" }]

[[model]]
id = "deployment"
targets = [{ provider = "openai", model = "my-deployment", family = "gpt-5.2" }]

[[model]]
id = "own"
price = { input = 9 }
targets = [{ provider = "openai", model = "gpt-5.2" }]

[[model]]
id = "free"
price = {}
targets = [{ provider = "openai", model = "gpt-5.2" }]

[[model]]
id = "in-the-file"
targets = [{ provider = "openai", model = "gpt-5.2" }]

[[model]]
id = "resold"
targets = [{ provider = "ours", model = "gpt-5.2" }]
"#;

fn folder(catalogue: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let line = if catalogue.is_some() { "catalogue = \"over.toml\"\n" } else { "" };
    put("gateway.toml", &format!("{line}[reload]\nsettle = \"0s\"\n[server]\nlisten = [\"127.0.0.1:0\"]\n"));
    put("routes.toml", ROUTES);
    put("keys.toml", "");
    put("prices.toml", "[[price]]\nmodels = [\"in-the-file\"]\ninput = 7\n");
    catalogue.into_iter().for_each(|text| put("over.toml", text));
    folder
}

fn read(folder: &Path) -> Result<Loaded, Report> {
    load(&folder.join("gateway.toml"), &NoSecrets)
}

/// Price of input tokens of a model at a target, in thousandths per million.
fn input(loaded: &Loaded, id: &str, target: usize) -> Option<i64> {
    let model = loaded.snapshot.routes.models().iter().find(|model| &*model.id == id).unwrap();
    let price = model.price_at(target);
    let terms = Terms { at: price::now(), region: model.targets[target].region, ..Terms::default() };
    let cost = price.cost(&Usage { input: Some(1_000_000), ..Usage::default() }, &[], &terms);
    (!price.is_unknown(terms.at)).then_some(cost / 1_000_000)
}

#[test]
fn catalogue_price_applies_to_models_without_a_price() {
    let folder = folder(None);
    let loaded = read(folder.path()).unwrap();
    assert_eq!(input(&loaded, "listed", 0), Some(1_750));
    // The region in the name multiplies the price.
    assert_eq!(input(&loaded, "listed", 1), Some(5_500));
    assert_eq!(input(&loaded, "deployment", 0), Some(1_750));
    // What the configuration says comes first, and a name that is guessed has no price; nor has a reseller.
    assert_eq!(input(&loaded, "own", 0), Some(9_000));
    assert_eq!(input(&loaded, "free", 0), None);
    assert_eq!(input(&loaded, "in-the-file", 0), Some(7_000));
    assert_eq!(input(&loaded, "guessed", 0), None);
    assert_eq!(input(&loaded, "resold", 0), None);
    assert_eq!(loaded.snapshot.catalogue.edition(), Catalogue::embedded().edition());
    // So does the context window, if that of every target is known: the smallest.
    let models = loaded.snapshot.routes.models();
    let window = |id: &str| models.iter().find(|model| &*model.id == id).unwrap().context_window;
    assert_eq!(window("listed"), Some(400_000));
    assert_eq!(window("deployment"), Some(400_000));
    assert_eq!(window("guessed"), None);
}

const OVER: &str = r#"
schema = 1
edition = 2099-01-01

[[provider]]
id = "ours"
source = "test"

[[model]]
id = "gpt-5.2"
[[model.at]]
provider = "openai"
[[model.at.price]]
input = 1.5
output = 6
source = "contract"

[[model.at]]
provider = "ours"
[[model.at.price]]
input = 0.5
output = 0.5
source = "contract"
"#;

#[test]
fn catalogue_file_lies_over_the_embedded_one() {
    let folder = folder(Some(OVER));
    let loaded = read(folder.path()).unwrap();
    assert_eq!(input(&loaded, "listed", 0), Some(1_500));
    assert_eq!(input(&loaded, "listed", 1), Some(5_500));
    // A provider of the configuration is known by its own name.
    assert_eq!(input(&loaded, "resold", 0), Some(500));
    assert_eq!(loaded.snapshot.catalogue.edition().year(), 2099);
}

#[test]
fn catalogue_faults_have_their_place_and_refuse_the_configuration() {
    let broken = folder(Some("schema = 1\n[[model]]\nid = \"gpt-5.2\"\nfamilly = \"x\"\n"));
    let path = broken.path().join("over.toml");
    let report = read(broken.path()).unwrap_err();
    let text = report.to_string();
    assert!(text.starts_with(&format!("{}:4:1: model[0].familly: unknown key", path.display())), "{text}");
    assert_eq!(report.problems.len(), 1);

    std::fs::remove_file(&path).unwrap();
    let text = read(broken.path()).unwrap_err().to_string();
    assert!(text.starts_with(&format!("{}: cannot be read", path.display())), "{text}");
}

#[test]
fn catalogue_is_read_again_by_a_reload_and_refused_as_a_whole() {
    use std::sync::{Arc, Mutex};

    let folder = folder(Some(OVER));
    let loaded = read(folder.path()).unwrap();
    let installed = Arc::new(Mutex::new(Vec::new()));
    let log = installed.clone();
    let install = move |snapshot: routing::snapshot::Snapshot| log.lock().unwrap().push(snapshot);
    let first = (&loaded.snapshot, loaded.baseline.clone());
    let reloader = Reloader::new(
        loaded.sources(),
        loaded.settings.reload,
        Box::new(NoSecrets),
        first,
        Box::new(install),
    );
    let put = |text: &str| std::fs::write(folder.path().join("over.toml"), text).unwrap();

    put(&OVER.replace("input = 1.5", "input = 1.25"));
    assert!(reloader.reload().is_applied());
    let price = |at: usize| {
        let snapshots = installed.lock().unwrap();
        let snapshot: &routing::snapshot::Snapshot = &snapshots[at];
        let models = snapshot.routes.models();
        let model = models.iter().find(|model| &*model.id == "listed").unwrap();
        model.price_at(0).row_at(price::now()).unwrap().rates.configured(TokenKind::Input)
    };
    assert_eq!(price(0), Some(1_250_000_000));

    put(&OVER.replace("output = 6", "output = 1"));
    let outcome = reloader.reload();
    assert!(outcome.refused.unwrap().to_string().contains("input costs more than output"));
    assert_eq!(installed.lock().unwrap().len(), 1);
}
