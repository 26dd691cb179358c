//! Normalization of length, size, resolution and ratio: converts the settings of any client format to those of the
//! model, and refuses those that the model does not support.

use std::borrow::Cow;

use super::members::{VideoMembers, one_of, wrong};
use crate::canonical::video::{PictureRole, Video, VideoDialect, VideoShape};
use crate::error::ApiError;

/// Resolution names (docs/specification.md, 4.8), with their number of lines.
const RESOLUTIONS: &[(&str, u64)] = &[("480p", 480), ("720p", 720), ("1080p", 1_080), ("4k", 2_160)];
/// Names of aspect ratios.
const RATIOS: &[&str] = &["16:9", "9:16", "1:1", "4:3", "3:4", "21:9", "adaptive"];
/// Values of `personGeneration`.
pub(super) const PEOPLE: &[&str] = &["allow_all", "allow_adult", "dont_allow"];
/// Member names of the aspect ratio.
pub(super) const RATIO: &[&str] = &["aspect_ratio", "aspectRatio", "ratio"];
/// Default aspect ratio.
pub const USUAL_RATIO: &str = "16:9";
/// Frame rate of all models, in frames per second.
pub const FRAMES_A_SECOND: u64 = 24;
/// Range of a video's number of frames, for error messages.
pub(super) const FRAMES: &str = "a number of frames from 29 to 289";

/// Returns true if a number of frames is in range.
pub(super) fn has_frames(frames: u64) -> bool {
    (29..=289).contains(&frames)
}

/// Returns the member names of the length.
pub(super) const fn lengths(shape: VideoShape) -> &'static [&'static str] {
    match shape {
        VideoShape::Remix => &["seconds", "duration"],
        VideoShape::Preview => &["durationSeconds", "duration_seconds", "duration", "seconds"],
        VideoShape::Nested | VideoShape::Bundled => &["duration", "seconds", "durationSeconds"],
    }
}

/// Reads length, size, resolution and ratio.
pub(super) fn read<'a>(
    members: &mut VideoMembers<'a>,
    dialect: &VideoDialect,
    video: &mut Video<'a>,
) -> Result<(), ApiError> {
    video.seconds = members.whole(lengths(dialect.shape))?.map(|(_, seconds)| seconds);
    if dialect.shape == VideoShape::Bundled {
        video.frames = members.whole(&["frames"])?.map(|(_, frames)| frames);
    }
    video.ratio = members.text(RATIO)?.map(|(_, ratio)| ratio);
    video.resolution =
        members.text(&["resolution"])?.map(|(_, resolution)| Cow::Owned(resolution.to_ascii_lowercase()));
    if let Some((path, size)) = members.text(&["size"])? {
        let parts = size.split_once(['x', 'X', '*']);
        let parts = parts.and_then(|(w, h)| Some((w.trim().parse().ok()?, h.trim().parse().ok()?)));
        video.size = Some(parts.ok_or_else(|| wrong(&path, "<width>x<height>"))?);
    }
    Ok(())
}

