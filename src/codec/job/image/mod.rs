//! Image generation: a client's request in any shape, for a provider of any shape.
//!
//! The job has four kinds of rounds: downloads of the request's images, if the provider needs their bytes; calls of the
//! provider, as many as the number of images takes; polls of its tasks until they are done; and downloads of the
//! results, if the client needs bytes instead of links.

use std::time::Duration;

use bytes::Bytes;

use super::{Job, JobCall, JobFault, JobReply, RemoteMedia};
use crate::canonical::image::{
    ImageDelivery, ImageDialect, ImageFamily, ImageFormat, ImageInput, ImageRequest, ImageRules, ImageShape,
    ImageSource, Sizes,
};
use crate::canonical::{ElementLoss, Product, Usage};
use crate::error::{ApiError, ErrorKind};
use crate::wire::error::{ProviderError, from_provider};
use crate::wire::images::answer::{self, Image, ImageAnswer, ImageLocation, ImageTask, ImageTaskState};
use crate::wire::images::ask::{encode_call, needs_bytes};
use crate::wire::images::reply::{self, ImageReplyShape, ImageSet, OutputImage};
use crate::wire::images::{check, convert, file, fit};

/// Delays before the polls of a task. The last one repeats.
const POLL_DELAYS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(5),
];
/// Header that permits DashScope to answer with a task.
const ASYNC_HEADERS: &[(&str, &str)] = &[("x-dashscope-async", "enable")];

/// Image request with its client's response shape and its model.
#[derive(Clone, Debug)]
pub struct ImageJobRequest {
    /// The decoded request.
    pub request: ImageRequest,
    /// True for an edit request, which must have images.
    pub edits: bool,
    /// Shape of the client's response.
    pub shape: ImageReplyShape,
    /// The model's name at the provider.
    pub upstream: Box<str>,
    /// Capability profile of the model.
    pub dialect: ImageDialect,
    /// Unix time in seconds.
    pub now: u64,
}

/// Returns the expected product of a request, for its reservation.
pub fn expected(request: &ImageRequest) -> Product {
    let count = u64::from(request.count.unwrap_or(1)) * u64::from(request.sequence.unwrap_or(1));
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    let size = match (&request.size, &request.tier) {
        // It is unknown here which of the two has a price.
        (Some(_), Some(_)) => Box::default(),
        (size, tier) => text(if size.is_some() { size } else { tier }),
    };
    Product::Images { count, size, quality: text(&request.quality) }
}

/// Purpose of the calls of the current round.
#[derive(Clone, Debug, PartialEq)]
enum Round {
    /// Start: no call was made.
    Begin,
    /// Downloads of the request's images, by index; the index after the last image is the mask.
    Inputs(Vec<usize>),
    /// Generation calls.
    Generation,
    /// Polls of tasks, by id.
    Tasks(Vec<String>),
    /// Downloads of results, by index.
    Results(Vec<usize>),
    /// No calls are left.
    Done,
}

/// Job of an image request.
#[derive(Debug)]
pub struct ImageJob {
    job_request: ImageJobRequest,
    rules: ImageRules,
    round: Round,
    responses: Vec<Bytes>,
    polls: usize,
    images: Vec<(OutputImage, Option<String>)>,
    refusals: Vec<(String, String)>,
    usage: Option<Usage>,
    size: Option<String>,
    quality: Option<String>,
    fault: Option<JobFault>,
}

