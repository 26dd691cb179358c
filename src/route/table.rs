//! The table of models, immutable once it is built.

use std::collections::HashMap;
use std::sync::Arc;

use crate::account::Price;
use crate::json::EscapedString;
use crate::vendor::Provider;
use crate::wire::Api;

/// One way to serve a model.
#[derive(Debug)]
pub struct Target {
    /// Who serves it.
    pub provider: Arc<Provider>,
    /// The model's name there.
    pub model: Box<str>,
    /// Its share among the targets of its model; 0 takes it out.
    pub weight: u32,
}

/// A model that clients may name.
#[derive(Debug)]
pub struct Model {
    /// Its index in the table.
    pub index: usize,
    /// The name that clients use.
    pub id: Box<str>,
    /// The name as it is put back into answers.
    pub escaped_id: EscapedString,
    /// Who made it, for listings.
    pub owned_by: Box<str>,
    /// When it was released, in Unix seconds, for listings.
    pub created: i64,
    /// Where it is served.
    pub targets: Vec<Target>,
    /// What it costs.
    pub price: Arc<Price>,
}

impl Model {
    /// Whether any target offers an API.
    pub fn offers(&self, api: Api) -> bool {
        self.targets.iter().any(|target| target.weight > 0 && target.provider.offers(api))
    }
}

/// All models and providers.
#[derive(Debug, Default)]
pub struct Table {
    models: Vec<Arc<Model>>,
    by_id: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    providers: Vec<Arc<Provider>>,
}

impl Table {
    /// Builds the table. Ids must be unique; of two the first is kept.
    pub fn new(models: Vec<Model>, providers: Vec<Arc<Provider>>) -> Self {
        let mut table = Table { providers, ..Table::default() };
        for mut model in models {
            model.index = table.models.len();
            let id = model.id.clone();
            if let std::collections::hash_map::Entry::Vacant(entry) = table.by_id.entry(id) {
                entry.insert(model.index);
                table.models.push(Arc::new(model));
            }
        }
        table
    }

    /// The model of this id.
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.get(*self.by_id.get(id)?)
    }

    /// All models in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// All providers in the order of the configuration.
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }
}
