//! Settings of a request for images or videos that the model has no place for.

/// Setting that is not carried out as the client asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementLoss {
    /// The client's field.
    pub field: String,
    /// What is done in place of it; nothing where it is dropped.
    pub instead: Option<String>,
}

impl ElementLoss {
    /// A setting that is dropped.
    pub fn dropped(field: impl Into<String>) -> Self {
        ElementLoss { field: field.into(), instead: None }
    }

    /// A setting in whose place something else is done.
    pub fn instead(field: impl Into<String>, what: impl Into<String>) -> Self {
        ElementLoss { field: field.into(), instead: Some(what.into()) }
    }
}
