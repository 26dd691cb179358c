//! Facts of models of images and videos: values that no other model has.

use super::document::TomlValue;
use super::words::FactValue;
use crate::canonical::image::ImageFamily;
use crate::canonical::video::{PictureRole, Seconds};

impl FactValue for ImageFamily {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        let text = value.text()?;
        let found = ImageFamily::ALL.into_iter().find(|family| family.word() == text);
        if found.is_none() {
            let words = ImageFamily::ALL.map(ImageFamily::word).join(", ");
            value.wrong(format!("{text:?} is no family of image settings"), format!("write one of {words}"));
        }
        found
    }

    fn written(&self) -> String {
        self.rules().name.to_owned()
    }
}

impl FactValue for PictureRole {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        let text = value.text()?;
        let found = PictureRole::ALL.into_iter().find(|role| role.name() == text);
        if found.is_none() {
            let words = PictureRole::ALL.map(PictureRole::name).join(", ");
            value.wrong(format!("{text:?} is no role of an image"), format!("write some of {words}"));
        }
        found
    }

    fn written(&self) -> String {
        self.name().to_owned()
    }
}

/// A list of lengths, or a range such as `"2-12"`.
impl FactValue for Seconds {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        let seconds = if value.is_list() {
            let mut lengths = Vec::new();
            value.elements(|element| lengths.extend(element.count()));
            lengths.iter().all(|length| *length <= Seconds::MAX).then(|| Seconds::of(&lengths))
        } else {
            let ends = value.text()?.split_once('-');
            ends.and_then(|(least, most)| Some(Seconds::range(least.parse().ok()?, most.parse().ok()?)))
        };
        let found = seconds.filter(|seconds| !seconds.is_empty());
        if found.is_none() {
            let hint = format!("write lengths up to {}, such as [4, 8], or \"2-12\"", Seconds::MAX);
            value.wrong("is no set of lengths in seconds", hint);
        }
        found
    }

    fn written(&self) -> String {
        format!("{self} seconds")
    }
}
