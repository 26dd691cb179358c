//! What the errors of several phases have in common.

use codec::error::{ApiError, ErrorKind};

/// Cuts a client's text to 100 characters, for an error message.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Error for a model that does not exist, or that the key may not use: the two look alike to the client.
pub(super) fn unknown_model(name: &str) -> ApiError {
    let message = format!("The model `{}` does not exist or you do not have access to it.", short(name));
    ApiError::new(ErrorKind::UnknownModel, message).param("model")
}
