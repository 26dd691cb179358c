use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Root, openapi};
use json::RawJson;

fn cut(schema: &Value, root: Root) -> (Value, bool) {
    let text = schema.to_string();
    let cut = openapi(RawJson::from_text(&text), root);
    let value = cut.text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
    (value, cut.narrowed)
}

#[track_caller]
fn becomes(schema: Value, wanted: Value) {
    assert_eq!(cut(&schema, Root::Answer).0, wanted, "{schema}");
}

#[test]
fn mapping_3_references_are_inlined() {
    becomes(
        json!({"type":"object","properties":{"p":{"$ref":"#/$defs/a~1b%20c","description":"here"}},"$defs":{"a/b c":{"type":"integer","description":"there"}}}),
        json!({"type":"OBJECT","properties":{"p":{"type":"INTEGER","description":"here"}}}),
    );
    becomes(json!({"$ref":"#/nowhere","description":"d"}), json!({"type":"STRING","description":"d"}));
}

#[test]
fn mapping_3_recursion_ends_in_an_object() {
    becomes(
        json!({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"left":{"$ref":"#/$defs/tree"},"name":{"type":"string"}}}}}),
        json!({"type":"OBJECT","properties":{"left":{"type":"OBJECT"},"name":{"type":"STRING"}}}),
    );
    becomes(json!({"$ref":"#"}), json!({"type":"OBJECT"}));
}

#[test]
fn mapping_3_null_type_or_alternative_becomes_nullable() {
    becomes(json!({"type":["string","null"]}), json!({"type":"STRING","nullable":true}));
    becomes(json!({"type":"null"}), json!({"type":"STRING","nullable":true}));
    becomes(
        json!({"anyOf":[{"type":"integer","description":"in"},{"type":"null"}],"description":"out"}),
        json!({"type":"INTEGER","description":"out","nullable":true}),
    );
    becomes(
        json!({"anyOf":[{"type":"integer"},{"const":null},{"type":"string"}]}),
        json!({"nullable":true,"anyOf":[{"type":"INTEGER"},{"type":"STRING"}]}),
    );
}

#[test]
fn mapping_3_several_types_and_one_of_become_any_of() {
    becomes(
        json!({"type":["string","array"],"items":{"type":"number"},"maxLength":3}),
        json!({"anyOf":[{"type":"STRING","maxLength":3},{"type":"ARRAY","items":{"type":"NUMBER"}}]}),
    );
    becomes(
        json!({"oneOf":[{"type":"string"},{"type":"integer"}]}),
        json!({"anyOf":[{"type":"STRING"},{"type":"INTEGER"}]}),
    );
}

#[test]
fn mapping_3_all_of_is_merged_and_the_first_wins() {
    becomes(
        json!({"allOf":[
            {"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"description":"first"},
            {"properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"],"description":"second"}
        ]}),
        json!({"type":"OBJECT","description":"first","properties":{"a":{"type":"STRING"},"b":{"type":"BOOLEAN"}},"required":["a","b"]}),
    );
}

#[test]
fn definition_reached_twice_is_not_cyclic() {
    let base = json!({"type":"object","properties":{"id":{"type":"string"}}});
    let wanted = json!({"type":"OBJECT","properties":{
        "id":{"type":"STRING"},"a":{"type":"INTEGER"},"b":{"type":"BOOLEAN"}}});
    // A diamond: two definitions with one base.
    becomes(
        json!({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
            "base":base,
            "a":{"allOf":[{"$ref":"#/$defs/base"},{"properties":{"a":{"type":"integer"}}}]},
            "b":{"allOf":[{"$ref":"#/$defs/base"},{"properties":{"b":{"type":"boolean"}}}]}}}),
        wanted.clone(),
    );
    becomes(
        json!({"$ref":"#/$defs/a","allOf":[{"$ref":"#/$defs/base"},{"$ref":"#/$defs/a"}],"$defs":{
            "base":base,
            "a":{"allOf":[{"$ref":"#/$defs/base"}],"properties":{"a":{"type":"integer"},"b":{"type":"boolean"}}}}}),
        json!({"type":"OBJECT","properties":{
            "a":{"type":"INTEGER"},"b":{"type":"BOOLEAN"},"id":{"type":"STRING"}}}),
    );
    // A property of one part refers to the definition of another part.
    becomes(
        json!({"allOf":[{"$ref":"#/$defs/base"},{"properties":{"other":{"$ref":"#/$defs/base"}}}],"$defs":{"base":base}}),
        json!({"type":"OBJECT","properties":{
            "id":{"type":"STRING"},"other":{"type":"OBJECT","properties":{"id":{"type":"STRING"}}}}}),
    );
    // Many levels, each of which refers twice to the next one.
    let mut definitions = serde_json::Map::new();
    for level in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"allOf":[next, next]}));
    }
    definitions.insert("d30".to_owned(), base);
    becomes(
        json!({"$ref":"#/$defs/d0","$defs":definitions}),
        json!({"type":"OBJECT","properties":{"id":{"type":"STRING"}}}),
    );
}

