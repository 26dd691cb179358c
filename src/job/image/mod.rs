//! Images: a request of any client's form for a provider of any form.
//!
//! The rounds: images of the request that lie behind links are brought, where the provider must be given their bytes;
//! the provider is asked, as many times as the number of images takes; tasks are asked for until they are done; links
//! are followed, where the client wants the images themselves.

use std::time::Duration;

use bytes::Bytes;

use super::{Job, JobCall, JobFault, JobReply, RemoteMedia};
use crate::canonical::image::{
    Comes, ImageDialect, ImageFamily, ImageInput, ImageRequest, ImageRules, ImageShape, ImageSource, Picture,
    Sizes,
};
use crate::canonical::{ElementLoss, Product, Usage};
use crate::error::{ApiError, Kind};
use crate::wire::error::{ProviderError, from_provider};
use crate::wire::images::answer::{self, Answer, Image, Place, State, Task};
use crate::wire::images::ask::{ask, needs_bytes};
use crate::wire::images::reply::{self, Made, Shape, Shown};
use crate::wire::images::{check, convert, file, fit};

/// How long to wait before a task is asked for: the first times, and from then on.
const WAITS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(5),
];
/// What says that an answer may be a task.
const LATER: &[(&str, &str)] = &[("x-dashscope-async", "enable")];

/// A request, with what must be known of its client and its model.
#[derive(Clone, Debug)]
pub struct ImageJobRequest {
    /// What is wanted.
    pub request: ImageRequest,
    /// The request must begin with images.
    pub edits: bool,
    /// The shape of the answer.
    pub shape: Shape,
    /// The model's name at the provider.
    pub upstream: Box<str>,
    /// How the provider is asked.
    pub dialect: ImageDialect,
    /// Now, in Unix seconds.
    pub now: u64,
}

/// What will be made, as far as the request tells.
pub fn expected(request: &ImageRequest) -> Product {
    let count = u64::from(request.count.unwrap_or(1)) * u64::from(request.sequence.unwrap_or(1));
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    let size = match (&request.size, &request.tier) {
        // Which of the two has a price is not known.
        (Some(_), Some(_)) => Box::default(),
        (size, tier) => text(if size.is_some() { size } else { tier }),
    };
    Product::Images { count, size, quality: text(&request.quality) }
}

/// What the calls of a round are for.
#[derive(Clone, Debug, PartialEq)]
enum Round {
    /// Nothing has been asked for.
    Begin,
    /// Images of the request, by their place; behind all of them the mask.
    Inputs(Vec<usize>),
    /// The provider is asked.
    Asking,
    /// Tasks, by id.
    Tasks(Vec<String>),
    /// Links to what was made, by place.
    Links(Vec<usize>),
    /// There is no more to ask for.
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Imaging {
    asked: ImageJobRequest,
    rules: ImageRules,
    round: Round,
    heard: Vec<Bytes>,
    waits: usize,
    images: Vec<(Shown, Option<String>)>,
    refusals: Vec<(String, String)>,
    usage: Option<Usage>,
    size: Option<String>,
    quality: Option<String>,
    fault: Option<JobFault>,
}

impl Imaging {
    /// Prepares a job.
    ///
    /// # Errors
    /// The model does not take what is asked for.
    pub fn new(mut asked: ImageJobRequest) -> Result<Self, ApiError> {
        let rules = asked.dialect.family.rules();
        if asked.edits && asked.request.images.is_empty() {
            return Err(ApiError::missing("image"));
        }
        check::check(&mut asked.request, &rules)?;
        fit::fit(&mut asked.request, &asked.dialect, &rules)?;
        if asked.dialect.shape == ImageShape::PromptLater && !asked.request.images.is_empty() {
            let message = "'image' is not taken by this model, which makes images of texts.";
            return Err(ApiError::new(Kind::Unsupported, message).param("image"));
        }
        Ok(Imaging {
            asked,
            rules,
            round: Round::Begin,
            heard: Vec::new(),
            waits: 0,
            images: Vec::new(),
            refusals: Vec::new(),
            usage: None,
            size: None,
            quality: None,
            fault: None,
        })
    }

    /// What of the request the model has no place for.
    pub fn lost(&self) -> &[ElementLoss] {
        &self.asked.request.lost
    }

