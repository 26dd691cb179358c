//! Search in lists: words that an entry must have, each in one of its texts.

use crate::request::ApiRequest;

/// Words of a search in lower case; an entry that has all of them is found. Without a word every entry is.
#[derive(Clone, Debug, Default)]
pub(super) struct ListSearch(Vec<String>);

impl ListSearch {
    /// Reads the parameter `q` of a request.
    pub(super) fn of(request: &ApiRequest) -> Self {
        ListSearch::new(&request.parameter("q").unwrap_or_default())
    }

    fn new(words: &str) -> Self {
        ListSearch(words.split_whitespace().map(str::to_lowercase).collect())
    }

    /// Returns whether it has no word. Such a search need not look into the texts of a million keys.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether each word is in one of the texts, in upper or lower case.
    pub(super) fn finds(&self, texts: &[&str]) -> bool {
        let texts: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
        self.0.iter().all(|word| texts.iter().any(|text| text.contains(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_entries_that_have_all_words_in_any_of_their_texts() {
        let entry = ["Web-App", "product", "gpt-*"];
        for (words, found) in
            [("", true), ("web", true), ("  GPT app ", true), ("web marketing", false), ("productgpt", false)]
        {
            assert_eq!(ListSearch::new(words).finds(&entry), found, "{words:?}");
        }
    }
}
