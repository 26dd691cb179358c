//! Image requests, the rules of each model family, and the request shapes of providers.

use bytes::Bytes;

use super::ElementLoss;

/// Image generation or edit request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRequest {
    /// Prompt: all texts of the request.
    pub prompt: String,
    /// Conversation turns, if the request is a conversation.
    pub turns: Vec<ImageTurn>,
    /// All input images of the request, in order.
    pub images: Vec<ImageInput>,
    /// Edit mask: its transparent part marks the area that may change (see also `group`).
    pub mask: Option<ImageInput>,
    /// Number of images; `None` if the client gave none.
    pub count: Option<u32>,
    /// Size: `WxH` in pixels, a ratio `W:H`, or a name of the provider's.
    pub size: Option<String>,
    /// Whether unsupported settings are adapted: the nearest size is used, and settings that the family lacks are
    /// dropped. Set for a client format that has the same settings for all families.
    pub lenient: bool,
    /// Resolution tier (`1K`, `2K`, `4K`).
    pub tier: Option<String>,
    /// Quality level.
    pub quality: Option<String>,
    /// `Some(true)`: images inside the response (base64); `Some(false)`: as links; `None`: the client did not say.
    pub inline: Option<bool>,
    /// Random seed.
    pub seed: Option<u32>,
    /// Temperature, as the number literal of the client.
    pub temperature: Option<String>,
    /// `top_p`, as the number literal of the client.
    pub top_p: Option<String>,
    /// Guidance scale (adherence to the prompt), as the number literal of the client.
    pub guidance: Option<String>,
    /// Whether the images get a watermark. `None` if the client does not say, which means no.
    pub watermark: Option<bool>,
    /// Maximum number of images in a series of related images; `None` for no series.
    pub sequence: Option<u32>,
    /// Prompt optimization mode.
    pub optimize: Option<String>,
    /// Output format, as a media type.
    pub media: Option<String>,
    /// Whether the response has text beside the images (`true`) or images only (`false`).
    pub with_text: Option<bool>,
    /// Whether the request came through the task group. Its sizes are not limited to those of the family, and the white
    /// part of its mask marks the area that may change.
    pub group: bool,
    /// Members without a field above: names, and values as JSON.
    pub extra: Vec<(String, String)>,
    /// Settings that the model does not support.
    pub lost_settings: Vec<ElementLoss>,
}

/// Turn of an image conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTurn {
    /// Whether the turn is the model's.
    pub model: bool,
    /// Content of the turn.
    pub parts: Vec<ImagePart>,
}

/// Part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum ImagePart {
    /// Text.
    Text(String),
    /// Image, as an index into [`ImageRequest::images`].
    Image(usize),
}

/// Input image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageInput {
    /// Field of the request that holds the image.
    pub field: String,
    /// Location of the image.
    pub source: ImageSource,
}

/// Location of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageSource {
    /// Remote address.
    Link(String),
    /// Bytes in the request.
    Bytes(Bytes),
}

/// Image file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP.
    Webp,
    /// GIF.
    Gif,
    /// BMP.
    Bmp,
    /// TIFF.
    Tiff,
}

impl ImageFormat {
    /// Returns the display name.
    pub const fn name(self) -> &'static str {
        match self {
            ImageFormat::Png => "PNG",
            ImageFormat::Jpeg => "JPEG",
            ImageFormat::Webp => "WEBP",
            ImageFormat::Gif => "GIF",
            ImageFormat::Bmp => "BMP",
            ImageFormat::Tiff => "TIFF",
        }
    }

    /// Returns the media type.
    pub const fn media(self) -> &'static str {
        match self {
            ImageFormat::Png => "image/png",
            ImageFormat::Jpeg => "image/jpeg",
            ImageFormat::Webp => "image/webp",
            ImageFormat::Gif => "image/gif",
            ImageFormat::Bmp => "image/bmp",
            ImageFormat::Tiff => "image/tiff",
        }
    }

    /// Returns the file name extension.
    pub const fn suffix(self) -> &'static str {
        match self {
            ImageFormat::Png => "png",
            ImageFormat::Jpeg => "jpg",
            ImageFormat::Webp => "webp",
            ImageFormat::Gif => "gif",
            ImageFormat::Bmp => "bmp",
            ImageFormat::Tiff => "tiff",
        }
    }
}

