use super::text::{Piece, Table, count, count_up_to};
use super::*;
use crate::canonical::{Block, Role, Source, Tool, ToolKind, Turn};
use crate::json::{JsonStr, RawJson};

fn asks(blocks: Vec<Block<'_>>) -> Request<'_> {
    Request { turns: vec![Turn::new(Role::User, blocks)], ..Request::default() }
}

fn says(text: &str) -> Request<'_> {
    asks(vec![Block::text(JsonStr::from_escaped(text))])
}

#[test]
fn families_are_known_by_the_names_of_models() {
    for (name, family) in [
        ("gpt-4o-2024-11-20", Family::OpenAi),
        ("openai/gpt-5.1-mini", Family::OpenAi),
        ("o3-mini", Family::OpenAi),
        ("gpt-4-0613", Family::OpenAiOld),
        ("text-embedding-3-small", Family::OpenAiOld),
        ("claude-3-5-sonnet-20241022", Family::Claude),
        ("claude-sonnet-4-20250514", Family::Claude),
        ("claude-opus-4-6", Family::Claude),
        ("anthropic.claude-opus-4-7-v1:0", Family::ClaudeNew),
        ("claude-sonnet-5", Family::ClaudeNew),
        ("models/gemini-2.5-flash", Family::Gemini),
        ("Qwen/Qwen3-32B", Family::Qwen),
        ("deepseek-chat", Family::DeepSeek),
        ("meta-llama/Llama-3.3-70B-Instruct", Family::Llama),
        ("solo3", Family::Other),
    ] {
        assert_eq!(Family::of(name), family, "{name}");
    }
}

#[test]
fn short_texts_are_counted_as_the_vocabulary_has_them() {
    for (text, tokens) in [("", 0), ("Hello", 1), ("Hello, how are you today?", 7), ("你好，世界", 3)] {
        assert_eq!(count_text(Family::OpenAi, text), tokens, "{text}");
    }
    assert_eq!(decode(Family::OpenAiOld, &[9_906, 1_917]).unwrap(), "Hello world");
    assert_eq!(decode(Family::OpenAiOld, &[u32::MAX]), None);
    assert_eq!(decode(Family::Claude, &[9_906]), None, "nobody knows that vocabulary");
}

#[test]
fn escapes_and_white_space_of_json_are_no_words() {
    let plain = count(Table::O200k, &[Piece::Plain("a \"quoted\"\nline 你好")]);
    let escaped = Piece::Escaped(JsonStr::from_escaped(r#"a \"quoted\"\nline \u4f60\u597d"#));
    assert_eq!(count(Table::O200k, &[escaped]), plain);
    let tight = Piece::Json(RawJson::from_text(r#"{"a b":[1,"c\" d"]}"#));
    let wide = Piece::Json(RawJson::from_text("{ \"a b\" : [\n 1,\t\"c\\\" d\" ] }"));
    assert_eq!(count(Table::O200k, &[wide]), count(Table::O200k, &[tight]));
}

#[test]
fn long_texts_are_counted_in_parts() {
    let mut text = String::new();
    for number in 0..20_000 {
        text.push_str(&format!("Line {number} says: the quick brown fox, \\u4f60\\u597d or \\\"so\\\".\\n"));
    }
    let whole = [Piece::Escaped(JsonStr::from_escaped(&text))];
    let lines: Vec<Piece<'_>> =
        text.split_inclusive("\\n").map(|line| Piece::Escaped(JsonStr::from_escaped(line))).collect();
    let exact = count_up_to(Table::O200k, &whole, usize::MAX) as f64;
    for pieces in [&whole[..], &lines] {
        for bound in [16 << 10, 64 << 10, 256 << 10] {
            let estimate = count_up_to(Table::O200k, pieces, bound) as f64;
            assert!((estimate / exact - 1.0).abs() < 0.03, "{estimate} for {exact} from {bound} bytes");
        }
    }
    // Nothing in it can be cut well.
    for odd in ["\\\\".repeat(200_000), "\\u00e9".repeat(100_000), "é".repeat(300_000), "x".repeat(600_000)]
    {
        assert!(count(Table::O200k, &[Piece::Escaped(JsonStr::from_escaped(&odd))]) > 1_000);
    }
}

#[test]
fn everything_in_a_request_counts() {
    let plain = count_request(Family::Claude, &says("Hello"));
    let mut request = says("Hello");
    request.turns.insert(0, Turn::new(Role::System, vec![Block::text(JsonStr::from_escaped("Be brief."))]));
    let instructed = count_request(Family::Claude, &request);
    assert!(instructed > plain + 2, "{instructed}");
    request.tools.push(Tool {
        name: JsonStr::from_escaped("get_weather"),
        description: JsonStr::default(),
        schema: Some(RawJson::from_text(r#"{"type":"object"}"#)),
        openapi: false,
        strict: None,
        kind: ToolKind::Function,
        format: None,
        namespace: JsonStr::default(),
        cache: None,
        namespace_about: JsonStr::default(),
        extra: Vec::new(),
    });
    assert!(count_request(Family::Claude, &request) > instructed + 300);
}

#[test]
fn pictures_are_a_thousand_and_documents_are_pages() {
    let text = |text| JsonStr::from_escaped(text);
    let source = |mime, data| Source::Base64 { mime: text(mime), data: text(data) };
    let media = |block| Tally::of(&asks(vec![block])).tokens(Family::Gemini) - 1;
    let image = Block::Image {
        source: source("image/png", "iVBORw0KGgo="),
        detail: text(""),
        cache: None,
        seal: None,
    };
    assert_eq!(media(image), 1_000);
    // <</Type/Pages>> <</Type /Page>> <</Type/Page/A 1>>
    let pdf = "PDwvVHlwZS9QYWdlcz4+IDw8L1R5cGUgL1BhZ2U+PiA8PC9UeXBlL1BhZ2UvQSAxPj4=";
    let file = |source| Block::File { source, name: text(""), cache: None };
    assert_eq!(media(file(source("application/pdf", pdf))), 4_000);
    let zeros = "A".repeat(400_000);
    assert_eq!(media(file(source("application/pdf", &zeros))), 12_000, "by its length");
    assert_eq!(media(file(Source::Text { text: text("Hello") })), 1);
    let second = "A".repeat(64_000);
    let wav = Block::Audio { source: source("audio/wav", &second) };
    assert_eq!(media(wav), 64, "a second is begun");
}

#[test]
fn a_vocabulary_is_read_once() {
    prepare(Family::OpenAi);
    assert!(is_ready(Family::OpenAi) && is_ready(Family::Claude));
}