impl ImageJob {
    /// Creates a job.
    ///
    /// # Errors
    /// Returns an error if the model does not support the request.
    pub fn new(mut job_request: ImageJobRequest) -> Result<Self, ApiError> {
        let rules = job_request.dialect.family.rules();
        if job_request.edits && job_request.request.images.is_empty() {
            return Err(ApiError::missing("image"));
        }
        check::check(&mut job_request.request, &rules)?;
        fit::fit(&mut job_request.request, &job_request.dialect, &rules)?;
        if job_request.dialect.shape == ImageShape::PromptLater && !job_request.request.images.is_empty() {
            let message = "'image' is not accepted by this model: it makes images from text only.";
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("image"));
        }
        Ok(ImageJob {
            job_request,
            rules,
            round: Round::Begin,
            responses: Vec::new(),
            polls: 0,
            images: Vec::new(),
            refusals: Vec::new(),
            usage: None,
            size: None,
            quality: None,
            fault: None,
        })
    }

    /// Returns the settings that the model does not support.
    pub fn lost(&self) -> &[ElementLoss] {
        &self.job_request.request.lost_settings
    }

    /// Converts the request's images to types that the model accepts.
    fn convert(&mut self) -> Result<(), ApiError> {
        if !matches!(self.job_request.dialect.family, ImageFamily::GptImage | ImageFamily::GptImageFree) {
            return Ok(());
        }
        let ImageRequest { images, mask, group, .. } = &mut self.job_request.request;
        for input in images {
            let ImageSource::Bytes(bytes) = &input.source else { continue };
            if file(bytes).is_some_and(|file| file.picture == ImageFormat::Gif) {
                let png = convert::gif_to_png(bytes);
                input.source = ImageSource::Bytes(png.ok_or_else(|| unreadable(input))?);
            }
        }
        if let Some(input) = mask.as_mut().filter(|_| *group)
            && let ImageSource::Bytes(bytes) = &input.source
        {
            let message = "must be a grayscale PNG, white where the image may be changed";
            let mask = convert::mask(bytes).ok_or_else(|| {
                let message = format!("'{}' {message}.", input.field);
                ApiError::new(ErrorKind::InvalidField, message).param(input.field.clone())
            })?;
            input.source = ImageSource::Bytes(mask);
        }
        Ok(())
    }

    /// Returns the size for the price: the size that was requested of the provider or, where the provider may choose
    /// another one, the size that it reports.
    fn priced_size(&self) -> Option<String> {
        let ImageRequest { size, tier, .. } = &self.job_request.request;
        let requested = match self.job_request.dialect.shape {
            ImageShape::Parts => tier.as_ref().or(size.as_ref()),
            _ => size.as_ref().or(tier.as_ref()),
        };
        let requested = requested.filter(|size| *size != "auto");
        let reported = self.size.as_ref();
        if self.rules.sizes == Sizes::Any { reported.or(requested) } else { requested.or(reported) }.cloned()
    }

    /// Returns whether the client receives bytes and not links.
    fn inline(&self) -> bool {
        self.rules.delivery == ImageDelivery::Inline
            || self.job_request.request.inline == Some(true)
            || self.job_request.shape == ImageReplyShape::Predictions
    }

    /// Returns the indices of the images, and of the mask, whose source is a URL.
    fn linked_inputs(&self) -> Vec<usize> {
        let request = &self.job_request.request;
        let all = request.images.iter().chain(&request.mask);
        let linked = all.enumerate().filter(|(_, input)| matches!(input.source, ImageSource::Link(_)));
        linked.map(|(place, _)| place).collect()
    }

    /// Replaces URLs by the downloaded images.
    fn take_inputs(&mut self, places: &[usize]) -> Result<(), ApiError> {
        let request = &mut self.job_request.request;
        for (place, bytes) in places.iter().zip(self.responses.drain(..)) {
            let input = match request.images.get_mut(*place) {
                Some(input) => input,
                None => match &mut request.mask {
                    Some(mask) => mask,
                    None => continue,
                },
            };
            input.source = ImageSource::Bytes(bytes);
            check::input_is_fit(input, &self.rules)?;
        }
        Ok(())
    }

    /// Returns the generation calls for all images.
    fn calls(&self) -> Vec<JobCall> {
        let ImageJobRequest { request, dialect, upstream, .. } = &self.job_request;
        let one = |count: u32| {
            let written = encode_call(request, dialect, upstream, count);
            let path = if written.edits { &dialect.edit } else { &dialect.make };
            let call = JobCall::path(path.clone(), written.body);
            let call = if written.later { call.headers(ASYNC_HEADERS) } else { call };
            match written.media {
                Some(media) => call.media(media),
                None => call,
            }
        };
        let (count, most) = (request.count.unwrap_or(1), dialect.max_images.max(1));
        // Full calls are equal, so they share one body, which the memory budget counts once.
        let full = (count >= most).then(|| one(most));
        let mut calls: Vec<JobCall> = (0..count / most).filter_map(|_| full.clone()).collect();
        if count % most > 0 {
            calls.push(one(count % most));
        }
        calls
    }

    /// Reads the responses of a round. Returns the ids of the tasks to poll.
    fn take_responses(&mut self) -> Result<Vec<String>, JobFault> {
        let mut open = Vec::new();
        for body in std::mem::take(&mut self.responses) {
            let read = answer::decode(&body).map_err(|error| JobFault::Broken(error.to_string()))?;
            let ImageAnswer { images, usage, refusals, failed, task, size, quality } = read;
            if failed {
                return Err(JobFault::Failed(body));
            }
            self.size = self.size.take().or(size);
            self.quality = self.quality.take().or(quality);
            self.refusals.extend(refusals);
            if usage.is_known() {
                add(self.usage.get_or_insert_default(), &usage);
            }
            match task {
                Some(ImageTask { id, state: ImageTaskState::Open }) if !id.is_empty() => open.push(id),
                Some(ImageTask { state: ImageTaskState::Open, .. }) => {
                    return Err(JobFault::Broken("the task has no id".to_owned()));
                }
                _ => self.images.extend(images.into_iter().map(|Image { location: place, revised }| {
                    let shown = match place {
                        ImageLocation::Link(url) => OutputImage::Link(url),
                        ImageLocation::Base64(text) => OutputImage::Base64(text),
                    };
                    (shown, revised)
                })),
            }
        }
        Ok(open)
    }

    fn tasks(&mut self, ids: Vec<String>) -> Vec<JobCall> {
        let delay = POLL_DELAYS.get(self.polls).or(POLL_DELAYS.last()).copied().unwrap_or_default();
        self.polls += 1;
        let path = |id: &String| {
            let mut path = self.job_request.dialect.tasks.to_string();
            crate::wire::path::push_path_segment(&mut path, id);
            JobCall::get(path).after(delay)
        };
        let calls = ids.iter().map(path).collect();
        self.round = Round::Tasks(ids);
        calls
    }

    /// Returns the downloads of results, if the client requires bytes.
    fn result_downloads(&mut self) -> Vec<JobCall> {
        let inline = self.inline();
        let places = self.images.iter().enumerate().filter_map(|(place, (image, _))| match image {
            OutputImage::Link(url) if inline => Some((place, url.clone())),
            _ => None,
        });
        let (places, urls): (Vec<usize>, Vec<String>) = places.unzip();
        let media = |url: String| RemoteMedia { url: url.into(), field: None, max_bytes: None };
        let calls = urls.into_iter().map(|url| JobCall::fetch(media(url))).collect();
        self.round = Round::Results(places);
        calls
    }

    fn next_round(&mut self) -> Result<Vec<JobCall>, JobFault> {
        loop {
            match std::mem::replace(&mut self.round, Round::Done) {
                Round::Begin => {
                    let places = self.linked_inputs();
                    if places.is_empty() || !needs_bytes(self.job_request.dialect.shape) {
                        self.convert().map_err(JobFault::Refused)?;
                        self.round = Round::Generation;
                        return Ok(self.calls());
                    }
                    let request = &self.job_request.request;
                    let all: Vec<_> = request.images.iter().chain(&request.mask).collect();
                    let call = |place: &usize| {
                        let input = all.get(*place)?;
                        let ImageSource::Link(url) = &input.source else { return None };
                        Some(JobCall::fetch(RemoteMedia {
                            url: url.as_str().into(),
                            field: Some(input.field.as_str().into()),
                            max_bytes: Some(self.rules.bytes),
                        }))
                    };
                    let calls = places.iter().filter_map(call).collect();
                    self.round = Round::Inputs(places);
                    return Ok(calls);
                }
                Round::Inputs(places) => {
                    self.take_inputs(&places).map_err(JobFault::Refused)?;
                    self.convert().map_err(JobFault::Refused)?;
                    self.round = Round::Generation;
                    return Ok(self.calls());
                }
                Round::Generation | Round::Tasks(_) => {
                    // The response to a poll has the format of the response to a generation call.
                    let open = self.take_responses()?;
                    if !open.is_empty() {
                        return Ok(self.tasks(open));
                    }
                    let calls = self.result_downloads();
                    if !calls.is_empty() {
                        return Ok(calls);
                    }
                }
                Round::Results(places) => {
                    for (place, bytes) in places.into_iter().zip(std::mem::take(&mut self.responses)) {
                        // A link may lead to an error page with status 200.
                        if file(&bytes).is_none() {
                            return Err(JobFault::Broken("a link does not return an image".to_owned()));
                        }
                        if let Some((image, _)) = self.images.get_mut(place) {
                            *image = OutputImage::Bytes(bytes);
                        }
                    }
                }
                Round::Done => return Ok(Vec::new()),
            }
        }
    }

    /// Returns the fault of a job without images: the provider's first refusal, if it sent one.
    fn refusal(&self) -> JobFault {
        let Some((code, message)) = self.refusals.first().cloned() else {
            return JobFault::Broken("the response contains no images".to_owned());
        };
        let status = match code.as_str() {
            code if code.starts_with("Internal") => 500,
            code if code.starts_with("Throttling") || code.starts_with("RateLimit") => 429,
            _ => 400,
        };
        let code = Some(code).filter(|code| !code.is_empty());
        JobFault::Refused(from_provider(
            status,
            ProviderError { message, code, ..ProviderError::default() },
            None,
        ))
    }
}

