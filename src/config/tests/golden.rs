//! Golden tests of whole configurations, valid and invalid.

use super::{SECRET, Stage, assert_golden, cases};
use crate::{NoSecrets, effective, load};

#[test]
fn invalid_config_reports_every_fault_with_its_position() {
    let cases = cases("invalid");
    assert!(cases.len() >= 6);
    for case in cases {
        let report = load(&case.join("gateway.toml"), &Stage).unwrap_err();
        assert!(!report.problems.is_empty(), "{}", case.display());
        assert_golden(&case.join("errors.txt"), &format!("{report}\n"));
    }
}

#[test]
fn valid_config_is_shown_with_all_defaults() {
    for case in cases("valid") {
        let loaded = load(&case.join("gateway.toml"), &Stage)
            .unwrap_or_else(|report| panic!("{}: {report}", case.display()));
        assert_golden(&case.join("effective.txt"), &effective(&loaded));
        let warnings = &loaded.settings.warnings;
        let expected = case.join("warnings.txt");
        if expected.exists() {
            let text: String = warnings.iter().map(|warning| format!("{warning}\n")).collect();
            assert_golden(&expected, &text);
        } else {
            assert!(warnings.is_empty(), "{}: {warnings:?}", case.display());
        }
        assert!(
            load(&case.join("gateway.toml"), &NoSecrets).is_ok(),
            "without secrets too: {}",
            case.display()
        );
    }
}

#[test]
fn secrets_are_never_shown() {
    for case in cases("invalid") {
        let report = load(&case.join("gateway.toml"), &Stage).unwrap_err();
        for text in [report.to_string(), format!("{report:?}")] {
            assert!(!text.contains(SECRET), "{}: {text}", case.display());
        }
    }
    for case in cases("valid") {
        let loaded = load(&case.join("gateway.toml"), &Stage).unwrap();
        for text in [effective(&loaded), format!("{loaded:?}")] {
            assert!(!text.contains(SECRET), "{}: {text}", case.display());
        }
    }
}

#[test]
fn effective_config_is_valid_toml() {
    for case in cases("valid") {
        let text = effective(&load(&case.join("gateway.toml"), &Stage).unwrap());
        let (gateway, rest) = text.split_once("# routes.toml\n").unwrap();
        let (routes, _) = rest.split_once("# keys.toml").unwrap();
        assert!(gateway.parse::<toml::Table>().unwrap().contains_key("server"));
        assert!(routes.parse::<toml::Table>().is_ok(), "{routes}");
    }
}
