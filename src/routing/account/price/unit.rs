//! Prices of products other than tokens: by the piece, by size and quality.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

/// Unit price of an image or of a second of video, which may depend on size and quality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitPrice {
    /// Size or resolution that it applies to; `None` for all.
    pub size: Option<Box<str>>,
    /// Quality that it applies to; `None` for all.
    pub quality: Option<Box<str>>,
    /// Price per unit, in nano-units.
    pub price: i64,
}

/// Returns true if the choice of a size or quality is left to the provider.
fn is_open(name: &str) -> bool {
    matches!(name, "" | "auto")
}

impl UnitPrice {
    pub(super) fn fits(&self, size: &str, quality: &str) -> bool {
        let fits = |configured: &Option<Box<str>>, value: &str| {
            configured.as_deref().is_none_or(|configured| configured == value)
        };
        fits(&self.size, size) && fits(&self.quality, quality)
    }

    /// Returns true if this price may apply in the end, where the provider chooses what the request leaves open.
    fn may_fit(&self, size: &str, quality: &str) -> bool {
        let may = |configured: &Option<Box<str>>, value: &str| {
            is_open(value) || configured.as_deref().is_none_or(|configured| configured == value)
        };
        may(&self.size, size) && may(&self.quality, quality)
    }

    /// Returns true if this price applies whatever the provider chooses.
    fn always_fits(&self, size: &str, quality: &str) -> bool {
        let fits = |configured: &Option<Box<str>>, value: &str| {
            configured.as_deref().is_none_or(|configured| !is_open(value) && configured == value)
        };
        fits(&self.size, size) && fits(&self.quality, quality)
    }
}

/// Returns the unit price in nano-units: the first one that applies, or else the highest of all. For an estimate
/// (`dearest`) returns the highest of those that may apply; of all prices, if the provider may choose something that
/// none applies to.
pub(super) fn unit_price(units: &[UnitPrice], size: &str, quality: &str, dearest: bool) -> u64 {
    let found = if dearest {
        let is_certain = units.iter().any(|unit| unit.always_fits(size, quality));
        let may_hold = |unit: &&UnitPrice| !is_certain || unit.may_fit(size, quality);
        units.iter().filter(may_hold).map(|unit| unit.price).max()
    } else {
        let found = units.iter().find(|unit| unit.fits(size, quality)).map(|unit| unit.price);
        found.or_else(|| units.iter().map(|unit| unit.price).max())
    };
    u64::try_from(found.unwrap_or(0)).unwrap_or(0)
}
