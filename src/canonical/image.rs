//! Images that are to be made, what each family of models takes for it, and how a provider wants to be asked.

use bytes::Bytes;

use super::ElementLoss;

/// What is to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRequest {
    /// What the images are to show; all texts of the request.
    pub prompt: String,
    /// A conversation, where the request is one.
    pub turns: Vec<ImageTurn>,
    /// All images of the request, in their order.
    pub images: Vec<ImageInput>,
    /// Where an image may be changed: its transparent part.
    pub mask: Option<ImageInput>,
    /// How many images are wanted.
    pub count: Option<u32>,
    /// Their size: `WxH`, a ratio `W:H`, or a word of the provider's.
    pub size: Option<String>,
    /// The client's format has the same settings for all families: of sizes the nearest will do, and what a family has
    /// not is left out.
    pub lenient: bool,
    /// A step of size (`1K`, `2K`, `4K`).
    pub tier: Option<String>,
    /// A step of quality.
    pub quality: Option<String>,
    /// Images are wanted in the answer, and not behind links; or the other way round.
    pub inline: Option<bool>,
    /// Where chance begins.
    pub seed: Option<u32>,
    /// A number, as it was written.
    pub temperature: Option<String>,
    /// A number, as it was written.
    pub top_p: Option<String>,
    /// How closely the prompt is kept to: a number, as it was written.
    pub guidance: Option<String>,
    /// The images bear a mark.
    pub watermark: bool,
    /// Images that belong together, and how many of them at most.
    pub sequence: Option<u32>,
    /// How the prompt is made better.
    pub optimize: Option<String>,
    /// The format of the images, as a media type.
    pub media: Option<String>,
    /// Words are wanted beside the images, or images alone.
    pub words: Option<bool>,
    /// The request is one of the task group, whose sizes are not those of the family alone, and whose mask is white
    /// where the image may be changed.
    pub group: bool,
    /// Members that have no place above: names and values, as JSON.
    pub extra: Vec<(String, String)>,
    /// What the model has no place for.
    pub lost: Vec<ElementLoss>,
}

/// A turn of a conversation about images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTurn {
    /// It is the model's.
    pub model: bool,
    /// What it says and shows.
    pub parts: Vec<ImagePart>,
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum ImagePart {
    /// Words.
    Text(String),
    /// An image, by its place among all images of the request.
    Image(usize),
}

/// An image of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageInput {
    /// The field that it stands in.
    pub field: String,
    /// Where it is.
    pub source: ImageSource,
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageSource {
    /// Behind an address.
    Link(String),
    /// Here.
    Bytes(Bytes),
}

/// A file format of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
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

impl Picture {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Picture::Png => "PNG",
            Picture::Jpeg => "JPEG",
            Picture::Webp => "WEBP",
            Picture::Gif => "GIF",
            Picture::Bmp => "BMP",
            Picture::Tiff => "TIFF",
        }
    }

    /// The media type.
    pub const fn media(self) -> &'static str {
        match self {
            Picture::Png => "image/png",
            Picture::Jpeg => "image/jpeg",
            Picture::Webp => "image/webp",
            Picture::Gif => "image/gif",
            Picture::Bmp => "image/bmp",
            Picture::Tiff => "image/tiff",
        }
    }

    /// The end of a file's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Picture::Png => "png",
            Picture::Jpeg => "jpg",
            Picture::Webp => "webp",
            Picture::Gif => "gif",
            Picture::Bmp => "bmp",
            Picture::Tiff => "tiff",
        }
    }
}

/// Which sizes a family makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Ratios of width to height.
    Ratios(&'static [&'static str]),
    /// Widths and heights, and words for a size that the model chooses.
    Pixels(&'static [&'static str], &'static [&'static str]),
    /// Those of the image that is changed, under this word.
    Adaptive(&'static str),
    /// Whatever the provider takes.
    Any,
}

/// How images come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comes {
    /// In the answer, whatever was asked for.
    Inline,
    /// Behind a link, unless they are asked for otherwise.
    AsAsked,
}

/// How a step of size is said to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    /// As it is.
    Step,
    /// As it is; for what lies between two steps the larger one.
    LargerStep,
    /// As it is; what lies between two steps in points.
    Points,
    /// Not at all: there is but one.
    Nothing,
}

/// What a family of models takes (specification, sections 4.11 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRules {
    /// The name for people.
    pub name: &'static str,
    /// Sizes.
    pub sizes: Sizes,
    /// Steps of size.
    pub tiers: &'static [&'static str],
    /// How a step of size is said to the provider.
    pub tells: Tells,
    /// The least and the most points that the provider makes in whatever ratio; zero where it makes the named sizes
    /// alone.
    pub free: (u64, u64),
    /// Steps of quality that the model knows; of a family without any, none is sent.
    pub qualities: &'static [&'static str],
    /// The fewest and the most images that a request may have.
    pub inputs: (usize, usize),
    /// The formats of these.
    pub formats: &'static [Picture],
    /// The largest of these, bytes.
    pub bytes: usize,
    /// The steepest ratio of their sides; zero for any.
    pub ratio: u32,
    /// The most points that they may have.
    pub points: u64,
    /// The most images of one request.
    pub most: u32,
    /// The most images of a request and its answer together.
    pub together: Option<u32>,
    /// How images come.
    pub comes: Comes,
    /// `guidance_scale` is taken.
    pub guidance: bool,
    /// Images that belong together can be made.
    pub sequence: bool,
    /// Ways to make a prompt better.
    pub optimize: &'static [&'static str],
}

