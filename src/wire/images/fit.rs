//! What of a request has a place in a provider's form. What has none is refused, where the answer would be another
//! without it, and is dropped otherwise; what is dropped is said.

use super::ask::is_third;
use super::check::{nearest, sides};
use super::unsupported;
use crate::canonical::ElementLoss;
use crate::canonical::image::{ImageDialect, ImageRequest, ImageRules, ImageShape};
use crate::error::ApiError;

/// Ratios that Imagen has.
const IMAGEN_RATIOS: [&str; 5] = ["1:1", "3:4", "4:3", "9:16", "16:9"];
/// Members that change no image.
const QUIET: [&str; 2] = ["user", "safety_identifier"];
/// How closely the Seedream type 3.0 keeps to the prompt where nothing is said (specification, 4.11).
const USUAL_GUIDANCE: &str = "2.5";
/// What most providers make.
const USUAL_MEDIA: &str = "image/png";

/// Fits a request that has been held to its family into its provider's form.
///
/// # Errors
/// It wants what the provider cannot be told, and what no image would show the lack of; the error names the field.
pub fn fit(request: &mut ImageRequest, dialect: &ImageDialect, rules: &ImageRules) -> Result<(), ApiError> {
    use ImageShape::{Flat, Instances, List, Parts, PromptLater, Turns, TurnsLater};
    let shape = dialect.shape;
    mask(request, shape, rules)?;
    if request.sequence.is_some() && shape != Flat {
        return Err(unsupported("sequential_image_generation", "cannot be 'auto' for this model"));
    }
    if request.optimize.is_some() && shape != Flat {
        return Err(unsupported("optimize_prompt_options", "is not taken by this model"));
    }
    // What stands in `parameters` is named so.
    let prefix = if request.lenient { "parameters." } else { "" };
    let mut lost = Vec::new();
    let mut drop = |name: &str| lost.push(ElementLoss::dropped(format!("{prefix}{name}")));
    let all = shape == List && dialect.takes("*");
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
    if request.watermark && !takes_mark && !request.lenient {
        drop("watermark");
        request.watermark = false;
    }
    if let Some(media) = &request.media {
        let taken = match shape {
            List => dialect.takes("output_format"),
            Instances => true,
            Flat => false,
            Parts | Turns | TurnsLater | PromptLater => media == USUAL_MEDIA,
        };
        if !taken {
            drop("mime_type");
            request.media = None;
        }
    }
    if request.words == Some(true) && shape != Parts {
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
        // What is told is what is paid for.
        let size = request.size.as_deref().and_then(sides);
        request.size = size.and_then(|sides| nearest(sides, &IMAGEN_RATIOS));
    }
    let beside = |name: &str| name == "negative_prompt" && shape == PromptLater;
    request.extra.retain(|(name, _)| {
        let takes = dialect.takes(name) || beside(name);
        if !takes && !QUIET.contains(&name.as_str()) {
            drop(name);
        }
        takes
    });
    request.lost.append(&mut lost);
    Ok(())
}

/// A mask is a file of its own at some providers. Others understand it as one more image, if they are shown several; a
/// client of the task group has it so.
fn mask(request: &mut ImageRequest, shape: ImageShape, rules: &ImageRules) -> Result<(), ApiError> {
    use ImageShape::{Flat, Parts, Turns, TurnsLater};
    if shape == ImageShape::List {
        return Ok(());
    }
    let Some(mask) = request.mask.take() else { return Ok(()) };
    let several = rules.inputs.1 > 1 || matches!(shape, Turns | TurnsLater);
    if !request.group || !several || !matches!(shape, Flat | Parts | Turns | TurnsLater) {
        return Err(unsupported(mask.field, "is not taken by this model"));
    }
    request.lost.push(ElementLoss::instead(mask.field.clone(), "shown as an image"));
    request.images.push(mask);
    Ok(())
}
