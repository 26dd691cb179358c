//! The check of a configuration is linear in its text, whatever it has many of: who may send a text to be checked must not be
//! able to make the check take long. Times are those of the thread on its processor, so that other load does not count.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::{NoSecrets, load_texts};

/// Time ratio of four times as much; 16 if the check were quadratic.
const MOST: f64 = 9.0;

const PROVIDER: &str =
    "[[provider]]\nname = \"p\"\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";

/// Returns the time that this thread has run.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn check(routes: &str, keys: &str) -> (Duration, bool) {
    let gateway = "[server]\nlisten = [\"127.0.0.1:0\"]\n";
    let start = thread_time();
    let checked = load_texts(Path::new("/"), [gateway, routes, keys], &NoSecrets);
    let took = thread_time() - start;
    (took, checked.is_ok())
}

/// Returns the text of entries, the number of which is given.
fn many(count: usize, mut entry: impl FnMut(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", entry(number));
        text
    })
}

fn model(id: &str, more: &str) -> String {
    format!("[[model]]\nid = \"{id}\"\ntargets = [{{ provider = \"p\", model = \"{id}\" }}]\n{more}")
}

fn models(count: usize) -> String {
    PROVIDER.to_owned() + &many(count, |number| model(&format!("m{number}"), ""))
}

/// Layers of two models, each with both models of the next layer as its fallback.
fn lattice(layers: usize) -> String {
    let entry = |number: usize| {
        let (layer, below) = (number / 2, number / 2 + 1);
        let more = format!("fallback = [\"l{below}a\", \"l{below}b\"]\n");
        let more = if below < layers { more } else { String::new() };
        let id = format!("l{layer}{}", if number.is_multiple_of(2) { "a" } else { "b" });
        // All have the same target: otherwise there would be too many.
        format!("[[model]]\nid = \"{id}\"\ntargets = [{{ provider = \"p\", model = \"m\" }}]\n{more}")
    };
    PROVIDER.to_owned() + &many(2 * layers, entry)
}

#[test]
#[ignore = "a measurement of times, which other load distorts"]
fn check_is_linear_in_models_and_keys() {
    type Shape = (&'static str, usize, fn(usize) -> (String, String));
    let shapes: [Shape; 13] = [
        ("models", 1_000, |count| (models(count), String::new())),
        ("chain", 1_000, |count| {
            let more = |number| format!("fallback = [\"m{}\"]\n", number + 1);
            let chain = many(count, |number| model(&format!("m{number}"), &more(number)));
            (PROVIDER.to_owned() + &chain + &model(&format!("m{count}"), ""), String::new())
        }),
        ("ring", 1_000, |count| {
            let more = |number| format!("fallback = [\"m{}\"]\n", (number + 1) % count);
            (
                PROVIDER.to_owned() + &many(count, |number| model(&format!("m{number}"), &more(number))),
                String::new(),
            )
        }),
        ("one for all", 1_000, |count| {
            let text = many(count, |number| model(&format!("m{number}"), "fallback = [\"last\"]\n"));
            (PROVIDER.to_owned() + &text + &model("last", ""), String::new())
        }),
        ("unknown fallbacks", 1_000, |count| {
            let more = |number| format!("fallback = [\"x{number}\"]\n");
            (
                PROVIDER.to_owned() + &many(count, |number| model(&format!("m{number}"), &more(number))),
                String::new(),
            )
        }),
        ("unknown providers", 1_000, |count| {
            (models(count).replace("provider = \"p\"", "provider = \"q\""), String::new())
        }),
        ("providers", 1_000, |count| {
            let text = many(count, |number| PROVIDER.replace("\"p\"", &format!("\"p{number}\"")));
            (text + &model("m", "").replace("\"p\"", "\"p0\""), String::new())
        }),
        ("same models", 1_000, |count| {
            (PROVIDER.to_owned() + &many(count, |_| model("m", "")), String::new())
        }),
        ("targets", 4_000, |count| {
            let targets = many(count, |number| {
                format!("{{ provider = \"p\", model = \"m{number}\", tier = {} }},", number % 8)
            });
            (format!("{PROVIDER}[[model]]\nid = \"m\"\ntargets = [\n{targets}]\n"), String::new())
        }),
        ("tiers", 4_000, |count| {
            let tiers = many(count, |number| format!("{{ above = {}, input = 1 }},", number + 1));
            (
                PROVIDER.to_owned() + &model("m", &format!("price = {{ input = 1, tiers = [\n{tiers}] }}\n")),
                String::new(),
            )
        }),
        ("unknown keys", 8_000, |count| {
            (models(1) + &many(count, |number| format!("x{number} = 1")), String::new())
        }),
        ("faults in a line", 8_000, |count| {
            let list = many(count, |_| "5,".to_owned()).replace('\n', "");
            (PROVIDER.to_owned() + &model("m", &format!("fallback = [{list}]\n")), String::new())
        }),
        ("keys", 1_000, |count| {
            let key = |number| {
                format!(
                    "[[key]]\nname = \"k{number}\"\nsha256 = \"{number:064x}\"\naccount = \"a{number}\"\n"
                )
            };
            (models(1), many(count, key))
        }),
    ];
    for (name, count, text) in shapes {
        // The first one of all also sets up what is set up once.
        let least = |count| {
            let (routes, keys) = text(count);
            (0..3).map(|_| check(&routes, &keys).0).min().unwrap()
        };
        let (small, large) = (least(count), least(4 * count));
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        println!("{name}: {count} {small:?}, {} {large:?}, ratio {ratio:.1}", 4 * count);
        assert!(ratio < MOST, "{name}: {ratio:.1} times the time for four times as much");
    }
}

#[test]
fn check_of_a_lattice_of_fallbacks_takes_no_time() {
    for layers in [2, 14, 30, 40, 2_000] {
        let (took, is_valid) = check(&lattice(layers), "");
        println!("lattice of {layers} layers: {took:?}, valid: {is_valid}");
        // The longest one leads to four million fallbacks and more.
        assert_eq!(is_valid, layers < 2_000, "{layers}");
        assert!(took < Duration::from_secs(60), "{layers} layers: {took:?}");
    }
}

/// Prints the times for large configurations.
#[test]
#[ignore = "a measurement, which takes a minute without optimization"]
fn check_times() {
    for count in [100, 10_000, 40_000] {
        let (took, is_valid) = check(&models(count), "");
        println!("{count} models: {took:?}, valid: {is_valid}");
    }
}