/// Sizes that a model family supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Aspect ratios, width to height.
    Ratios(&'static [&'static str]),
    /// Sizes in pixels, and names of sizes that the model chooses.
    Pixels(&'static [&'static str], &'static [&'static str]),
    /// The size of the input image, requested by this word.
    Adaptive(&'static str),
    /// Any size; the provider checks it.
    Any,
}

/// Form in which a family returns images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageDelivery {
    /// Inside the response, whatever the client requested.
    Inline,
    /// As links, unless the client requests otherwise.
    AsRequested,
}

/// Way to send the resolution tier to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierEncoding {
    /// As the client gave it.
    AsGiven,
    /// As the client gave it; a tier that the provider lacks becomes the next larger one.
    AsGivenOrLarger,
    /// As the client gave it; a tier that the provider lacks becomes a size in pixels.
    AsGivenOrPixels,
    /// Not sent: the family has one tier only.
    Omitted,
}

/// Rules of a model family: supported settings and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRules {
    /// Display name.
    pub name: &'static str,
    /// Supported sizes.
    pub sizes: Sizes,
    /// Supported resolution tiers.
    pub tiers: &'static [&'static str],
    /// Way to send the resolution tier to the provider.
    pub tier_encoding: TierEncoding,
    /// Range of pixel counts (width x height) for sizes beyond the named ones, of any ratio within `ratio`; `(0, 0)` if
    /// only the named sizes are supported.
    pub free: (u64, u64),
    /// Supported quality levels. If empty, no quality is sent.
    pub qualities: &'static [&'static str],
    /// Minimum and maximum number of input images.
    pub inputs: (usize, usize),
    /// File formats of input images.
    pub formats: &'static [ImageFormat],
    /// Maximum size of an input image, in bytes.
    pub bytes: usize,
    /// Maximum ratio of the longer to the shorter side of an input image; 0 for no limit.
    pub ratio: u32,
    /// Maximum number of pixels of an input image.
    pub points: u64,
    /// Maximum number of images per request.
    pub max_images: u32,
    /// Maximum number of input and output images together; `None` for no limit.
    pub together: Option<u32>,
    /// Form in which images are returned.
    pub delivery: ImageDelivery,
    /// Whether `guidance_scale` is supported.
    pub guidance: bool,
    /// Whether a series of related images is supported.
    pub sequence: bool,
    /// Prompt optimization modes.
    pub optimize: &'static [&'static str],
}

/// Family of image models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageFamily {
    /// Multimodal language models with image output.
    Multimodal,
    /// Larger multimodal language models.
    MultimodalPro,
    /// Seedream 3.0, text to image.
    Seedream3,
    /// Seedream 3.0, image edit.
    Seededit3,
    /// Seedream 4.0.
    Seedream4,
    /// Seedream 4.5 and later.
    Seedream45,
    /// GPT-image.
    GptImage,
    /// GPT-image with arbitrary sizes.
    GptImageFree,
    /// Qwen, text to image.
    Qwen,
    /// Qwen, image edit.
    QwenEdit,
    /// Unknown family: the gateway checks little, the provider judges the request.
    Other,
}

/// Converts megabytes to bytes, with 2^20 bytes each: the larger reading of "megabyte", so that the gateway refuses no
/// file that the provider accepts.
const fn megabytes(n: usize) -> usize {
    n << 20
}

