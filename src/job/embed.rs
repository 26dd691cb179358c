//! Vectors of texts: a request of either format for a provider of any form, in as many calls as it takes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{Job, JobCall, JobFault, JobReply, Round};
use crate::canonical::Usage;
use crate::canonical::embed::{Embed, EmbedDialect, EmbedInput, EmbedShape};
use crate::error::{ApiError, Kind};
use crate::json::{EscapedString, JsonStr, push_escaped};
use crate::tokens::{self, Family};
use crate::wire::embeddings::{self, Answer, ask};
use crate::wire::path::Action;

/// The vocabulary that clients cut texts with who send tokens: that of the models which take them.
const SENT_TOKENS: Family = Family::OpenAiOld;

/// The format that the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A list.
    List,
    /// One content of parts.
    Part,
    /// Several contents of parts.
    Parts,
}

/// A request, with what must be known of its client and its model.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// The client's format.
    pub client: Client,
    /// The request's body.
    pub body: Bytes,
    /// The model as the client named it: in the path, for parts.
    pub named: String,
    /// The model as it is told to the client.
    pub model: EscapedString,
    /// The model's name at the provider.
    pub upstream: Box<str>,
    /// How the provider is asked.
    pub dialect: EmbedDialect,
}

impl EmbedRequest {
    fn text(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.body)
            .map_err(|_| ApiError::new(Kind::InvalidJson, "The request body is not UTF-8."))
    }

    fn decode(&self) -> Result<Embed<'_>, ApiError> {
        let text = self.text()?;
        match self.client {
            Client::List => embeddings::decode_list(text),
            Client::Part => embeddings::decode_part(text, &self.named),
            Client::Parts => embeddings::decode_parts(text, &self.named),
        }
    }
}

/// How a request is answered.
#[derive(Debug)]
pub enum EmbedRoute {
    /// The provider's words are the client's: the request passes as it is. The vectors are wanted as base64, or not.
    Pass {
        /// As base64.
        base64: bool,
    },
    /// By a job.
    Job(Box<Embedding>),
}

/// Decides how a request is answered.
///
/// # Errors
/// It is malformed, or the provider cannot be asked for it.
pub fn way(asked: EmbedRequest) -> Result<EmbedRoute, ApiError> {
    let mut embed = asked.decode()?;
    let base64 = embed.base64;
    let dialect = asked.dialect;
    let has_tokens = embed.items.iter().any(|item| matches!(item.input, EmbedInput::Tokens(_)));
    let fits = asked.client == Client::List && dialect.shape == EmbedShape::List && dialect.plain;
    if fits && embed.items.len() <= dialect.batch && (dialect.tokens || !has_tokens) {
        return Ok(EmbedRoute::Pass { base64 });
    }
    if has_tokens && !dialect.tokens {
        spell_out(&mut embed)?;
    }
    let (mut calls, mut ranges) = (Vec::new(), Vec::<Range<usize>>::new());
    let mut start = 0;
    while let Some(rest) = embed.items.get(start..).filter(|rest| !rest.is_empty()) {
        let same = rest
            .iter()
            .take(dialect.batch)
            .take_while(|item| rest.first().is_some_and(|first| ask::alike(first, item, &dialect)));
        let count = same.count().max(1);
        let items = rest.get(..count).unwrap_or_default();
        let mut body = BytesMut::new();
        ask::encode(&embed, items, &dialect, &asked.upstream, &mut body)?;
        let action = (dialect.shape == EmbedShape::Parts).then_some(if count == 1 {
            Action::Embed
        } else {
            Action::BatchEmbed
        });
        calls.push(JobCall::api(body.freeze(), action));
        ranges.push(start..start + count);
        start += count;
    }
    let round = Round::of(calls);
    Ok(EmbedRoute::Job(Box::new(Embedding { asked, base64, ranges, round })))
}

/// Puts texts in the place of tokens.
fn spell_out(embed: &mut Embed<'_>) -> Result<(), ApiError> {
    for (index, item) in embed.items.iter_mut().enumerate() {
        let EmbedInput::Tokens(tokens) = item.input else { continue };
        let text = ask::tokens(tokens).and_then(|tokens| tokens::decode(SENT_TOKENS, &tokens));
        let text = text.ok_or_else(|| {
            let message = format!(
                "'input[{index}]' holds tokens that are no text in the cl100k vocabulary, and this model wants texts."
            );
            ApiError::new(Kind::Unsupported, message).param("input")
        })?;
        let mut escaped = Vec::with_capacity(text.len() + 8);
        push_escaped(&mut escaped, &text);
        item.input = EmbedInput::Text(Cow::Owned(String::from_utf8_lossy(&escaped).into_owned()));
    }
    Ok(())
}

/// See the module.
#[derive(Debug)]
pub struct Embedding {
    asked: EmbedRequest,
    base64: bool,
    /// The items of each call.
    ranges: Vec<Range<usize>>,
    round: Round,
}

impl Embedding {
    /// The tokens of some items, where a provider does not tell them.
    fn counted(&self, range: &Range<usize>) -> u64 {
        // It was sound when the job began.
        let Ok(embed) = self.asked.decode() else { return 0 };
        let items = embed.items.get(range.clone()).unwrap_or_default();
        let mut given = 0;
        let mut texts = Vec::new();
        for item in items {
            match &item.input {
                EmbedInput::Text(text) => texts.push(JsonStr::from_escaped(text).decode().into_owned()),
                EmbedInput::Parts(value) => texts.push(value.text().to_owned()),
                EmbedInput::Tokens(value) => {
                    given += ask::tokens(*value).map_or(0, |tokens| tokens.len() as u64);
                }
            }
        }
        let family = Family::of(&self.asked.upstream);
        given + tokens::count_texts(family, texts.iter().map(String::as_str))
    }
}

impl Job for Embedding {
    fn is_repeatable(&self) -> bool {
        true
    }

    fn next(&mut self) -> Vec<JobCall> {
        self.round.take()
    }

    fn heard(&mut self, call: usize, body: Bytes) {
        self.round.heard(call, body);
    }

    fn finish(&mut self) -> Result<JobReply, JobFault> {
        let broken = |error: embeddings::Broken| JobFault::Broken(error.to_string());
        let mut vectors = Vec::new();
        let (mut used, mut counted) = (0u64, false);
        for (call, range) in self.ranges.iter().enumerate() {
            let answer = embeddings::decode_answer(self.round.text(call)?, range.len()).map_err(broken)?;
            let Answer { vectors: some, tokens, failed } = answer;
            if failed {
                return Err(self.round.failed(call));
            }
            vectors.extend(some);
            counted |= tokens.is_none();
            used = used.saturating_add(tokens.unwrap_or_else(|| self.counted(range)));
        }
        let mut body = BytesMut::new();
        let written = match self.asked.client {
            Client::List => {
                embeddings::encode_list(&vectors, self.base64, &self.asked.model, used, &mut body)
            }
            Client::Part => embeddings::encode_parts(&vectors, true, used, &mut body),
            Client::Parts => embeddings::encode_parts(&vectors, false, used, &mut body),
        };
        written.map_err(broken)?;
        let usage = Usage { input: Some(used), ..Usage::default() };
        Ok(JobReply::new(body.freeze(), usage, counted))
    }
}
