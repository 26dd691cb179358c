//! Which videos providers make and how they are asked for them: one table, by the kind of provider and the name of the
//! model (specification, sections 4.8 and 8), and where the steps of it are.

use super::{Kind, Provider};
use crate::canonical::video::{Seconds, Sound, VideoDialect, VideoShape};
use crate::wire::path::push_path_segment;

const RATIOS: &[&str] = &["16:9", "9:16", "1:1", "4:3", "3:4", "21:9"];
const RATIOS_ADAPTIVE: &[&str] = &["16:9", "9:16", "1:1", "4:3", "3:4", "21:9", "adaptive"];

const REMIX: VideoDialect = VideoDialect {
    shape: VideoShape::Remix,
    seconds: Seconds::OneOf(&[4, 8, 12]),
    usual_seconds: 4,
    resolutions: &["720x1280", "1280x720"],
    usual_resolution: "720x1280",
    seconds_in_full: None,
    ratios: &["16:9", "9:16"],
    text: true,
    first: true,
    last: false,
    reference: false,
    samples: 1,
    sound: Sound::Untold,
    particular: false,
    listed: false,
    links: true,
};

const PREVIEW: VideoDialect = VideoDialect {
    shape: VideoShape::Preview,
    seconds: Seconds::OneOf(&[4, 6, 8]),
    usual_seconds: 4,
    resolutions: &["720p", "1080p"],
    usual_resolution: "1080p",
    ratios: &["16:9", "9:16"],
    samples: 4,
    links: false,
    ..REMIX
};

const NESTED: VideoDialect = VideoDialect {
    shape: VideoShape::Nested,
    seconds: Seconds::Range(1, 60),
    usual_seconds: 5,
    resolutions: &["480p", "720p", "1080p"],
    usual_resolution: "720p",
    ratios: &["16:9", "9:16", "1:1", "4:3", "3:4"],
    particular: true,
    ..REMIX
};

const BUNDLED: VideoDialect = VideoDialect {
    shape: VideoShape::Bundled,
    seconds: Seconds::Range(1, 60),
    usual_seconds: 5,
    resolutions: &["480p", "720p", "1080p", "4k"],
    usual_resolution: "720p",
    ratios: RATIOS_ADAPTIVE,
    last: true,
    reference: true,
    particular: true,
    ..REMIX
};

/// The bundled-prompt family, 1.0.
const BUNDLED_1_0: VideoDialect =
    VideoDialect { seconds: Seconds::Range(2, 12), resolutions: &["480p", "720p", "1080p"], ..BUNDLED };