const RATIOS: &[&str] = &["1:1", "3:2", "2:3", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"];
const USUAL_INPUT: &[ImageFormat] = &[ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Webp];
const ALL_INPUT: &[ImageFormat] = &[
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::Webp,
    ImageFormat::Gif,
    ImageFormat::Bmp,
    ImageFormat::Tiff,
];
const LARGE: &[&str] = &[
    "2048x2048",
    "2304x1728",
    "1728x2304",
    "2560x1440",
    "1440x2560",
    "2496x1664",
    "1664x2496",
    "3024x1296",
    "4096x4096",
    "4704x3520",
    "3520x4704",
    "5504x3040",
    "3040x5504",
    "4992x3328",
    "3328x4992",
    "6240x2656",
];

const OTHER: ImageRules = ImageRules {
    name: "others",
    sizes: Sizes::Any,
    tiers: &[],
    tier_encoding: TierEncoding::AsGiven,
    free: (0, 0),
    qualities: &[],
    inputs: (0, 16),
    formats: ALL_INPUT,
    bytes: megabytes(50),
    ratio: 0,
    points: u64::MAX,
    max_images: 10,
    together: None,
    delivery: ImageDelivery::AsRequested,
    guidance: true,
    sequence: true,
    optimize: &["standard", "fast"],
};
const MULTIMODAL: ImageRules = ImageRules {
    name: "multimodal LLM, standard",
    sizes: Sizes::Ratios(RATIOS),
    tiers: &["1K"],
    tier_encoding: TierEncoding::Omitted,
    inputs: (0, 5),
    formats: USUAL_INPUT,
    bytes: megabytes(7),
    delivery: ImageDelivery::Inline,
    guidance: false,
    sequence: false,
    optimize: &[],
    ..OTHER
};
const SEEDREAM_3: ImageRules = ImageRules {
    name: "Seedream type 3.0, text to image",
    sizes: Sizes::Pixels(
        &["1024x1024", "1152x864", "864x1152", "1280x720", "720x1280", "1248x832", "832x1248", "1512x648"],
        &[],
    ),
    free: (262_144, 4_194_304),
    inputs: (0, 0),
    formats: &[ImageFormat::Jpeg, ImageFormat::Png],
    bytes: megabytes(10),
    ratio: 3,
    points: 36_000_000,
    guidance: true,
    sequence: false,
    optimize: &[],
    ..OTHER
};
const SEEDREAM_4: ImageRules = ImageRules {
    name: "Seedream type 4.0",
    sizes: Sizes::Pixels(LARGE, &["1K", "2K", "4K"]),
    tiers: &["1K", "2K", "3K", "4K"],
    tier_encoding: TierEncoding::AsGivenOrPixels,
    free: (921_600, 16_777_216),
    inputs: (0, 5),
    ratio: 16,
    max_images: 15,
    together: Some(15),
    guidance: false,
    sequence: true,
    optimize: &["standard", "fast"],
    ..SEEDREAM_3
};
const GPT_IMAGE: ImageRules = ImageRules {
    name: "GPT-image type",
    sizes: Sizes::Pixels(&["1024x1024", "1024x1536", "1536x1024"], &["auto"]),
    qualities: &["low", "medium", "high", "auto"],
    inputs: (0, 10),
    formats: &[ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::Webp],
    bytes: megabytes(10),
    delivery: ImageDelivery::Inline,
    guidance: false,
    sequence: false,
    optimize: &[],
    ..OTHER
};
const QWEN: ImageRules = ImageRules {
    name: "Qwen type, text to image",
    sizes: Sizes::Pixels(&["1328x1328", "1664x928", "928x1664", "1472x1140", "1140x1472"], &[]),
    inputs: (0, 0),
    formats: &[ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::Webp],
    bytes: megabytes(10),
    guidance: false,
    sequence: false,
    optimize: &[],
    ..OTHER
};

impl ImageFamily {
    /// All families, in the order of the documentation.
    pub const ALL: [ImageFamily; 11] = [
        ImageFamily::Multimodal,
        ImageFamily::MultimodalPro,
        ImageFamily::Seedream3,
        ImageFamily::Seededit3,
        ImageFamily::Seedream4,
        ImageFamily::Seedream45,
        ImageFamily::GptImage,
        ImageFamily::GptImageFree,
        ImageFamily::Qwen,
        ImageFamily::QwenEdit,
        ImageFamily::Other,
    ];

    /// Returns the word for the family, without spaces.
    pub const fn word(self) -> &'static str {
        match self {
            ImageFamily::Multimodal => "multimodal",
            ImageFamily::MultimodalPro => "multimodal-pro",
            ImageFamily::Seedream3 => "seedream-3",
            ImageFamily::Seededit3 => "seedream-3-edit",
            ImageFamily::Seedream4 => "seedream-4",
            ImageFamily::Seedream45 => "seedream-4.5",
            ImageFamily::GptImage => "gpt-image",
            ImageFamily::GptImageFree => "gpt-image-2",
            ImageFamily::Qwen => "qwen",
            ImageFamily::QwenEdit => "qwen-edit",
            ImageFamily::Other => "others",
        }
    }

    /// Returns the rules of the family.
    pub const fn rules(self) -> ImageRules {
        match self {
            ImageFamily::Multimodal => MULTIMODAL,
            ImageFamily::MultimodalPro => {
                let tiers = &["1K", "2K", "3K", "4K"];
                ImageRules {
                    name: "multimodal LLM, pro",
                    tiers,
                    tier_encoding: TierEncoding::AsGivenOrLarger,
                    ..MULTIMODAL
                }
            }
            ImageFamily::Seedream3 => SEEDREAM_3,
            ImageFamily::Seededit3 => ImageRules {
                name: "Seedream type 3.0, edit",
                sizes: Sizes::Adaptive("adaptive"),
                inputs: (1, 1),
                ..SEEDREAM_3
            },
            ImageFamily::Seedream4 => SEEDREAM_4,
            ImageFamily::Seedream45 => ImageRules {
                name: "Seedream type 4.5",
                sizes: Sizes::Pixels(LARGE, &["2K", "4K"]),
                tiers: &["2K", "3K", "4K"],
                free: (3_686_400, 16_777_216),
                formats: ALL_INPUT,
                optimize: &["standard"],
                ..SEEDREAM_4
            },
            ImageFamily::GptImage => GPT_IMAGE,
            ImageFamily::GptImageFree => {
                ImageRules { name: "GPT-image type 2", sizes: Sizes::Any, ..GPT_IMAGE }
            }
            ImageFamily::Qwen => QWEN,
            ImageFamily::QwenEdit => {
                ImageRules { name: "Qwen type, edit", inputs: (1, 1), max_images: 6, ..QWEN }
            }
            ImageFamily::Other => OTHER,
        }
    }
}

