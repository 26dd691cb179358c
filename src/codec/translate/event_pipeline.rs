//! Event pipeline of a translated response: from the decoder to the client's encoder.

use bytes::{Bytes, BytesMut};

use super::codecs::AnyEncoder;
use super::compaction::Compactor;
use super::keepsake::Collector;
use super::restore::Restorer;
use super::resume::TranslatedTap;
use super::synthetic_error::{empty_response, error_body};
use super::void_arguments::VoidArguments;
use super::{Meter, StreamError};
use crate::canonical::answer::MAX_BLOCKS;
use crate::canonical::{Answer, BlockKind, Event, Finish};
use crate::wire::codec::is_to_come;

/// Event pipeline from the decoder to the client's encoder: meter, signature collector, restorer, transcript tap.
#[derive(Debug)]
pub(super) struct EventPipeline {
    pub(super) meter: Meter,
    /// Filter of arguments that mean none.
    pub(super) void_arguments: VoidArguments,
    pub(super) collector: Option<Box<Collector>>,
    pub(super) restorer: Option<Restorer>,
    /// Compaction that the response becomes; `None` for all other responses.
    pub(super) compactor: Option<Box<Compactor>>,
    pub(super) to: PipelineOutput,
    pub(super) out: BytesMut,
    /// Error of the provider, once it has arrived.
    pub(super) error: Option<Bytes>,
    /// Whether any block other than reasoning has arrived.
    pub(super) spoke: bool,
    /// Transcript tap, if another provider may continue this response or this response continues another one.
    pub(super) tap: Option<Box<TranslatedTap>>,
}

/// Destination of the events of a response.
#[derive(Debug)]
pub(super) enum PipelineOutput {
    /// Encoder of the client's stream.
    Stream(AnyEncoder),
    /// Response that is collected for a document.
    Whole(Box<Answer>),
}

impl EventPipeline {
    /// Handles an event.
    #[inline]
    pub(super) fn event(&mut self, event: &Event<'_>) {
        // Only a call that has begun without arguments so far needs the filter.
        if self.void_arguments.is_concerned(event) {
            self.filtered(event);
        } else {
            self.pass(event);
        }
    }

    #[cold]
    #[inline(never)]
    fn filtered(&mut self, event: &Event<'_>) {
        let mut filter = std::mem::take(&mut self.void_arguments);
        filter.event(event, &mut |event| self.pass(event));
        self.void_arguments = filter;
    }

    fn pass(&mut self, event: &Event<'_>) {
        // The meter and the collector must see every event, even behind an error that stops the output.
        self.meter.observe_event(event);
        if let Some(collector) = &mut self.collector {
            collector.observe(event);
        }
        if self.error.is_some() {
            return;
        }
        match event {
            Event::Error(error) => {
                self.error = Some(Bytes::copy_from_slice(error.text().as_bytes()));
                return;
            }
            // State is stored per block: an endless series of blocks would exhaust memory.
            Event::BlockStart { index, .. } if *index >= MAX_BLOCKS => {
                self.error = Some(error_body("server_error", &["The response has too many parts."]));
                return;
            }
            Event::BlockStart { kind, .. } => {
                self.spoke |= !matches!(kind, BlockKind::Reasoning | BlockKind::HiddenReasoning);
            }
            // An empty response with an unknown finish reason is treated as an upstream error.
            Event::Finish { finish: Finish::Other(word), .. }
                if !self.spoke && !word.is_empty() && !is_to_come(*word) =>
            {
                self.error = Some(empty_response(*word));
                return;
            }
            _ => {}
        }
        let EventPipeline { meter, restorer, compactor, to, out, tap: along, error: fault, .. } = self;
        // Send the merged figures of the meter, so that client and accounting have the same. Usage that the provider does
        // not report is counted before the end, the last chance to send it.
        let mut usage = match event {
            Event::Usage(_) => Some(*meter.usage()),
            Event::End => meter.count_missing(true),
            _ => None,
        };
        if let (Some(usage), Some(along)) = (&mut usage, along.as_deref()) {
            *usage = along.total(usage, false).0;
        }
        let mut write = |event: &Event<'_>| match (&mut *to, &mut *along) {
            (PipelineOutput::Stream(encoder), None) => encoder.event(event, out),
            (PipelineOutput::Stream(encoder), Some(along)) => {
                along.event(event, &mut |event| encoder.event(event, out))
            }
            (PipelineOutput::Whole(answer), _) => answer.take(event),
        };
        if let Some(usage) = usage {
            write(&Event::Usage(usage));
        }
        // The merged figures were written above; the raw report would repeat or contradict them.
        if let Event::Usage(_) = event {
            return;
        }
        match (compactor, restorer) {
            // What the model did beside its summary is not restored: the client does not see it.
            (Some(compactor), _) => *fault = compactor.event(event, &mut write),
            // Most requests have no adaptations, and their events skip the restorer.
            (None, None) => write(event),
            (None, Some(restorer)) => restorer.event(event, &mut write),
        }
    }
}

impl EventPipeline {
    /// Returns the provider's error, if one has arrived.
    pub(super) fn check(&mut self) -> Result<(), StreamError> {
        let Some(error) = self.error.take() else { return Ok(()) };
        // Before any content the error can still become a status or a fallback; afterwards only the stream can carry
        // it.
        let nothing_left = self.meter.content_frames() == 0 && matches!(self.to, PipelineOutput::Stream(_));
        Err(if nothing_left || matches!(self.to, PipelineOutput::Whole(_)) {
            StreamError::FirstFrame(error)
        } else {
            StreamError::Failed(error)
        })
    }
}
