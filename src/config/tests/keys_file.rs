//! Tests of editing keys.toml and of large key files.

use std::os::unix::fs::PermissionsExt as _;

use crate::{KeySettings, KeysFile, KeysFileError};
use codec::canonical::{ServiceTier, TierSet};
use routing::account::{KeyHash, Losses, TierFallback, TierPolicy};

const BEFORE: &str = "\
# Keys of the team.
[[key]]
name = \"alice\" # who
sha256 = \"0000000000000000000000000000000000000000000000000000000000000001\"
enabled = true # until further notice

# Without the rest.
[[key]]
sha256 = \"0000000000000000000000000000000000000000000000000000000000000002\"
name = \"böb\"
";

#[test]
fn keys_file_change_keeps_comments_order_and_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    std::fs::write(&path, BEFORE).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
    let mut file = KeysFile::open(&path).unwrap();
    assert!(file.set_enabled("alice", false).unwrap());
    assert!(!file.set_enabled("alice", false).unwrap(), "nothing changed");
    assert!(file.set_enabled("böb", false).unwrap(), "on unless it says otherwise");
    file.save().unwrap();
    let expected = BEFORE.replace("true # until", "false # until") + "enabled = false\n";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o604);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary file is left");
}

#[test]
fn keys_file_new_key_is_appended_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let mut file = KeysFile::open(&path).unwrap();
    assert_eq!(file.list().unwrap(), [], "a file that is not there is empty");
    let expires = "2030-01-01T00:00:00Z".parse().unwrap();
    let entry = KeySettings {
        models: vec!["gpt-*".to_owned()],
        expires: Some(expires),
        losses: Losses::Refuse,
        account: Some("acme".to_owned()),
        tiers: TierPolicy {
            permitted: Some(TierSet::of([ServiceTier::Flex, ServiceTier::Standard])),
            otherwise: Some(TierFallback::Standard),
        },
        access_key: None,
    };
    file.add("a \"quoted\" name", KeyHash::of("k1"), &entry).unwrap();
    file.add("second", KeyHash::of("k2"), &KeySettings::default()).unwrap();
    let again = file.add("second", KeyHash::of("k3"), &KeySettings::default());
    assert!(matches!(again, Err(KeysFileError::Exists(name)) if name == "second"));
    file.save().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

    let listed = KeysFile::open(&path).unwrap().list().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].name, "a \"quoted\" name");
    assert_eq!(listed[0].expires.as_deref(), Some("2030-01-01T00:00:00Z"));
    assert_eq!(listed[0].models.as_deref(), Some(&["gpt-*".to_owned()][..]));
    assert_eq!((listed[1].enabled, &listed[1].models), (true, &None));
    assert_eq!((listed[0].account.as_deref(), listed[1].account.as_deref()), (Some("acme"), None));
    assert_eq!((listed[0].losses.as_deref(), listed[1].losses.as_deref()), (Some("refuse"), None));
    assert!(KeyHash::of("k2").to_hex().starts_with(&listed[1].hash) && listed[1].hash.len() == 12);

    let text = std::fs::read_to_string(&path).unwrap();
    let keys = crate::keys::read(&path, &text).unwrap();
    assert_eq!((keys.len(), &*keys.find("k2").unwrap().name), (2, "second"));
    let losses = |text| keys.find(text).unwrap().rules.losses;
    assert_eq!(keys.find("k1").unwrap().owner(), "acme");
    assert_eq!((losses("k1"), losses("k2")), (Losses::Refuse, Losses::Warn));
    let tiers = |text| keys.find(text).unwrap().rules.tiers;
    assert_eq!((tiers("k1"), tiers("k2")), (entry.tiers, TierPolicy::default()));
}

#[test]
fn keys_file_symbolic_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, symlink) = (folder.path().join("real.toml"), folder.path().join("keys.toml"));
    std::fs::write(&path, BEFORE).unwrap();
    std::os::unix::fs::symlink(&path, &symlink).unwrap();
    let mut file = KeysFile::open(&symlink).unwrap();
    file.set_enabled("alice", false).unwrap();
    file.save().unwrap();
    assert!(std::fs::symlink_metadata(&symlink).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&path).unwrap().contains("enabled = false # until"));
}

#[test]
fn keys_file_that_cannot_be_edited_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    std::fs::write(&path, "key = 1\n").unwrap();
    let mut file = KeysFile::open(&path).unwrap();
    assert!(matches!(file.list(), Err(KeysFileError::Broken { .. })));
    assert!(file.add("x", KeyHash::of("k"), &KeySettings::default()).is_err());
    std::fs::write(&path, "[[key\n").unwrap();
    assert!(matches!(KeysFile::open(&path), Err(KeysFileError::Broken { .. })));
    std::fs::write(&path, BEFORE).unwrap();
    let unknown = KeysFile::open(&path).unwrap().set_enabled("unknown", true);
    assert!(matches!(unknown, Err(KeysFileError::Unknown(name)) if name == "unknown"));
    assert!(matches!(KeysFile::open(folder.path()), Err(KeysFileError::Io { .. })));
}

