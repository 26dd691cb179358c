//! Settings of image and video requests that the model does not support.

/// Setting that is not carried out as the client asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementLoss {
    /// Field name in the client's request.
    pub field: String,
    /// Replacement that is used instead; `None` if the setting is dropped.
    pub instead: Option<String>,
}

impl ElementLoss {
    /// Returns a loss for a setting that is dropped.
    pub fn dropped(field: impl Into<String>) -> Self {
        ElementLoss { field: field.into(), instead: None }
    }

    /// Returns a loss for a setting that is replaced by `what`.
    pub fn instead(field: impl Into<String>, what: impl Into<String>) -> Self {
        ElementLoss { field: field.into(), instead: Some(what.into()) }
    }
}