/// Shape of a provider's image request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageShape {
    /// `{model, prompt, n, size}`; input images are sent as files of a multipart form.
    List,
    /// `{model, prompt, image, size, watermark}`; input images are sent as addresses.
    Flat,
    /// Contents with parts; one image per response.
    Parts,
    /// `{instances, parameters}`.
    Instances,
    /// `{model, input: {messages}, parameters}`.
    Turns,
    /// Same as `Turns`, but the response is a task to be polled.
    TurnsLater,
    /// `{model, input: {prompt}, parameters}`, and the response is a task to be polled.
    PromptLater,
}

/// Image capabilities of a model at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDialect {
    /// Shape of the request.
    pub shape: ImageShape,
    /// Family of the model.
    pub family: ImageFamily,
    /// Path for text to image.
    pub make: Box<str>,
    /// Path for image edits.
    pub edit: Box<str>,
    /// Path prefix of a task, to be followed by its id.
    pub tasks: Box<str>,
    /// Maximum number of images per provider call.
    pub max_images: u32,
    /// Whether `response_format` may be sent.
    pub sends_response_format: bool,
    /// Extension members that are passed on; `*` for all.
    pub extensions: &'static [&'static str],
}

impl ImageDialect {
    /// Returns true if an extension member is passed on.
    pub fn supports_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|known| *known == "*" || *known == name)
    }
}
