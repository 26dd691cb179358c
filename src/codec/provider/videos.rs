//! Video generation: supported settings by provider kind and what the catalogue knows of the model (docs/video.md), and the
//! path of each step.

use super::{Provider, ProviderKind};
use crate::canonical::video::{AudioSetting, PictureRole, Seconds, VideoDialect, VideoShape};
use crate::catalogue::ModelKind;
use crate::wire::path::push_path_segment;

const RATIOS: &[&str] = &["16:9", "9:16", "1:1", "4:3", "3:4", "21:9"];
const RATIOS_ADAPTIVE: &[&str] = &["16:9", "9:16", "1:1", "4:3", "3:4", "21:9", "adaptive"];

/// Sizes of OpenAI's models, the larger ones last. A model of which nothing is known has the first two.
const SIZES: &[&str] = &["720x1280", "1280x720", "1024x1792", "1792x1024", "1080x1920", "1920x1080"];
/// Form of requests with images in one list.
const LISTED: &str = "list";

const REMIX: VideoDialect = VideoDialect {
    shape: VideoShape::Remix,
    seconds: Seconds::of(&[4, 8, 12]),
    default_seconds: 4,
    resolutions: &["720x1280", "1280x720"],
    default_resolution: "720x1280",
    seconds_in_full: None,
    ratios: &["16:9", "9:16"],
    text: true,
    first: true,
    last: false,
    reference: false,
    samples: 1,
    sound: AudioSetting::Omitted,
    seed_and_watermark: false,
    listed: false,
    fetches_urls: true,
};

const PREVIEW: VideoDialect = VideoDialect {
    shape: VideoShape::Preview,
    seconds: Seconds::of(&[4, 6, 8]),
    default_seconds: 4,
    resolutions: &["720p", "1080p"],
    default_resolution: "1080p",
    ratios: &["16:9", "9:16"],
    samples: 4,
    fetches_urls: false,
    ..REMIX
};

const NESTED: VideoDialect = VideoDialect {
    shape: VideoShape::Nested,
    seconds: Seconds::range(1, 60),
    default_seconds: 5,
    resolutions: &["480p", "720p", "1080p"],
    default_resolution: "720p",
    ratios: &["16:9", "9:16", "1:1", "4:3", "3:4"],
    seed_and_watermark: true,
    ..REMIX
};

const BUNDLED: VideoDialect = VideoDialect {
    shape: VideoShape::Bundled,
    seconds: Seconds::range(1, 60),
    default_seconds: 5,
    resolutions: &["480p", "720p", "1080p", "4k"],
    default_resolution: "720p",
    ratios: RATIOS_ADAPTIVE,
    last: true,
    reference: true,
    seed_and_watermark: true,
    ..REMIX
};

