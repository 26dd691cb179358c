//! Words of the formats for service tiers and regions: what requests ask for and responses state. One row a word.

use crate::canonical::{Region, ServiceTier, TierRequest, TierSet};
use json::JsonStr;

/// Members that name a tier, by their vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TierWords {
    /// `service_tier` of the chat and responses formats.
    OpenAi,
    /// `service_tier` of the messages format.
    Messages,
    /// `speed` of the messages format.
    Speed,
    /// `serviceTier` of the generate format.
    Generate,
    /// `usageMetadata.trafficType` of the generate format.
    Traffic,
    /// `serviceTier.type` of Converse.
    Converse,
}

/// A word and its tier. Of several words for one tier the first one is written. `None`: the word leaves the tier to the
/// provider.
type Row = (TierWords, &'static str, Option<ServiceTier>);

use ServiceTier::{Batch, Fast, Flex, Priority, Reserved, Standard, Ultrafast};

const ROWS: [Row; 37] = [
    // OpenAI, API reference, "service_tier" (SDK 3.57.0, 2026-11); `fast` is stated as `priority` since 2026-07-30.
    (TierWords::OpenAi, "default", Some(Standard)),
    (TierWords::OpenAi, "flex", Some(Flex)),
    (TierWords::OpenAi, "priority", Some(Priority)),
    (TierWords::OpenAi, "fast", Some(Priority)),
    (TierWords::OpenAi, "ultrafast", Some(Ultrafast)),
    (TierWords::OpenAi, "scale", Some(Reserved)),
    (TierWords::OpenAi, "batch", Some(Batch)),
    (TierWords::OpenAi, "auto", None),
    // Groq, "Service tiers" (2026-11).
    (TierWords::OpenAi, "on_demand", None),
    (TierWords::OpenAi, "performance", Some(Priority)),
    // Words of other formats that gateways in front of OpenAI-compatible servers pass on.
    (TierWords::OpenAi, "standard", Some(Standard)),
    (TierWords::OpenAi, "standard_only", Some(Standard)),
    // Anthropic, "Service tiers" (SDK 2.14.0, 2026-11). The priority tier is capacity that was bought in advance.
    (TierWords::Messages, "standard", Some(Standard)),
    (TierWords::Messages, "standard_only", Some(Standard)),
    (TierWords::Messages, "priority", Some(Reserved)),
    (TierWords::Messages, "batch", Some(Batch)),
    (TierWords::Messages, "auto", None),
    // Words of other formats.
    (TierWords::Messages, "default", Some(Standard)),
    (TierWords::Messages, "flex", Some(Flex)),
    // Anthropic, "Fast mode" (2026-11).
    (TierWords::Speed, "standard", Some(Standard)),
    (TierWords::Speed, "fast", Some(Fast)),
    // Gemini API, "Flex and priority inference" (google-genai 3.6.1, 2026-11).
    (TierWords::Generate, "standard", Some(Standard)),
    (TierWords::Generate, "flex", Some(Flex)),
    (TierWords::Generate, "priority", Some(Priority)),
    (TierWords::Generate, "batch", Some(Batch)),
    (TierWords::Generate, "unspecified", None),
    (TierWords::Generate, "service_tier_unspecified", None),
    // Vertex AI, "TrafficType" (google-genai 3.6.1, 2026-11). Off-peak traffic has no price of its own.
    (TierWords::Traffic, "ON_DEMAND", Some(Standard)),
    (TierWords::Traffic, "ON_DEMAND_PRIORITY", Some(Priority)),
    (TierWords::Traffic, "ON_DEMAND_FLEX", Some(Flex)),
    (TierWords::Traffic, "ON_DEMAND_OFFPEAK", Some(Standard)),
    (TierWords::Traffic, "PROVISIONED_THROUGHPUT", Some(Reserved)),
    (TierWords::Traffic, "TRAFFIC_TYPE_UNSPECIFIED", None),
    // Amazon Bedrock, "Service tiers" (2026-11).
    (TierWords::Converse, "default", Some(Standard)),
    (TierWords::Converse, "flex", Some(Flex)),
    (TierWords::Converse, "priority", Some(Priority)),
    (TierWords::Converse, "reserved", Some(Reserved)),
];

/// Words for regions. Anthropic, "Data residency" (2026-11).
const GEOS: [(&str, Option<Region>); 4] =
    [("global", None), ("not_available", None), ("us", Some(Region::Us)), ("eu", Some(Region::Eu))];

impl TierWords {
    fn rows(self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(move |row| row.0 == self)
    }

    /// Returns the row of a word; `None` for an unknown one. Google's words are accepted in both cases.
    fn row(self, word: JsonStr<'_>) -> Option<&'static Row> {
        let word = word.escaped();
        self.rows().find(|row| row.1.eq_ignore_ascii_case(word))
    }

    /// Returns the tier that a response states by this word. `None` if it states none.
    #[inline]
    pub(super) fn told(self, word: JsonStr<'_>) -> Option<ServiceTier> {
        // Some providers state it in every frame, nearly always with this word.
        if matches!(self, TierWords::OpenAi) && word.escaped() == ROWS[0].1 {
            return ROWS[0].2;
        }
        self.told_by_row(word)
    }

    fn told_by_row(self, word: JsonStr<'_>) -> Option<ServiceTier> {
        match self.row(word) {
            Some(row) => row.2,
            None if word.is_empty() => None,
            None => Some(ServiceTier::Unknown),
        }
    }

    /// Returns what a request asks for by this word.
    pub(super) fn asked(self, word: JsonStr<'_>) -> TierRequest {
        match self.row(word) {
            Some((_, _, Some(tier))) => TierRequest::of(*tier),
            // The provider decides.
            Some(_) => TierRequest { tiers: self.left_to_provider(), ..TierRequest::default() },
            None if word.is_empty() => TierRequest::default(),
            None => TierRequest { tiers: TierSet::ALL, ..TierRequest::of(ServiceTier::Unknown) },
        }
    }

    /// Returns the tiers that a provider may choose from.
    fn left_to_provider(self) -> TierSet {
        let all = self.rows().filter_map(|row| row.2).filter(|tier| *tier != Batch);
        let own = TierSet::of(all);
        // Anthropic's faster mode has a member of its own, and no word stands for a cheaper tier.
        if self == TierWords::Messages { own.without(TierSet::one(Flex)) } else { own }
    }

    /// Returns the word for a tier. `None` if the vocabulary has none.
    pub(super) fn word(self, tier: ServiceTier) -> Option<&'static str> {
        let of = |tier: ServiceTier| self.rows().find(|row| row.2 == Some(tier)).map(|row| row.1);
        of(tier).or_else(|| of(tier.twin()?))
    }
}

/// Returns the region of a word of `inference_geo`. `None` for none with a price of its own.
pub(super) fn region(word: JsonStr<'_>) -> Option<Region> {
    match GEOS.iter().find(|(known, _)| word.is(known)) {
        Some((_, region)) => *region,
        None if word.is_empty() => None,
        None => Some(Region::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn js(word: &str) -> JsonStr<'_> {
        JsonStr::from_escaped(word)
    }

    #[test]
    fn service_tier_words_of_all_vocabularies() {
        use TierWords::*;
        for (words, word, told) in [
            (OpenAi, "default", Some(Standard)),
            (OpenAi, "priority", Some(Priority)),
            (OpenAi, "fast", Some(Priority)),
            (OpenAi, "scale", Some(Reserved)),
            (OpenAi, "auto", None),
            (OpenAi, "", None),
            (OpenAi, "of_tomorrow", Some(ServiceTier::Unknown)),
            (Messages, "priority", Some(Reserved)),
            (Messages, "batch", Some(Batch)),
            (Speed, "fast", Some(Fast)),
            (Generate, "PRIORITY", Some(Priority)),
            (Generate, "unspecified", None),
            (Traffic, "ON_DEMAND_FLEX", Some(Flex)),
            (Traffic, "PROVISIONED_THROUGHPUT", Some(Reserved)),
            (Converse, "reserved", Some(Reserved)),
        ] {
            assert_eq!(words.told(js(word)), told, "{words:?} {word}");
        }
    }

    #[test]
    fn service_tier_request_left_to_the_provider_has_all_that_it_may_choose() {
        let auto = TierWords::OpenAi.asked(js("auto"));
        assert_eq!(auto.tier, Standard);
        assert_eq!(auto.tiers, TierSet::of([Standard, Flex, Priority, Ultrafast, Reserved]));
        let auto = TierWords::Messages.asked(js("auto"));
        assert_eq!(auto.tiers, TierSet::of([Standard, Reserved]));
        assert_eq!(TierWords::Converse.asked(js("flex")), TierRequest::of(Flex));
        assert_eq!(TierWords::OpenAi.asked(js("x")).tiers, TierSet::ALL);
    }

    #[test]
    fn service_tier_is_written_in_each_vocabulary() {
        use TierWords::*;
        for (words, tier, word) in [
            (OpenAi, Standard, Some("default")),
            (OpenAi, Fast, Some("priority")),
            (OpenAi, Reserved, Some("scale")),
            (Messages, Standard, Some("standard")),
            (Messages, Reserved, Some("priority")),
            (Speed, Priority, Some("fast")),
            (Generate, Fast, Some("priority")),
            (Converse, Ultrafast, None),
            (Generate, ServiceTier::Unknown, None),
        ] {
            assert_eq!(words.word(tier), word, "{words:?} {tier:?}");
        }
        assert_eq!(region(js("us")), Some(Region::Us));
        assert_eq!(region(js("not_available")), None);
        assert_eq!(region(js("mars")), Some(Region::Unknown));
    }
}
