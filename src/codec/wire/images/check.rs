//! Checks of an images request against the rules of its model family (docs/specification.md, 4.11 and 8).

use super::{file, unsupported, wrong};
use crate::canonical::ElementLoss;
use crate::canonical::image::{ImageInput, ImageRequest, ImageRules, ImageSource, Sizes, TierEncoding};
use crate::error::{ApiError, ErrorKind};

/// Minimum side of an input image, in pixels.
const SIDE: u32 = 15;

/// Checks a request against its family's rules. Rewrites sizes to the family's values and removes settings that have no
/// effect there.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the family does not support the request.
pub fn check(request: &mut ImageRequest, rules: &ImageRules) -> Result<(), ApiError> {
    let count = request.count.unwrap_or(1);
    let count_field = if request.lenient { "parameters.sampleCount" } else { "n" };
    if count > rules.max_images {
        return Err(wrong(
            count_field,
            &format!("a whole number from 1 to {} for this model", rules.max_images),
        ));
    }
    inputs(request, rules)?;
    if let Some(together) = rules.together {
        let all = request.images.len() as u64 + u64::from(count) * u64::from(request.sequence.unwrap_or(1));
        if all > u64::from(together) {
            let why = format!("and the images of the request exceed {together} images in total");
            return Err(unsupported(count_field, &why));
        }
    }
    request.size = size(request.size.take(), rules, request)?;
    request.tier = request.tier.take().map(|tier| tier.to_ascii_uppercase());
    if let Some(tier) = &request.tier
        && !matches!(rules.sizes, Sizes::Any)
        && !rules.tiers.contains(&tier.as_str())
    {
        if !request.lenient {
            let message = match rules.tiers {
                [] => return Err(unsupported("image_size", "is not accepted by this model")),
                tiers => one_of(tiers),
            };
            return Err(wrong("image_size", &message));
        }
        request.tier = None;
        request.lost_settings.push(ElementLoss::dropped("parameters.sampleImageSize"));
    }
    step(request, rules);
    if let Some(quality) = &request.quality {
        const USUAL: [&str; 3] = ["low", "medium", "high"];
        let known = rules.qualities.contains(&quality.as_str());
        match rules.qualities {
            _ if known || matches!(rules.sizes, Sizes::Any) && rules.qualities.is_empty() => {}
            // `auto` is the only behavior of these families.
            [] if quality == "auto" => request.quality = None,
            [] if USUAL.contains(&quality.as_str()) => {
                request.quality = None;
                request.lost_settings.push(ElementLoss::dropped("quality"));
            }
            [] => return Err(wrong("quality", &one_of(&USUAL))),
            qualities => return Err(wrong("quality", &one_of(qualities))),
        }
    }
    if request.guidance.is_some() && !rules.guidance {
        if !request.lenient {
            return Err(unsupported("guidance_scale", "is not accepted by this model"));
        }
        request.guidance = None;
        request.lost_settings.push(ElementLoss::dropped("parameters.guidanceScale"));
    }
    if request.sequence.is_some() && !rules.sequence {
        return Err(unsupported("sequential_image_generation", "cannot be 'auto' for this model"));
    }
    if let Some(mode) = &request.optimize
        && !rules.optimize.contains(&mode.as_str())
    {
        const FIELD: &str = "optimize_prompt_options.mode";
        return Err(match rules.optimize {
            [] => unsupported("optimize_prompt_options", "is not accepted by this model"),
            modes => wrong(FIELD, &one_of(modes)),
        });
    }
    Ok(())
}

fn inputs(request: &ImageRequest, rules: &ImageRules) -> Result<(), ApiError> {
    let (least, most) = rules.inputs;
    let given = request.images.len();
    match request.images.get(most) {
        Some(first) if most == 0 => {
            return Err(unsupported(
                &*first.field,
                "is not accepted by this model: it makes images from text only",
            ));
        }
        Some(_) => {
            let message = format!("'image' has {given} images; this model accepts at most {most}.");
            return Err(ApiError::new(ErrorKind::InvalidField, message).param("image"));
        }
        None if given < least => return Err(ApiError::missing("image")),
        None => {}
    }
    if given == 0 && request.mask.is_some() {
        return Err(ApiError::missing("image"));
    }
    request.images.iter().chain(&request.mask).try_for_each(|input| input_is_fit(input, rules))
}