fn unreadable(input: &ImageInput) -> ApiError {
    let field = &input.field;
    let message = format!(
        "'{field}' cannot be decoded as a GIF of at most {} million pixels; send it as a PNG.",
        convert::MOST_POINTS / 1_000_000
    );
    ApiError::new(ErrorKind::InvalidField, message).param(field.clone())
}

fn add(sum: &mut Usage, more: &Usage) {
    let add = |slot: &mut Option<u64>, value: Option<u64>| {
        if let Some(value) = value {
            *slot = Some(slot.unwrap_or(0).saturating_add(value));
        }
    };
    add(&mut sum.input, more.input);
    add(&mut sum.output, more.output);
    add(&mut sum.reasoning, more.reasoning);
    add(&mut sum.image_input, more.image_input);
    add(&mut sum.image_output, more.image_output);
}

impl Job for ImageJob {
    fn next(&mut self) -> Vec<JobCall> {
        let calls = self.next_round().unwrap_or_else(|fault| {
            self.fault = Some(fault);
            Vec::new()
        });
        self.responses = vec![Bytes::new(); calls.len()];
        calls
    }

    fn on_response(&mut self, call: usize, body: Bytes) {
        if let Some(slot) = self.responses.get_mut(call) {
            *slot = body;
        }
    }

