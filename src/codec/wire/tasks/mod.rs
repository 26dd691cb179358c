//! Task group: six endpoints that start videos or make images, with responses in an envelope (docs/specification.md,
//! 2.10 and 4.14 to 4.17).
//!
//! This module has the requests ([`ask`]), the responses ([`answer`]), and the image responses of another gateway that
//! serves the group ([`image`]). Requests are decoded to a [`Video`](crate::canonical::video::Video) or an
//! [`ImageRequest`](crate::canonical::image::ImageRequest). Access tokens and prices live elsewhere.

pub mod answer;
pub mod ask;
pub mod image;
#[cfg(test)]
mod tests;

/// Path of the task group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEndpoint {
    /// `POST /prod-api/svc/v4/api/{task}`: starts a task.
    Submit(Task),
    /// `GET /prod-api/svc/v4/api/task/{id}`: state of a task.
    Query(String),
    /// `GET /prod-api/svc/v4/api/task/{id}/content`: video of a finished task.
    Content(String),
    /// `POST /prod-api/svc/v4/api/token`: an access token for an API key.
    Token,
    /// Any other path below the root.
    Unknown,
}

/// Root path of the group.
pub const ROOT: &str = "/prod-api/svc/v4/api";

impl TaskEndpoint {
    /// Returns the allowed method, for the `Allow` header. Empty for an unknown path.
    pub const fn allow(&self) -> &'static str {
        match self {
            TaskEndpoint::Submit(_) | TaskEndpoint::Token => "POST",
            TaskEndpoint::Query(_) | TaskEndpoint::Content(_) => "GET",
            TaskEndpoint::Unknown => "",
        }
    }
}

/// Parses the path segments below the root.
pub fn place(segments: &[&str]) -> TaskEndpoint {
    let id = |id: &str| super::path::percent_decode(id).into_owned();
    match segments {
        ["token"] => TaskEndpoint::Token,
        ["task", task] => TaskEndpoint::Query(id(task)),
        ["task", task, "content"] => TaskEndpoint::Content(id(task)),
        [name] => Task::from_name(name).map_or(TaskEndpoint::Unknown, TaskEndpoint::Submit),
        _ => TaskEndpoint::Unknown,
    }
}

/// Submission endpoint of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Video from a first and a last image.
    FirstLast,
    /// Video with a replaced face.
    FaceMerge,
    /// Video from text.
    TextToVideo,
    /// Image from text.
    TextToImage,
    /// Product images.
    ProductExtraction,
    /// Image from an image.
    ImageToImage,
}

impl Task {
    /// All endpoints.
    pub const ALL: [Task; 6] = [
        Task::FirstLast,
        Task::FaceMerge,
        Task::TextToVideo,
        Task::TextToImage,
        Task::ProductExtraction,
        Task::ImageToImage,
    ];

    /// Returns the last path segment, which is also the default model of the endpoint.
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

    /// Returns the endpoint of this name, or `None`.
    pub fn from_name(name: &str) -> Option<Task> {
        Task::ALL.into_iter().find(|task| task.name() == name)
    }

    /// Returns the name of the member that may wrap the request. Empty if the endpoint has no wrapper.
    pub const fn wrapper(self) -> &'static str {
        match self {
            Task::FirstLast | Task::TextToVideo => "",
            Task::FaceMerge => "visualFaceFusionMovieSubmitTaskRequest",
            Task::TextToImage => "req",
            Task::ProductExtraction => "batchImageGenerationDTO",
            Task::ImageToImage => "vendorImageBo",
        }
    }

    /// Returns true if the endpoint answers with images; the others start a video task.
    pub const fn is_image(self) -> bool {
        matches!(self, Task::TextToImage | Task::ProductExtraction | Task::ImageToImage)
    }
}
