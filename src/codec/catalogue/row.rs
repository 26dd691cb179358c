//! Rows of one catalogue file, as they stand there: nothing is inherited or looked up yet.

use jiff::civil::Date;

use super::document::{RowPlace, TomlTable, TomlValue};
use super::factor::PriceFactor;
use super::facts::FactsRow;
use super::fault::FaultList;
use super::price::{
    ListedPrice, ListedTier, LongRule, PeakWindow, PriceStep, ReducedHours, TOKEN_KINDS, TokenRate, UnitRate,
};
use super::words::{FactValue, RowStatus};

/// Version of the schema that this gateway reads.
const SCHEMA: u64 = 1;

/// Rows of one file.
#[derive(Debug, Default)]
pub(super) struct FileRows {
    pub(super) edition: Option<Date>,
    pub(super) sources: Vec<(Box<str>, Box<str>)>,
    pub(super) providers: Vec<ProviderRow>,
    pub(super) families: Vec<FamilyRow>,
    pub(super) models: Vec<ModelRow>,
    pub(super) aliases: Vec<AliasRow>,
    pub(super) servings: Vec<ServingRow>,
}

/// What a provider makes of the models that it serves, beside what they take everywhere.
#[derive(Clone, Debug)]
pub(super) struct ServingRow {
    pub(super) provider: Box<str>,
    /// Ids of families; those that inherit from them are meant too.
    pub(super) families: Vec<Box<str>>,
    /// Makers of models.
    pub(super) makers: Vec<Box<str>>,
    pub(super) facts: FactsRow,
    pub(super) evidence: Evidence,
}

/// Where a row comes from and how far it is confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) place: RowPlace,
    pub(super) source: Box<str>,
    pub(super) status: Option<RowStatus>,
    pub(super) disputed: Option<Box<str>>,
    pub(super) note: Option<Box<str>>,
}

#[derive(Debug)]
pub(super) struct ProviderRow {
    pub(super) id: Box<str>,
    pub(super) same_as: Option<Box<str>>,
    pub(super) strip: Option<Vec<Box<str>>>,
    pub(super) tier_names: Option<Vec<(Box<str>, Box<str>)>>,
    pub(super) asks: Option<Box<str>>,
    pub(super) tells: Option<Box<str>>,
    pub(super) region: Option<Box<str>>,
    pub(super) lists: Option<Box<str>>,
    pub(super) family: Option<Box<str>>,
    pub(super) off_peak: Option<ReducedHours>,
    pub(super) evidence: Evidence,
}

#[derive(Debug)]
pub(super) struct FamilyRow {
    pub(super) id: Box<str>,
    pub(super) like: Option<Box<str>>,
    pub(super) matches: Option<Vec<Box<str>>>,
    pub(super) guesses: Option<Vec<Box<str>>>,
    pub(super) patterns: Option<Vec<Box<str>>>,
    pub(super) facts: FactsRow,
    pub(super) evidence: Evidence,
}

#[derive(Debug)]
pub(super) struct ModelRow {
    pub(super) id: Box<str>,
    pub(super) family: Option<Box<str>>,
    pub(super) context: Option<u64>,
    pub(super) input_limit: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) facts: FactsRow,
    pub(super) offers: Vec<OfferRow>,
    pub(super) evidence: Evidence,
}

#[derive(Debug)]
pub(super) struct OfferRow {
    pub(super) provider: Box<str>,
    pub(super) name: Option<Box<str>>,
    pub(super) retires: Option<Date>,
    pub(super) retires_not_before: Option<Date>,
    pub(super) successor: Option<Box<str>>,
    pub(super) same_as: Option<Box<str>>,
    pub(super) tiers: Option<Vec<(Box<str>, PriceFactor)>>,
    pub(super) regions: Option<Vec<(Box<str>, PriceFactor)>>,
    pub(super) prices: Vec<ListedPrice>,
    pub(super) evidence: Evidence,
}

