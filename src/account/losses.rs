//! What a key's owner thinks of losses in translation.

/// What is done where an element of a request would be dropped with a warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Losses {
    /// It is dropped, and nothing is said.
    Allow,
    /// It is dropped, and the answer has a warning.
    #[default]
    Warn,
    /// The request is refused.
    Refuse,
}

impl Losses {
    /// All of them.
    pub const ALL: [Losses; 3] = [Losses::Allow, Losses::Warn, Losses::Refuse];

    /// The word in keys.toml.
    pub const fn name(self) -> &'static str {
        match self {
            Losses::Allow => "allow",
            Losses::Warn => "warn",
            Losses::Refuse => "refuse",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Losses::ALL.into_iter().find(|losses| losses.name() == name)
    }
}
