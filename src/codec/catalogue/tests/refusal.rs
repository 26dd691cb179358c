//! Files that are wrong: refused as a whole, with the place and what would be right.

use super::super::{Catalogue, EMBEDDED};
use super::{BASE, over};

#[test]
fn fault_has_file_line_column_key_and_hint() {
    let wrong = "schema = 1\n\n[[family]]\nid = \"old\"\nsampling = \"some\"\nsource = \"x\"\n";
    assert_eq!(
        over(&[wrong]).unwrap_err(),
        "over:5:12: family[0].sampling: \"some\" is not known; write one of all, one, if_off, no"
    );
}

#[test]
fn contradictions_are_refused() {
    let offer = |rest: &str| {
        format!(
            "schema = 1\n[[model]]\nid = \"model-2\"\n[[model.at]]\nprovider = \"maker\"\n[[model.at.price]]\n{rest}"
        )
    };
    let family = |rest: &str| format!("schema = 1\n[[family]]\nid = \"x\"\nsource = \"x\"\n{rest}");
    for (text, message) in [
        ("schema = 2".to_owned(), "schema that this gateway does not read"),
        ("edition = 2026-11-01".to_owned(), "schema: is missing"),
        ("schema = 1\nunknown = 1".to_owned(), "unknown: unknown key; known keys: alias, edition"),
        ("schema = 1\nedition = \"2026-11-01\"".to_owned(), "expected a day"),
        ("schema = ".to_owned(), "over:1:"),
        ("schema = 1\n[[family]]\nid = \"old\"".to_owned(), "family[0].source: is missing"),
        (family("match = [\"model-1\"]"), "\"model-1\" is a name of the family \"old\" too"),
        (family("guess = [\"model-\"]"), "\"model-\" is a guess of the family \"old\" too"),
        (family("match = [\"Model-9\"]"), "is no name to compare with"),
        (family("like = \"y\""), "no family \"y\""),
        (family("like = \"x\""), "\"x\" inherits from itself"),
        (family("like = \"z\"\n[[family]]\nid = \"z\"\nlike = \"x\"\nsource = \"x\""), "inherits from itself"),
        (family("[[family]]\nid = \"x\"\nsource = \"x\""), "\"x\" has two rows"),
        (family("reasoning = \"effort\""), "reasoning by effort without efforts"),
        (family("reasoning = \"budget\""), "reasoning by budget without a range"),
        (family("budget = [5, 1]"), "is not a range"),
        (family("efforts = [\"none\"]"), "\"none\" is no effort"),
        (family("default = \"none\""), "default = \"none\" is not accepted"),
        (family("efforts = [\"low\"]\ndefault = \"high\""), "is not one of the efforts"),
        (family("efforts = [\"low\"]\nefforts_chat = [\"max\"]"), "efforts_chat has one that efforts has not"),
        (family("off_up_to = \"high\""), "off_up_to without a way to switch off"),
        (family("cache_min = -1"), "out of range"),
        ("schema = 1\n[[model]]\nid = \"a\"".to_owned(), "a: names no family"),
        ("schema = 1\n[[model]]\nid = \"a\"\nfamily = \"y\"".to_owned(), "a: no family \"y\""),
        ("schema = 1\n[[model]]\nid = \"model-1\"\nfamily = \"new\"".to_owned(), "is a name of the family \"old\""),
        ("schema = 1\n[[model]]\nid = \"Model-1\"\nfamily = \"old\"".to_owned(), "is a name of another model too"),
        (offer("input = 2\noutput = 1\nsource = \"x\""), "input costs more than output; if that is right"),
        (offer("input = 2\ncached_input = 3\nsource = \"x\""), "cached_input costs more than input"),
        (offer("source = \"x\""), "has no price; write free = true"),
        (offer("input = 0\nsource = \"x\""), "has no price; write free = true"),
        (offer("input = 1\nfree = true\nsource = \"x\""), "is free and has a price"),
        (offer("input = -1\nsource = \"x\""), "is not a price"),
        (offer("input = 0.00000000001\nsource = \"x\""), "is not a price"),
        (offer("input = 1\nsource = \"x\"\ntiers = { flex = -1 }"), "is not a factor"),
        (offer("input = 1\nsource = \"x\"\ntiers = { standard = 1 }"), "standard has a factor"),
        (offer("input = 1\nsource = \"x\"\nodd = { flex = { input = 1 } }"), "odd names the tier \"flex\""),
        (offer("input = 1\nsource = \"x\"\nfrom = 2026-02-01\nuntil = 2026-01-01"), "until is before from"),
        (offer("input = 1\nsource = \"x\"\nlong = { above = 1, input = 2, output = 2 }\nsteps = [{ above = 1, input = 2 }]"), "both long and steps"),
        (offer("input = 1\nsource = \"x\"\nsteps = [{ above = 2, input = 2 }, { above = 1, input = 2 }]"), "not in ascending order"),
        (
            offer("input = 1\nsource = \"x\"\nuntil = 2026-01-01\n[[model.at.price]]\nfrom = 2026-01-01\ninput = 1\nsource = \"x\""),
            "model-2: two prices on the same day",
        ),
        ("schema = 1\n[[model]]\nid = \"model-2\"\n[[model.at]]\nprovider = \"nobody\"".to_owned(), "no provider \"nobody\""),
        (
            "schema = 1\n[[model]]\nid = \"model-2\"\n[[model.at]]\nprovider = \"maker\"\nsuccessor = \"q\"".to_owned(),
            "no model \"q\"",
        ),
        (
            "schema = 1\n[[model]]\nid = \"model-2\"\n[[model.at]]\nprovider = \"cloud\"\nsame_as = \"q\"\nsource = \"x\"".to_owned(),
            "no offer of \"q\" with prices of its own",
        ),
        ("schema = 1\n[[provider]]\nid = \"q\"\nsame_as = \"cloud\"\nsource = \"x\"".to_owned(), "no provider \"cloud\" with offers"),
        (
            "schema = 1\n[[alias]]\nname = \"a\"\nprovider = \"maker\"\nmodel = \"q\"\nsource = \"x\"".to_owned(),
            "a: no model \"q\"",
        ),
        (
            "schema = 1\n[[alias]]\nname = \"a\"\nnames = [\"a\"]\nprovider = \"maker\"\nmodel = \"model-2\"\nsource = \"x\"".to_owned(),
            "a: two models on the same day",
        ),
    ] {
        let found = over(&[&text]).unwrap_err();
        assert!(found.contains(message), "{text}\n-> {found}");
    }
}

