//! Embeddings: a client's request in any format, served by a provider of any shape, in as many calls as it takes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{Job, JobCall, JobFault, JobReply, Round};
use crate::canonical::Usage;
use crate::canonical::embed::{Embed, EmbedDialect, EmbedInput, EmbedShape};
use crate::error::{ApiError, ErrorKind};
use crate::tokens::{self, TokenizerFamily};
use crate::wire::embeddings::{self, EmbeddingsAnswer, ask};
use crate::wire::path::Action;
use json::{EscapedString, JsonStr, JsonText, push_escaped};

/// Tokenizer of clients that send token ids: that of the models which accept them.
const SENT_TOKENS: TokenizerFamily = TokenizerFamily::OpenAiOld;

/// Format of the client's request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A list of inputs (`/v1/embeddings`).
    List,
    /// One content of parts (`:embedContent`).
    Part,
    /// Several contents of parts (`:batchEmbedContents`).
    Parts,
}

/// Embeddings request with its client's format and its model.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// The client's format.
    pub client: Client,
    /// The request's body.
    pub body: JsonText,
    /// Model name from the client's path (content formats).
    pub named: String,
    /// Model name in the client's response.
    pub model: EscapedString,
    /// The model's name at the provider.
    pub upstream: Box<str>,
    /// Tokenizer of the model, for providers that report no usage.
    pub tokenizer: TokenizerFamily,
    /// Capability profile of the model.
    pub dialect: EmbedDialect,
}

impl EmbedRequest {
    fn decode(&self) -> Result<Embed<'_>, ApiError> {
        let text = self.body.as_str();
        match self.client {
            Client::List => embeddings::decode_list(text),
            Client::Part => embeddings::decode_part(text, &self.named),
            Client::Parts => embeddings::decode_parts(text, &self.named),
        }
    }
}

/// Decision how a request is served.
#[derive(Debug)]
pub enum EmbedRoute {
    /// The request is forwarded, because the provider has the client's format.
    Passthrough {
        /// Whether the client wants base64 vectors.
        base64: bool,
    },
    /// A job serves the request.
    Job(Box<EmbedJob>),
}

/// Decides how a request is served.
///
/// # Errors
/// Returns an error if the request is malformed, or the provider does not support it.
pub fn route_embeddings(asked: EmbedRequest) -> Result<EmbedRoute, ApiError> {
    let mut embed = asked.decode()?;
    let base64 = embed.base64;
    let dialect = asked.dialect;
    let has_tokens = embed.items.iter().any(|item| matches!(item.input, EmbedInput::Tokens(_)));
    // The body can be forwarded if the provider accepts it unchanged and in one call.
    let fits = asked.client == Client::List && dialect.shape == EmbedShape::List && dialect.plain;
    if fits && embed.items.len() <= dialect.batch && (dialect.tokens || !has_tokens) {
        return Ok(EmbedRoute::Passthrough { base64 });
    }
    if has_tokens && !dialect.tokens {
        decode_token_ids(&mut embed)?;
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
        let action = match dialect.shape {
            EmbedShape::Parts if count > 1 => Some(Action::BatchEmbed),
            EmbedShape::Parts | EmbedShape::Content => Some(Action::Embed),
            EmbedShape::Instances => Some(Action::Predict),
            _ => None,
        };
        calls.push(JobCall::api(body.freeze(), action));
        ranges.push(start..start + count);
        start += count;
    }
    let round = Round::with_calls(calls);
    Ok(EmbedRoute::Job(Box::new(EmbedJob { request: asked, base64, ranges, round })))
}

/// Replaces token ids by their text, for models that accept only text.
fn decode_token_ids(embed: &mut Embed<'_>) -> Result<(), ApiError> {
    for (index, item) in embed.items.iter_mut().enumerate() {
        let EmbedInput::Tokens(tokens) = item.input else { continue };
        let text = ask::tokens(tokens).and_then(|tokens| tokens::decode(SENT_TOKENS, &tokens));
        let text = text.ok_or_else(|| {
            let message = format!(
                "'input[{index}]' has tokens that are not text in the cl100k vocabulary, and this model requires text."
            );
            ApiError::new(ErrorKind::Unsupported, message).param("input")
        })?;
        let mut escaped = Vec::with_capacity(text.len() + 8);
        push_escaped(&mut escaped, &text);
        item.input = EmbedInput::Text(Cow::Owned(String::from_utf8_lossy(&escaped).into_owned()));
    }
    Ok(())
}

/// Job of an embeddings request.
#[derive(Debug)]
pub struct EmbedJob {
    request: EmbedRequest,
    base64: bool,
    /// Range of items of each call.
    ranges: Vec<Range<usize>>,
    round: Round,
}

impl EmbedJob {
    /// Counts the tokens of some items, for a provider that does not report them.
    fn count_tokens(&self, range: &Range<usize>) -> u64 {
        // Unreachable: the body was decoded when the job was created.
        let Ok(embed) = self.request.decode() else { return 0 };
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
        let family = self.request.tokenizer;
        given + tokens::count_texts(family, texts.iter().map(String::as_str))
    }
}

impl Job for EmbedJob {
    fn is_repeatable(&self) -> bool {
        true
    }

    fn next(&mut self) -> Vec<JobCall> {
        self.round.take()
    }

    fn on_response(&mut self, call: usize, body: Bytes) {
        self.round.record_response(call, body);
    }

    fn on_input_tokens(&mut self, call: usize, tokens: u64) {
        self.round.record_tokens(call, tokens);
    }

    fn finish(&mut self) -> Result<JobReply, JobFault> {
        let broken = |error: embeddings::Broken| JobFault::Broken(error.to_string());
        let mut vectors = Vec::new();
        let (mut used, mut counted) = (0u64, false);
        for (call, range) in self.ranges.iter().enumerate() {
            let answer = embeddings::decode_answer(self.round.text(call)?, range.len()).map_err(broken)?;
            let EmbeddingsAnswer { vectors: some, tokens, failed } = answer;
            if failed {
                return Err(self.round.failed(call));
            }
            // Some models of Amazon Bedrock report their usage in the head only.
            let tokens = tokens.or(self.round.tokens(call));
            vectors.extend(some);
            counted |= tokens.is_none();
            used = used.saturating_add(tokens.unwrap_or_else(|| self.count_tokens(range)));
        }
        let mut body = BytesMut::new();
        let written = match self.request.client {
            Client::List => {
                embeddings::encode_list(&vectors, self.base64, &self.request.model, used, &mut body)
            }
            Client::Part => embeddings::encode_parts(&vectors, true, used, &mut body),
            Client::Parts => embeddings::encode_parts(&vectors, false, used, &mut body),
        };
        written.map_err(broken)?;
        let usage = Usage { input: Some(used), ..Usage::default() };
        Ok(JobReply::new(body.freeze(), usage, counted))
    }
}