#[test]
fn cycle_through_several_definitions_ends_in_an_object() {
    let cut = json!({"type":"OBJECT"});
    becomes(
        json!({"$ref":"#/$defs/a","$defs":{
            "a":{"allOf":[{"type":"object"},{"$ref":"#/$defs/b"}]},
            "b":{"properties":{"list":{"type":"array","items":{"$ref":"#/$defs/a"}},"self":{"$ref":"#/$defs/b"}}}}}),
        json!({"type":"OBJECT","properties":{"list":{"type":"ARRAY","items":cut},"self":cut}}),
    );
    becomes(
        json!({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}}}),
        cut,
    );
}

#[test]
fn mapping_3_const_and_enum_are_kept_for_strings_only() {
    becomes(json!({"const":"fast"}), json!({"type":"STRING","enum":["fast"]}));
    becomes(json!({"enum":["a","",null,"b"]}), json!({"type":"STRING","nullable":true,"enum":["a","b"]}));
    becomes(json!({"enum":[1,2]}), json!({"type":"INTEGER"}));
    becomes(json!({"type":"number","const":1.5}), json!({"type":"NUMBER"}));
    becomes(json!({"const":true}), json!({"type":"BOOLEAN"}));
}

#[test]
fn mapping_3_arrays_get_items_and_every_schema_a_type() {
    becomes(json!({"type":"array"}), json!({"type":"ARRAY","items":{"type":"STRING"}}));
    becomes(json!({"items":{}}), json!({"type":"ARRAY","items":{"type":"STRING"}}));
    becomes(
        json!({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"},{"type":"string"}]}),
        json!({"type":"ARRAY","items":{"anyOf":[{"type":"STRING"},{"type":"INTEGER"}]}}),
    );
    becomes(json!({"properties":{"a":true}}), json!({"type":"OBJECT","properties":{"a":{"type":"STRING"}}}));
    becomes(json!({"minimum":1}), json!({"type":"NUMBER","minimum":1}));
    becomes(json!(true), json!({"type":"STRING"}));
    becomes(json!({"type":"whatever"}), json!({"type":"STRING"}));
}

#[test]
fn mapping_3_unsupported_keywords_are_dropped() {
    becomes(
        json!({"$schema":"x","$id":"y","type":"object","title":"T","additionalProperties":false,"default":{},"examples":[1],
            "properties":{"d":{"type":"string","format":"date-time","default":"x"},"u":{"type":"string","format":"uuid","pattern":"^a"},
                "i":{"type":"integer","format":"int64","exclusiveMinimum":0,"maximum":5},"n":{"type":"number","format":"int32"}},
            "required":["d","gone"],"propertyOrdering":["u","d","gone"],"patternProperties":{"^x":{}},"if":{},"then":{},"not":{}}),
        json!({"type":"OBJECT","title":"T","properties":{"d":{"type":"STRING","format":"date-time"},"u":{"type":"STRING","pattern":"^a"},
            "i":{"type":"INTEGER","format":"int64","maximum":5},"n":{"type":"NUMBER"}},"required":["d"],"propertyOrdering":["u","d"]}),
    );
}

#[test]
fn mapping_3_any_of_beside_properties_is_dropped() {
    becomes(
        json!({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}),
        json!({"type":"OBJECT","properties":{"a":{"type":"STRING"},"b":{"type":"STRING"}}}),
    );
}

#[test]
fn bug_61_lost_constraints_are_reported() {
    let lossless = json!({"type":"object","additionalProperties":false,"$schema":"x","properties":{"a":{"type":["string","null"]},"b":{"const":"x"}}});
    assert!(!cut(&lossless, Root::Arguments).1);
    for lossy in [
        json!({"type":"integer","exclusiveMinimum":0}),
        json!({"type":"object","propertyNames":{"pattern":"x"}}),
        json!({"enum":[1,2]}),
        json!({"$ref":"#"}),
    ] {
        assert!(cut(&lossy, Root::Answer).1, "{lossy}");
    }
}

#[test]
fn arguments_are_an_object_or_nothing() {
    assert_eq!(cut(&json!({"type":"object","properties":{}}), Root::Arguments).0, Value::Null);
    assert_eq!(cut(&json!({"type":"string"}), Root::Arguments).0, Value::Null);
    assert_eq!(
        cut(
            &json!({"anyOf":[
                {"type":"object","properties":{"a":{"type":"string"},"k":{"const":"x"}},"required":["a","k"]},
                {"type":"object","properties":{"b":{"type":"string"},"k":{"const":"y"}},"required":["k"]}
            ]}),
            Root::Arguments
        )
        .0,
        json!({"type":"OBJECT","properties":{"a":{"type":"STRING"},"k":{"type":"STRING","enum":["x"]},"b":{"type":"STRING"}},"required":["k"]})
    );
}

#[test]
fn property_names_keep_their_order_and_escapes() {
    let text = r#"{"type":"object","properties":{"z\"\u00e9":{"type":"string"},"a":{"type":"string"}},"required":["z\"\u00e9"]}"#;
    assert_eq!(
        openapi(RawJson::from_text(text), Root::Arguments).text.unwrap(),
        r#"{"type":"OBJECT","properties":{"z\"\u00e9":{"type":"STRING"},"a":{"type":"STRING"}},"required":["z\"\u00e9"]}"#
    );
}

#[test]
fn schema_expansion_is_bounded() {
    let mut definitions = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(
            format!("d{level}"),
            json!({"type":"object","properties":{"a":next,"b":next,"c":{"allOf":[next, next]}}}),
        );
    }
    let schema = json!({"$ref":"#/$defs/d0","$defs":definitions});
    let text = openapi(RawJson::from_text(&schema.to_string()), Root::Answer).text.unwrap();
    assert!(text.len() < 1_000_000, "{}", text.len());
    // A large definition that is merged many times.
    let wide: serde_json::Map<_, _> =
        (0..3_000).map(|n| (format!("p{n}"), json!({"type":"string"}))).collect();
    let again = vec![json!({"allOf":[{"$ref":"#/$defs/wide"}]}); 3_000];
    let schema = json!({"allOf":again,"$defs":{"wide":{"type":"object","properties":wide}}});
    assert!(openapi(RawJson::from_text(&schema.to_string()), Root::Answer).narrowed);
    // As deep as a body may be.
    let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(500), "}".repeat(500));
    assert!(openapi(RawJson::from_text(&deep), Root::Answer).text.is_some());
}

