//! Image generation: API shape, paths and supported settings, by provider kind and model name.

use super::{Provider, ProviderKind};
use crate::canonical::image::{ImageDialect, ImageFamily, ImageShape};
use crate::wire::Api;
use crate::wire::path::push_path_segment;

/// Settings of OpenAI's models beyond those of all families.
const OPENAI: &[&str] =
    &["background", "input_fidelity", "moderation", "output_compression", "output_format", "style", "user"];
const ARK: &[&str] = &["output_format", "safety_identifier"];
const DASHSCOPE: &[&str] = &["negative_prompt", "prompt_extend"];
/// Settings that exist only in Imagen's `parameters`.
const IMAGEN: &[&str] = &[
    "addWatermark",
    "enhancePrompt",
    "includeRaiReason",
    "includeSafetyAttributes",
    "language",
    "negativePrompt",
    "negative_prompt",
    "outputOptions",
    "personGeneration",
    "safetySetting",
];

impl Provider {
    /// Returns the image profile of `model`. `known_as` is the client's name of the model.
    pub fn imaging(&self, model: &str, known_as: &str) -> ImageDialect {
        let name = model.to_ascii_lowercase();
        let family = match family(&name) {
            // The name is not descriptive, for example a custom endpoint id: use the name that clients know.
            ImageFamily::Other => family(&known_as.to_ascii_lowercase()),
            family => family,
        };
        let prefix = self.base.prefix();
        let dialect = ImageDialect {
            shape: ImageShape::List,
            family,
            make: Box::default(),
            edit: Box::default(),
            tasks: Box::default(),
            max_images: 10,
            sends_response_format: false,
            extensions: &[],
        };
        match self.kind {
            ProviderKind::Gemini | ProviderKind::Vertex => {
                let imagen = name.contains("imagen");
                let mut path = prefix.to_owned();
                path.push_str(if self.kind == ProviderKind::Vertex {
                    "/publishers/google/models/"
                } else {
                    "/models/"
                });
                push_path_segment(&mut path, model);
                path.push_str(if imagen { ":predict" } else { ":generateContent" });
                let (shape, most, extensions) =
                    if imagen { (ImageShape::Instances, 4, IMAGEN) } else { (ImageShape::Parts, 1, &[][..]) };
                ImageDialect {
                    shape,
                    max_images: most,
                    extensions,
                    make: path.clone().into(),
                    edit: path.into(),
                    ..dialect
                }
            }
            ProviderKind::Ark => {
                let path: Box<str> = format!("{prefix}/images/generations").into();
                ImageDialect {
                    shape: ImageShape::Flat,
                    max_images: 1,
                    sends_response_format: true,
                    extensions: ARK,
                    edit: path.clone(),
                    make: path,
                    ..dialect
                }
            }
            ProviderKind::DashScope => self.dashscope_images(&name, dialect),
            kind => {
                let make = self.path(Api::Images, model, None);
                // GPT image models return base64 only and reject `response_format`.
                let told = !matches!(family, ImageFamily::GptImage | ImageFamily::GptImageFree);
                let own = matches!(kind, ProviderKind::OpenAi | ProviderKind::Azure);
                ImageDialect {
                    edit: make.replacen("/images/generations", "/images/edits", 1).into(),
                    make: make.into(),
                    max_images: if name.contains("dall-e-3") { 1 } else { 10 },
                    sends_response_format: told,
                    extensions: if own { OPENAI } else { &["*"] },
                    ..dialect
                }
            }
        }
    }

    /// Returns the image profile of DashScope. Qwen models answer synchronously, Wan models with a task. Source:
    /// Alibaba Cloud Model Studio, "Qwen-Image", "Qwen-Image-Edit", "Wan text to image".
    fn dashscope_images(&self, name: &str, dialect: ImageDialect) -> ImageDialect {
        let root = format!("{}/api/v1", self.dashscope_root());
        let at = |path: &str| -> Box<str> { format!("{root}/services/aigc/{path}").into() };
        let wan = name.starts_with("wan");
        let (shape, path, most) = match () {
            () if wan && name.contains("-image") => {
                (ImageShape::TurnsLater, "image-generation/generation", 4)
            }
            () if wan => (ImageShape::PromptLater, "text2image/image-synthesis", 4),
            () => {
                // Only the newer Qwen models return several images.
                let several = ["edit-plus", "edit-max", "image-2"].iter().any(|word| name.contains(word));
                (ImageShape::Turns, "multimodal-generation/generation", if several { 6 } else { 1 })
            }
        };
        ImageDialect {
            shape,
            max_images: most,
            make: at(path),
            edit: at(path),
            tasks: format!("{root}/tasks/").into(),
            extensions: DASHSCOPE,
            ..dialect
        }
    }
}

