//! Faults of credential files.

/// Fault of a credential file. Its text is for administrators: it names the field, and never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFileError {
    /// The file is no JSON object.
    #[error("it is no JSON object")]
    NotJson,
    /// The file is larger than [`super::MAX_DOCUMENT`].
    #[error("it is larger than 64 KiB")]
    TooLarge,
    /// A field is missing or wrong.
    #[error("the field `{field}` {reason}")]
    Field {
        /// Path of the field, such as `credential_source.url`.
        field: Box<str>,
        /// What is wrong with it, as the end of a sentence.
        reason: Box<str>,
    },
}

impl CredentialFileError {
    pub(crate) fn field(field: impl Into<Box<str>>, reason: impl Into<Box<str>>) -> Self {
        CredentialFileError::Field { field: field.into(), reason: reason.into() }
    }
}
