//! The embedded catalogue: complete, without a contradiction, and found by the names of requests.

use std::collections::BTreeSet;

use jiff::civil::date;

use super::super::{
    Catalogue, ContentKind, EMBEDDED, EMBEDDED_NAME, How, ModelKind, ReasoningControl, ReasoningOff,
    RowStatus,
};
use crate::canonical::Effort;

fn catalogue() -> Catalogue {
    Catalogue::overlaid(&[]).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

#[test]
fn embedded_file_is_valid_and_in_use() {
    let catalogue = catalogue();
    assert!(catalogue.families().len() > 100 && catalogue.models().len() > 150);
    assert_eq!(Catalogue::embedded().families().len(), catalogue.families().len());
    assert_eq!(&*catalogue.files()[0], EMBEDDED_NAME);
    assert!(catalogue.edition() >= date(2026, 11, 27));
}

#[test]
fn every_model_is_listed_in_its_own_family_and_found_by_its_own_names() {
    let catalogue = catalogue();
    for model in catalogue.models() {
        let own = catalogue.family_of_model(model).unwrap();
        let (family, how) = catalogue.family_of(&model.id).unwrap();
        assert_eq!((&family.id, how), (&own.id, How::Listed), "{}", model.id);
        for offer in &model.offers {
            assert_eq!(catalogue.model(&offer.name).unwrap().id, model.id, "{}", offer.name);
            let found = catalogue.offer(&offer.provider, &offer.name).unwrap();
            assert_eq!((&found.provider, &found.name), (&offer.provider, &offer.name));
            assert_eq!(catalogue.family_of(&offer.name).unwrap().1, How::Listed, "{}", offer.name);
        }
    }
    for family in catalogue.families() {
        for name in &family.matches {
            assert_eq!(catalogue.family_of(name).unwrap().0.id, family.id, "{name}");
        }
        for name in &family.guesses {
            let unlisted = format!("{name}zz");
            let (found, how) = catalogue.family_of(&unlisted).unwrap();
            assert_eq!((&found.id, how), (&family.id, How::Guessed), "{unlisted}");
        }
    }
}

#[test]
fn every_row_has_a_source_that_the_file_explains() {
    let catalogue = catalogue();
    for family in catalogue.families() {
        assert!(!family.source.source.is_empty(), "{}", family.id);
    }
    let words: BTreeSet<&str> = catalogue.sources().iter().map(|(word, _)| &**word).collect();
    let mut used = BTreeSet::new();
    let document: toml::Table = EMBEDDED.parse().unwrap();
    let mut lists = vec![toml::Value::Table(document)];
    while let Some(value) = lists.pop() {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    match (&*key, value) {
                        ("source", toml::Value::Array(sources)) => {
                            used.extend(sources.into_iter().map(|word| word.as_str().unwrap().to_owned()));
                        }
                        (_, value) => lists.push(value),
                    }
                }
            }
            toml::Value::Array(array) => lists.extend(array),
            _ => {}
        }
    }
    let unknown: Vec<&String> = used.iter().filter(|word| !words.contains(&***word)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Every chat model on sale today has a price today, and prices are plausible.
#[test]
fn prices_are_complete_and_plausible() {
    let catalogue = catalogue();
    let day = catalogue.edition();
    for model in catalogue.models() {
        for offer in &model.offers {
            assert!(offer.price_on(day).is_some(), "{} at {}", model.id, offer.provider);
            for row in &offer.prices {
                for rate in &row.rates {
                    assert!(rate.nanos <= 1_000_000_000_000, "{} {}", model.id, rate.kind);
                }
                for (tier, factor) in &row.tiers {
                    let (numerator, denominator) = (factor.numerator, factor.denominator);
                    assert!(
                        numerator >= denominator / 10 && numerator <= 10 * denominator,
                        "{} {tier}",
                        model.id
                    );
                }
            }
        }
    }
}

#[test]
fn names_of_requests_are_found() {
    let catalogue = catalogue();
    let found = |name: &str| catalogue.family_of(name).map(|(family, how)| (family.id.to_string(), how));
    for (name, family, how) in [
        ("gpt-6.2-sol-2026-11-17", "gpt-6-always", How::Listed),
        ("gpt-6.9-sol", "gpt-6-always", How::Guessed),
        ("gpt-7", "gpt-6-always", How::Guessed),
        ("gpt-of-ours", "openai", How::Guessed),
        ("gpt-5.6-sol", "gpt-5.6", How::Listed),
        ("gpt-5-mini-2025-08-07", "gpt-5", How::Listed),
        ("GPT-4o-2024-11-20", "gpt-4", How::Listed),
        ("o3-2025-04-16", "o-series", How::Listed),
        ("o4-mini-deep-research", "gpt-responses-only", How::Listed),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5", How::Listed),
        ("claude-opus-4-5@20251101", "claude-opus-4-5", How::Listed),
        ("anthropic/claude-sonnet-4.5", "claude-4.5", How::Listed),
        ("anthropic/claude-sonnet-4.5:beta", "claude-4.5", How::Guessed),
        ("databricks-claude-sonnet-4-5", "claude-4.5", How::Guessed),
        ("claude-opus-6", "claude", How::Guessed),
        ("claude-opus-5-5", "claude-opus-5-5", How::Listed),
        ("claude-3-5-sonnet-20240620", "claude-3.5", How::Listed),
        ("claude-3-7-sonnet-latest", "claude-3.7", How::Listed),
        ("claude-sonnet-4-20250514", "claude-4", How::Listed),
        ("claude-opus-4-1-20250805", "claude-4.1", How::Listed),
        ("models/gemini-2.5-flash-preview-05-20", "gemini-2.5-flash", How::Listed),
        ("publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro", How::Listed),
        ("gemini-4-neon", "gemini", How::Guessed),
        ("gemini-embedding-001", "gemini-embedding-1", How::Listed),
        ("amazon.nova-pro-v1:0", "nova", How::Listed),
        ("eu.amazon.nova-2-lite-v1:0", "nova-2", How::Listed),
        ("openai.gpt-oss-120b-1:0", "gpt-oss", How::Listed),
        ("openai/gpt-oss-20b", "gpt-oss", How::Listed),
        ("deepseek-r1-distill-qwen-32b", "deepseek-r1", How::Guessed),
        ("kimi-k2-0905-preview", "kimi-k2", How::Listed),
        ("MiniMax-M3", "minimax-m3", How::Listed),
        ("qwen3-32b", "qwen3-open", How::Guessed),
        ("glm-4-plus", "glm-4", How::Guessed),
        ("whisper-1", "openai-transcription", How::Guessed),
    ] {
        assert_eq!(found(name), Some((family.to_owned(), how)), "{name}");
    }
    for name in ["", "-", "my-model", "zzz", "::", "@"] {
        assert_eq!(found(name), None, "{name}");
    }
}

#[test]
fn facts_are_inherited_and_overridden() {
    let catalogue = catalogue();
    let facts = |name: &str| catalogue.facts_of(name).unwrap().0.clone();
    let opus = facts("claude-opus-5-5");
    assert_eq!(opus.reasoning, Some(ReasoningControl::Adaptive));
    assert_eq!(opus.off, Some(ReasoningOff::No));
    assert_eq!(opus.forced, Some(false));
    // A model of a family may differ in one fact.
    assert_eq!(facts("claude-opus-4-6").cache_min, Some(4_096));
    assert_eq!(facts("claude-sonnet-4-6").cache_min, Some(1_024));
    let efforts: Vec<Effort> = facts("gpt-5.4").efforts.unwrap().iter().collect();
    assert_eq!(efforts, [Effort::Low, Effort::Medium, Effort::High, Effort::XHigh]);
    assert_eq!(facts("gpt-5.4").off, Some(ReasoningOff::None));
    assert_eq!(facts("deepseek-v4-pro").reads(ContentKind::Image), Some(false));
    assert_eq!(facts("gpt-image-2").kind_or_chat(), ModelKind::Image);
    assert_eq!(catalogue.family("claude").unwrap().source.status, RowStatus::Unverified);
}

#[test]
fn price_changes_with_the_day_and_an_alias() {
    let catalogue = catalogue();
    let input = |provider, name, day| {
        let prices = catalogue.prices(provider, name);
        let holds = |from: Option<_>, until: Option<_>| {
            from.is_none_or(|from| from <= day) && until.is_none_or(|until| day <= until)
        };
        let rows: Vec<_> = prices.iter().filter(|price| holds(price.from, price.until)).collect();
        assert_eq!(rows.len(), 1, "{name}");
        (rows[0].model.id.to_string(), rows[0].row.rate("input").unwrap())
    };
    let argon = |day| input("gemini", "gemini-4-argon", day).1;
    assert_eq!(argon(date(2026, 11, 30)), 2_000_000_000);
    assert_eq!(argon(date(2026, 12, 1)), 4_000_000_000);
    // Google answers it with another model from December on, whose price changes in turn.
    let pro = |day| input("vertex", "gemini-2.5-pro", day);
    assert_eq!(pro(date(2026, 11, 30)), ("gemini-2.5-pro".to_owned(), 1_250_000_000));
    assert_eq!(pro(date(2026, 12, 1)), ("gemini-3.8-flash".to_owned(), 750_000_000));
    assert_eq!(pro(date(2027, 1, 1)), ("gemini-3.8-flash".to_owned(), 1_500_000_000));
    // A guess has no price.
    assert!(catalogue.prices("openai", "gpt-7").is_empty());
    assert!(catalogue.prices("groq", "gpt-4o").is_empty());
}

#[test]
fn offer_of_a_cloud_takes_over_prices_without_tiers() {
    let catalogue = catalogue();
    let name = "us.anthropic.claude-opus-5-5";
    let prices = catalogue.prices("bedrock", name);
    let row = prices[0].row;
    assert_eq!(row.rate("output"), Some(20_000_000_000));
    assert!(row.tiers.is_empty());
    let region = catalogue.region_of(name).unwrap();
    let factor = row.regions.iter().find(|(key, _)| &**key == region).unwrap().1;
    assert_eq!(factor.to_string(), "1.1");
    assert_eq!(catalogue.region_of("anthropic.claude-opus-5-5"), None);
}

/// A longer name takes no longer than its length.
#[test]
fn long_names_are_looked_up_in_linear_time() {
    let catalogue = catalogue();
    for name in
        ["a-".repeat(500_000), "-20250101".repeat(100_000), "claude-".repeat(100_000), ":0".repeat(100_000)]
    {
        catalogue.family_of(&name);
        catalogue.model(&name);
    }
}
