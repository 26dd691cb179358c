//! `replay`: runs every target on its corpus, then on mutations of it, on a stable toolchain and for a bounded time.
//!
//! The mutations are the same in every run; only their number depends on the time. A failing input is written to
//! `artifacts/`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use model_gateway_fuzz::{TARGETS, Target};

const USAGE: &str = "replay [--seconds N] [--input FILE] [TARGET...]
  --seconds N   mutate for N seconds in all (default 20; 0: only replay the corpus)
  --input FILE  run the targets on this one input";

/// Tokens that the parsers look for and that random bytes would hardly ever form.
const WORDS: &[&str] = &[
    "\"model\":",
    "\"stream\":",
    "true",
    "false",
    "null",
    "\"usage\":{",
    "\"choices\":[",
    "\"finish_reason\":\"stop\"",
    "\"error\":",
    "{\"type\":\"message_stop\"}",
    "\"candidates\":[",
    "\"finishReason\":\"STOP\"",
    "data: ",
    "data:",
    "event: error",
    "\n\n",
    "\r\n\r\n",
    "\r",
    "\u{feff}",
    "[DONE]",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u00e9",
    "\\ud83d",
    "1e999",
    "-0",
    "18446744073709551615",
    "\"stream_options\":{}",
    "/v1",
    "/models/",
    ":generateContent",
    "%2F",
    "?alt=sse",
    "key=",
    "[[key]]",
    "name = ",
    "sha256 = ",
    "[server]",
    "=",
    "'''",
    "#",
    "é",
    "🌍",
    "\0",
];

fn main() -> ExitCode {
    let (mut seconds, mut input, mut wanted) = (20, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => match arguments.next().and_then(|text| text.parse().ok()) {
                Some(number) => seconds = number,
                None => return usage(),
            },
            "--input" => match arguments.next() {
                Some(file) => input = Some(PathBuf::from(file)),
                None => return usage(),
            },
            name if TARGETS.iter().any(|(target, _)| *target == name) => wanted.push(argument),
            _ => return usage(),
        }
    }
    let targets: Vec<Target> = TARGETS
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .copied()
        .collect();
    // One line is enough for a panic that is caught here.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some(file) = input {
        let Ok(bytes) = std::fs::read(&file) else { return usage() };
        let sound = targets.iter().filter(|target| holds(folder, target, &bytes)).count();
        return if sound == targets.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let time = Duration::from_secs(seconds) / u32::try_from(targets.len().max(1)).unwrap_or(1);
    let mut sound = true;
    for target in &targets {
        sound &= run(folder, target, time);
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    eprintln!("{USAGE}\n  TARGET        {}", names.join(", "));
    ExitCode::from(2)
}

fn run(folder: &Path, target: &Target, time: Duration) -> bool {
    let corpus = read_corpus(&folder.join("corpus").join(target.0));
    if corpus.is_empty() {
        eprintln!("{}: there is no corpus", target.0);
        return false;
    }
    let mut sound = true;
    for input in &corpus {
        sound &= holds(folder, target, input);
    }
    let began = Instant::now();
    let mut random =
        Random(target.0.bytes().fold(1u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte))));
    let mut tried = 0u64;
    while sound && began.elapsed() < time {
        for _ in 0..16 {
            let input = mutate(&corpus, &mut random);
            sound &= holds(folder, target, &input);
            tried += 1;
        }
    }
    println!("{:<14} {:>4} inputs, {tried:>8} mutations", target.0, corpus.len());
    sound
}

/// Returns the inputs of a corpus, sorted by name.
fn read_corpus(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

/// Runs a target on an input. Returns false and saves the input if the target panics.
fn holds(folder: &Path, target: &Target, input: &[u8]) -> bool {
    if catch_unwind(AssertUnwindSafe(|| (target.1)(input))).is_ok() {
        return true;
    }
    let digest = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let kept = folder.join("artifacts").join(target.0);
    let file = kept.join(format!("crash-{digest:016x}"));
    let written = std::fs::create_dir_all(&kept).and_then(|()| std::fs::write(&file, input));
    match written {
        Ok(()) => eprintln!("{}: a promise is broken by {}", target.0, file.display()),
        Err(error) => eprintln!("{}: a promise is broken by {input:?} (not kept: {error})", target.0),
    }
    false
}

/// Knuth's MMIX generator. Only the upper bits are used, because the lower ones have short periods.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// Makes one to eight small changes to an input of the corpus.
fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(24)).min(input.len());
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.below(256) as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input[at..end].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, part);
            }
            4 => input.truncate(at),
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let to = (from + random.below(64)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.bytes());
            }
        }
    }
    input
}