#[derive(Debug)]
pub(super) struct AliasRow {
    pub(super) name: Box<str>,
    pub(super) provider: Box<str>,
    pub(super) model: Box<str>,
    pub(super) from: Option<Date>,
    pub(super) until: Option<Date>,
    pub(super) evidence: Evidence,
}

/// Reads one file. Faults are added to the list, and what can be read is returned.
pub(super) fn read(faults: &FaultList, file: usize, text: &str, is_overlay: bool) -> FileRows {
    TomlTable::parse(faults, file, text, |root| read_root(root, is_overlay)).unwrap_or_default()
}

fn read_root(root: &TomlTable<'_>, is_overlay: bool) -> FileRows {
    let mut rows = FileRows::default();
    if let Some(value) = root.require("schema", "schema = 1")
        && value.count().is_some_and(|schema| schema != SCHEMA)
    {
        value.wrong("is a schema that this gateway does not read", format!("write {SCHEMA}"));
    }
    rows.edition = root.day("edition");
    if rows.edition.is_none() && !is_overlay {
        root.wrong("edition is missing", "write the day of the facts, such as edition = 2026-11-27");
    }
    // For people.
    root.text("unit");
    if let Some(sources) = root.get("sources") {
        sources.entries(|key, value| rows.sources.extend(value.text().map(|text| (key.into(), text.into()))));
    }
    root.tables("provider", |table| rows.providers.extend(read_provider(table)));
    root.tables("family", |table| rows.families.extend(read_family(table)));
    root.tables("model", |table| rows.models.extend(read_model(table)));
    root.tables("alias", |table| read_alias(table, &mut rows.aliases));
    root.tables("serving", |table| rows.servings.extend(read_serving(table)));
    rows
}

/// Reads the keys that every row may have. Only rows that state facts need a source.
fn read_evidence(table: &TomlTable<'_>, needs_source: bool) -> Evidence {
    let source = match needs_source {
        true => table.require("source", "source = \"page of the provider, 2026-11\""),
        false => table.get("source"),
    };
    let source = source.map(|source| source.texts().join(", ").into_boxed_str()).unwrap_or_default();
    Evidence {
        place: table.place(),
        source,
        status: table.get("status").and_then(|value| RowStatus::read(&value)),
        disputed: table.get("disputed").map(|value| value.texts().join("; ").into_boxed_str()),
        note: table.text("note"),
    }
}

fn id(table: &TomlTable<'_>, key: &'static str, example: &str) -> Option<Box<str>> {
    let value = table.require(key, example)?;
    let text = value.text()?;
    if text.chars().any(char::is_whitespace) {
        value.wrong(format!("{text:?} has blanks"), "write the id as requests name it");
        return None;
    }
    Some(text.into())
}

fn read_provider(table: &TomlTable<'_>) -> Option<ProviderRow> {
    let off_peak = table.get("offpeak").and_then(|value| value.table(read_off_peak).flatten());
    let row = ProviderRow {
        id: id(table, "id", "id = \"openai\"").unwrap_or_default(),
        same_as: table.text("same_as"),
        strip: table.get("strip").map(|value| value.texts()),
        tier_names: table.get("names").map(|value| {
            let mut names = Vec::new();
            value.entries(|key, name| names.extend(name.text().map(|name| (key.into(), name.into()))));
            names
        }),
        asks: table.text("asks"),
        tells: table.text("tells"),
        region: table.text("region"),
        lists: table.text("lists"),
        family: table.text("family"),
        off_peak,
        evidence: read_evidence(table, true),
    };
    (!row.id.is_empty()).then_some(row)
}

fn read_off_peak(table: &TomlTable<'_>) -> Option<ReducedHours> {
    let factor = table.require("factor", "factor = 0.5").and_then(|value| value.factor());
    let mut peak = Vec::new();
    if let Some(windows) = table.require("peak", "peak = [\"Mon-Fri 01:00-04:00\"]") {
        windows.elements(|element| {
            let Some(text) = element.text() else { return };
            match PeakWindow::parse(text) {
                Some(window) => peak.push(window),
                None => element.wrong(
                    format!("{text:?} is no window"),
                    "write days and times in UTC: \"Mon-Fri 01:00-04:00\"",
                ),
            }
        });
    }
    let mut holidays = Vec::new();
    if let Some(days) = table.get("holidays") {
        days.elements(|day| holidays.extend(day.day()));
    }
    Some(ReducedHours { factor: factor?, peak, holidays })
}

