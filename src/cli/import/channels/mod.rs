//! New API and One API: their database, in which channels are providers, and tokens are keys.
//!
//! Sources: the structures in `model/` of <https://github.com/QuantumNous/new-api> and
//! <https://github.com/songquanpeng/one-api>, November 2026. Types of channels are in [`kinds`], keys and accounts in
//! [`tokens`], prices in [`prices`], and the outcomes of columns in [`columns`]. A field is reported by its column,
//! and by its row if the row is special.

mod columns;
mod kinds;
mod prices;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::document::{Field, SourceNode, SourceValue};
use super::draft::{DraftCredential, ImportDraft, MAX_WEIGHT, ProviderDraft, TargetDraft, cut, printable};
use super::file::{begins_with, read_text};
use super::report::{FieldOutcome, FieldReport};
use super::{ImportError, Imported, MAX_TABLE, json};
use codec::provider::{BaseUrl, ProviderKind};
use storage::store::foreign::{Cell, ForeignDatabase, ForeignError, ForeignTable, MAGIC};

/// Port of both.
const LISTEN: &str = "127.0.0.1:3000";
/// Most keys of one channel.
const MAX_CHANNEL_KEYS: usize = 64;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelSource {
    NewApi,
    OneApi,
}

impl ChannelSource {
    fn slug(self) -> &'static str {
        match self {
            ChannelSource::NewApi => "new-api",
            ChannelSource::OneApi => "one-api",
        }
    }
}

/// Imports a SQLite file, or a dump as SQL text.
///
/// # Errors
/// Returns an error if the file cannot be read, or is not a database of the source.
pub(super) fn import(file: &Path, origin: ChannelSource) -> Result<Imported, ImportError> {
    let failed = |error: ForeignError| {
        let hint = match &error {
            ForeignError::Statement { .. } => "; a dump must be one of SQLite: sqlite3 one-api.db .dump",
            _ => "",
        };
        ImportError::File { path: file.to_owned(), message: format!("{error}{hint}") }
    };
    let database = if begins_with(file, MAGIC)? {
        ForeignDatabase::open(file)
    } else {
        ForeignDatabase::of_script(&read_text(file, MAX_TABLE)?)
    };
    let database = database.map_err(failed)?;
    let tables = Tables::read(&database).map_err(failed)?;
    read(&tables, origin).map_err(|message| ImportError::File { path: file.to_owned(), message })
}

/// Imports a dump as SQL text.
///
/// # Errors
/// Returns the reason if the text is not a dump of the source.
pub(super) fn of_script(script: &str, origin: ChannelSource) -> Result<Imported, String> {
    let tables = ForeignDatabase::of_script(script).and_then(|database| Tables::read(&database));
    read(&tables.map_err(|error| error.to_string())?, origin)
}

/// Tables of the source.
struct Tables {
    channels: ForeignTable,
    tokens: ForeignTable,
    users: ForeignTable,
    options: ForeignTable,
    /// Other tables, with their columns.
    others: Vec<(String, Vec<String>)>,
}

impl Tables {
    fn read(database: &ForeignDatabase) -> Result<Tables, ForeignError> {
        const READ: [&str; 4] = ["channels", "tokens", "users", "options"];
        let mut others = Vec::new();
        for name in database.tables()?.into_iter().filter(|name| !READ.contains(&name.as_str())) {
            let columns = database.columns(&name)?;
            others.push((name, columns));
        }
        let table = |name: &str| database.table(name);
        let [channels, tokens, users, options] = READ;
        Ok(Tables {
            channels: table(channels)?,
            tokens: table(tokens)?,
            users: table(users)?,
            options: table(options)?,
            others,
        })
    }
}

/// Row of a table.
#[derive(Clone, Copy)]
struct Row<'t> {
    columns: &'t [String],
    cells: &'t [Cell],
}

fn rows(table: &ForeignTable) -> impl Iterator<Item = Row<'_>> {
    table.rows.iter().map(|cells| Row { columns: &table.columns, cells })
}

impl<'t> Row<'t> {
    fn cell(&self, name: &str) -> &'t Cell {
        let at = self.columns.iter().position(|column| column == name);
        at.and_then(|at| self.cells.get(at)).unwrap_or(&Cell::Null)
    }

    /// Returns a text; null and numbers as their digits.
    fn text(&self, name: &str) -> String {
        match self.cell(name) {
            Cell::Null => String::new(),
            Cell::Integer(number) => number.to_string(),
            Cell::Real(number) => number.to_string(),
            Cell::Text(text) => text.trim().to_owned(),
        }
    }

    fn integer(&self, name: &str, default: i64) -> i64 {
        match self.cell(name) {
            Cell::Null => default,
            Cell::Integer(number) => *number,
            Cell::Real(number) => *number as i64,
            Cell::Text(text) => match text.trim() {
                "true" => 1,
                "false" => 0,
                text => text.parse().unwrap_or(default),
            },
        }
    }

    fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        let words = text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }
}