/// A step of the way to a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoStep<'t> {
    /// A task is begun.
    Submit {
        /// From a first and a last picture.
        framed: bool,
    },
    /// A video is made from another task's.
    Remix(&'t str),
    /// How far a task is.
    Look(&'t str),
    /// A task's video itself.
    Content(&'t str),
    /// A task is given up.
    Cancel(&'t str),
}

impl Provider {
    /// How videos of a model are asked for.
    pub fn video(&self, model: &str) -> VideoDialect {
        let has = |part: &str| model.contains(part);
        match self.kind {
            Kind::Gemini | Kind::Vertex => {
                let vertex = self.kind == Kind::Vertex;
                VideoDialect {
                    last: has("3.1"),
                    // The other address refuses what it does not know, and makes 1080p of eight seconds alone.
                    particular: vertex,
                    seconds_in_full: if vertex { None } else { Some(8) },
                    sound: if has("fast") || !vertex { Sound::Untold } else { Sound::Told(false) },
                    ..PREVIEW
                }
            }
            Kind::DashScope => {
                let (i2v, kf2v) = (has("i2v"), has("kf2v"));
                let newest = has("wan2.7") || has("wan3");
                VideoDialect {
                    seconds: if has("wan2.5") { Seconds::OneOf(&[5, 10]) } else { NESTED.seconds },
                    text: !i2v && !kf2v,
                    first: i2v || kf2v || newest,
                    last: kf2v || newest,
                    listed: newest,
                    ..NESTED
                }
            }
            Kind::Ark if has("lite") && has("t2v") => {
                VideoDialect { first: false, last: false, reference: false, ratios: RATIOS, ..BUNDLED_1_0 }
            }
            Kind::Ark if has("lite") && has("i2v") => VideoDialect { text: false, ..BUNDLED_1_0 },
            Kind::Ark if has("1-5-pro") || has("1.5-pro") => VideoDialect {
                seconds: Seconds::Range(4, 12),
                resolutions: &["480p", "720p"],
                reference: false,
                sound: if model.ends_with(NO_AUDIO) { Sound::Fixed(false) } else { Sound::Told(true) },
                ..BUNDLED
            },
            Kind::Ark if has("1-0-pro") || has("1.0-pro") => {
                VideoDialect { last: false, reference: false, ..BUNDLED_1_0 }
            }
            Kind::Ark if has("-pro") && !has("2-0") && !has("2.0") => {
                VideoDialect { last: false, reference: false, ..BUNDLED }
            }
            Kind::Ark => BUNDLED,
            _ if has("pro") => VideoDialect {
                resolutions: &["720x1280", "1280x720", "1024x1792", "1792x1024", "1080x1920", "1920x1080"],
                ..REMIX
            },
            _ => REMIX,
        }
    }

    /// The model's name as the provider has it: the silent variant of a model is no model of its own there.
    pub fn video_model<'m>(&self, model: &'m str) -> &'m str {
        if self.kind == Kind::Ark { model.strip_suffix(NO_AUDIO).unwrap_or(model) } else { model }
    }

    /// The path (and query) of a step. Nothing for a step that the provider has not.
    pub fn video_path(&self, model: &str, step: VideoStep<'_>) -> Option<String> {
        let prefix = self.base.prefix();
        let mut path = prefix.to_owned();
        match (self.kind, step) {
            (Kind::Gemini | Kind::Vertex, VideoStep::Submit { .. }) => {
                self.push_google_model(&mut path, model);
                path.push_str(":predictLongRunning");
            }
            // The name of an operation is the path of it, behind the version.
            (Kind::Gemini, VideoStep::Look(name)) => {
                path.push('/');
                push_path_segment(&mut path, name);
            }
            (Kind::Vertex, VideoStep::Look(_)) => {
                self.push_google_model(&mut path, model);
                path.push_str(":fetchPredictOperation");
            }
            (Kind::DashScope, step) => {
                path = self.own_dashscope();
                match step {
                    VideoStep::Submit { framed: true } => {
                        path.push_str("/services/aigc/image2video/video-synthesis");
                    }
                    VideoStep::Submit { framed: false } => {
                        path.push_str("/services/aigc/video-generation/video-synthesis");
                    }
                    VideoStep::Look(id) => push_task(&mut path, "/tasks/", id, ""),
                    VideoStep::Cancel(id) => push_task(&mut path, "/tasks/", id, "/cancel"),
                    VideoStep::Remix(_) | VideoStep::Content(_) => return None,
                }
            }
            (Kind::Ark, VideoStep::Submit { .. }) => path.push_str("/contents/generations/tasks"),
            (Kind::Ark, VideoStep::Look(id) | VideoStep::Cancel(id)) => {
                push_task(&mut path, "/contents/generations/tasks/", id, "");
            }
            (Kind::Gemini | Kind::Vertex | Kind::Ark, _) => return None,
            (kind, step) => {
                if kind == Kind::Azure && !prefix.ends_with("/openai/v1") {
                    path.push_str("/openai/v1");
                }
                match step {
                    VideoStep::Submit { .. } => path.push_str("/videos"),
                    VideoStep::Remix(id) => push_task(&mut path, "/videos/", id, "/remix"),
                    VideoStep::Look(id) | VideoStep::Cancel(id) => push_task(&mut path, "/videos/", id, ""),
                    VideoStep::Content(id) => push_task(&mut path, "/videos/", id, "/content"),
                }
                if kind == Kind::Azure {
                    path.extend(self.api_version.as_deref().map(|version| format!("?api-version={version}")));
                }
            }
        }
        Some(path)
    }

    /// A path at DashScope's own address.
    pub fn own_path(&self, path: &str) -> String {
        self.own_dashscope() + path
    }

    /// Operations are asked for with a body.
    pub fn video_look_posts(&self) -> bool {
        self.kind == Kind::Vertex
    }

    /// Tasks must be asked for as such.
    pub fn video_headers(&self) -> &'static [(&'static str, &'static str)] {
        if self.kind == Kind::DashScope { &[("x-dashscope-async", "enable")] } else { &[] }
    }

    fn push_google_model(&self, path: &mut String, model: &str) {
        if self.kind == Kind::Vertex {
            path.push_str("/publishers/google");
        }
        path.push_str("/models/");
        push_path_segment(path, model);
    }
}

