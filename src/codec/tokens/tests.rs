use super::bpe::Vocabulary;
use super::text::{TextPiece, count, count_up_to};
use super::*;
use crate::canonical::{Block, MediaSource, Role, Tool, ToolKind, Turn};
use json::{JsonStr, RawJson};

fn asks(blocks: Vec<Block<'_>>) -> Request<'_> {
    Request { turns: vec![Turn::new(Role::User, blocks)], ..Request::default() }
}

fn says(text: &str) -> Request<'_> {
    asks(vec![Block::text(JsonStr::from_escaped(text))])
}

#[test]
fn family_is_derived_from_the_model_name() {
    for (name, family) in [
        ("gpt-4o-2024-11-20", TokenizerFamily::OpenAi),
        ("openai/gpt-5.1-mini", TokenizerFamily::OpenAi),
        ("o3-mini", TokenizerFamily::OpenAi),
        ("gpt-4-0613", TokenizerFamily::OpenAiOld),
        ("text-embedding-3-small", TokenizerFamily::OpenAiOld),
        ("claude-3-5-sonnet-20241022", TokenizerFamily::Claude),
        ("claude-sonnet-4-20250514", TokenizerFamily::Claude),
        ("claude-opus-4-6", TokenizerFamily::Claude),
        ("anthropic.claude-opus-4-7-v1:0", TokenizerFamily::ClaudeNew),
        ("claude-sonnet-5", TokenizerFamily::ClaudeNew),
        ("models/gemini-2.5-flash", TokenizerFamily::Gemini),
        ("Qwen/Qwen3-32B", TokenizerFamily::Qwen),
        ("deepseek-chat", TokenizerFamily::DeepSeek),
        ("meta-llama/Llama-3.3-70B-Instruct", TokenizerFamily::Llama),
        ("solo3", TokenizerFamily::Other),
    ] {
        assert_eq!(TokenizerFamily::of(name), family, "{name}");
    }
}

#[test]
fn count_of_short_text_is_that_of_the_vocabulary() {
    for (text, tokens) in [("", 0), ("Hello", 1), ("Hello, how are you today?", 7), ("你好，世界", 3)] {
        assert_eq!(count_text(TokenizerFamily::OpenAi, text), tokens, "{text}");
    }
    assert_eq!(decode(TokenizerFamily::OpenAiOld, &[9_906, 1_917]).unwrap(), "Hello world");
    assert_eq!(decode(TokenizerFamily::OpenAiOld, &[u32::MAX]), None);
    assert_eq!(decode(TokenizerFamily::OpenAi, &[13_225, 2_375]).unwrap(), "Hello world");
    let others = TokenizerFamily::ALL
        .into_iter()
        .filter(|family| !matches!(family, TokenizerFamily::OpenAi | TokenizerFamily::OpenAiOld));
    for family in others {
        assert_eq!(decode(family, &[9_906]), None, "{family:?} has another vocabulary");
    }
}

#[test]
fn count_ignores_json_escapes_and_white_space() {
    let plain = count(Vocabulary::O200k, &[TextPiece::Plain("a \"quoted\"\nline 你好")]);
    let escaped = TextPiece::Escaped(JsonStr::from_escaped(r#"a \"quoted\"\nline \u4f60\u597d"#));
    assert_eq!(count(Vocabulary::O200k, &[escaped]), plain);
    let tight = TextPiece::Json(RawJson::from_text(r#"{"a b":[1,"c\" d"]}"#));
    let wide = TextPiece::Json(RawJson::from_text("{ \"a b\" : [\n 1,\t\"c\\\" d\" ] }"));
    assert_eq!(count(Vocabulary::O200k, &[wide]), count(Vocabulary::O200k, &[tight]));
}

#[test]
fn count_of_long_text_is_extrapolated_from_parts() {
    let mut text = String::new();
    for number in 0..20_000 {
        text.push_str(&format!("Line {number} says: the quick brown fox, \\u4f60\\u597d or \\\"so\\\".\\n"));
    }
    let whole = [TextPiece::Escaped(JsonStr::from_escaped(&text))];
    let lines: Vec<TextPiece<'_>> =
        text.split_inclusive("\\n").map(|line| TextPiece::Escaped(JsonStr::from_escaped(line))).collect();
    let exact = count_up_to(Vocabulary::O200k, &whole, usize::MAX) as f64;
    for pieces in [&whole[..], &lines] {
        for bound in [16 << 10, 64 << 10, 256 << 10] {
            let estimate = count_up_to(Vocabulary::O200k, pieces, bound) as f64;
            assert!((estimate / exact - 1.0).abs() < 0.03, "{estimate} for {exact} from {bound} bytes");
        }
    }
    // Texts without a clean cut.
    for odd in ["\\\\".repeat(200_000), "\\u00e9".repeat(100_000), "é".repeat(300_000), "x".repeat(600_000)]
    {
        assert!(count(Vocabulary::O200k, &[TextPiece::Escaped(JsonStr::from_escaped(&odd))]) > 1_000);
    }
}

#[test]
fn count_of_a_request_includes_instructions_and_tools() {
    let plain = count_request(TokenizerFamily::Claude, &says("Hello"));
    let mut request = says("Hello");
    request.turns.insert(0, Turn::new(Role::System, vec![Block::text(JsonStr::from_escaped("Be brief."))]));
    let instructed = count_request(TokenizerFamily::Claude, &request);
    assert!(instructed > plain + 2, "{instructed}");
    request.tools.push(Tool {
        schema: Some(RawJson::from_text(r#"{"type":"object"}"#)),
        ..Tool::new(JsonStr::from_escaped("get_weather"), ToolKind::Function)
    });
    assert!(count_request(TokenizerFamily::Claude, &request) > instructed + 300);
}

#[test]
fn count_of_media_is_fixed_per_image_page_and_second() {
    let text = |text| JsonStr::from_escaped(text);
    let source = |mime, data| MediaSource::Base64 { mime: text(mime), data: text(data) };
    let media = |block| Tally::of(&asks(vec![block])).tokens(TokenizerFamily::Gemini) - 1;
    let image = Block::Image {
        source: source("image/png", "iVBORw0KGgo="),
        detail: text(""),
        cache: None,
        signature: None,
    };
    assert_eq!(media(image), 1_000);
    // <</Type/Pages>> <</Type /Page>> <</Type/Page/A 1>>
    let pdf = "PDwvVHlwZS9QYWdlcz4+IDw8L1R5cGUgL1BhZ2U+PiA8PC9UeXBlL1BhZ2UvQSAxPj4=";
    let file = |source| Block::File { source, name: text(""), cache: None };
    assert_eq!(media(file(source("application/pdf", pdf))), 4_000);
    let zeros = "A".repeat(400_000);
    assert_eq!(media(file(source("application/pdf", &zeros))), 12_000, "by its length");
    assert_eq!(media(file(MediaSource::Text { text: text("Hello") })), 1);
    let second = "A".repeat(64_000);
    let wav = Block::Audio { source: source("audio/wav", &second) };
    assert_eq!(media(wav), 64, "a second is begun");
}

#[test]
fn vocabulary_is_shared_between_families() {
    prepare(TokenizerFamily::OpenAi);
    assert!(is_ready(TokenizerFamily::OpenAi) && is_ready(TokenizerFamily::Claude));
}