/// State of an import.
struct Import {
    origin: ChannelSource,
    draft: ImportDraft,
    report: FieldReport,
    /// Groups of the channels of each model.
    groups: BTreeMap<String, BTreeSet<String>>,
}

fn read(tables: &Tables, origin: ChannelSource) -> Result<Imported, String> {
    if tables.channels.columns.is_empty() {
        return Err("the database has no table \"channels\"".to_owned());
    }
    let has = |column: &str| tables.channels.columns.iter().any(|known| known == column);
    let other = match origin {
        ChannelSource::NewApi if has("config") && !has("auto_ban") => {
            Some("One API: model-gateway import one-api")
        }
        ChannelSource::OneApi if has("auto_ban") => Some("New API: model-gateway import new-api"),
        _ => None,
    };
    if let Some(other) = other {
        return Err(format!(
            "the columns of \"channels\" are those of {other}. The numbers of their types differ"
        ));
    }
    let mut import = Import {
        origin,
        draft: ImportDraft::default(),
        report: FieldReport::default(),
        groups: BTreeMap::new(),
    };
    import.draft.listen = LISTEN.to_owned();
    columns::report(&mut import.report, tables);
    let mut priorities: Vec<i64> = rows(&tables.channels).map(|row| row.integer("priority", 0)).collect();
    priorities.sort_unstable_by(|one, other| other.cmp(one));
    priorities.dedup();
    for row in rows(&tables.channels) {
        import.channel(row, &priorities);
    }
    for remark in import.draft.settle_models() {
        import.report.remark(remark);
    }
    let options = import.options(tables);
    tokens::read(&mut import, tables, &options);
    let Import { draft, report, .. } = import;
    Ok(Imported { draft, report })
}

impl Import {
    /// Reads a channel.
    fn channel(&mut self, row: Row<'_>, priorities: &[i64]) {
        let shown = format!("channels[id={}]", row.integer("id", 0));
        let kind = match kinds::find(self.origin, row.integer("type", 1)) {
            Ok(kind) => kind,
            Err(reason) => return self.report.row(shown, FieldOutcome::Impossible, "", &reason),
        };
        let own = row.text("base_url");
        let base = match base_url(&own, kind) {
            Ok(base) => base,
            Err(reason) => {
                return self.report.row(format!("{shown}.base_url"), FieldOutcome::Impossible, "", &reason);
            }
        };
        let name = provider_name(&row.text("name"), kind.name);
        let mut provider =
            ProviderDraft::new(&name, kind.kind, format!("{shown}: {}", cut(&row.text("name"), 80)));
        provider.base_url = base;
        provider.dialect = kind.dialect.filter(|_| !own.is_empty());
        if kind.kind == ProviderKind::Azure {
            provider.api_version = Some(row.text("other")).filter(|version| !version.is_empty());
        }
        let organization = row.text("open_ai_organization");
        if http::HeaderValue::from_str(&organization).is_ok() && !organization.is_empty() {
            provider.headers.push(("openai-organization".to_owned(), organization));
        }
        let text = row.text("key");
        let keys: Vec<&str> = text.lines().map(str::trim).filter(|key| !key.is_empty()).collect();
        if keys.len() > MAX_CHANNEL_KEYS {
            let reason = format!(
                "a channel with more than {MAX_CHANNEL_KEYS} keys: only the first ones are taken over"
            );
            self.report.row(format!("{shown}.key"), FieldOutcome::Changed, "provider.credential", &reason);
        }
        let mut names = Vec::new();
        for key in keys.iter().take(MAX_CHANNEL_KEYS) {
            match self.draft.secrets.store(&name, key) {
                Ok(env) => {
                    let mut provider = provider.clone();
                    provider.credential = Some(DraftCredential::Env(env));
                    names.push(self.draft.provider(provider));
                }
                Err(reason) => self.report.row(format!("{shown}.key"), FieldOutcome::Impossible, "", reason),
            }
        }
        if names.is_empty() && !kind.kind.needs_credential() {
            names.push(self.draft.provider(provider));
        }
        if names.is_empty() {
            return self.report.row(
                shown,
                FieldOutcome::Impossible,
                "",
                "the channel has no key, and its kind needs one",
            );
        }
        self.targets(row, &shown, &names, priorities);
    }