/// Returns the image family of a model name in lower case.
fn family(name: &str) -> ImageFamily {
    let has = |word: &str| name.contains(word);
    match () {
        () if has("seededit") => ImageFamily::Seededit3,
        () if has("seedream") => match () {
            () if has("seedream-3") => ImageFamily::Seedream3,
            () if has("seedream-4-5") || has("seedream-4.5") => ImageFamily::Seedream45,
            () if has("seedream-4") => ImageFamily::Seedream4,
            () => ImageFamily::Seedream45,
        },
        () if has("gpt-image-2") => ImageFamily::GptImageFree,
        () if has("gpt-image") => ImageFamily::GptImage,
        () if has("qwen") && has("image") => {
            if has("edit") {
                ImageFamily::QwenEdit
            } else {
                ImageFamily::Qwen
            }
        }
        () if has("nano-banana") || (has("gemini") && has("image")) => {
            if has("pro") {
                ImageFamily::MultimodalPro
            } else {
                ImageFamily::Multimodal
            }
        }
        () => ImageFamily::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_family_is_derived_from_the_model_name() {
        for (name, expected) in [
            ("gemini-2.5-flash-image", ImageFamily::Multimodal),
            ("gemini-3-pro-image-preview", ImageFamily::MultimodalPro),
            ("doubao-seedream-3-0-t2i-250415", ImageFamily::Seedream3),
            ("doubao-seededit-3-0-i2i-250628", ImageFamily::Seededit3),
            ("doubao-seedream-4-0-250828", ImageFamily::Seedream4),
            ("doubao-seedream-4-5-251128", ImageFamily::Seedream45),
            ("gpt-image-1", ImageFamily::GptImage),
            ("gpt-image-1-mini", ImageFamily::GptImage),
            ("gpt-image-2", ImageFamily::GptImageFree),
            ("qwen-image-plus", ImageFamily::Qwen),
            ("qwen-image-edit-plus", ImageFamily::QwenEdit),
            ("dall-e-3", ImageFamily::Other),
            ("imagen-4.0-generate-001", ImageFamily::Other),
            ("gemini-2.5-flash", ImageFamily::Other),
        ] {
            assert_eq!(family(name), expected, "{name}");
        }
        let ark = Provider::at(ProviderKind::Ark, "https://h/api/v3");
        assert_eq!(ark.imaging("ep-2025", "seedream-4-0").family, ImageFamily::Seedream4);
    }

    #[test]
    fn image_paths_and_shape_depend_on_the_provider() {
        use ImageShape::{Flat, Instances, List, Parts, PromptLater, Turns, TurnsLater};
        const AIGC: &str = "/api/v1/services/aigc";
        for (kind, base, model, shape, make, edit) in [
            (
                ProviderKind::OpenAi,
                "https://h/v1",
                "gpt-image-1",
                List,
                "/v1/images/generations",
                "/v1/images/edits",
            ),
            (
                ProviderKind::Azure,
                "https://h",
                "gpt-image-1",
                List,
                "/openai/deployments/gpt-image-1/images/generations?api-version=2024-10-21",
                "/openai/deployments/gpt-image-1/images/edits?api-version=2024-10-21",
            ),
            (
                ProviderKind::Gemini,
                "https://h/v1beta",
                "gemini-2.5-flash-image",
                Parts,
                "/v1beta/models/gemini-2.5-flash-image:generateContent",
                "/v1beta/models/gemini-2.5-flash-image:generateContent",
            ),
            (
                ProviderKind::Vertex,
                "https://h/v1/projects/p/locations/l",
                "imagen-4.0-generate-001",
                Instances,
                "/v1/projects/p/locations/l/publishers/google/models/imagen-4.0-generate-001:predict",
                "/v1/projects/p/locations/l/publishers/google/models/imagen-4.0-generate-001:predict",
            ),
            (
                ProviderKind::Ark,
                "https://h/api/v3",
                "doubao-seedream-4-0",
                Flat,
                "/api/v3/images/generations",
                "/api/v3/images/generations",
            ),
            (
                ProviderKind::DashScope,
                "https://h/compatible-mode/v1",
                "qwen-image-plus",
                Turns,
                "/api/v1/services/aigc/multimodal-generation/generation",
                "/api/v1/services/aigc/multimodal-generation/generation",
            ),
            (
                ProviderKind::DashScope,
                "https://h/api/v1",
                "wan2.2-t2i-plus",
                PromptLater,
                "/api/v1/services/aigc/text2image/image-synthesis",
                "/api/v1/services/aigc/text2image/image-synthesis",
            ),
            (
                ProviderKind::DashScope,
                "https://h/api/v1",
                "wan2.6-image",
                TurnsLater,
                "/api/v1/services/aigc/image-generation/generation",
                "/api/v1/services/aigc/image-generation/generation",
            ),
        ] {
            let dialect = Provider::at(kind, base).imaging(model, model);
            assert_eq!((dialect.shape, &*dialect.make, &*dialect.edit), (shape, make, edit), "{model}");
            let task = dialect.tasks.to_string();
            assert_eq!(task, if make.starts_with(AIGC) { "/api/v1/tasks/" } else { "" }, "{model}");
        }
    }
}
