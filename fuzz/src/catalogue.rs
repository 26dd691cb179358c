//! Target for the reader of catalogue files.

use codec::catalogue::Catalogue;

/// A base file and one that is laid over it, separated by a line of `===`: they are compiled or refused, every fault has a line of
/// one of them, every model is found by its own names, and prices have neither an overlap nor a gap.
pub fn catalogue(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (base, upper) = text.split_once("\n===\n").unwrap_or((text, "schema = 1"));
    let texts = [base, upper];
    let catalogue = match Catalogue::read(&[("0", base), ("1", upper)]) {
        Ok(catalogue) => catalogue,
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in &faults {
                let file: usize = fault.file.parse().unwrap();
                assert!(fault.line <= texts[file].split('\n').count(), "{fault}");
            }
            return;
        }
    };
    for model in catalogue.models() {
        let found = catalogue.model(&model.id).unwrap();
        assert_eq!(found.id, model.id);
        let family = catalogue.family_of_model(model).unwrap();
        assert_eq!(catalogue.family_of(&model.id).unwrap().0.id, family.id);
        for offer in &model.offers {
            let days = offer.prices.windows(2);
            for pair in days {
                assert_eq!(pair[0].until.unwrap().tomorrow().unwrap(), pair[1].from.unwrap());
            }
            for price in catalogue.prices(&offer.provider, &offer.name) {
                assert!(price.from.is_none() || price.until.is_none() || price.from <= price.until);
            }
        }
    }
}
