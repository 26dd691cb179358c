//! How each provider is asked for images, by the kind of provider and the name of the model.

use super::{Kind, Provider};
use crate::canonical::image::{ImageDialect, ImageFamily, ImageShape};
use crate::wire::Api;
use crate::wire::path::push_path_segment;

/// What OpenAI's models take beside what all families have.
const OPENAI: &[&str] =
    &["background", "input_fidelity", "moderation", "output_compression", "output_format", "style", "user"];
const ARK: &[&str] = &["output_format", "safety_identifier"];
const DASHSCOPE: &[&str] = &["negative_prompt", "prompt_extend"];
/// What stands in `parameters` there and nowhere else.
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
    /// How images are asked for from a model, which clients know under another name.
    pub fn imaging(&self, model: &str, known_as: &str) -> ImageDialect {
        let name = model.to_ascii_lowercase();
        let family = match family(&name) {
            // A name that says nothing: an endpoint of one's own.
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
            most: 10,
            asks_format: false,
            extensions: &[],
        };
        match self.kind {
            Kind::Gemini | Kind::Vertex => {
                let imagen = name.contains("imagen");
                let mut path = prefix.to_owned();
                path.push_str(if self.kind == Kind::Vertex {
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
                    most,
                    extensions,
                    make: path.clone().into(),
                    edit: path.into(),
                    ..dialect
                }
            }
            Kind::Ark => {
                let path: Box<str> = format!("{prefix}/images/generations").into();
                ImageDialect {
                    shape: ImageShape::Flat,
                    most: 1,
                    asks_format: true,
                    extensions: ARK,
                    edit: path.clone(),
                    make: path,
                    ..dialect
                }
            }
            Kind::DashScope => self.dashscope_images(&name, dialect),
            kind => {
                let make = self.path(Api::Images, model, None);
                // Models that answer with the image alone refuse to be asked how.
                let told = !matches!(family, ImageFamily::GptImage | ImageFamily::GptImageFree);
                let own = matches!(kind, Kind::OpenAi | Kind::Azure);
                ImageDialect {
                    edit: make.replacen("/images/generations", "/images/edits", 1).into(),
                    make: make.into(),
                    most: if name.contains("dall-e-3") { 1 } else { 10 },
                    asks_format: told,
                    extensions: if own { OPENAI } else { &["*"] },
                    ..dialect
                }
            }
        }
    }

    /// Model Studio, "Qwen-Image", "Qwen-Image-Edit", "Wan text to image": the first two answer at once, the others
    /// with a task.
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
                // Of these, the newer ones make several.
                let several = ["edit-plus", "edit-max", "image-2"].iter().any(|word| name.contains(word));
                (ImageShape::Turns, "multimodal-generation/generation", if several { 6 } else { 1 })
            }
        };
        ImageDialect {
            shape,
            most,
            make: at(path),
            edit: at(path),
            tasks: format!("{root}/tasks/").into(),
            extensions: DASHSCOPE,
            ..dialect
        }
    }
}

/// The family that a model's name, in small letters, tells.
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
    use crate::provider::{BaseUrl, Setup};

    fn provider(kind: Kind, base: &str) -> Provider {
        let base = BaseUrl::parse(base).unwrap();
        Provider::new(Setup { name: "p".to_owned(), kind, apis: kind.default_apis().to_vec(), base })
    }

    #[test]
    fn a_model_s_name_tells_its_family() {
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
        let ark = provider(Kind::Ark, "https://h/api/v3");
        assert_eq!(ark.imaging("ep-2025", "seedream-4-0").family, ImageFamily::Seedream4);
    }

    #[test]
    fn each_provider_is_asked_where_it_has_its_images() {
        use ImageShape::{Flat, Instances, List, Parts, PromptLater, Turns, TurnsLater};
        const AIGC: &str = "/api/v1/services/aigc";
        for (kind, base, model, shape, make, edit) in [
            (Kind::OpenAi, "https://h/v1", "gpt-image-1", List, "/v1/images/generations", "/v1/images/edits"),
            (
                Kind::Azure,
                "https://h",
                "gpt-image-1",
                List,
                "/openai/deployments/gpt-image-1/images/generations?api-version=2024-10-21",
                "/openai/deployments/gpt-image-1/images/edits?api-version=2024-10-21",
            ),
            (
                Kind::Gemini,
                "https://h/v1beta",
                "gemini-2.5-flash-image",
                Parts,
                "/v1beta/models/gemini-2.5-flash-image:generateContent",
                "/v1beta/models/gemini-2.5-flash-image:generateContent",
            ),
            (
                Kind::Vertex,
                "https://h/v1/projects/p/locations/l",
                "imagen-4.0-generate-001",
                Instances,
                "/v1/projects/p/locations/l/publishers/google/models/imagen-4.0-generate-001:predict",
                "/v1/projects/p/locations/l/publishers/google/models/imagen-4.0-generate-001:predict",
            ),
            (
                Kind::Ark,
                "https://h/api/v3",
                "doubao-seedream-4-0",
                Flat,
                "/api/v3/images/generations",
                "/api/v3/images/generations",
            ),
            (
                Kind::DashScope,
                "https://h/compatible-mode/v1",
                "qwen-image-plus",
                Turns,
                "/api/v1/services/aigc/multimodal-generation/generation",
                "/api/v1/services/aigc/multimodal-generation/generation",
            ),
            (
                Kind::DashScope,
                "https://h/api/v1",
                "wan2.2-t2i-plus",
                PromptLater,
                "/api/v1/services/aigc/text2image/image-synthesis",
                "/api/v1/services/aigc/text2image/image-synthesis",
            ),
            (
                Kind::DashScope,
                "https://h/api/v1",
                "wan2.6-image",
                TurnsLater,
                "/api/v1/services/aigc/image-generation/generation",
                "/api/v1/services/aigc/image-generation/generation",
            ),
        ] {
            let dialect = provider(kind, base).imaging(model, model);
            assert_eq!((dialect.shape, &*dialect.make, &*dialect.edit), (shape, make, edit), "{model}");
            let task = dialect.tasks.to_string();
            assert_eq!(task, if make.starts_with(AIGC) { "/api/v1/tasks/" } else { "" }, "{model}");
        }
    }
}
