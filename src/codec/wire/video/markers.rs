//! Markers: options in the text of a prompt, as in `A cat --ratio 16:9 --dur 5`.

/// Option names with their aliases.
const NAMES: [(&str, &[&str]); 8] = [
    ("resolution", &["resolution", "rs"]),
    ("ratio", &["ratio", "rt"]),
    ("duration", &["duration", "dur"]),
    ("frames", &["frames"]),
    ("framespersecond", &["framespersecond", "fps"]),
    ("seed", &["seed", "sd"]),
    ("camerafixed", &["camerafixed", "cf"]),
    ("watermark", &["watermark", "wm"]),
];

/// Returns the options in a prompt in their order, each with its full name and its value. A marker at the end of a word
/// counts, as it does at the provider.
pub fn read(prompt: &str) -> Vec<(&'static str, &str)> {
    let mut found = Vec::new();
    let mut words = prompt.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some((_, given)) = word.rsplit_once("--") else { continue };
        let known = NAMES.iter().find(|(_, all)| all.contains(&given));
        if let (Some((name, _)), Some(value)) = (known, words.peek().filter(|next| !next.starts_with("--"))) {
            found.push((*name, *value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn markers_are_found_by_short_and_long_names() {
        assert_eq!(
            read("A cat -- really --ratio 16:9 jumps --dur 5 --rs 720p --other 1 --seed --wm false --cf"),
            [("ratio", "16:9"), ("duration", "5"), ("resolution", "720p"), ("watermark", "false")]
        );
        assert_eq!(read("A cat.--rs 1080p"), [("resolution", "1080p")]);
        assert!(read("no markers, only -- dashes --").is_empty());
    }
}
