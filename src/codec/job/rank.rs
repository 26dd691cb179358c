//! Reranking: a request for a provider of any shape, in as many calls as it takes. A document's score does not depend
//! on the other documents, so the results of several calls can be merged.

use bytes::{Bytes, BytesMut};

use super::{Job, JobCall, JobFault, JobReply, Round};
use crate::canonical::Usage;
use crate::canonical::rank::{Rank, RankDialect};
use crate::error::ApiError;
use crate::tokens::{self, TokenizerFamily};
use crate::wire::rerank;
use json::{EscapedString, JsonText};

/// Rerank request with its model.
#[derive(Clone, Debug)]
pub struct RankRequest {
    /// The request's body.
    pub body: JsonText,
    /// Model name in the client's response.
    pub model: EscapedString,
    /// The model's name at the provider.
    pub upstream: Box<str>,
    /// Tokenizer of the model, for providers that report no usage.
    pub tokenizer: TokenizerFamily,
    /// Capability profile of the model.
    pub dialect: RankDialect,
}

impl RankRequest {
    fn decode(&self) -> Result<Rank<'_>, ApiError> {
        rerank::decode(&self.body)
    }
}

/// Job of a rerank request.
#[derive(Debug)]
pub struct RankJob {
    request: RankRequest,
    documents: usize,
    round: Round,
}

impl RankJob {
    /// Creates a job.
    ///
    /// # Errors
    /// Returns an error if the request is malformed.
    pub fn new(asked: RankRequest) -> Result<Self, ApiError> {
        let rank = asked.decode()?;
        let documents = rank.documents.len();
        let calls = rank.documents.chunks(asked.dialect.batch.max(1)).map(|some| {
            let mut body = BytesMut::new();
            rerank::encode_request(&rank, some, &asked.dialect, &asked.upstream, &mut body);
            JobCall::api(body.freeze(), None)
        });
        let round = Round::with_calls(calls.collect());
        Ok(RankJob { documents, round, request: asked })
    }

    /// Counts the tokens that a model reads: the query once per document, and the documents.
    fn count_tokens(&self, rank: &Rank<'_>) -> u64 {
        let family = self.request.tokenizer;
        let query = tokens::count_text(family, &rank.query.decode());
        let texts: Vec<_> = rank.documents.iter().map(|text| text.decode()).collect();
        let documents = tokens::count_texts(family, texts.iter().map(|text| &**text));
        documents.saturating_add(query.saturating_mul(rank.documents.len() as u64))
    }
}

impl Job for RankJob {
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
        let batch = self.request.dialect.batch.max(1);
        let mut results = Vec::with_capacity(self.documents);
        let (mut used, mut searches) = (Some(0u64), None);
        for (call, start) in (0..self.documents).step_by(batch).enumerate() {
            let documents = batch.min(self.documents - start);
            let answer = rerank::decode_answer(self.round.text(call)?, documents);
            let answer = answer.map_err(|error| JobFault::Broken(error.to_string()))?;
            if answer.failed {
                return Err(self.round.failed(call));
            }
            results.extend(answer.results.into_iter().map(|mut result| {
                result.index += start;
                result
            }));
            let tokens = answer.tokens.or(self.round.tokens(call));
            used = used.zip(tokens).map(|(used, tokens)| used.saturating_add(tokens));
            if let Some(more) = answer.searches {
                searches = Some(searches.unwrap_or(0u64).saturating_add(more));
            }
        }
        // Decoded without an error when the job was created.
        let rank = self.request.decode().map_err(|error| JobFault::Broken(error.to_string()))?;
        rerank::sort_results(&mut results, rank.top);
        let counted = used.is_none();
        let used = used.unwrap_or_else(|| self.count_tokens(&rank));
        let mut body = BytesMut::new();
        rerank::encode(&rank, &results, &self.request.model, used, &mut body);
        let usage = Usage { input: Some(used), searches, ..Usage::default() };
        Ok(JobReply::new(body.freeze(), usage, counted))
    }
}