/// Converts length, size, resolution and ratio to the model's settings.
///
/// # Errors
/// Returns an [`ApiError`] that names the client's field if the model does not support a value, or two fields
/// contradict each other.
pub fn resolve_dimensions(dialect: &VideoDialect, video: &mut Video<'_>) -> Result<(), ApiError> {
    if let Some(seconds) = video.seconds
        && !dialect.seconds.has(seconds)
    {
        return Err(wrong(
            video.path_of("duration"),
            format_args!("{} seconds for this model", dialect.seconds),
        ));
    }
    if video.frames.is_some_and(|frames| !has_frames(frames)) {
        return Err(wrong(video.path_of("frames"), FRAMES));
    }
    if let Some(resolution) = video.resolution.as_deref()
        && !RESOLUTIONS.iter().any(|(name, _)| *name == resolution)
    {
        let names: Vec<&str> = RESOLUTIONS.iter().map(|(name, _)| *name).collect();
        return Err(wrong(video.path_of("resolution"), one_of(&names)));
    }
    if let Some(ratio) = video.ratio.as_deref()
        && !dialect.ratios.contains(&ratio)
    {
        return Err(for_model(video, "aspect_ratio", dialect.ratios));
    }
    if dialect.shape == VideoShape::Remix {
        return size_of(dialect, video);
    }
    if let Some(size) = video.size.take() {
        named(dialect, video, size)?;
    }
    if let Some(resolution) = video.resolution.as_deref()
        && !dialect.resolutions.contains(&resolution)
    {
        return Err(for_model(video, "resolution", dialect.resolutions));
    }
    in_full(dialect, video)?;
    // An image determines the ratio of its video, so only a video from text needs one
    // of `NESTED_SIZES`.
    let from_text = dialect.shape == VideoShape::Nested && !dialect.listed && video.pictures.is_empty();
    if from_text {
        let resolution = video.resolution.as_deref().unwrap_or(dialect.default_resolution);
        let ratio = video.ratio.as_deref().unwrap_or(USUAL_RATIO);
        if nested_size(resolution, ratio).is_none() {
            let all = dialect.ratios.iter().copied();
            let can: Vec<&str> = all.filter(|ratio| nested_size(resolution, ratio).is_some()).collect();
            let wanted = format!("{} at {resolution}", one_of(&can));
            return Err(wrong(video.path_of("aspect_ratio"), wanted));
        }
    }
    Ok(())
}

fn for_model(video: &Video<'_>, name: &'static str, can: &[&str]) -> ApiError {
    wrong(video.path_of(name), format_args!("{} for this model", one_of(can)))
}

fn sides(size: &str) -> Option<(u64, u64)> {
    let (width, height) = size.split_once('x')?;
    Some((width.parse().ok()?, height.parse().ok()?))
}

/// Returns the name of a resolution by its number of lines.
fn lines(lines: u64) -> Option<&'static str> {
    RESOLUTIONS.iter().find(|(_, known)| *known == lines).map(|(name, _)| *name)
}

/// Chooses the size of a remix-shape video: the first of the model's sizes that fits size, ratio and resolution.
fn size_of(dialect: &VideoDialect, video: &mut Video<'_>) -> Result<(), ApiError> {
    let mut left: Vec<(u64, u64)> = dialect.resolutions.iter().filter_map(|size| sides(size)).collect();
    let said = video.size.is_some() || video.ratio.is_some() || video.resolution.is_some();
    if let Some(size) = video.size {
        left.retain(|known| *known == size);
        if left.is_empty() {
            return Err(wrong(video.path_of("size"), one_of(dialect.resolutions)));
        }
    }
    if let Some(ratio) = video.ratio.as_deref() {
        left.retain(|(width, height)| (width > height) == (ratio == "16:9"));
        if left.is_empty() {
            return Err(wrong(video.path_of("aspect_ratio"), "that of 'size'"));
        }
    }
    if let Some(resolution) = video.resolution.as_deref() {
        let of = |(width, height): &(u64, u64)| lines((*width).min(*height));
        let can: Vec<&str> = left.iter().filter_map(of).collect();
        left.retain(|size| of(size) == Some(resolution));
        if left.is_empty() {
            let mut can = can;
            can.dedup();
            return Err(for_model(video, "resolution", &can));
        }
    }
    video.size = left.first().copied().filter(|_| said);
    (video.ratio, video.resolution) = (None, None);
    Ok(())
}

/// Converts width and height to the names of a resolution and a ratio.
fn named(dialect: &VideoDialect, video: &mut Video<'_>, size: (u64, u64)) -> Result<(), ApiError> {
    let found = match dialect.shape {
        VideoShape::Nested => nested_names(size),
        _ => usual_names(size, dialect.shape == VideoShape::Preview),
    };
    let found = found.filter(|(resolution, ratio)| {
        dialect.resolutions.contains(resolution) && dialect.ratios.contains(ratio)
    });
    let Some((resolution, ratio)) = found else {
        let wanted = format!(
            "the width and height of a resolution and a ratio of this model ({}; {}), as '1280x720'",
            dialect.resolutions.join(", "),
            dialect.ratios.join(", ")
        );
        return Err(wrong(video.path_of("size"), wanted));
    };
    if video.resolution.as_deref().is_some_and(|said| said != resolution) {
        return Err(wrong(video.path_of("resolution"), "that of 'size'"));
    }
    if video.ratio.as_deref().is_some_and(|said| said != ratio) {
        return Err(wrong(video.path_of("aspect_ratio"), "that of 'size'"));
    }
    (video.resolution, video.ratio) = (Some(resolution.into()), Some(ratio.into()));
    Ok(())
}

