//! Tests of reasoning tags in message text, for providers that are known to send them.

use super::*;

/// Decodes frames with tags.
fn tagged(frames: &[String]) -> Answer {
    let (mut answer, mut grammar) = (Answer::default(), Grammar::default());
    let mut take = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    };
    let mut decoder = stream::Decoder::new("seed").with_tags(true);
    for frame in frames {
        decoder.frame(frame, &mut take).unwrap();
    }
    decoder.finish(&mut take).unwrap();
    assert!(answer.complete, "{answer:?}");
    answer
}

fn tagged_whole(body: &str) -> Answer {
    let mut answer = Answer::default();
    whole::decode(body, "seed", true, &mut |event| answer.take(&event)).unwrap();
    answer
}

fn said(answer: &Answer) -> (String, String) {
    (text_of(answer, &AnswerBlockKind::Reasoning), text_of(answer, &AnswerBlockKind::Text))
}

fn contents(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| delta(&format!(r#""content":"{piece}""#))).collect()
}

#[test]
fn wire_fact_6_think_tags_are_decoded_at_every_split() {
    let text = r"<think>\nI add.</think>\n\nTwo <b>.";
    let expected = ("I add.".to_owned(), "Two <b>.".to_owned());
    let whole = completion(&format!(r#"{{"role":"assistant","content":"{text}"}}"#), r#""stop""#);
    assert_eq!(said(&tagged_whole(&whole)), expected);
    for cut in (0..=text.len()).filter(|cut| !text[..*cut].ends_with('\\')) {
        let mut frames = contents(&[&text[..cut], &text[cut..]]);
        frames.extend([end("stop"), DONE.to_owned()]);
        assert_eq!(said(&tagged(&frames)), expected, "cut at {cut}");
    }
    let mut frames: Vec<String> = text
        .replace(r"\n", "\u{1}")
        .chars()
        .flat_map(|c| contents(&[&c.to_string().replace('\u{1}', r"\n")]))
        .collect();
    frames.extend([end("stop"), DONE.to_owned()]);
    assert_eq!(said(&tagged(&frames)), expected);
}

#[test]
fn wire_fact_6_think_tags_are_text_by_default() {
    let mut frames = contents(&["<think>I add.</think>Two."]);
    frames.extend([end("stop"), DONE.to_owned()]);
    assert_eq!(said(&read(&frames)), (String::new(), "<think>I add.</think>Two.".to_owned()));
}

#[test]
fn wire_fact_6_think_tags_left_open_lose_nothing() {
    // A call inside reasoning; the beginning of a tag at the very end; a separate reasoning member beside tags.
    let call =
        r#""tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
    let mut frames = contents(&["<think>", "I ask.</th"]);
    frames.extend([delta(call), end("tool_calls"), DONE.to_owned()]);
    let answer = tagged(&frames);
    assert_eq!(said(&answer), ("I ask.</th".to_owned(), String::new()));
    assert_eq!(calls_of(&answer).len(), 1);
    let mut frames = contents(&["<thi"]);
    frames.extend([end("stop"), DONE.to_owned()]);
    assert_eq!(said(&tagged(&frames)), (String::new(), "<thi".to_owned()));
    let frames =
        [delta(r#""content":"\n<t""#), delta(r#""reasoning_content":"Hm.""#), end("stop"), DONE.to_owned()];
    assert_eq!(said(&tagged(&frames)), ("Hm.".to_owned(), "\n<t".to_owned()));
}
