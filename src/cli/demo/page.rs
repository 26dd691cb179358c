//! Start page of the demo: addresses, the key, and example requests that can be pasted unchanged.

use std::fmt::{Display, Formatter, Result};

use super::super::style;

/// Values of the start page.
pub(super) struct Page<'k> {
    pub(super) port: u16,
    pub(super) admin: u16,
    /// The default port was taken.
    pub(super) other_port: bool,
    /// The default admin port was taken.
    pub(super) other_admin: bool,
    pub(super) key: &'k str,
    /// Token of the admin API.
    pub(super) token: &'k str,
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = style::title("model-gateway");
        writeln!(f, "{name}: one address for every model provider, in the format that your client speaks.")?;
        writeln!(
            f,
            "OpenAI, Anthropic, Google, Bedrock, Cohere, Ark and DashScope are simulated here: nothing leaves this machine.\n"
        )?;
        self.addresses(f)?;
        writeln!(f, "\nPaste any of these lines into another terminal.")?;
        self.formats(f)?;
        self.more(f)?;
        self.python(f)?;
        writeln!(f, "\n{} on http://127.0.0.1:{} as they happen", style::title("Requests"), self.port)?;
        writeln!(f, "{}\n", style::faint("Ctrl-C ends the demo. More to try: docs/demo.md"))
    }
}