/// Checks an input image against the rules. Does nothing if the image is a URL that is not fetched yet.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the bytes are not an image that the family accepts.
pub fn input_is_fit(input: &ImageInput, rules: &ImageRules) -> Result<(), ApiError> {
    let ImageSource::Bytes(bytes) = &input.source else { return Ok(()) };
    let field = &*input.field;
    let names: Vec<&str> = rules.formats.iter().map(|picture| picture.name()).collect();
    let names = names.join(", ");
    let Some(file) = file(bytes) else {
        return Err(wrong(field, &format!("an image of one of the formats {names}")));
    };
    if !rules.formats.contains(&file.picture) {
        let message = format!("'{field}' is a {} image; this model accepts {names}.", file.picture.name());
        return Err(ApiError::new(ErrorKind::InvalidField, message).param(field.to_owned()));
    }
    if bytes.len() > rules.bytes {
        let most = rules.bytes >> 20;
        let message =
            format!("'{field}' has {} bytes; this model accepts images of at most {most} MB.", bytes.len());
        return Err(ApiError::new(ErrorKind::InvalidField, message).param(field.to_owned()));
    }
    let Some((width, height)) = file.points else {
        return Err(wrong(field, "an image with a width and a height"));
    };
    if rules.ratio > 0 {
        let (long, short) = (width.max(height), width.min(height));
        let points = u64::from(width) * u64::from(height);
        if short < SIDE
            || u64::from(long) > u64::from(short) * u64::from(rules.ratio)
            || points > rules.points
        {
            let message = format!(
                "'{field}' has {width}x{height} pixels; this model accepts sides of at least {SIDE}, a ratio of at \
                 most {} to 1 and {} million pixels.",
                rules.ratio,
                rules.points / 1_000_000
            );
            return Err(ApiError::new(ErrorKind::InvalidField, message).param(field.to_owned()));
        }
    }
    Ok(())
}

fn one_of(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match words.as_slice() {
        [one] => one.clone(),
        words => format!("one of {}", words.join(", ")),
    }
}

/// Converts a size to one that the family has.
fn size(
    given: Option<String>,
    rules: &ImageRules,
    request: &ImageRequest,
) -> Result<Option<String>, ApiError> {
    let ImageRequest { lenient, group, .. } = *request;
    let Some(size) = given else {
        return Ok(match rules.sizes {
            Sizes::Adaptive(word) => Some(word.to_owned()),
            _ => None,
        });
    };
    let field = if lenient { "parameters.aspectRatio" } else { "size" };
    let sides = sides(&size);
    match rules.sizes {
        Sizes::Any => match sides {
            None if size.len() > 32 => Err(wrong(field, "a width and a height, as '1024x1024'")),
            _ => Ok(Some(size)),
        },
        Sizes::Adaptive(word) if size == word || lenient || size == "auto" => Ok(Some(word.to_owned())),
        Sizes::Adaptive(word) => Err(wrong(field, &format!("'{word}': the size follows the input image"))),
        Sizes::Ratios(known) if known.contains(&size.as_str()) => Ok(Some(size)),
        // Clients written for other models send pixel sizes: choose the nearest ratio.
        Sizes::Ratios(known) => match sides {
            Some(sides) if lenient || size.contains('x') => Ok(nearest(sides, known)),
            _ if size == "auto" => Ok(None),
            _ => Err(wrong(field, &one_of(known))),
        },
        Sizes::Pixels(known, words) => match sides {
            _ if known.contains(&size.as_str()) || words.contains(&size.as_str()) => Ok(Some(size)),
            Some(sides) if lenient => Ok(nearest(sides, known)),
            Some(sides) if group && is_free(sides, rules) => Ok(Some(format!("{}x{}", sides.0, sides.1))),
            _ if size == "auto" => Ok(None),
            _ => Err(wrong(field, &one_of(&[known, words].concat()))),
        },
    }
}

/// Returns true if the provider accepts these pixel dimensions although the family does not list them.
fn is_free((width, height): (u32, u32), rules: &ImageRules) -> bool {
    let (long, short) = (u64::from(width.max(height)), u64::from(width.min(height)));
    let (least, most) = rules.free;
    (least.max(1)..=most).contains(&(long * short)) && long <= short * u64::from(rules.ratio.max(1))
}

/// Converts the size tier (`1K`, `2K`, `3K`, `4K`) to the provider's settings.
fn step(request: &mut ImageRequest, rules: &ImageRules) {
    let Some(tier) = &request.tier else { return };
    // No provider has a 3K tier.
    let between = tier == "3K";
    match rules.tier_encoding {
        TierEncoding::Omitted => request.tier = None,
        TierEncoding::AsGivenOrPixels if request.size.is_some() => {
            if request.size != request.tier {
                request.lost_settings.push(ElementLoss::dropped("image_size"));
            }
            request.tier = None;
        }
        TierEncoding::AsGivenOrPixels if between => {
            request.tier = None;
            request.size = Some("3072x3072".to_owned());
        }
        TierEncoding::AsGivenOrLarger if between => {
            request.lost_settings.push(ElementLoss::instead("image_size", "3K made as 4K"));
            request.tier = Some("4K".to_owned());
        }
        _ => {}
    }
}

/// Parses `WxH` or `W:H` into two integers from 1 to 65,535.
pub fn sides(size: &str) -> Option<(u32, u32)> {
    let (width, height) = size.split_once(['x', ':'])?;
    let side = |text: &str| text.parse::<u32>().ok().filter(|side| (1..=65_535).contains(side));
    Some((side(width)?, side(height)?))
}

/// Returns the size with the nearest aspect ratio, the first of equally near ones. `None` if `known` is empty.
pub fn nearest(wanted: (u32, u32), known: &[&str]) -> Option<String> {
    let slope = |(width, height): (u32, u32)| (f64::from(width) / f64::from(height)).ln();
    let distance =
        |size: &&&str| sides(size).map_or(f64::INFINITY, |sides| (slope(sides) - slope(wanted)).abs());
    known.iter().min_by(|one, other| distance(one).total_cmp(&distance(other))).map(|size| (*size).to_owned())
}
