//! Image generation: API shape, paths and supported settings, by provider kind and what the catalogue knows of the model.

use super::profile::KnownModel;
use super::{Provider, ProviderKind};
use crate::canonical::image::{ImageDialect, ImageFamily, ImageShape};
use crate::catalogue::ModelKind;
use crate::wire::Api;
use crate::wire::path::push_path_segment;

/// Settings of OpenAI's models beyond those of all families.
const OPENAI: &[&str] =
    &["background", "input_fidelity", "moderation", "output_compression", "output_format", "style", "user"];
/// Maximum number of images in one call of a model of which it is not known.
const MOST_IMAGES: u32 = 10;
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

/// What is known of a model of images, where it is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImagingRules {
    /// Family of settings. `None` if nothing is known of the model.
    family: Option<ImageFamily>,
    form: Form,
    /// Maximum number of images in one call, where the provider does not decide.
    most: Option<u32>,
}

/// Form of requests at providers that have several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Usual,
    /// Instances and parameters instead of the parts of a conversation (Google).
    Instances,
    /// A prompt, answered by a task (DashScope).
    PromptLater,
    /// Turns, answered by a task (DashScope).
    TurnsLater,
}

impl ImagingRules {
    pub(super) fn of(known: &KnownModel) -> ImagingRules {
        let is_image = known.facts.kind_or_chat() == ModelKind::Image;
        ImagingRules {
            family: is_image.then(|| known.facts.images.unwrap_or(ImageFamily::Other)),
            form: match known.form() {
                "instances" => Form::Instances,
                "prompt-later" => Form::PromptLater,
                "turns-later" => Form::TurnsLater,
                _ => Form::Usual,
            },
            most: known.facts.max_images.and_then(|most| u32::try_from(most).ok()),
        }
    }
}

