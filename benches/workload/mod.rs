//! Input of the verbatim benchmarks: streams and requests as providers and clients send them, the same in every run.
//!
//! Here live texts. Measurement must not live here.

use bytes::Bytes;
use codec::translate::verbatim::Arrival;
use codec::wire::Api;

const WORDS: [&str; 12] = [
    " the",
    " gateway",
    " passes",
    " a",
    " frame",
    ",",
    " and",
    " reads",
    " what",
    " it",
    " \\\"must\\\"",
    " f\\u00fcr",
];

/// Stream, one frame in each piece.
pub(crate) struct Stream {
    /// Name in the results.
    pub(crate) name: &'static str,
    /// API of the provider.
    pub(crate) api: Api,
    /// Form in which the stream arrives.
    pub(crate) arrival: Arrival,
    pub(crate) frames: Vec<Bytes>,
}

impl Stream {
    /// Returns the same bytes in pieces of `size` bytes, as a busy connection delivers them.
    pub(crate) fn pieces(&self, size: usize) -> Vec<Bytes> {
        let whole = Bytes::from(self.frames.concat());
        (0..whole.len()).step_by(size).map(|at| whole.slice(at..whole.len().min(at + size))).collect()
    }

    /// Returns the number of bytes of all frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }
}

/// Returns a stream in each format, with this many frames of content.
pub(crate) fn streams(frames: usize) -> Vec<Stream> {
    let stream =
        |name, api, arrival, texts: Vec<String>| Stream { name, api, arrival, frames: shared(&texts) };
    vec![
        stream("chat", Api::Chat, Arrival::Events, chat(frames)),
        stream("messages", Api::Messages, Arrival::Events, messages(frames)),
        stream("responses", Api::Responses, Arrival::Events, responses(frames)),
        stream("generate", Api::Generate, Arrival::Events, generate(frames, "data: ", "\r\n\r\n")),
        stream("array", Api::Generate, Arrival::Array, array(frames)),
    ]
}

fn word(n: usize) -> &'static str {
    WORDS.get(n % WORDS.len()).copied().unwrap_or_default()
}

/// Returns one piece for each text, all in one allocation, as they are after a read.
fn shared(texts: &[String]) -> Vec<Bytes> {
    let whole = Bytes::from(texts.concat());
    let mut from = 0;
    let cut = |text: &String| {
        let piece = whole.slice(from..from + text.len());
        from += text.len();
        piece
    };
    texts.iter().map(cut).collect()
}

fn chat(frames: usize) -> Vec<String> {
    let chunk = |delta: &str, finish: &str, tail: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-CfZ2aXbFvYtq1mKq0WwH7rPz3uJ8N\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,\
             \"model\":\"gpt-4o-2024-08-06\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_a1b2c3d4e5\",\
             \"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}],\
             \"usage\":null{tail}}}\n\n"
        )
    };
    let mut all = vec![chunk("{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}", "null", "")];
    all.extend(
        (0..frames)
            .map(|n| chunk(&format!("{{\"content\":\"{}\"}}", word(n)), "null", ",\"obfuscation\":\"x1Yz\"")),
    );
    all.push(chunk("{}", "\"stop\"", ""));
    all.push(
        "data: {\"id\":\"chatcmpl-CfZ2aXbFvYtq1mKq0WwH7rPz3uJ8N\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,\
         \"model\":\"gpt-4o-2024-08-06\",\"choices\":[],\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":500,\
         \"total_tokens\":590,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n"
            .to_owned(),
    );
    all.push("data: [DONE]\n\n".to_owned());
    all
}

fn messages(frames: usize) -> Vec<String> {
    let event = |kind: &str, rest: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n");
    let mut all = vec![
        event(
            "message_start",
            ",\"message\":{\"model\":\"claude-sonnet-4-5-20250929\",\"id\":\"msg_01PfXq2Vt7hC4mKbYz8RwL3d\",\"type\":\"message\",\
             \"role\":\"assistant\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
             \"usage\":{\"input_tokens\":90,\"cache_read_input_tokens\":0,\"output_tokens\":1}}",
        ),
        event("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}"),
    ];
    all.extend((0..frames).map(|n| {
        event(
            "content_block_delta",
            &format!(",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{}\"}}", word(n)),
        )
    }));
    all.push(event("content_block_stop", ",\"index\":0"));
    all.push(event(
        "message_delta",
        ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":500}",
    ));
    all.push(event("message_stop", ""));
    all
}