#[test]
fn keys_file_keys_have_accounts_limits_and_permissions() {
    super::enter_repository();
    let path = std::path::Path::new("tests/config/valid/accounts/gateway.toml");
    let loaded = crate::load(path, &crate::NoSecrets).unwrap();
    assert_eq!(loaded.snapshot.keys.len(), 2);
    let text = "[[account]]\nname = \"acme\"\nlimits = { concurrent = 5 }\n".to_owned();
    let key = |name: &str, lines: &str| {
        let hash = KeyHash::of(name).to_hex();
        format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n{lines}\n")
    };
    let text = text
        + &key("a", "account = \"acme\"\nlimits = { tokens_per_minute = 7, spend_per_day = 0.5 }")
        + &key("b", "account = \"other\"\nendpoints = [\"chat\"]\nnetworks = [\"10.0.0.0/8\"]")
        + &key("c", "limits = { tokens_per_minute = 7, spend_per_day = 0.5 }");
    let keys = crate::keys::read(std::path::Path::new("keys.toml"), &text).unwrap();
    let find = |name| keys.find(name).unwrap();
    assert_eq!(find("a").account.as_ref().unwrap().limits().concurrent, Some(5));
    assert_eq!((find("a").owner(), find("b").owner(), find("c").owner()), ("acme", "other", "c"));
    let limits = find("a").rules.limits;
    assert_eq!((limits.tokens_per_minute, limits.spend_per_day), (Some(7), Some(500_000_000)));
    assert!(std::sync::Arc::ptr_eq(&find("a").rules, &find("c").rules), "what is the same is held once");
    assert!(find("b").rules.endpoints.permits("chat") && !find("b").rules.endpoints.permits("messages"));
    assert!(!find("b").rules.permits_address("192.0.2.1".parse().ok()));
}

/// A large file is parsed in parts: positions are those in the whole file, and entries in different parts refer to the
/// same accounts.
#[test]
fn keys_file_large_is_parsed_like_a_small_one() {
    let hash = |n: u32| KeyHash::of(&format!("k{n}")).to_hex();
    let entry = |n: u32| {
        format!("[[key]] # the next\nname = \"n{n}\"\nsha256 = \"{}\"\naccount = \"late\"\n\n", hash(n))
    };
    let count = 6_000;
    let text: String = (0..count).map(entry).collect();
    let last = "[[account]]\nname = \"late\"\nlimits = { concurrent = 7 }\n";
    let path = std::path::Path::new("keys.toml");
    let keys = crate::keys::read(path, &format!("{text}{last}")).unwrap();
    assert_eq!(keys.len(), count as usize);
    let first = keys.find("k0").unwrap().account.clone().unwrap();
    let other = keys.find("k5999").unwrap().account.clone().unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &other));
    assert_eq!(first.limits().concurrent, Some(7), "said after the keys");

    // Faults have the line numbers and indexes of the whole file.
    let wrong = format!("{text}{last}[[key]]\nname = \"n3\"\nsha256 = \"{}\"\nlosses = \"x\"\n", hash(4));
    let report = crate::keys::read(path, &wrong).unwrap_err();
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let line = 5 * count + 4;
    let number = format!("key[{count}]");
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].starts_with(&format!("keys.toml:{line}:1: {number}: ")), "{problems:?}");
    assert!(problems.iter().any(|fault| fault.contains("\"n3\" is defined twice")), "{problems:?}");
    assert!(problems.iter().any(|fault| fault.contains("the same key as \"n4\"")), "{problems:?}");
    assert!(
        problems[2].starts_with(&format!("keys.toml:{}:10: {number}.losses: ", line + 3)),
        "{problems:?}"
    );

    // A line that looks like the start of an entry may be part of a multi-line string.
    let text = format!("{text}[[key]]\nname = \"odd\"\nsha256 = \"{}\"\nmodels = [\"\"\"\n", hash(9_999));
    let text = text + &"[[key]]\n".repeat(40_000) + "\"\"\"]\n";
    let keys = crate::keys::read(path, &text).unwrap();
    assert_eq!(keys.len(), count as usize + 1);
}

/// Editors read `#:schema` in the first line only.
#[test]
fn keys_file_comments_of_a_file_without_keys_stay_above_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let head = "#:schema ../schema/keys.schema.json\n# Add a key with: model-gateway keys create NAME\n";
    std::fs::write(&path, head).unwrap();
    for name in ["one", "two"] {
        let mut file = KeysFile::open(&path).unwrap();
        file.add(name, KeyHash::of(name), &KeySettings::default()).unwrap();
        file.save().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("{head}\n[[key]]\nname = \"one\"\n")), "{text}");
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\n\n[[key]]\nname = \"two\"\n"), "{text}");
}
