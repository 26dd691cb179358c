//! Files laid over another: what they set replaces, what they do not set stays.

use jiff::civil::date;

use super::super::{How, RowStatus};
use super::over;

#[test]
fn family_row_replaces_the_keys_that_it_sets() {
    let upper = "schema = 1\n[[family]]\nid = \"old\"\nforced = false\nsource = \"ours\"\n";
    let catalogue = over(&[upper]).unwrap();
    let family = catalogue.family("old").unwrap();
    assert_eq!(family.facts.forced, Some(false));
    assert_eq!(&*family.source.source, "ours");
    assert_eq!(&*family.source.file, "over");
    assert_eq!(family.source.status, RowStatus::Documented);
    // Those that inherit from it have the change too, and its names stay.
    assert_eq!(catalogue.family("new").unwrap().facts.forced, Some(false));
    assert_eq!(catalogue.family_of("model-1-20260101").unwrap().1, How::Listed);
}

#[test]
fn price_row_replaces_the_days_that_it_covers() {
    let upper = "schema = 1\n[[model]]\nid = \"model-1\"\n[[model.at]]\nprovider = \"maker\"\n[[model.at.price]]\n\
                 from = 2026-12-15\nuntil = 2027-01-15\ninput = 7\noutput = 8\nsource = \"contract\"\n";
    let catalogue = over(&[upper]).unwrap();
    let offer = catalogue.offer("maker", "model-1").unwrap();
    let input = |day| offer.price_on(day).unwrap().rate("input").unwrap() / 1_000_000_000;
    assert_eq!(input(date(2026, 12, 14)), 1);
    assert_eq!(input(date(2026, 12, 15)), 7);
    assert_eq!(input(date(2027, 1, 15)), 7);
    assert_eq!(input(date(2027, 1, 16)), 3);
    // What the row does not set stays: the end and the window.
    assert_eq!(offer.retires, Some(date(2027, 1, 31)));
    assert_eq!(catalogue.model("model-1").unwrap().context, Some(1_000));
}

#[test]
fn price_row_without_days_replaces_all() {
    let upper = "schema = 1\nedition = 2026-11-20\n[[model]]\nid = \"model-1\"\n[[model.at]]\nprovider = \"maker\"\n\
                 [[model.at.price]]\ninput = 7\noutput = 8\nsource = \"contract\"\n";
    let catalogue = over(&[upper]).unwrap();
    assert_eq!(catalogue.offer("cloud", "maker.model-1").unwrap().prices.len(), 1);
    assert_eq!(catalogue.edition(), date(2026, 11, 20));
}

#[test]
fn later_file_lies_above_an_earlier_one() {
    let file = |forced| format!("schema = 1\n[[family]]\nid = \"old\"\nforced = {forced}\nsource = \"x\"\n");
    let catalogue = over(&[&file(false), &file(true)]).unwrap();
    assert_eq!(catalogue.family("old").unwrap().facts.forced, Some(true));
}

#[test]
fn model_of_ones_own_is_added() {
    let upper = "schema = 1\n[[provider]]\nid = \"ours\"\nsource = \"x\"\n[[model]]\nid = \"Llama-70B\"\nfamily = \"old\"\n\
                 [[model.at]]\nprovider = \"ours\"\n[[model.at.price]]\nfree = true\nsource = \"own machines\"\n";
    let catalogue = over(&[upper]).unwrap();
    assert!(catalogue.prices("ours", "llama-70b")[0].row.free);
    assert_eq!(&*catalogue.family_of("llama-70b").unwrap().0.id, "old");
    assert!(catalogue.prices("maker", "llama-70b").is_empty());
}

#[test]
fn facts_may_be_unknown_again() {
    let upper = "schema = 1\n[[family]]\nid = \"new\"\nforced = \"?\"\nsource = \"x\"\n";
    assert_eq!(over(&[upper]).unwrap().family("new").unwrap().facts.forced, None);
    // The model's own row lies above that of its family.
    assert_eq!(over(&[upper]).unwrap().facts_of("model-2").unwrap().0.forced, Some(false));
}