fn responses(frames: usize) -> Vec<String> {
    let event = |kind: &str, rest: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{rest}}}\n\n");
    let response = |status: &str, usage: &str| {
        format!(
            "\"response\":{{\"id\":\"resp_68a1f0c2d3e4b5a69788796a5b4c3d2e1f00\",\"object\":\"response\",\"created_at\":1750000000,\
             \"status\":\"{status}\",\"error\":null,\"model\":\"gpt-4o-2024-08-06\",\"output\":[],\"usage\":{usage}}}"
        )
    };
    let mut all = vec![
        event("response.created", &format!("\"sequence_number\":0,{}", response("in_progress", "null"))),
        event("response.in_progress", &format!("\"sequence_number\":1,{}", response("in_progress", "null"))),
    ];
    all.extend((0..frames).map(|n| {
        let item = "msg_68a1f0c2d3e4b5a69788796a5b4c3d2e1f00";
        event(
            "response.output_text.delta",
            &format!(
                "\"sequence_number\":{},\"item_id\":\"{item}\",\"output_index\":0,\"content_index\":0,\"delta\":\"{}\",\
                 \"logprobs\":[],\"obfuscation\":\"aB3dE5\"",
                n + 2,
                word(n)
            ),
        )
    }));
    let usage = "{\"input_tokens\":90,\"output_tokens\":500,\"total_tokens\":590}";
    all.push(event("response.completed", &response("completed", usage)));
    all
}

fn generate(frames: usize, before: &str, behind: &str) -> Vec<String> {
    let frame = |n: usize| {
        let finish = if n + 1 == frames { "\"finishReason\":\"STOP\"," } else { "" };
        format!(
            "{before}{{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \"{}{}{}\"}}],\"role\": \"model\"}},{finish}\
             \"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 90,\"candidatesTokenCount\": {n},\
             \"totalTokenCount\": {},\"promptTokensDetails\": [{{\"modality\": \"TEXT\",\"tokenCount\": 90}}]}},\
             \"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \"aBcDeFgHiJkLmNoPqRsTuV\"}}{behind}",
            word(n),
            word(n + 1),
            word(n + 2),
            n + 90
        )
    };
    (0..frames).map(frame).collect()
}

fn array(frames: usize) -> Vec<String> {
    let mut all = generate(frames, "", "\n,\r\n");
    if let Some(first) = all.first_mut() {
        first.insert(0, '[');
    }
    if let Some(last) = all.last_mut() {
        last.truncate(last.len() - ",\r\n".len());
        last.push_str("]\n");
    }
    all
}

/// Returns a chat request of about `size` bytes.
pub(crate) fn request(size: usize) -> Bytes {
    let mut body =
        String::from("{\"model\":\"the-model\",\"stream\":true,\"temperature\":0.2,\"messages\":[");
    let mut n = 0;
    while n == 0 || body.len() < size {
        let role = if n % 2 == 0 { "user" } else { "assistant" };
        body.push_str(if n == 0 { "" } else { "," });
        body.push_str(&format!("{{\"role\":\"{role}\",\"content\":\""));
        for _ in 0..120 {
            body.push_str(word(n));
            n += 1;
        }
        body.push_str("\\n\"}");
        n += 1;
    }
    body.push_str("]}");
    Bytes::from(body)
}

/// Returns a complete chat completion.
pub(crate) fn answer() -> Bytes {
    let text: String = (0..400).map(word).collect();
    Bytes::from(format!(
        "{{\"id\":\"chatcmpl-CfZ2aXbFvYtq1mKq0WwH7rPz3uJ8N\",\"object\":\"chat.completion\",\"created\":1750000000,\
         \"model\":\"gpt-4o-2024-08-06\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\
         \"refusal\":null}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":90,\
         \"completion_tokens\":400,\"total_tokens\":490}}}}"
    ))
}
