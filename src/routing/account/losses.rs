//! Policy of a key for elements that are lost in translation.

/// Policy for an element of a request that would be dropped with a warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Losses {
    /// The element is dropped without a warning.
    Allow,
    /// The element is dropped, and the response has a warning.
    #[default]
    Warn,
    /// The request is refused.
    Refuse,
}

impl Losses {
    /// All policies.
    pub const ALL: [Losses; 3] = [Losses::Allow, Losses::Warn, Losses::Refuse];

    /// Returns the name in keys.toml.
    pub const fn name(self) -> &'static str {
        match self {
            Losses::Allow => "allow",
            Losses::Warn => "warn",
            Losses::Refuse => "refuse",
        }
    }

    /// Returns the policy of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Losses::ALL.into_iter().find(|losses| losses.name() == name)
    }
}