fn read_family(table: &TomlTable<'_>) -> Option<FamilyRow> {
    let row = FamilyRow {
        id: id(table, "id", "id = \"gpt-5\"").unwrap_or_default(),
        like: table.text("like"),
        matches: table.get("match").map(|value| read_names(&value)),
        guesses: table.get("guess").map(|value| read_names(&value)),
        patterns: table.get("pattern").map(|value| read_names(&value)),
        facts: FactsRow::read(table),
        evidence: read_evidence(table, true),
    };
    (!row.id.is_empty()).then_some(row)
}

/// Reads names of models: lower case, because requests are compared in it.
fn read_names(value: &TomlValue<'_>) -> Vec<Box<str>> {
    let names = value.texts();
    for name in &names {
        if name.chars().any(|char| char.is_ascii_uppercase() || char.is_whitespace() || char == '/') {
            let hint = "write it in lower case, without blanks and without a path";
            value.wrong(format!("{name:?} is no name to compare with"), hint);
        }
    }
    names
}

fn read_model(table: &TomlTable<'_>) -> Option<ModelRow> {
    let mut offers = Vec::new();
    table.tables("at", |at| offers.extend(read_offer(at)));
    let row = ModelRow {
        id: id(table, "id", "id = \"gpt-5\"").unwrap_or_default(),
        family: table.text("family"),
        context: table.count("context"),
        input_limit: table.count("input_limit"),
        output: table.count("output"),
        facts: FactsRow::read(table),
        offers,
        evidence: read_evidence(table, false),
    };
    (!row.id.is_empty()).then_some(row)
}

fn read_offer(table: &TomlTable<'_>) -> Option<OfferRow> {
    let tiers = table.get("tiers").map(|value| read_factors(&value));
    let regions = table.get("regions").map(|value| read_factors(&value));
    let mut prices = Vec::new();
    table.tables("price", |price| prices.push(read_price(price)));
    let same_as = table.text("same_as");
    let evidence = read_evidence(table, same_as.is_some());
    let row = OfferRow {
        provider: id(table, "provider", "provider = \"openai\"").unwrap_or_default(),
        name: table.text("name"),
        retires: table.day("retires"),
        retires_not_before: table.day("retires_not_before"),
        successor: table.text("successor"),
        same_as,
        tiers,
        regions,
        prices,
        evidence,
    };
    (!row.provider.is_empty()).then_some(row)
}

fn read_factors(value: &TomlValue<'_>) -> Vec<(Box<str>, PriceFactor)> {
    let mut factors = Vec::new();
    value.entries(|key, factor| factors.extend(factor.factor().map(|factor| (key.into(), factor))));
    factors
}

/// Reads the prices of kinds of tokens from a table that has other keys too.
fn read_rates(table: &TomlTable<'_>) -> Vec<TokenRate> {
    let price = |kind: &'static str| Some(TokenRate { kind, nanos: table.get(kind)?.price()? });
    TOKEN_KINDS.iter().filter_map(|kind| price(kind)).collect()
}

