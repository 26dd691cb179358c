//! What a request body asks for that decides on its price: a service tier and a region.

use bytes::Bytes;
use smallvec::SmallVec;

use super::request::{Body, BodyReader};
use super::tier_words::{TierWords, region};
use super::{Api, watch};
use crate::canonical::{ServiceTier, TierRequest};
use crate::error::ApiError;
use json::{Cursor, Edit, JsonStr, ValueKind};

/// Member that asks for a service tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierMember {
    /// Name.
    pub name: &'static str,
    /// What it asks for.
    pub asked: TierRequest,
}

impl Body {
    /// Returns whether the API has members that ask for a service tier.
    pub fn has_tiers(&self) -> bool {
        self.fields.tiers != 0
    }

    /// Returns what the body asks for. A member in another letter case counts too: some providers accept it.
    pub fn asked_tier(&self) -> TierRequest {
        let mut all = TierRequest::default();
        let mut is_asked = false;
        self.each_tier(|member| {
            let asked = member.asked;
            all.region = asked.region.or(all.region);
            if member.name == "inference_geo" || asked == TierRequest::default() {
                return;
            }
            // Of several members the one counts that asks for another tier than the standard one.
            all.tiers = if is_asked { all.tiers.or(asked.tiers) } else { asked.tiers };
            if asked.tier != ServiceTier::Standard {
                all.tier = asked.tier;
            }
            is_asked = true;
        });
        all
    }

    /// Calls `each` for the members that ask for a service tier or a region.
    pub fn each_tier(&self, mut each: impl FnMut(TierMember)) {
        for (index, member) in self.members.with_any(self.fields.tiers) {
            let name = self.fields.name(index);
            let text = self.text.view(member.value.clone());
            let asked = match (member.kind, self.words(name)) {
                (ValueKind::Null, _) => TierRequest::default(),
                (ValueKind::String, None) => {
                    let word = JsonStr::from_escaped(text.trim_matches('"'));
                    TierRequest { region: region(word), ..TierRequest::default() }
                }
                (ValueKind::String, Some(words)) if words != TierWords::Converse => {
                    words.asked(JsonStr::from_escaped(text.trim_matches('"')))
                }
                (ValueKind::Object, Some(words @ TierWords::Converse)) => {
                    let mut asked = TierRequest::default();
                    // Cannot fail: the scanner has validated the text.
                    let _ = watch::members(&mut Cursor::new(&text), |key, json| {
                        let value = json.raw()?;
                        if key.is("type") {
                            asked = value.as_str().map(|word| words.asked(word)).unwrap_or_default();
                        }
                        Ok(())
                    });
                    asked
                }
                // What the provider makes of it is not known.
                (_, Some(words)) => words.asked(JsonStr::from_escaped("?")),
                (_, None) => TierRequest::default(),
            };
            each(TierMember { name, asked });
        }
    }

    /// Returns the vocabulary of a member; `None` for the one of a region.
    fn words(&self, name: &str) -> Option<TierWords> {
        Some(match (self.api, name) {
            (_, "inference_geo") => return None,
            (_, "speed") => TierWords::Speed,
            (Api::Messages, _) => TierWords::Messages,
            (Api::Generate, _) => TierWords::Generate,
            (Api::Converse, _) => TierWords::Converse,
            _ => TierWords::OpenAi,
        })
    }