    fn finish(&mut self) -> Result<JobReply, JobFault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if self.images.is_empty() {
            return Err(self.refusal());
        }
        let priced = self.priced_size();
        let request = &self.job_request.request;
        let mut images = std::mem::take(&mut self.images);
        if request.inline == Some(false) && !self.inline() {
            // The provider returns bytes only. A `data:` URL is a link that needs no storage.
            for (image, _) in &mut images {
                if let OutputImage::Base64(text) = image {
                    let bytes = base64_simd::forgiving_decode_to_vec(text);
                    let bytes = bytes.map_err(|_| JobFault::Broken("invalid base64".to_owned()))?;
                    *image = OutputImage::Data(bytes.into());
                }
            }
        }
        let size = request.size.clone().filter(|size| size != "auto").or_else(|| self.size.take());
        let quality = request.quality.clone().filter(|quality| quality != "auto").or(self.quality.take());
        let product = Product::Images {
            count: images.len() as u64,
            size: priced.as_deref().unwrap_or_default().into(),
            quality: quality.as_deref().unwrap_or_default().into(),
        };
        let usage = self.usage.unwrap_or_default();
        let set = ImageSet { images, created: self.job_request.now, usage, size, quality };
        let body = reply::encode(set, self.job_request.shape);
        Ok(JobReply { body, usage, products: vec![product], counted: false })
    }
}