    /// Puts images into a form that the model takes.
    fn convert(&mut self) -> Result<(), ApiError> {
        if !matches!(self.asked.dialect.family, ImageFamily::GptImage | ImageFamily::GptImageFree) {
            return Ok(());
        }
        let ImageRequest { images, mask, group, .. } = &mut self.asked.request;
        for input in images {
            let ImageSource::Bytes(bytes) = &input.source else { continue };
            if file(bytes).is_some_and(|file| file.picture == Picture::Gif) {
                let png = convert::gif_to_png(bytes);
                input.source = ImageSource::Bytes(png.ok_or_else(|| unreadable(input))?);
            }
        }
        if let Some(input) = mask.as_mut().filter(|_| *group)
            && let ImageSource::Bytes(bytes) = &input.source
        {
            let message = "must be a grey PNG, white where the image may be changed";
            let made = convert::mask(bytes).ok_or_else(|| {
                let message = format!("'{}' {message}.", input.field);
                ApiError::new(Kind::InvalidField, message).param(input.field.clone())
            })?;
            input.source = ImageSource::Bytes(made);
        }
        Ok(())
    }

    /// The size that the images are priced by: what the provider was told, or, where it may make another, what it says.
    fn priced_size(&self) -> Option<String> {
        let ImageRequest { size, tier, .. } = &self.asked.request;
        let told = match self.asked.dialect.shape {
            ImageShape::Parts => tier.as_ref().or(size.as_ref()),
            _ => size.as_ref().or(tier.as_ref()),
        };
        let told = told.filter(|size| *size != "auto");
        let said = self.size.as_ref();
        if self.rules.sizes == Sizes::Any { said.or(told) } else { told.or(said) }.cloned()
    }

    /// The images come in the answer, and not behind links.
    fn inline(&self) -> bool {
        self.rules.comes == Comes::Inline
            || self.asked.request.inline == Some(true)
            || self.asked.shape == Shape::Predictions
    }

    fn inputs(&self) -> Vec<usize> {
        let request = &self.asked.request;
        let all = request.images.iter().chain(&request.mask);
        let links = all.enumerate().filter(|(_, input)| matches!(input.source, ImageSource::Link(_)));
        links.map(|(place, _)| place).collect()
    }