/// A family of models that make images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageFamily {
    /// Language models that draw.
    Multimodal,
    /// The larger of these.
    MultimodalPro,
    /// The Seedream type, 3.0: images from texts.
    Seedream3,
    /// The Seedream type, 3.0: images from images.
    Seededit3,
    /// The Seedream type, 4.0.
    Seedream4,
    /// The Seedream type, 4.5 and later.
    Seedream45,
    /// The GPT-image type.
    GptImage,
    /// The same, with sizes of any kind.
    GptImageFree,
    /// The Qwen type: images from texts.
    Qwen,
    /// The Qwen type: images from images.
    QwenEdit,
    /// Anything of which no more is known: what it is asked for is the provider's to judge.
    Other,
}

/// Ten million bytes, as the specification's limits are read: a file that providers take is never refused for how a
/// megabyte is counted.
const fn megabytes(n: usize) -> usize {
    n << 20
}

const RATIOS: &[&str] = &["1:1", "3:2", "2:3", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"];
const USUAL_INPUT: &[Picture] = &[Picture::Png, Picture::Jpeg, Picture::Webp];
const ALL_INPUT: &[Picture] =
    &[Picture::Png, Picture::Jpeg, Picture::Webp, Picture::Gif, Picture::Bmp, Picture::Tiff];
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
    tells: Tells::Step,
    free: (0, 0),
    qualities: &[],
    inputs: (0, 16),
    formats: ALL_INPUT,
    bytes: megabytes(50),
    ratio: 0,
    points: u64::MAX,
    most: 10,
    together: None,
    comes: Comes::AsAsked,
    guidance: true,
    sequence: true,
    optimize: &["standard", "fast"],
};
const MULTIMODAL: ImageRules = ImageRules {
    name: "multimodal LLM, standard",
    sizes: Sizes::Ratios(RATIOS),
    tiers: &["1K"],
    tells: Tells::Nothing,
    inputs: (0, 5),
    formats: USUAL_INPUT,
    bytes: megabytes(7),
    comes: Comes::Inline,
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
    formats: &[Picture::Jpeg, Picture::Png],
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
    tells: Tells::Points,
    free: (921_600, 16_777_216),
    inputs: (0, 5),
    ratio: 16,
    most: 15,
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
    formats: &[Picture::Png, Picture::Jpeg, Picture::Gif, Picture::Webp],
    bytes: megabytes(10),
    comes: Comes::Inline,
    guidance: false,
    sequence: false,
    optimize: &[],
    ..OTHER
};
const QWEN: ImageRules = ImageRules {
    name: "Qwen type, text to image",
    sizes: Sizes::Pixels(&["1328x1328", "1664x928", "928x1664", "1472x1140", "1140x1472"], &[]),
    inputs: (0, 0),
    formats: &[Picture::Png, Picture::Jpeg, Picture::Bmp, Picture::Tiff, Picture::Webp],
    bytes: megabytes(10),
    guidance: false,
    sequence: false,
    optimize: &[],
    ..OTHER
};

impl ImageFamily {
    /// All of them, in the order of the documentation.
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

    /// What it takes.
    pub const fn rules(self) -> ImageRules {
        match self {
            ImageFamily::Multimodal => MULTIMODAL,
            ImageFamily::MultimodalPro => {
                let tiers = &["1K", "2K", "3K", "4K"];
                ImageRules { name: "multimodal LLM, pro", tiers, tells: Tells::LargerStep, ..MULTIMODAL }
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
            ImageFamily::QwenEdit => ImageRules { name: "Qwen type, edit", inputs: (1, 1), most: 6, ..QWEN },
            ImageFamily::Other => OTHER,
        }
    }
}

/// How a provider's request for images is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageShape {
    /// `{model, prompt, n, size}`; images are sent as files of a form.
    List,
    /// `{model, prompt, image, size, watermark}`: images are sent as addresses.
    Flat,
    /// Contents of parts; one image an answer.
    Parts,
    /// `{instances, parameters}`.
    Instances,
    /// `{model, input: {messages}, parameters}`.
    Turns,
    /// The same, and the answer is a task that must be asked for.
    TurnsLater,
    /// `{model, input: {prompt}, parameters}`, and the answer is a task that must be asked for.
    PromptLater,
}

/// How images are asked for at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDialect {
    /// The form of the request.
    pub shape: ImageShape,
    /// The family of the model.
    pub family: ImageFamily,
    /// Where images are made of texts.
    pub make: Box<str>,
    /// Where images are changed.
    pub edit: Box<str>,
    /// Where a task is asked for; its id stands behind it.
    pub tasks: Box<str>,
    /// The most images that one call makes.
    pub most: u32,
    /// `response_format` may be said.
    pub asks_format: bool,
    /// Members that have no place of their own and are passed on; `*` for all.
    pub extensions: &'static [&'static str],
}

impl ImageDialect {
    /// Whether a member that has no place of its own is passed on.
    pub fn takes(&self, name: &str) -> bool {
        self.extensions.iter().any(|known| *known == "*" || *known == name)
    }
}