fn read_price(table: &TomlTable<'_>) -> ListedPrice {
    let mut steps = Vec::new();
    table.tables("steps", |step| {
        let above = step.require("above", "above = 128000").and_then(|value| value.count());
        let rates = read_rates(step);
        steps.extend(above.map(|above| PriceStep { above, rates }));
    });
    if steps.windows(2).any(|pair| matches!(pair, [a, b] if a.above >= b.above)) {
        table.wrong("steps are not in ascending order", "write the step with the smallest `above` first");
    }
    let mut odd = Vec::new();
    if let Some(tiers) = table.get("odd") {
        tiers.entries(|tier, kinds| {
            let rates = kinds.table(read_rates).unwrap_or_default();
            odd.push(ListedTier { tier: tier.into(), rates });
        });
    }
    let long = table.get("long").and_then(|value| value.table(read_long).flatten());
    if long.is_some() && !steps.is_empty() {
        table.wrong("has both long and steps", "write long for factors, or steps for prices");
    }
    let evidence = read_evidence(table, true);
    let row = ListedPrice {
        from: table.day("from"),
        until: table.day("until"),
        rates: read_rates(table),
        search: table.get("search").and_then(|value| value.price()),
        request: table.get("request").and_then(|value| value.price()),
        images: read_units(table, "image"),
        video_seconds: read_units(table, "video_second"),
        long,
        steps,
        tiers: table.get("tiers").map(|value| read_factors(&value)).unwrap_or_default(),
        odd,
        regions: table.get("regions").map(|value| read_factors(&value)).unwrap_or_default(),
        free: table.get("free").and_then(|value| value.boolean()).unwrap_or(false),
        unusual: table.text("unusual"),
        source: evidence.source,
        status: evidence.status.unwrap_or(RowStatus::Listed),
        disputed: evidence.disputed,
        note: evidence.note,
        place: evidence.place,
    };
    if let Some((message, hint)) = row.contradiction() {
        table.wrong(message, hint);
    }
    row
}

/// Reads one price, or a list of prices by size and quality.
fn read_units(table: &TomlTable<'_>, key: &'static str) -> Vec<UnitRate> {
    let Some(value) = table.get(key) else { return Vec::new() };
    if !value.is_list() {
        return value
            .price()
            .map(|nanos| UnitRate { size: None, quality: None, nanos })
            .into_iter()
            .collect();
    }
    let mut units = Vec::new();
    value.elements(|element| {
        element.table(|unit| {
            let (size, quality) = (unit.text("size"), unit.text("quality"));
            let each = unit.require("each", "each = 0.04").and_then(|value| value.price());
            units.extend(each.map(|nanos| UnitRate { size, quality, nanos }));
        });
    });
    units
}

fn read_long(table: &TomlTable<'_>) -> Option<LongRule> {
    let above = table.require("above", "above = 200000").and_then(|value| value.count());
    let input = table.require("input", "input = 2").and_then(|value| value.factor());
    let output = table.require("output", "output = 1.5").and_then(|value| value.factor());
    Some(LongRule { above: above?, input: input?, output: output? })
}

fn read_serving(table: &TomlTable<'_>) -> Option<ServingRow> {
    let list = |key: &'static str| table.get(key).map(|value| value.texts()).unwrap_or_default();
    let row = ServingRow {
        provider: id(table, "provider", "provider = \"groq\"")?,
        families: list("families"),
        makers: list("makers"),
        facts: FactsRow::read(table),
        evidence: read_evidence(table, true),
    };
    if row.families.is_empty() && row.makers.is_empty() {
        table.wrong("names no models", "write families = [\"gpt-oss\"], or makers = [\"openai\"]");
        return None;
    }
    Some(row)
}

fn read_alias(table: &TomlTable<'_>, aliases: &mut Vec<AliasRow>) {
    let name = id(table, "name", "name = \"mistral-large-latest\"");
    let mut names: Vec<Box<str>> = name.into_iter().collect();
    if let Some(more) = table.get("names") {
        names.extend(more.texts());
    }
    let provider = id(table, "provider", "provider = \"mistral\"");
    let model = id(table, "model", "model = \"mistral-large-2512\"");
    let (from, until) = (table.day("from"), table.day("until"));
    if from.zip(until).is_some_and(|(from, until)| from > until) {
        table.wrong("until is before from", "write the first and the last day");
    }
    let evidence = read_evidence(table, true);
    let (Some(provider), Some(model)) = (provider, model) else { return };
    for name in names {
        let (provider, model) = (provider.clone(), model.clone());
        aliases.push(AliasRow { name, provider, model, from, until, evidence: evidence.clone() });
    }
}
