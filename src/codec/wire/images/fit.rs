//! Adaptation of an images request to its provider's format. A mask, an image sequence or prompt optimization is
//! refused if the format lacks it. Other settings are dropped, with a warning unless they do not affect the image.

use super::ask::is_third;
use super::check::{nearest, sides};
use super::unsupported;
use crate::canonical::ElementLoss;
use crate::canonical::image::{ImageDialect, ImageRequest, ImageRules, ImageShape};
use crate::error::ApiError;

/// Aspect ratios of Imagen.
const IMAGEN_RATIOS: [&str; 5] = ["1:1", "3:4", "4:3", "9:16", "16:9"];
/// Members that do not affect the image. They are dropped without a warning.
const QUIET: [&str; 2] = ["user", "safety_identifier"];
/// Default guidance scale of the Seedream 3.0 family (docs/specification.md, 4.11).
const USUAL_GUIDANCE: &str = "2.5";
/// Output format of most providers.
const USUAL_MEDIA: &str = "image/png";

/// Adapts a request, already checked against its family's rules, to its provider's format.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the provider has no equivalent of a mask, an image sequence or a
/// prompt optimization mode.
#[expect(clippy::too_many_lines, reason = "one rule for each setting, in order")]
pub fn fit(request: &mut ImageRequest, dialect: &ImageDialect, rules: &ImageRules) -> Result<(), ApiError> {
    use ImageShape::{Flat, Instances, List, Parts, PromptLater, Turns, TurnsLater};
    let shape = dialect.shape;
    mask(request, shape, rules)?;
    if request.sequence.is_some() && shape != Flat {
        return Err(unsupported("sequential_image_generation", "cannot be 'auto' for this model"));
    }
    if request.optimize.is_some() && shape != Flat {
        return Err(unsupported("optimize_prompt_options", "is not accepted by this model"));
    }
    // Google's format has these settings in `parameters`; warnings name the client's path.
    let prefix = if request.lenient { "parameters." } else { "" };
    let mut lost = Vec::new();
    let mut drop = |name: &str| lost.push(ElementLoss::dropped(format!("{prefix}{name}")));
    let all = shape == List && dialect.supports_extension("*");
    if request.temperature.is_some() && shape != Parts {
        drop("temperature");
        request.temperature = None;
    }
    if request.top_p.is_some() && shape != Parts {
        drop("top_p");
        request.top_p = None;
    }
    if request.quality.is_some() && shape != List {
        drop("quality");
        request.quality = None;
    }
    let takes_seed = match shape {
        List => all,
        Flat => is_third(dialect.family),
        Parts | Instances | Turns | TurnsLater | PromptLater => true,
    };
    if request.seed.is_some() && !takes_seed {
        drop("seed");
        request.seed = None;
    }
    if request.guidance.is_some() && !(all || matches!(shape, Flat | Instances)) {
        drop(if request.lenient { "guidanceScale" } else { "guidance_scale" });
        request.guidance = None;
    }
    if shape == Flat && is_third(dialect.family) && rules.guidance && !rules.sequence {
        request.guidance.get_or_insert_with(|| USUAL_GUIDANCE.to_owned());
    }
    let takes_mark = all || matches!(shape, Flat | Turns | TurnsLater | PromptLater);
    if request.watermark == Some(true) && !takes_mark && !request.lenient {
        drop("watermark");
        request.watermark = None;
    }
    if let Some(media) = &request.media {
        let taken = match shape {
            List => dialect.supports_extension("output_format"),
            Instances => true,
            Flat => false,
            Parts | Turns | TurnsLater | PromptLater => media == USUAL_MEDIA,
        };
        if !taken {
            drop("mime_type");
            request.media = None;
        }
    }
    if request.with_text == Some(true) && shape != Parts {
        drop("response_modalities");
    }
    if request.tier.is_some() && !(all || matches!(shape, Flat | Parts | Instances)) {
        drop("image_size");
        request.tier = None;
    }
    if request.tier.is_some() && request.size.is_some() && shape == Flat {
        drop("image_size");
        request.tier = None;
    }
    if shape == Instances {
        // The price may depend on `size`, so the request must hold the ratio that is sent.
        let size = request.size.as_deref().and_then(sides);
        request.size = size.and_then(|sides| nearest(sides, &IMAGEN_RATIOS));
    }
    let beside = |name: &str| name == "negative_prompt" && shape == PromptLater;
    request.extra.retain(|(name, _)| {
        let takes = dialect.supports_extension(name) || beside(name);
        if !takes && !QUIET.contains(&name.as_str()) {
            drop(name);
        }
        takes
    });
    request.lost_settings.append(&mut lost);
    Ok(())
}

/// Moves a mask to the images where the format has no mask. Models that accept several images understand a mask as one
/// of them; only the task group's requests may rely on that, other requests with a mask are refused.
fn mask(request: &mut ImageRequest, shape: ImageShape, rules: &ImageRules) -> Result<(), ApiError> {
    use ImageShape::{Flat, Parts, Turns, TurnsLater};
    if shape == ImageShape::List {
        return Ok(());
    }
    let Some(mask) = request.mask.take() else { return Ok(()) };
    let several = rules.inputs.1 > 1 || matches!(shape, Turns | TurnsLater);
    if !request.group || !several || !matches!(shape, Flat | Parts | Turns | TurnsLater) {
        return Err(unsupported(mask.field, "is not accepted by this model"));
    }
    request.lost_settings.push(ElementLoss::instead(mask.field.clone(), "shown as an image"));
    request.images.push(mask);
    Ok(())
}