/// Schemas, valid and invalid.
fn schemas() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "string",
        "integer",
        "null",
        "object",
        "array",
        "STRING",
        "x",
        "",
        "date-time",
        "enum",
        "#",
        "#/$defs/a",
        "a",
        "b",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..9).prop_map(Value::from),
        (-1.0f64..1.0).prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "enum",
        "const",
        "required",
        "nullable",
        "description",
        "title",
        "format",
        "pattern",
        "minimum",
        "maxLength",
        "minItems",
        "prefixItems",
        "not",
        "default",
        "additionalProperties",
        "propertyOrdering",
        "a",
        "b",
    ]);
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|members| members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

const KEYWORDS: [&str; 21] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "anyOf",
    "propertyOrdering",
    "items",
    "minimum",
    "maximum",
    "example",
];

fn is_accepted(schema: &Value) -> bool {
    let object = schema.as_object().unwrap();
    object.keys().all(|key| KEYWORDS.contains(&key.as_str()))
        && (object.get("type").is_some_and(Value::is_string) != object.contains_key("anyOf"))
        && (object.get("type") != Some(&json!("ARRAY")) || object.contains_key("items"))
        && object.get("items").is_none_or(is_accepted)
        && object.get("properties").and_then(Value::as_object).is_none_or(|all| all.values().all(is_accepted))
        && object
            .get("anyOf")
            .and_then(Value::as_array)
            .is_none_or(|all| all.len() > 1 && all.iter().all(is_accepted))
}

proptest! {
    #[test]
    fn schema_conversion_is_valid_and_idempotent(schema in schemas(), arguments in any::<bool>()) {
        let root = if arguments { Root::Arguments } else { Root::Answer };
        let text = schema.to_string();
        if let Some(once) = openapi(RawJson::from_text(&text), root).text {
            let value: Value = serde_json::from_str(&once).unwrap();
            prop_assert!(is_accepted(&value), "{once}");
            let again = openapi(RawJson::from_text(&once), root).text;
            prop_assert_eq!(again.as_deref(), Some(&*once), "{}", text);
        }
    }

    #[test]
    fn schema_conversion_of_arbitrary_text_never_panics(text in "[{}\\[\\]\"a:,1\\\\]{0,20}") {
        openapi(RawJson::from_text(&text), Root::Arguments);
        openapi(RawJson::from_text(&text), Root::Answer);
    }
}