/// Upper bound of a side in pixels, so that the products below cannot overflow.
const LONGEST_SIDE: u64 = 16_384;

/// Returns the resolution, by the shorter side, and the ratio. Providers round sides to multiples that their encoders
/// need, so the ratio is approximate unless `exact` is set.
fn usual_names((width, height): (u64, u64), exact: bool) -> Option<(&'static str, &'static str)> {
    let resolution = lines(width.min(height))?;
    let long = width.max(height);
    if long > LONGEST_SIDE {
        return None;
    }
    let ratio = RATIOS.iter().find(|ratio| {
        let Some((w, h)) = ratio.split_once(':') else { return false };
        let (Ok(w), Ok(h)) = (w.parse::<u64>(), h.parse::<u64>()) else { return false };
        // Tolerance: 5%.
        let (one, other) = (width * h, height * w);
        if exact { one == other } else { one.abs_diff(other) * 20 <= one.max(other) }
    });
    ratio.map(|ratio| (resolution, *ratio))
}

/// Returns resolution and ratio by the size table of the nested-shape provider.
fn nested_names((width, height): (u64, u64)) -> Option<(&'static str, &'static str)> {
    let size = format!("{width}*{height}");
    NESTED_SIZES.iter().find(|(.., known)| *known == size).map(|(resolution, ratio, _)| (*resolution, *ratio))
}

/// Enforces the fixed length that some models have at the highest resolutions and for videos with a last image.
fn in_full(dialect: &VideoDialect, video: &mut Video<'_>) -> Result<(), ApiError> {
    let Some(only) = dialect.seconds_in_full else { return Ok(()) };
    let is_full = |resolution: &str| matches!(resolution, "1080p" | "4k");
    match (video.seconds, video.resolution.as_deref()) {
        (Some(seconds), Some(resolution)) if is_full(resolution) && seconds != only => {
            let wanted = format!("{only} seconds at {resolution} for this model");
            return Err(wrong(video.path_of("duration"), wanted));
        }
        (Some(_), Some(_)) => {}
        (Some(seconds), None) => {
            let usual = if seconds == only { dialect.default_resolution } else { "720p" };
            video.resolution = Some(usual.into());
        }
        (None, said) => {
            let framed = video.picture(PictureRole::Last).is_some();
            let full = said.is_some_and(is_full);
            if full || framed {
                video.seconds = Some(only);
            }
            // The default length and the default resolution exclude each other here: keep the length.
            let resolution = if framed { dialect.default_resolution } else { "720p" };
            video.resolution.get_or_insert_with(|| resolution.into());
        }
    }
    Ok(())
}

/// Sizes of the nested-shape provider: resolution, ratio, size.
const NESTED_SIZES: [(&str, &str, &str); 13] = [
    ("480p", "16:9", "832*480"),
    ("480p", "9:16", "480*832"),
    ("480p", "1:1", "624*624"),
    ("720p", "16:9", "1280*720"),
    ("720p", "9:16", "720*1280"),
    ("720p", "1:1", "960*960"),
    ("720p", "4:3", "1088*832"),
    ("720p", "3:4", "832*1088"),
    ("1080p", "16:9", "1920*1080"),
    ("1080p", "9:16", "1080*1920"),
    ("1080p", "1:1", "1440*1440"),
    ("1080p", "4:3", "1632*1248"),
    ("1080p", "3:4", "1248*1632"),
];

/// Returns the nested-shape provider's size for a resolution and a ratio, or `None` if it has none.
pub(super) fn nested_size(resolution: &str, ratio: &str) -> Option<&'static str> {
    let known = NESTED_SIZES.iter().find(|(r, a, _)| *r == resolution && *a == ratio);
    known.map(|(.., size)| *size)
}
