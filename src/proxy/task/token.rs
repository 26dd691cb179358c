//! Access tokens of the task group.

use super::super::context::Context;
use super::super::{Client, Gateway};
use crate::error::{ApiError, Kind};

impl Gateway {
    /// Answers a request for a token.
    pub(in crate::proxy) async fn reply_token(
        &self,
        _client: &mut Client,
        _ctx: &mut Context,
    ) -> Result<bool, ApiError> {
        Err(ApiError::new(Kind::UnknownPath, "Tokens are not issued here."))
    }
}