    /// Puts what was brought in the place of its link.
    fn take_inputs(&mut self, places: &[usize]) -> Result<(), ApiError> {
        let request = &mut self.asked.request;
        for (place, bytes) in places.iter().zip(self.heard.drain(..)) {
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

    /// The calls that ask for all images.
    fn calls(&self) -> Vec<JobCall> {
        let ImageJobRequest { request, dialect, upstream, .. } = &self.asked;
        let one = |count: u32| {
            let written = ask(request, dialect, upstream, count);
            let path = if written.edits { &dialect.edit } else { &dialect.make };
            let call = JobCall::path(path.clone(), written.body);
            let call = if written.later { call.headers(LATER) } else { call };
            match written.media {
                Some(media) => call.media(media),
                None => call,
            }
        };
        let (count, most) = (request.count.unwrap_or(1), dialect.most.max(1));
        // Calls for the same number are the same: they share what they send.
        let full = (count >= most).then(|| one(most));
        let mut calls: Vec<JobCall> = (0..count / most).filter_map(|_| full.clone()).collect();
        if count % most > 0 {
            calls.push(one(count % most));
        }
        calls
    }

    /// Takes what the provider answered; gives the tasks that are to be asked for.
    fn take_answers(&mut self) -> Result<Vec<String>, JobFault> {
        let mut open = Vec::new();
        for body in std::mem::take(&mut self.heard) {
            let read = answer::decode(&body).map_err(|error| JobFault::Broken(error.to_string()))?;
            let Answer { images, usage, refusals, failed, task, size, quality } = read;
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
                Some(Task { id, state: State::Open }) if !id.is_empty() => open.push(id),
                Some(Task { state: State::Open, .. }) => {
                    return Err(JobFault::Broken("a task without an id".to_owned()));
                }
                _ => self.images.extend(images.into_iter().map(|Image { place, revised }| {
                    let shown = match place {
                        Place::Link(url) => Shown::Link(url),
                        Place::Base64(text) => Shown::Base64(text),
                    };
                    (shown, revised)
                })),
            }
        }
        Ok(open)
    }

    fn tasks(&mut self, ids: Vec<String>) -> Vec<JobCall> {
        let wait = WAITS.get(self.waits).or(WAITS.last()).copied().unwrap_or_default();
        self.waits += 1;
        let path = |id: &String| {
            let mut path = self.asked.dialect.tasks.to_string();
            crate::wire::path::push_path_segment(&mut path, id);
            JobCall::look(path).after(wait)
        };
        let calls = ids.iter().map(path).collect();
        self.round = Round::Tasks(ids);
        calls
    }

    /// What is left to be brought when everything has been made.
    fn links(&mut self) -> Vec<JobCall> {
        let wanted = self.inline();
        let places = self.images.iter().enumerate().filter_map(|(place, (image, _))| match image {
            Shown::Link(url) if wanted => Some((place, url.clone())),
            _ => None,
        });
        let (places, urls): (Vec<usize>, Vec<String>) = places.unzip();
        let link = |url: String| RemoteMedia { url: url.into(), field: None, most: None };
        let calls = urls.into_iter().map(|url| JobCall::link(link(url))).collect();
        self.round = Round::Links(places);
        calls
    }

    fn next_round(&mut self) -> Result<Vec<JobCall>, JobFault> {
        loop {
            match std::mem::replace(&mut self.round, Round::Done) {
                Round::Begin => {
                    let places = self.inputs();
                    if places.is_empty() || !needs_bytes(self.asked.dialect.shape) {
                        self.convert().map_err(JobFault::Refused)?;
                        self.round = Round::Asking;
                        return Ok(self.calls());
                    }
                    let request = &self.asked.request;
                    let all: Vec<_> = request.images.iter().chain(&request.mask).collect();
                    let call = |place: &usize| {
                        let input = all.get(*place)?;
                        let ImageSource::Link(url) = &input.source else { return None };
                        Some(JobCall::link(RemoteMedia {
                            url: url.as_str().into(),
                            field: Some(input.field.as_str().into()),
                            most: Some(self.rules.bytes),
                        }))
                    };
                    let calls = places.iter().filter_map(call).collect();
                    self.round = Round::Inputs(places);
                    return Ok(calls);
                }
                Round::Inputs(places) => {
                    self.take_inputs(&places).map_err(JobFault::Refused)?;
                    self.convert().map_err(JobFault::Refused)?;
                    self.round = Round::Asking;
                    return Ok(self.calls());
                }
                Round::Asking | Round::Tasks(_) => {
                    let open = self.take_answers()?;
                    if !open.is_empty() {
                        return Ok(self.tasks(open));
                    }
                    let calls = self.links();
                    if !calls.is_empty() {
                        return Ok(calls);
                    }
                }
                Round::Links(places) => {
                    for (place, bytes) in places.into_iter().zip(std::mem::take(&mut self.heard)) {
                        if file(&bytes).is_none() {
                            return Err(JobFault::Broken("a link leads to no image".to_owned()));
                        }
                        if let Some((image, _)) = self.images.get_mut(place) {
                            *image = Shown::Bytes(bytes);
                        }
                    }
                }
                Round::Done => return Ok(Vec::new()),
            }
        }
    }

    /// Why there is no image at all.
    fn refusal(&self) -> JobFault {
        let Some((code, message)) = self.refusals.first().cloned() else {
            return JobFault::Broken("the answer holds no images".to_owned());
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
        "'{field}' cannot be read as a GIF of at most {} million points; send it as a PNG.",
        convert::MOST_POINTS / 1_000_000
    );
    ApiError::new(Kind::InvalidField, message).param(field.clone())
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

impl Job for Imaging {
    fn next(&mut self) -> Vec<JobCall> {
        let calls = self.next_round().unwrap_or_else(|fault| {
            self.fault = Some(fault);
            Vec::new()
        });
        self.heard = vec![Bytes::new(); calls.len()];
        calls
    }

    fn heard(&mut self, call: usize, body: Bytes) {
        if let Some(slot) = self.heard.get_mut(call) {
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
        let request = &self.asked.request;
        let mut images = std::mem::take(&mut self.images);
        if request.inline == Some(false) && !self.inline() {
            // A provider that gives no links; this is one that needs no provider.
            for (image, _) in &mut images {
                if let Shown::Base64(text) = image {
                    let bytes = base64_simd::forgiving_decode_to_vec(text);
                    let bytes = bytes.map_err(|_| JobFault::Broken("what is no base64".to_owned()))?;
                    *image = Shown::Data(bytes.into());
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
        let made = Made { images, created: self.asked.now, usage, size, quality };
        let body = reply::encode(made, self.asked.shape);
        Ok(JobReply { body, usage, made: vec![product], counted: false })
    }
}