#[test]
fn gap_between_prices_is_refused() {
    let gap = BASE.replace("until = 2026-12-31", "until = 2026-12-30");
    let fault = Catalogue::read(&[("base", &gap)]).unwrap_err().remove(0);
    assert!(fault.to_string().contains("model-1: no price on 2026-12-31"), "{fault}");
}

#[test]
fn faults_are_bounded_in_number() {
    let text = format!("schema = 1\n{}", "[[family]]\n".repeat(5_000));
    let faults = Catalogue::overlaid(&[("over", &text)]).unwrap_err();
    assert!(faults.len() < 300, "{}", faults.len());
    assert!(faults.last().unwrap().message.contains("further faults"));
}

/// Whatever a file has, it is compiled or refused; it never panics, and a refusal names a place in it.
#[test]
fn damaged_files_are_refused_or_read() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below).unwrap()).unwrap()
    };
    let donors: Vec<&str> = EMBEDDED.lines().collect();
    for _ in 0..1_500 {
        let mut lines: Vec<&str> = BASE.lines().collect();
        for _ in 0..=random(3) {
            let at = random(lines.len());
            match random(4) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, donors[random(donors.len())]),
                2 => lines.swap(at, 0),
                _ => lines[at] = donors[random(donors.len())],
            }
        }
        let text = lines.join("\n");
        match Catalogue::read(&[("file", &text)]) {
            Ok(catalogue) => {
                for model in catalogue.models() {
                    assert!(catalogue.model(&model.id).is_some());
                    assert!(catalogue.family_of_model(model).is_some());
                }
            }
            Err(faults) => {
                assert!(!faults.is_empty());
                assert!(faults.iter().all(|fault| fault.line <= lines.len() + 1));
            }
        }
    }
}
