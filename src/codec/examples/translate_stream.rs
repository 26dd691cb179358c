//! Reads a stream of chat completions from standard input and writes the same response as a stream of the messages
//! format, piece by piece as it arrives:
//!
//!     cargo run -p model-gateway-codec --example translate_stream < chunks.sse

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use json::EscapedString;
use model_gateway_codec::translate::translated::Route;
use model_gateway_codec::translate::verbatim::Arrival;
use model_gateway_codec::translate::{Restore, Translated};
use model_gateway_codec::wire::Format;
use model_gateway_codec::wire::codec::ReplyOptions;

fn main() -> Result<(), Box<dyn Error>> {
    // What a client of the messages format wants to see, and where the stream comes from.
    let reply =
        ReplyOptions { model: EscapedString::from("my-model"), seed: "1".into(), ..ReplyOptions::default() };
    let route = Route { client: Format::Messages, provider: Format::Chat, stream: true };
    let longest_frame = 1 << 20;
    let mut stream =
        Translated::new(&route, Arrival::Events, Arc::new(reply), Restore::default(), longest_frame);

    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut piece = [0; 4096];
    loop {
        let length = input.read(&mut piece)?;
        let translated = match piece.get(..length) {
            Some([]) | None => break,
            Some(piece) => stream.feed(Bytes::copy_from_slice(piece))?,
        };
        output.write_all(&translated)?;
    }
    // Fails if the provider broke off: such an answer must not look complete.
    output.write_all(&stream.finish()?)?;
    Ok(())
}