/// Step of a video task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoStep<'t> {
    /// Submits a task.
    Submit {
        /// Whether the request has a first and a last frame.
        framed: bool,
    },
    /// Submits a remix of another task's video.
    Remix(&'t str),
    /// Polls a task.
    Poll(&'t str),
    /// Downloads the video of a task.
    Content(&'t str),
    /// Cancels a task.
    Cancel(&'t str),
}

impl Provider {
    /// Returns the video profile of a model. It is looked up when a configuration is loaded; requests use the one of their
    /// target.
    pub(super) fn video(&self, model: &str) -> VideoDialect {
        let known = self.known(self.video_model(model));
        let (usual, sound) = match self.kind {
            ProviderKind::Gemini => {
                // It rejects unknown members, and makes 1080p videos of eight seconds only.
                (VideoDialect { seconds_in_full: Some(8), ..PREVIEW }, AudioSetting::Omitted)
            }
            ProviderKind::Vertex => {
                (VideoDialect { seed_and_watermark: true, ..PREVIEW }, AudioSetting::Configurable(false))
            }
            ProviderKind::DashScope => (NESTED, AudioSetting::Omitted),
            ProviderKind::Ark if model.ends_with(NO_AUDIO) => (BUNDLED, AudioSetting::Fixed(false)),
            ProviderKind::Ark => (BUNDLED, AudioSetting::Configurable(true)),
            _ => (REMIX, AudioSetting::Omitted),
        };
        if known.facts.kind_or_chat() != ModelKind::Video {
            return usual;
        }
        let facts = &known.facts;
        let takes = |role, usual| facts.frames.as_ref().map_or(usual, |roles| roles.contains(&role));
        let first = takes(PictureRole::First, usual.first);
        VideoDialect {
            seconds: facts.seconds.unwrap_or(usual.seconds),
            resolutions: facts.resolution.as_deref().map_or(usual.resolutions, |top| self.resolutions(top)),
            // The ratio of the image, where a video may be made of one.
            ratios: if usual.ratios == RATIOS_ADAPTIVE && !first { RATIOS } else { usual.ratios },
            text: !facts.needs_image.unwrap_or(!usual.text),
            first,
            last: takes(PictureRole::Last, usual.last),
            reference: takes(PictureRole::Reference, usual.reference),
            sound: if facts.sound.unwrap_or(false) { sound } else { AudioSetting::Omitted },
            listed: known.form() == LISTED,
            ..usual
        }
    }

    /// Returns the resolutions of the provider up to the highest one of a model; all of them if it is none of them.
    fn resolutions(&self, top: &str) -> &'static [&'static str] {
        let all = match self.kind {
            ProviderKind::Gemini | ProviderKind::Vertex => PREVIEW.resolutions,
            ProviderKind::DashScope => NESTED.resolutions,
            ProviderKind::Ark => BUNDLED.resolutions,
            _ => SIZES,
        };
        let end = all.iter().position(|resolution| *resolution == top).map_or(all.len(), |at| at + 1);
        all.get(..end).unwrap_or(all)
    }

    /// Returns the provider's model name. The `-noAudio` variants of Ark are names of this gateway only.
    pub fn video_model<'m>(&self, model: &'m str) -> &'m str {
        if self.kind == ProviderKind::Ark { model.strip_suffix(NO_AUDIO).unwrap_or(model) } else { model }
    }

    /// Returns the path, with query, of a step, or `None` if the provider does not support the step.
    pub fn video_path(&self, model: &str, step: VideoStep<'_>) -> Option<String> {
        let prefix = self.base.prefix();
        let mut path = prefix.to_owned();
        match (self.kind, step) {
            (ProviderKind::Gemini | ProviderKind::Vertex, VideoStep::Submit { .. }) => {
                self.push_google_model(&mut path, model);
                path.push_str(":predictLongRunning");
            }
            // The name of an operation is its path below the API version.
            (ProviderKind::Gemini, VideoStep::Poll(name)) => {
                path.push('/');
                push_path_segment(&mut path, name);
            }
            (ProviderKind::Vertex, VideoStep::Poll(_)) => {
                self.push_google_model(&mut path, model);
                path.push_str(":fetchPredictOperation");
            }
            (ProviderKind::DashScope, step) => {
                path = self.native_dashscope();
                match step {
                    VideoStep::Submit { framed: true } => {
                        path.push_str("/services/aigc/image2video/video-synthesis");
                    }
                    VideoStep::Submit { framed: false } => {
                        path.push_str("/services/aigc/video-generation/video-synthesis");
                    }
                    VideoStep::Poll(id) => push_task(&mut path, "/tasks/", id, ""),
                    VideoStep::Cancel(id) => push_task(&mut path, "/tasks/", id, "/cancel"),
                    VideoStep::Remix(_) | VideoStep::Content(_) => return None,
                }
            }
            (ProviderKind::Ark, VideoStep::Submit { .. }) => path.push_str("/contents/generations/tasks"),
            (ProviderKind::Ark, VideoStep::Poll(id) | VideoStep::Cancel(id)) => {
                push_task(&mut path, "/contents/generations/tasks/", id, "");
            }
            (ProviderKind::Gemini | ProviderKind::Vertex | ProviderKind::Ark, _) => return None,
            (kind, step) => {
                if kind == ProviderKind::Azure && !prefix.ends_with("/openai/v1") {
                    path.push_str("/openai/v1");
                }
                match step {
                    VideoStep::Submit { .. } => path.push_str("/videos"),
                    VideoStep::Remix(id) => push_task(&mut path, "/videos/", id, "/remix"),
                    VideoStep::Poll(id) | VideoStep::Cancel(id) => push_task(&mut path, "/videos/", id, ""),
                    VideoStep::Content(id) => push_task(&mut path, "/videos/", id, "/content"),
                }
                if kind == ProviderKind::Azure {
                    path.extend(self.api_version.as_deref().map(|version| format!("?api-version={version}")));
                }
            }
        }
        Some(path)
    }

    /// Returns a path below DashScope's native API.
    pub fn own_path(&self, path: &str) -> String {
        self.native_dashscope() + path
    }

    /// Returns whether a poll is a POST request with a body (Vertex AI).
    pub fn video_look_posts(&self) -> bool {
        self.kind == ProviderKind::Vertex
    }

    /// Returns the headers of a submission. DashScope requires one for asynchronous tasks.
    pub fn video_headers(&self) -> &'static [(&'static str, &'static str)] {
        if self.kind == ProviderKind::DashScope { &[("x-dashscope-async", "enable")] } else { &[] }
    }

    fn push_google_model(&self, path: &mut String, model: &str) {
        if self.kind == ProviderKind::Vertex {
            path.push_str("/publishers/google");
        }
        path.push_str("/models/");
        push_path_segment(path, model);
    }
}