/// What the name of a model without sound ends in.
const NO_AUDIO: &str = "-noAudio";

fn push_task(path: &mut String, before: &str, id: &str, after: &str) {
    path.push_str(before);
    push_path_segment(path, id);
    path.push_str(after);
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
    fn each_provider_s_steps_are_where_it_has_them() {
        let submit = VideoStep::Submit { framed: false };
        for (kind, base, step, path) in [
            (Kind::OpenAi, "https://h/v1", submit, Some("/v1/videos")),
            (Kind::OpenAi, "https://h/v1", VideoStep::Remix("video_1"), Some("/v1/videos/video_1/remix")),
            (
                Kind::OpenAiCompatible,
                "https://h/v1",
                VideoStep::Content("b?c"),
                Some("/v1/videos/b%3Fc/content"),
            ),
            (Kind::Azure, "https://h", VideoStep::Look("x"), Some("/openai/v1/videos/x")),
            (
                Kind::Azure,
                "https://h/openai/v1",
                VideoStep::Content("x"),
                Some("/openai/v1/videos/x/content"),
            ),
            (Kind::Gemini, "https://h/v1beta", submit, Some("/v1beta/models/m:predictLongRunning")),
            (
                Kind::Gemini,
                "https://h/v1beta",
                VideoStep::Look("models/m/operations/o"),
                Some("/v1beta/models/m/operations/o"),
            ),
            (Kind::Gemini, "https://h/v1beta", VideoStep::Content("x"), None),
            (
                Kind::Vertex,
                "https://h/v1/projects/p/locations/l",
                submit,
                Some("/v1/projects/p/locations/l/publishers/google/models/m:predictLongRunning"),
            ),
            (
                Kind::Vertex,
                "https://h/v1",
                VideoStep::Look("o"),
                Some("/v1/publishers/google/models/m:fetchPredictOperation"),
            ),
            (
                Kind::DashScope,
                "https://h/compatible-mode/v1",
                submit,
                Some("/api/v1/services/aigc/video-generation/video-synthesis"),
            ),
            (
                Kind::DashScope,
                "https://h/api/v1",
                VideoStep::Submit { framed: true },
                Some("/api/v1/services/aigc/image2video/video-synthesis"),
            ),
            (Kind::DashScope, "https://h/compatible-mode/v1", VideoStep::Look("t"), Some("/api/v1/tasks/t")),
            (Kind::Ark, "https://h/api/v3", submit, Some("/api/v3/contents/generations/tasks")),
            (
                Kind::Ark,
                "https://h/api/v3",
                VideoStep::Look("cgt-1"),
                Some("/api/v3/contents/generations/tasks/cgt-1"),
            ),
        ] {
            let found = provider(kind, base).video_path("m", step);
            assert_eq!(found.as_deref(), path, "{} {base} {step:?}", kind.name());
        }
    }

    #[test]
    fn a_model_s_name_tells_what_it_can_do() {
        let ark = provider(Kind::Ark, "https://h/api/v3");
        let silent = ark.video("doubao-seedance-1-5-pro-251215-noAudio");
        assert_eq!(silent.sound, Sound::Fixed(false));
        assert_eq!(
            ark.video_model("doubao-seedance-1-5-pro-251215-noAudio"),
            "doubao-seedance-1-5-pro-251215"
        );
        let google = provider(Kind::Gemini, "https://h/v1beta");
        assert!(google.video("veo-3.1-fast-generate-preview").last);
        assert!(!google.video("veo-3.0-fast-generate-preview").last);
        let wan = provider(Kind::DashScope, "https://h/api/v1");
        assert!(wan.video("wan2.5-t2v-preview").text && !wan.video("wan2.5-t2v-preview").first);
        assert!(!wan.video("wan2.5-i2v-preview").text && wan.video("wan2.5-i2v-preview").first);
    }
}
