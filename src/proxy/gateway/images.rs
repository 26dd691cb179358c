//! Image generation requests: the response shape, the expected usage, and the job that serves them.

use pingora::http::RequestHeader;

use super::attempt::Attempt;
use super::context::Context;
use super::selection::Selection;
use crate::Gateway;
use codec::canonical::Product;
use codec::canonical::image::ImageRequest;
use codec::error::{ApiError, ErrorKind};
use codec::job::image::{ImageJob, ImageJobRequest};
use codec::wire::images::reply::ImageReplyShape;
use codec::wire::path::{Action, Endpoint};
use driver::names;
use routing::account::{Key, estimate};

/// Estimated tokens of one input image (docs/specification.md, section 8: about 1000).
const IMAGE: u64 = 1_000;

/// Returns the response shape of an image endpoint, which also applies to its errors: the `x-gateway-images` header
/// decides, then the key's `plain_images` rule, once the key is known. `None` for endpoints that have only one shape.
///
/// # Errors
/// Returns [`ErrorKind::InvalidField`] if the header names an unknown shape.
pub(crate) fn shape(
    endpoint: &Endpoint,
    key: Option<&Key>,
    head: &RequestHeader,
) -> Result<Option<ImageReplyShape>, ApiError> {
    match endpoint {
        Endpoint::Images | Endpoint::ImageEdits => {}
        Endpoint::Native { action: Action::Predict, .. } => {
            return Ok(Some(ImageReplyShape::Predictions));
        }
        _ => return Ok(None),
    }
    let plain = key.is_some_and(|key| key.rules.plain_images);
    let own = if plain { ImageReplyShape::Plain } else { ImageReplyShape::Envelope };
    match head.headers.get(names::X_GATEWAY_IMAGES).map(|value| value.to_str()) {
        None => Ok(Some(own)),
        Some(name) => match name.ok().and_then(|name| ImageReplyShape::from_name(name.trim())) {
            Some(shape) => Ok(Some(shape)),
            None => {
                let message = "The header 'x-gateway-images' must be 'envelope' or 'plain'.";
                Err(ApiError::new(ErrorKind::InvalidField, message).param("x-gateway-images"))
            }
        },
    }
}

/// Returns the expected product and the estimated input tokens of an image request, for its reservation.
pub(crate) fn expected(request: &ImageRequest) -> (Product, u64) {
    let words = estimate::text(request.prompt.len() as u64);
    (codec::job::image::expected(request), words + request.images.len() as u64 * IMAGE)
}

impl Gateway {
    /// Builds the attempt of an image request: a job for the selected target.
    pub(crate) fn image_attempt(
        &self,
        ctx: &Context,
        chosen: Selection,
        request: ImageRequest,
    ) -> Result<Attempt, ApiError> {
        let target = chosen.target()?;
        let asked = ImageJobRequest {
            request,
            edits: ctx.endpoint() == Some(&Endpoint::ImageEdits),
            shape: ctx.phase.image_shape().unwrap_or_default(),
            upstream: target.model.clone(),
            dialect: target.imaging(&chosen.model.id),
            now: ctx.record.unix_millis / 1000,
        };
        let job = ImageJob::new(asked)?;
        let warning = self.count_lost_settings(ctx, "images", job.lost())?;
        Ok(Attempt { job: Some(Box::new(job)), warning, ..chosen.into_attempt() })
    }
}
