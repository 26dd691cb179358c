//! The task group: six endpoints that begin videos and make images, in an envelope (specification, sections 2.10 and 4.14 to
//! 4.17).
//!
//! Here live the requests ([`ask`]), the answers ([`answer`]) and what another gateway of the group answers ([`image`]).
//! What is asked for is a [`Video`](crate::canonical::video::Video) or an
//! [`ImageRequest`](crate::canonical::image::ImageRequest), as elsewhere. Here must not live: tokens, and what the requests
//! are charged.

pub mod answer;
pub mod ask;
pub mod image;
#[cfg(test)]
mod tests;

/// A path of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `POST /prod-api/svc/v4/api/{task}`
    Submit(Task),
    /// `GET /prod-api/svc/v4/api/task/{id}`
    Query(String),
    /// `GET /prod-api/svc/v4/api/task/{id}/content`
    Content(String),
    /// `POST /prod-api/svc/v4/api/token`
    Token,
    /// Any other path of the group.
    Unknown,
}

/// Where the group is.
pub const ROOT: &str = "/prod-api/svc/v4/api";

impl Place {
    /// The methods that it answers.
    pub const fn allow(&self) -> &'static str {
        match self {
            Place::Submit(_) | Place::Token => "POST",
            Place::Query(_) | Place::Content(_) => "GET",
            Place::Unknown => "",
        }
    }
}

/// The place that the segments of a path behind the group's own name.
pub fn place(segments: &[&str]) -> Place {
    let id = |id: &str| super::path::percent_decode(id).into_owned();
    match segments {
        ["token"] => Place::Token,
        ["task", task] => Place::Query(id(task)),
        ["task", task, "content"] => Place::Content(id(task)),
        [name] => Task::from_name(name).map_or(Place::Unknown, Place::Submit),
        _ => Place::Unknown,
    }
}

/// An endpoint of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// A video from a first and a last picture.
    FirstLast,
    /// A video with another face.
    FaceMerge,
    /// A video from a text.
    TextToVideo,
    /// A picture from a text.
    TextToImage,
    /// Pictures of a product.
    ProductExtraction,
    /// A picture from a picture.
    ImageToImage,
}

impl Task {
    /// All of them.
    pub const ALL: [Task; 6] = [
        Task::FirstLast,
        Task::FaceMerge,
        Task::TextToVideo,
        Task::TextToImage,
        Task::ProductExtraction,
        Task::ImageToImage,
    ];

    /// The last segment of its path, and the model that serves it where the request names none.
    pub const fn name(self) -> &'static str {
        match self {
            Task::FirstLast => "vendorImageFirstLast",
            Task::FaceMerge => "videoFaceMergeSubmit",
            Task::TextToVideo => "svcVideoCompletions",
            Task::TextToImage => "text2imageSubmit",
            Task::ProductExtraction => "productExtractionSubmit",
            Task::ImageToImage => "img2imgSubmit",
        }
    }

    /// The endpoint of this name.
    pub fn from_name(name: &str) -> Option<Task> {
        Task::ALL.into_iter().find(|task| task.name() == name)
    }

    /// The member that the request may be wrapped in.
    pub const fn wrapper(self) -> &'static str {
        match self {
            Task::FirstLast | Task::TextToVideo => "",
            Task::FaceMerge => "visualFaceFusionMovieSubmitTaskRequest",
            Task::TextToImage => "req",
            Task::ProductExtraction => "batchImageGenerationDTO",
            Task::ImageToImage => "vendorImageBo",
        }
    }

    /// Whether its answer has pictures; otherwise it begins a video.
    pub const fn is_image(self) -> bool {
        matches!(self, Task::TextToImage | Task::ProductExtraction | Task::ImageToImage)
    }
}
