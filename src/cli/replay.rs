//! `model-gateway replay`: translation of a recorded response, offline.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;

use super::explain::format_of;
use super::out::{self, say};
use super::{complain, fail, style};
use codec::translate::translated::Route;
use codec::translate::verbatim::Arrival;
use codec::translate::{Exchange, Meter, Restore, StreamError, Translated, Verbatim};
use codec::wire::Format;
use codec::wire::codec::ReplyOptions;
use codec::wire::error::{ProviderError, from_provider};
use json::EscapedString;
use storage::ledger::record::KINDS;

/// Maximum frame size in bytes: the default of `limits.frame`.
const FRAME: usize = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recorded response of a provider: server-sent events or one JSON document.
    file: PathBuf,
    /// The provider's format.
    #[arg(long, value_name = "FORMAT", value_parser = format_of)]
    from: Format,
    /// The client's format.
    #[arg(long, value_name = "FORMAT", value_parser = format_of)]
    to: Format,
    /// Whether the client requests a stream; by default, whether the recording is one.
    #[arg(long)]
    stream: Option<bool>,
    /// Bytes per simulated read; 0 for all at once.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pieces: usize,
}

pub(super) fn run(options: &ReplayArgs) -> ExitCode {
    let body = match std::fs::read(&options.file) {
        Ok(body) => Bytes::from(body),
        Err(error) => return fail(format!("{}: {error}", options.file.display())),
    };
    let arrival = match body.trim_ascii_start().first() {
        Some(b'{') => Arrival::Whole,
        Some(b'[') if options.from == Format::Generate => Arrival::Array,
        _ => Arrival::Events,
    };
    let stream = options.stream.unwrap_or(arrival != Arrival::Whole);
    let mut exchange = exchange(options, arrival, stream);
    let ended =
        if stream { replay(&mut exchange, &body, options.pieces) } else { whole(&mut exchange, body) };
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_bytes(&exchange.take_ready());
            let api_error = match &error {
                StreamError::FirstFrame(frame) | StreamError::Failed(frame) => {
                    from_provider(500, ProviderError::decode(frame), None)
                }
                other => {
                    codec::error::ApiError::new(codec::error::ErrorKind::UpstreamBroken, other.to_string())
                }
            };
            print_bytes(&exchange.fail(options.to, &api_error, "req_replayed"));
            fail(error)
        }
    };
    complain(format_args!("{} {}", style::title("noted"), noted(exchange.meter())));
    code
}

/// Returns what the meter has read of a response, in words.
fn noted(meter: &Meter) -> String {
    let word = |word: &str| if word.is_empty() { "none".to_owned() } else { word.to_owned() };
    let mut text =
        format!("id {}, finish {}, {} frames", word(meter.id()), word(meter.finish()), meter.frames());
    let usage = KINDS.iter().filter_map(|kind| Some(format!("{} {}", kind.name, (kind.get)(meter.usage())?)));
    let usage: Vec<String> = usage.collect();
    text.push_str("; usage ");
    text.push_str(&word(&usage.join(", ")));
    text
}

fn exchange(options: &ReplayArgs, arrival: Arrival, stream: bool) -> Exchange {
    if options.from == options.to {
        return Exchange::Verbatim(Verbatim::new(options.from.api(), arrival, Default::default(), FRAME));
    }
    let reply = ReplyOptions {
        model: EscapedString::from("replayed"),
        request: "req_replayed".into(),
        seed: "req_replayed".into(),
        usage_wanted: true,
        show_thinking: true,
        issuer: "replayed".into(),
        ..ReplyOptions::default()
    };
    let route = Route { client: options.to, provider: options.from, stream };
    let translated = Translated::new(&route, arrival, Arc::new(reply), Restore::default(), FRAME);
    Exchange::Translated(Box::new(translated))
}

fn replay(exchange: &mut Exchange, body: &Bytes, pieces: usize) -> Result<(), StreamError> {
    let size = if pieces == 0 { body.len().max(1) } else { pieces };
    let mut at = 0;
    while at < body.len() {
        let end = body.len().min(at + size);
        print_bytes(&exchange.feed(body.slice(at..end))?);
        at = end;
    }
    print_bytes(&exchange.finish()?);
    exchange.parse_deferred();
    Ok(())
}

fn whole(exchange: &mut Exchange, body: Bytes) -> Result<(), StreamError> {
    let out = exchange.whole(body)?;
    print_bytes(&out);
    say!();
    Ok(())
}

fn print_bytes(bytes: &[u8]) {
    out::write(bytes);
}
