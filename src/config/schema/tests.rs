use super::*;

#[test]
fn schema_knows_the_type_of_every_key() {
    for file in ConfigFile::ALL {
        let unknown: Vec<_> = keys(file).into_iter().filter(|key| shape(&key.path).is_none()).collect();
        assert!(unknown.is_empty(), "src/config/key_types.rs, shape: {unknown:?}");
    }
}

#[test]
fn schema_tables_have_keys_and_values_have_none() {
    for file in ConfigFile::ALL {
        let keys = keys(file);
        for key in &keys {
            let below = keys.iter().any(|other| other.path.starts_with(&format!("{}.", key.path)));
            let is_table = matches!(
                shape(&key.path),
                Some(
                    KeyType::Table
                        | KeyType::SecretSource
                        | KeyType::Tables
                        | KeyType::AmountOrTables
                        | KeyType::TableOrTables
                )
            );
            assert_eq!(below, is_table, "{}", key.path);
        }
    }
}

#[test]
fn schema_has_defaults_as_values() {
    let schema: Value = serde_json::from_str(&schema(ConfigFile::Gateway)).unwrap();
    let at = |path: &str| schema.pointer(path).cloned().unwrap_or_default();
    assert_eq!(at("/properties/limits/properties/body/default"), json!("64MiB"));
    assert_eq!(at("/properties/limits/properties/fetch_allow/default"), json!([]));
    assert_eq!(at("/properties/server/properties/threads/default"), json!(0));
    assert_eq!(at("/properties/server/properties/listen/default"), Value::Null);
    assert_eq!(at("/required"), json!(["server"]));
    assert_eq!(at("/properties/server/properties/tls/items/required"), json!(["listen", "cert", "key"]));
}