/// Suffix of model names for videos without sound.
const NO_AUDIO: &str = "-noAudio";

fn push_task(path: &mut String, before: &str, id: &str, after: &str) {
    path.push_str(before);
    push_path_segment(path, id);
    path.push_str(after);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn video_path_of_each_step_depends_on_the_provider() {
        let submit = VideoStep::Submit { framed: false };
        for (kind, base, step, path) in [
            (ProviderKind::OpenAi, "https://h/v1", submit, Some("/v1/videos")),
            (
                ProviderKind::OpenAi,
                "https://h/v1",
                VideoStep::Remix("video_1"),
                Some("/v1/videos/video_1/remix"),
            ),
            (
                ProviderKind::OpenAiCompatible,
                "https://h/v1",
                VideoStep::Content("b?c"),
                Some("/v1/videos/b%3Fc/content"),
            ),
            (ProviderKind::Azure, "https://h", VideoStep::Poll("x"), Some("/openai/v1/videos/x")),
            (
                ProviderKind::Azure,
                "https://h/openai/v1",
                VideoStep::Content("x"),
                Some("/openai/v1/videos/x/content"),
            ),
            (ProviderKind::Gemini, "https://h/v1beta", submit, Some("/v1beta/models/m:predictLongRunning")),
            (
                ProviderKind::Gemini,
                "https://h/v1beta",
                VideoStep::Poll("models/m/operations/o"),
                Some("/v1beta/models/m/operations/o"),
            ),
            (ProviderKind::Gemini, "https://h/v1beta", VideoStep::Content("x"), None),
            (
                ProviderKind::Vertex,
                "https://h/v1/projects/p/locations/l",
                submit,
                Some("/v1/projects/p/locations/l/publishers/google/models/m:predictLongRunning"),
            ),
            (
                ProviderKind::Vertex,
                "https://h/v1",
                VideoStep::Poll("o"),
                Some("/v1/publishers/google/models/m:fetchPredictOperation"),
            ),
            (
                ProviderKind::DashScope,
                "https://h/compatible-mode/v1",
                submit,
                Some("/api/v1/services/aigc/video-generation/video-synthesis"),
            ),
            (
                ProviderKind::DashScope,
                "https://h/api/v1",
                VideoStep::Submit { framed: true },
                Some("/api/v1/services/aigc/image2video/video-synthesis"),
            ),
            (
                ProviderKind::DashScope,
                "https://h/compatible-mode/v1",
                VideoStep::Poll("t"),
                Some("/api/v1/tasks/t"),
            ),
            (ProviderKind::Ark, "https://h/api/v3", submit, Some("/api/v3/contents/generations/tasks")),
            (
                ProviderKind::Ark,
                "https://h/api/v3",
                VideoStep::Poll("cgt-1"),
                Some("/api/v3/contents/generations/tasks/cgt-1"),
            ),
        ] {
            let found = Provider::at(kind, base).video_path("m", step);
            assert_eq!(found.as_deref(), path, "{} {base} {step:?}", kind.name());
        }
    }

    #[test]
    fn video_capabilities_are_derived_from_the_model_name() {
        let ark = Provider::at(ProviderKind::Ark, "https://h/api/v3");
        let silent = ark.video("doubao-seedance-1-5-pro-251215-noAudio");
        assert_eq!(silent.sound, AudioSetting::Fixed(false));
        assert_eq!(
            ark.video_model("doubao-seedance-1-5-pro-251215-noAudio"),
            "doubao-seedance-1-5-pro-251215"
        );
        let google = Provider::at(ProviderKind::Gemini, "https://h/v1beta");
        assert!(google.video("veo-3.1-fast-generate-preview").last);
        assert!(!google.video("veo-3.0-fast-generate-preview").last);
        let wan = Provider::at(ProviderKind::DashScope, "https://h/api/v1");
        assert!(wan.video("wan2.5-t2v-preview").text && !wan.video("wan2.5-t2v-preview").first);
        assert!(!wan.video("wan2.5-i2v-preview").text && wan.video("wan2.5-i2v-preview").first);
    }
}
