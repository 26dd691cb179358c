//! Entries of the result before they are text: providers, models with their targets, keys, and accounts.

use std::collections::BTreeMap;

use codec::provider::ProviderKind;
use codec::wire::Api;
use routing::account::{KeyHash, Losses};

/// Source of a credential in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DraftCredential {
    /// Environment variable.
    Env(String),
    /// File that the operator writes.
    File(String),
}

/// `[[provider]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProviderDraft {
    pub(super) name: String,
    pub(super) kind: ProviderKind,
    pub(super) base_url: Option<String>,
    pub(super) dialect: Option<&'static str>,
    pub(super) api_version: Option<String>,
    /// APIs that it offers; empty for those of its kind.
    pub(super) apis: &'static [Api],
    pub(super) credential: Option<DraftCredential>,
    /// Settings of `provider.aws`; empty for a provider that is not at AWS.
    pub(super) aws: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) timeouts: TimeoutDraft,
    /// Where it comes from, for a comment.
    pub(super) origin: String,
}

impl ProviderDraft {
    /// Creates a provider of a kind with that kind's defaults.
    pub(super) fn new(name: &str, kind: ProviderKind, origin: impl Into<String>) -> ProviderDraft {
        ProviderDraft {
            name: name.to_owned(),
            kind,
            base_url: None,
            dialect: None,
            api_version: None,
            apis: &[],
            credential: None,
            aws: Vec::new(),
            headers: Vec::new(),
            timeouts: TimeoutDraft::default(),
            origin: origin.into(),
        }
    }

    /// Returns whether two providers differ in nothing but their names.
    pub(super) fn is_same(&self, other: &ProviderDraft) -> bool {
        let other = ProviderDraft { name: self.name.clone(), origin: self.origin.clone(), ..other.clone() };
        *self == other
    }
}

/// Time-outs in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimeoutDraft {
    pub(super) first_byte: Option<u64>,
    pub(super) idle: Option<u64>,
}

/// Element of `model.targets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetDraft {
    pub(super) provider: String,
    pub(super) model: String,
    /// Model that the name hides; `None` if it hides none.
    pub(super) family: Option<String>,
    pub(super) weight: u64,
    pub(super) tier: u8,
    pub(super) concurrent: Option<u64>,
    pub(super) requests_per_minute: Option<u64>,
    pub(super) tokens_per_minute: Option<u64>,
    /// Entry of prices.toml; `None` for the price of the model.
    pub(super) price: Option<String>,
}

impl TargetDraft {
    /// Creates a target without limits.
    pub(super) fn new(provider: String, model: impl Into<String>) -> TargetDraft {
        TargetDraft {
            provider,
            model: model.into(),
            family: None,
            weight: 1,
            tier: 0,
            concurrent: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            price: None,
        }
    }
}

/// `[[model]]`.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelDraft {
    pub(super) id: String,
    pub(super) targets: Vec<TargetDraft>,
    pub(super) policy: Option<&'static str>,
    pub(super) fallback: Vec<String>,
    pub(super) context_window: Option<u64>,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) timeouts: TimeoutDraft,
    /// Whether a request that exceeds the context goes to the next target.
    pub(super) also_context: bool,
    /// Keys of `model.price` with decimals.
    pub(super) price: BTreeMap<&'static str, String>,
    pub(super) origin: String,
}

/// Limits of a key or an account. Rates are per minute, spends are decimals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitDraft {
    pub(super) requests_per_minute: Option<u64>,
    pub(super) tokens_per_minute: Option<u64>,
    pub(super) concurrent: Option<u64>,
    pub(super) spend_per_day: Option<String>,
    pub(super) spend_per_month: Option<String>,
}

/// `[[key]]`.
#[derive(Clone, Debug)]
pub(super) struct KeyDraft {
    pub(super) name: String,
    pub(super) hash: KeyHash,
    pub(super) enabled: bool,
    /// Expiry as written in RFC 3339.
    pub(super) expires: Option<String>,
    pub(super) account: Option<String>,
    /// Permitted models; empty for all.
    pub(super) models: Vec<String>,
    pub(super) networks: Vec<String>,
    pub(super) losses: Losses,
    pub(super) limits: LimitDraft,
    pub(super) origin: String,
}

impl KeyDraft {
    /// Creates a key without restrictions.
    pub(super) fn new(name: impl Into<String>, hash: KeyHash, origin: impl Into<String>) -> KeyDraft {
        KeyDraft {
            name: name.into(),
            hash,
            enabled: true,
            expires: None,
            account: None,
            models: Vec::new(),
            networks: Vec::new(),
            losses: Losses::default(),
            limits: LimitDraft::default(),
            origin: origin.into(),
        }
    }
}

/// Account of the ledger that keys of the result belong to.
#[derive(Clone, Debug)]
pub(super) struct AccountDraft {
    pub(super) name: String,
    /// Opening credit, a decimal.
    pub(super) credit: String,
    /// Idempotency key of the credit.
    pub(super) reference: String,
    pub(super) enabled: bool,
    pub(super) limits: LimitDraft,
}