impl Provider {
    /// Returns the image profile of `model`, of which `rules` are known. `known_as` is the client's name of the model.
    pub fn imaging(&self, model: &str, rules: ImagingRules, known_as: &str) -> ImageDialect {
        let rules = match rules.family {
            // The name is not descriptive, for example a custom endpoint id: use the name that clients know.
            None => ImagingRules::of(&self.known(known_as)),
            Some(_) => rules,
        };
        let family = rules.family.unwrap_or(ImageFamily::Other);
        let most = rules.most.unwrap_or(MOST_IMAGES);
        let prefix = self.base.prefix();
        let dialect = ImageDialect {
            shape: ImageShape::List,
            family,
            make: Box::default(),
            edit: Box::default(),
            tasks: Box::default(),
            max_images: most,
            sends_response_format: false,
            extensions: &[],
        };
        match self.kind {
            ProviderKind::Gemini | ProviderKind::Vertex => {
                let has_instances = rules.form == Form::Instances;
                let mut path = prefix.to_owned();
                path.push_str(if self.kind == ProviderKind::Vertex {
                    "/publishers/google/models/"
                } else {
                    "/models/"
                });
                push_path_segment(&mut path, model);
                path.push_str(if has_instances { ":predict" } else { ":generateContent" });
                let (shape, max_images, extensions) = if has_instances {
                    (ImageShape::Instances, most, IMAGEN)
                } else {
                    (ImageShape::Parts, 1, &[][..])
                };
                let make: Box<str> = path.into();
                ImageDialect { shape, max_images, extensions, edit: make.clone(), make, ..dialect }
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
            ProviderKind::DashScope => self.dashscope_images(rules, dialect),
            kind => {
                let make = self.path(Api::Images, model, None);
                // GPT image models return base64 only and reject `response_format`.
                let told = !matches!(family, ImageFamily::GptImage | ImageFamily::GptImageFree);
                let own = matches!(kind, ProviderKind::OpenAi | ProviderKind::Azure);
                ImageDialect {
                    edit: make.replacen("/images/generations", "/images/edits", 1).into(),
                    make: make.into(),
                    sends_response_format: told,
                    extensions: if own { OPENAI } else { &["*"] },
                    ..dialect
                }
            }
        }
    }

    /// Returns the image profile of DashScope. Qwen models answer synchronously, Wan models with a task. Source:
    /// Alibaba Cloud Model Studio, "Qwen-Image", "Qwen-Image-Edit", "Wan text to image".
    fn dashscope_images(&self, rules: ImagingRules, dialect: ImageDialect) -> ImageDialect {
        let root = format!("{}/api/v1", self.dashscope_root());
        let at = |path: &str| -> Box<str> { format!("{root}/services/aigc/{path}").into() };
        let (shape, path) = match rules.form {
            Form::TurnsLater => (ImageShape::TurnsLater, "image-generation/generation"),
            Form::PromptLater => (ImageShape::PromptLater, "text2image/image-synthesis"),
            Form::Usual | Form::Instances => (ImageShape::Turns, "multimodal-generation/generation"),
        };
        ImageDialect {
            shape,
            // Older models return one image.
            max_images: rules.most.unwrap_or(1),
            make: at(path),
            edit: at(path),
            tasks: format!("{root}/tasks/").into(),
            extensions: DASHSCOPE,
            ..dialect
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(provider: &Provider, model: &str, known_as: &str) -> ImageDialect {
        provider.imaging(model, provider.model_rules(model).images, known_as)
    }

    #[test]
    fn image_family_is_derived_from_the_model_name() {
        let ark = Provider::at(ProviderKind::Ark, "https://h/api/v3");
        for (name, expected) in [
            ("gemini-2.5-flash-image", ImageFamily::Multimodal),
            ("gemini-3-pro-image-preview", ImageFamily::MultimodalPro),
            ("doubao-seedream-3-0-t2i-250415", ImageFamily::Seedream3),
            ("doubao-seededit-3-0-i2i-250628", ImageFamily::Seededit3),
            ("doubao-seedream-4-0-250828", ImageFamily::Seedream4),
            ("seedream-4.0", ImageFamily::Seedream4),
            ("seedream-4.5", ImageFamily::Seedream45),
            ("bytedance-seedream-5-0", ImageFamily::Seedream45),
            ("seededit-3.0", ImageFamily::Seededit3),
            ("nano-banana-pro", ImageFamily::MultimodalPro),
            ("gemini-3.1-flash-image", ImageFamily::Multimodal),
            ("chatgpt-image-latest", ImageFamily::Other),
            ("gpt-image-1.5", ImageFamily::GptImage),
            ("gpt-image-2.6-flare", ImageFamily::GptImageFree),
            ("qwen-image", ImageFamily::Qwen),
            ("qwen-image-2.0-pro", ImageFamily::Qwen),
            ("qwen-image-edit", ImageFamily::QwenEdit),
            ("qwen-image-edit-max-2026-01-16", ImageFamily::QwenEdit),
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
            assert_eq!(profile(&ark, name, name).family, expected, "{name}");
        }
        assert_eq!(profile(&ark, "ep-2025", "seedream-4-0").family, ImageFamily::Seedream4);
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
                "wan2.7-image-pro",
                TurnsLater,
                "/api/v1/services/aigc/image-generation/generation",
                "/api/v1/services/aigc/image-generation/generation",
            ),
        ] {
            let dialect = profile(&Provider::at(kind, base), model, model);
            assert_eq!((dialect.shape, &*dialect.make, &*dialect.edit), (shape, make, edit), "{model}");
            let task = dialect.tasks.to_string();
            assert_eq!(task, if make.starts_with(AIGC) { "/api/v1/tasks/" } else { "" }, "{model}");
        }
    }
    #[test]
    fn image_count_of_one_call_depends_on_the_model() {
        for (kind, model, most) in [
            (ProviderKind::OpenAi, "gpt-image-1", 10),
            (ProviderKind::OpenAi, "dall-e-3", 1),
            (ProviderKind::OpenAi, "dall-e-2", 10),
            (ProviderKind::OpenAi, "house-model", 10),
            (ProviderKind::Gemini, "imagen-4.0-generate-001", 4),
            (ProviderKind::Gemini, "gemini-2.5-flash-image", 1),
            (ProviderKind::Ark, "doubao-seedream-4-0", 1),
            (ProviderKind::DashScope, "qwen-image-plus", 1),
            (ProviderKind::DashScope, "qwen-image-edit", 1),
            (ProviderKind::DashScope, "qwen-image-edit-plus-2025-10-30", 6),
            (ProviderKind::DashScope, "qwen-image-edit-max", 6),
            (ProviderKind::DashScope, "qwen-image-2.0", 6),
            (ProviderKind::DashScope, "wan2.2-t2i-flash", 4),
            (ProviderKind::DashScope, "wanx2.1-t2i-turbo", 4),
            (ProviderKind::DashScope, "wan2.6-image", 4),
        ] {
            let provider = Provider::at(kind, "https://h/v1");
            assert_eq!(profile(&provider, model, model).max_images, most, "{model}");
        }
    }
}
