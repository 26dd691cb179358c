//! Images: the shape that a client wants them in, what is expected of a request for them, and the job that makes them.

use pingora::http::RequestHeader;

use super::context::{Attempt, Context};
use super::plan::Selection;
use super::{Gateway, names};
use crate::account::estimate;
use crate::canonical::Product;
use crate::canonical::image::ImageRequest;
use crate::error::{ApiError, Kind};
use crate::job::image::{ImageJobRequest, Imaging};
use crate::wire::images::reply::Shape;
use crate::wire::path::{Action, Endpoint};

/// Tokens of an image of a request (specification, section 8: about 1000).
const IMAGE: u64 = 1_000;

/// The shape of an endpoint's answers and errors: as the request says, or as its key does; nothing for endpoints that
/// have but one.
///
/// # Errors
/// The request names a shape that there is not.
pub(super) fn shape(ctx: &Context, head: &RequestHeader) -> Result<Option<Shape>, ApiError> {
    match &ctx.endpoint {
        Some(Endpoint::Images | Endpoint::ImageEdits) => {}
        Some(Endpoint::Native { action: Action::Predict, .. }) => return Ok(Some(Shape::Predictions)),
        _ => return Ok(None),
    }
    let plain = ctx.key.as_ref().is_some_and(|key| key.rules.plain_images);
    let own = if plain { Shape::Plain } else { Shape::Envelope };
    match head.headers.get(names::X_GATEWAY_IMAGES).map(|value| value.to_str()) {
        None => Ok(Some(own)),
        Some(name) => match name.ok().and_then(|name| Shape::from_name(name.trim())) {
            Some(shape) => Ok(Some(shape)),
            None => {
                let message = "The header 'x-gateway-images' must be 'envelope' or 'plain'.";
                Err(ApiError::new(Kind::InvalidField, message).param("x-gateway-images"))
            }
        },
    }
}

/// What is made, as far as a request tells, and the tokens that go in.
pub(super) fn expected(request: &ImageRequest) -> (Product, u64) {
    let words = estimate::text(request.prompt.len() as u64);
    (crate::job::image::expected(request), words + request.images.len() as u64 * IMAGE)
}

impl Gateway {
    /// Images are wanted.
    pub(super) fn draw(
        &self,
        ctx: &Context,
        chosen: Selection,
        request: ImageRequest,
    ) -> Result<Attempt, ApiError> {
        let target = chosen.target()?;
        let asked = ImageJobRequest {
            request,
            edits: ctx.endpoint == Some(Endpoint::ImageEdits),
            shape: ctx.images.unwrap_or_default(),
            upstream: target.model.clone(),
            dialect: target.provider.imaging(&target.model, &chosen.model.id),
            now: ctx.record.unix_millis / 1000,
        };
        let job = Imaging::new(asked)?;
        let warning = self.weigh_lost(ctx, "images", job.lost())?;
        Ok(Attempt { job: Some(Box::new(job)), warning, ..chosen.plan() })
    }
}