impl Page<'_> {
    fn addresses(&self, f: &mut Formatter<'_>) -> Result {
        let taken = |other: bool, usual: u16, flag: &str| {
            let note =
                if other { format!("  ({usual} is in use; {flag} selects another)") } else { String::new() };
            style::faint(note)
        };
        let Page { port, admin, .. } = self;
        let (gateway, metrics) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{admin}"));
        let (first, second) = (
            taken(self.other_port, super::PORT, "--port"),
            taken(self.other_admin, super::ADMIN_PORT, "--admin-port"),
        );
        writeln!(f, "  gateway  {}{first}", style::good(gateway))?;
        writeln!(f, "  admin    {}{second}", style::good(metrics))?;
        writeln!(f, "  console  {}", style::good(format!("http://127.0.0.1:{admin}/console/")))?;
        writeln!(f, "  token    {}  {}", style::good(self.token), style::faint("signs in to the console"))?;
        writeln!(f, "  key      {}", style::good(self.key))?;
        writeln!(f, "  models   gpt-4o, claude-sonnet-4-6, gemini-2.5-flash, amazon.nova-lite-v1:0")?;
        writeln!(f, "           text-embedding-3-small, gemini-embedding-001, embed-v4.0, rerank-v3.5")?;
        writeln!(f, "           gpt-image-1, gemini-2.5-flash-image, imagen-4.0-generate-001")?;
        writeln!(f, "           doubao-seedream-4-5-251128, qwen-image-plus")?;
        writeln!(f, "           sora-2, veo-3.1-fast-generate-preview, wan2.5-t2v-preview")?;
        writeln!(f, "           doubao-seedance-1-5-pro-251215, doubao-seedance-1-0-lite-t2v-250428")
    }

    /// Writes two requests for each format: without and with streaming.
    fn formats(&self, f: &mut Formatter<'_>) -> Result {
        let Page { port, key, .. } = self;
        let message = r#""messages":[{"role":"user","content":"Hello"}]"#;
        let bearer = format!("-H 'authorization: Bearer {key}'");
        let chat = format!(
            r#"http://127.0.0.1:{port}/v1/chat/completions {bearer} -d '{{"model":"gpt-4o",{message}"#
        );
        let responses = format!(
            r#"http://127.0.0.1:{port}/v1/responses {bearer} -d '{{"model":"gpt-4o","input":"Hello""#
        );
        let messages = format!(
            r#"http://127.0.0.1:{port}/v1/messages -H 'x-api-key: {key}' -d '{{"model":"claude-sonnet-4-6","max_tokens":100,{message}"#
        );
        for (title, request) in [
            ("OpenAI chat completions", chat),
            ("OpenAI responses", responses),
            ("Anthropic messages", messages),
        ] {
            heading(f, title)?;
            line(f, format_args!("curl {request}}}'"))?;
            line(f, format_args!(r#"curl -N {request},"stream":true}}'"#))?;
        }
        heading(f, "Gemini generateContent")?;
        let model = format!("http://127.0.0.1:{port}/v1beta/models/gemini-2.5-flash");
        let contents =
            format!(r#"-H 'x-goog-api-key: {key}' -d '{{"contents":[{{"parts":[{{"text":"Hello"}}]}}]}}'"#);
        line(f, format_args!("curl {model}:generateContent {contents}"))?;
        line(f, format_args!("curl -N '{model}:streamGenerateContent?alt=sse' {contents}"))?;
        // A stream of this format is binary: only the document can be read in a terminal.
        heading(f, "Amazon Bedrock Converse")?;
        let content = r#"-d '{"messages":[{"role":"user","content":[{"text":"Hello"}]}]}'"#;
        let model = format!("http://127.0.0.1:{port}/model/amazon.nova-lite-v1:0/converse");
        line(f, format_args!("curl {model} {bearer} {content}"))
    }

    fn more(&self, f: &mut Formatter<'_>) -> Result {
        let Page { port, admin, key, .. } = self;
        heading(f, "Models, metrics, health")?;
        line(f, format_args!("curl http://127.0.0.1:{port}/v1/models -H 'authorization: Bearer {key}'"))?;
        line(f, format_args!("curl http://127.0.0.1:{admin}/metrics"))?;
        line(f, format_args!("curl http://127.0.0.1:{admin}/healthz"))?;
        heading(
            f,
            "A coding client, if it is installed: claude, codex, gemini, opencode, qwen, crush or aider",
        )?;
        // As the demo was called: without an installation, the program is not on the PATH.
        let program = std::env::args().next().unwrap_or_else(|| "model-gateway".to_owned());
        line(
            f,
            format_args!(
                "MODEL_GATEWAY_KEY={key} {program} run claude --url http://127.0.0.1:{port} -m claude-sonnet-4-6"
            ),
        )?;
        heading(
            f,
            "A provider error and an aborted stream: directives in [[ ]] control the simulated providers",
        )?;
        let ask = format!(
            r#"http://127.0.0.1:{port}/v1/chat/completions -H 'authorization: Bearer {key}' -d '{{"model":"gpt-4o","messages":[{{"role":"user","content":"Hello"#
        );
        line(f, format_args!(r#"curl -i {ask} [[status 429]]"}}]}}'"#))?;
        line(f, format_args!(r#"curl -N {ask} [[cut 5]]"}}],"stream":true}}'"#))
    }

    fn python(&self, f: &mut Formatter<'_>) -> Result {
        let Page { port, key, .. } = self;
        heading(f, "Python, with the providers' own SDKs: pip install openai anthropic google-genai")?;
        let hello = r#"messages=[{"role": "user", "content": "Hello"}]"#;
        line(f, "from openai import OpenAI")?;
        line(f, format_args!(r#"client = OpenAI(base_url="http://127.0.0.1:{port}/v1", api_key="{key}")"#))?;
        line(
            f,
            format_args!(
                r#"print(client.chat.completions.create(model="gpt-4o", {hello}).choices[0].message.content)"#
            ),
        )?;
        line(f, r#"print(client.responses.create(model="gpt-4o", input="Hello").output_text)"#)?;
        writeln!(f)?;
        line(f, "from anthropic import Anthropic")?;
        line(f, format_args!(r#"client = Anthropic(base_url="http://127.0.0.1:{port}", api_key="{key}")"#))?;
        line(
            f,
            format_args!(
                r#"print(client.messages.create(model="claude-sonnet-4-6", max_tokens=100, {hello}).content[0].text)"#
            ),
        )?;
        writeln!(f)?;
        line(f, "from google import genai")?;
        line(
            f,
            format_args!(
                r#"client = genai.Client(api_key="{key}", http_options={{"base_url": "http://127.0.0.1:{port}"}})"#
            ),
        )?;
        line(f, r#"print(client.models.generate_content(model="gemini-2.5-flash", contents="Hello").text)"#)
    }
}

fn heading(f: &mut Formatter<'_>, text: &str) -> Result {
    writeln!(f, "\n{}", style::title(text))
}

/// Writes a line to paste, without indentation, which Python would reject.
fn line(f: &mut Formatter<'_>, text: impl Display) -> Result {
    writeln!(f, "{}", style::copy(text))
}