    /// Adds the targets of a channel: each of its models, at each of its keys.
    fn targets(&mut self, row: Row<'_>, shown: &str, names: &[String], priorities: &[i64]) {
        let mapping = self.mapping(row, shown);
        let enabled = row.integer("status", 1) == 1;
        if !enabled {
            let note = "the channel is disabled: its targets have the weight 0";
            self.report.row(format!("{shown}.status"), FieldOutcome::Changed, "model.targets.weight", note);
        }
        let priority = row.integer("priority", 0);
        let rank = priorities.iter().position(|known| *known == priority).unwrap_or(0);
        if rank > 15 {
            let note = "more than 16 different priorities: those after the sixteenth are one tier";
            self.report.row(format!("{shown}.priority"), FieldOutcome::Changed, "model.targets.tier", note);
        }
        // Without a weight every channel has the same.
        let weight = u64::try_from(row.integer("weight", 0)).unwrap_or(0).clamp(1, MAX_WEIGHT);
        let groups = row.list("group");
        for model in row.list("models") {
            let upstream = mapping.get(&model).unwrap_or(&model);
            if model.len() > 256 || upstream.len() > 256 || upstream.is_empty() {
                let reason = "the name of a model must have 1 to 256 bytes";
                self.report.row(format!("{shown}.models"), FieldOutcome::Impossible, "", reason);
                continue;
            }
            self.groups.entry(model.clone()).or_default().extend(groups.iter().cloned());
            for name in names {
                let target = TargetDraft {
                    weight: if enabled { weight } else { 0 },
                    tier: u8::try_from(rank.min(15)).unwrap_or(15),
                    ..TargetDraft::new(name.clone(), upstream.as_str())
                };
                if !self.draft.target(&model, shown, target) {
                    let reason =
                        format!("the model {:?} has 64 targets already", cut(&printable(&model), 80));
                    self.report.row(format!("{shown}.models"), FieldOutcome::Impossible, "", &reason);
                    break;
                }
            }
        }
    }

    /// Reads the names that a channel uses for models.
    fn mapping(&mut self, row: Row<'_>, shown: &str) -> BTreeMap<String, String> {
        let text = row.text("model_mapping");
        if text.is_empty() {
            return BTreeMap::new();
        }
        let members = json::read(&text).ok().and_then(|node| members(&node));
        let mut mapping = BTreeMap::new();
        match members {
            Some(members) => {
                for (name, value) in members {
                    match value.value {
                        SourceValue::Text(upstream) => {
                            mapping.insert(name, upstream.trim().to_owned());
                        }
                        _ => {
                            let path = format!("{shown}.model_mapping");
                            self.report.row(
                                path,
                                FieldOutcome::Impossible,
                                "",
                                "the name of a model must be a text",
                            );
                        }
                    }
                }
            }
            None => {
                let reason = "not a JSON object; the models keep their names";
                self.report.row(format!("{shown}.model_mapping"), FieldOutcome::Impossible, "", reason);
            }
        }
        mapping
    }

    /// Reads the options: retries and prices.
    fn options(&mut self, tables: &Tables) -> BTreeMap<String, String> {
        let options: BTreeMap<String, String> =
            rows(&tables.options).map(|row| (row.text("key"), row.text("value"))).collect();
        for (name, value) in &options {
            let path = format!("options[{}]", cut(&printable(name), 80));
            match name.as_str() {
                "RetryTimes" => {
                    self.draft.attempts =
                        value.parse::<u64>().ok().map(|retries| retries.saturating_add(1).min(16));
                    let note = "the number of targets of a request, at most 16: a target is tried once";
                    self.report.row(path, FieldOutcome::Changed, "retry.attempts", note);
                }
                "ModelRatio" | "CompletionRatio" | "CacheRatio" | "CreateCacheRatio" | "ModelPrice"
                | "QuotaPerUnit" => {}
                "GroupRatio" => prices::report_groups(&mut self.report, &path, value),
                _ => {
                    let note = "the gateway has no such setting; see docs/configuration.md for one of the same effect";
                    self.report.row(path, FieldOutcome::Impossible, "", note);
                }
            }
        }
        prices::read(&mut self.draft, &mut self.report, &options);
        options
    }
}

/// Returns the members of an object, or `None` if it is none.
fn members(node: &SourceNode) -> Option<Vec<(String, SourceNode)>> {
    let members = Field::root(node).members().ok()?;
    matches!(node.value, SourceValue::Map(_))
        .then(|| members.into_iter().map(|(name, field)| (name.to_owned(), field.node.clone())).collect())
}

/// Returns the base URL; `None` for the default of the kind.
fn base_url(own: &str, kind: kinds::ChannelKind) -> Result<Option<String>, String> {
    let root = if own.is_empty() { kind.root } else { own };
    if root.is_empty() {
        return Err("the channel has no address, and its type has none of its own".to_owned());
    }
    let url = BaseUrl::parse(root).map_err(|error| error.to_string())?.to_string();
    // A custom channel has the path of the resource.
    let root = url.strip_suffix("/chat/completions").unwrap_or(&url);
    let base = if root.ends_with(kind.suffix) { root.to_owned() } else { format!("{root}{}", kind.suffix) };
    Ok(Some(base).filter(|base| Some(base.as_str()) != kind.kind.default_base_url()))
}

/// Returns a name of a provider: that of the channel without spaces, or that of its type.
fn provider_name(name: &str, kind: &str) -> String {
    let word = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let words: String = name.chars().map(word).collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
    let name = cut(&words.join("-"), 48);
    if name.is_empty() { kind.to_owned() } else { name }
}
