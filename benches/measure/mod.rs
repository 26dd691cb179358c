//! Measurement of the timed benchmarks: the same bytes through several implementations in one run, and a summary with
//! ratios to copying and to JSON trees.
//!
//! What is measured must not live here.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput};

/// Returns the settings of a measurement: warm-up and duration of each case in milliseconds, unless the arguments
/// override them.
pub(crate) fn criterion(warm_up: u64, measurement: u64) -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(warm_up))
        .measurement_time(Duration::from_millis(measurement))
        .sample_size(20)
        .configure_from_args()
}

/// Result of a case: median of its samples, in seconds per turn.
struct Timed {
    case: &'static str,
    median: f64,
}

/// Benchmark subject: the same bytes through several implementations.
pub(crate) struct Subject<'c> {
    criterion: &'c mut Criterion,
    name: String,
    bytes: usize,
    units: usize,
    cases: Vec<Timed>,
}

impl<'c> Subject<'c> {
    /// Creates a subject with its size in bytes and its number of frames or requests.
    pub(crate) fn new(criterion: &'c mut Criterion, name: String, bytes: usize, units: usize) -> Self {
        Subject { criterion, name, bytes, units, cases: Vec::new() }
    }

    /// Measures an implementation. The cases "copy" and "trees" are the baselines.
    pub(crate) fn case<T>(&mut self, case: &'static str, mut turn: impl FnMut() -> T) {
        let mut samples = Vec::new();
        let mut group = self.criterion.benchmark_group(&self.name);
        group.throughput(Throughput::Bytes(self.bytes as u64));
        group.bench_function(case, |bencher| {
            bencher.iter_custom(|turns| {
                let began = Instant::now();
                for _ in 0..turns {
                    black_box(turn());
                }
                let took = began.elapsed();
                samples.push(took.as_secs_f64() / turns as f64);
                took
            });
        });
        group.finish();
        samples.sort_by(f64::total_cmp);
        if let Some(median) = samples.get(samples.len() / 2) {
            self.cases.push(Timed { case, median: *median });
        }
    }

    /// Returns the time of a case per frame or request, in nanoseconds. `None` if it was not measured.
    #[allow(dead_code, reason = "only one benchmark compares its subjects")]
    pub(crate) fn nanoseconds(&self, case: &str) -> Option<f64> {
        let timed = self.cases.iter().find(|timed| timed.case == case)?;
        Some(timed.median * 1e9 / self.units as f64)
    }

    /// Returns the lines of the summary; none if a baseline was not measured.
    pub(crate) fn lines(&self) -> Vec<String> {
        let of = |case: &str| self.cases.iter().find(|timed| timed.case == case).map(|timed| timed.median);
        let (Some(copy), Some(trees)) = (of("copy"), of("trees")) else { return Vec::new() };
        let line = |timed: &Timed| {
            let (rate, each) =
                (self.bytes as f64 / timed.median / 1e6, timed.median * 1e9 / self.units as f64);
            let (to_copy, to_trees) = (timed.median / copy, timed.median / trees);
            format!(
                "{:<26} {:<12} {rate:>9.0} {each:>10.0} {to_copy:>9.2} {to_trees:>9.3}",
                self.name, timed.case
            )
        };
        self.cases.iter().map(line).collect()
    }
}

/// Copies each piece to the same buffer.
pub(crate) fn copy(pieces: &[Bytes], to: &mut Vec<u8>) {
    for piece in pieces {
        to.clear();
        to.extend_from_slice(piece);
        black_box(to.as_slice());
    }
}

/// Prints the lines of all subjects.
pub(crate) fn print_summary(summary: &[String]) {
    if !summary.is_empty() {
        let head = ["", "", "MB/s", "ns each", "to copy", "to trees"];
        let [name, case, rate, each, copy, trees] = head;
        println!("\n{name:<26} {case:<12} {rate:>9} {each:>10} {copy:>9} {trees:>9}\n{}", summary.join("\n"));
    }
}