    /// Returns the body with its request for a service tier changed to one for the standard tier.
    ///
    /// # Errors
    /// Returns the error of a body that cannot be read again.
    pub fn in_standard_tier(self) -> Result<Body, ApiError> {
        let mut edits: SmallVec<[Edit; 2]> = SmallVec::new();
        for (index, member) in self.members.with_any(self.fields.tiers) {
            let word: &[u8] = match (self.api, self.words(self.fields.name(index))) {
                (_, None) => continue,
                (Api::Messages, Some(TierWords::Messages)) => b"\"standard_only\"",
                (_, Some(TierWords::Converse)) => br#"{"type":"default"}"#,
                (_, Some(TierWords::OpenAi)) => b"\"default\"",
                _ => b"\"standard\"",
            };
            edits.push(Edit { range: member.value.clone(), text: Bytes::from_static(word) });
        }
        if edits.is_empty() {
            return Ok(self);
        }
        edits.sort_by_key(|edit| edit.range.start);
        let mut reader = BodyReader::new(self.api, false);
        for piece in self.text.edited(&edits).into_pieces() {
            reader.push(piece)?;
        }
        let mut read = reader.finish()?;
        (read.model, read.needs_store) = (self.model, self.needs_store);
        read.is_invocation = self.is_invocation;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::{Region, TierSet};

    fn body(api: Api, text: &str) -> Body {
        let mut reader = BodyReader::new(api, false);
        reader.push(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        reader.finish().unwrap()
    }

    /// Returns a body of an API with these members, with commas behind them.
    fn with(api: Api, members: &str) -> Body {
        let rest = match api {
            Api::Responses => r#""model":"m","input":"hi""#,
            Api::Generate => r#""contents":[{"parts":[{"text":"hi"}]}]"#,
            Api::Converse => r#""messages":[{"role":"user","content":[{"text":"hi"}]}]"#,
            Api::Messages => r#""model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]"#,
            _ => r#""model":"m","messages":[{"role":"user","content":"hi"}]"#,
        };
        body(api, &format!("{{{members}{rest}}}"))
    }

    #[test]
    fn service_tier_that_a_body_asks_for() {
        use ServiceTier::*;
        for (api, members, tier) in [
            (Api::Chat, "", Standard),
            (Api::Chat, r#""service_tier":"priority","#, Priority),
            (Api::Chat, r#""service_tier":"fast","#, Priority),
            (Api::Chat, r#""service_tier":null,"#, Standard),
            (Api::Chat, r#""service_tier":"of_tomorrow","#, Unknown),
            (Api::Chat, r#""service_tier":{"a":1},"#, Unknown),
            (Api::Chat, r#""Service_Tier":"priority","#, Priority),
            (Api::Responses, r#""service_tier":"ultrafast","#, Ultrafast),
            (Api::Responses, r#""service_tier":"flex","#, Flex),
            (Api::Messages, r#""service_tier":"standard_only","#, Standard),
            (Api::Messages, r#""speed":"fast","#, Fast),
            (Api::Messages, r#""speed":"fast","service_tier":"standard_only","#, Fast),
            (Api::Messages, r#""speed":"standard","#, Standard),
            (Api::Generate, r#""serviceTier":"flex","#, Flex),
            (Api::Generate, r#""service_tier":"PRIORITY","#, Priority),
            (Api::Converse, r#""serviceTier":{"type":"priority"},"#, Priority),
            (Api::Converse, r#""serviceTier":{"type":"reserved"},"#, Reserved),
            (Api::Converse, r#""serviceTier":{},"#, Standard),
            (Api::Converse, r#""serviceTier":"flex","#, Unknown),
        ] {
            let asked = with(api, members).asked_tier();
            assert_eq!(asked.tier, tier, "{api:?} {members}");
            let expected = if tier == Unknown { TierSet::ALL } else { TierSet::one(tier) };
            assert!(
                asked.tiers.has(tier) && expected.and(asked.tiers) == expected,
                "{api:?} {members} {asked:?}"
            );
        }
        let auto = with(Api::Chat, r#""service_tier":"auto","#).asked_tier();
        assert!(auto.tier == Standard && auto.tiers.has(Priority) && auto.tiers.has(Flex));
        let geo = with(Api::Messages, r#""inference_geo":"us","#).asked_tier();
        assert_eq!(geo, TierRequest { region: Some(Region::Us), ..TierRequest::default() });
        assert_eq!(with(Api::Messages, r#""inference_geo":"global","#).asked_tier(), TierRequest::default());
    }

    #[test]
    fn service_tier_is_rewritten_to_the_standard_one() {
        for (api, members, standard) in [
            (Api::Chat, r#""service_tier":"flex","#, r#""service_tier":"default","#),
            (Api::Chat, r#""service_tier" : "priority" ,"#, r#""service_tier" : "default" ,"#),
            (Api::Responses, r#""service_tier":"ultrafast","#, r#""service_tier":"default","#),
            (
                Api::Messages,
                r#""speed":"fast","inference_geo":"us","service_tier":"auto","#,
                r#""speed":"standard","inference_geo":"us","service_tier":"standard_only","#,
            ),
            (Api::Generate, r#""serviceTier":"priority","#, r#""serviceTier":"standard","#),
            (Api::Converse, r#""serviceTier":{"type":"priority"},"#, r#""serviceTier":{"type":"default"},"#),
            (Api::Chat, "", ""),
        ] {
            let made = with(api, members).in_standard_tier().unwrap();
            assert_eq!(made.asked_tier().tier, ServiceTier::Standard, "{members}");
            let expected = with(api, standard);
            assert_eq!(*made.text.into_contiguous(), *expected.text.into_contiguous(), "{members}");
            assert_eq!(made.model, expected.model);
        }
    }
}
