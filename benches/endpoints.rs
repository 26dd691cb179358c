//! Throughput of three conversions: vectors between numbers and base64 (in bytes of 32-bit floats), token counting, and
//! large images.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use codec::tokens::{self, TokenizerFamily};
use codec::wire::embeddings::number;
use codec::wire::images::answer::{ImageLocation, decode};
use codec::wire::images::reply::{ImageReplyShape, ImageSet, OutputImage, encode};
use criterion::{Criterion, Throughput};
use json::RawJson;

/// Length of a vector of text-embedding-3-large.
const LENGTH: usize = 3_072;
/// Numbers in a large response.
const FLOATS: usize = 64 * LENGTH;

fn vectors(criterion: &mut Criterion) {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    let floats: Vec<f32> = (0..FLOATS).map(|_| next() / 16.0).collect();
    let text = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    };
    let numbers = text(&|out| number::push_numbers(&floats, out));
    // One text for each vector, as in a response.
    let packed: Vec<String> =
        floats.chunks(LENGTH).map(|vector| text(&|out| number::push_floats(vector, out))).collect();
    let mut group = criterion.benchmark_group("vectors");
    group.throughput(Throughput::Bytes(FLOATS as u64 * 4));
    let mut out = BytesMut::with_capacity(FLOATS * 16);
    group.bench_function("floats to base64", |bencher| {
        bencher.iter(|| {
            out.clear();
            number::push_floats(black_box(&floats), &mut out);
        });
    });
    group.bench_function("base64 to floats", |bencher| {
        bencher.iter(|| packed.iter().for_each(|vector| _ = black_box(number::floats(black_box(vector)))));
    });
    group.bench_function("numbers to base64", |bencher| {
        bencher.iter(|| {
            out.clear();
            number::push_base64(RawJson::from_text(black_box(&numbers)), &mut out).unwrap();
        });
    });
    group.bench_function("floats to numbers", |bencher| {
        bencher.iter(|| {
            out.clear();
            number::push_numbers(black_box(&floats), &mut out);
        });
    });
    group.finish();
}

fn counting(criterion: &mut Criterion) {
    tokens::prepare(TokenizerFamily::OpenAi);
    let mut text = String::new();
    let mut line = 0u32;
    while text.len() < 2_000_000 {
        writeln!(text, "Line {line}: the quick brown fox jumps over {} lazy dogs; 今天天气很好。", line % 97)
            .unwrap();
        line += 1;
    }
    let mut group = criterion.benchmark_group("tokens");
    for (name, bytes) in [("2 kB", 2_000), ("100 kB", 100_000), ("2 MB", 2_000_000)] {
        let part = text.get(..(0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap()).unwrap();
        let count = tokens::count_text(TokenizerFamily::OpenAi, part);
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{name}, {count} tokens"), |bencher| {
            bencher.iter(|| tokens::count_text(TokenizerFamily::OpenAi, black_box(part)));
        });
    }
    group.finish();
}

/// Image of 20 MB from the provider's response to the client's: once as base64 that passes unchanged, once as
/// downloaded bytes that are encoded.
fn images(criterion: &mut Criterion) {
    const SIZE: usize = 20 << 20;
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at * 31 % 251) as u8).collect();
    let base64 = base64_simd::STANDARD.encode_to_string(&bytes);
    let bytes = Bytes::from(bytes);
    let answer = Bytes::from(format!(r#"{{"created":1,"data":[{{"b64_json":"{base64}"}}]}}"#));
    let send = |shown: OutputImage| -> usize {
        let made = ImageSet { images: vec![(shown, None)], ..ImageSet::default() };
        encode(made, ImageReplyShape::Plain).into_steps().map(|step| black_box(step).len()).sum()
    };
    let mut group = criterion.benchmark_group("an image of 20 MB");
    group.throughput(Throughput::Bytes(SIZE as u64));
    group.bench_function("base64 that passes", |bencher| {
        bencher.iter(|| {
            let read = decode(black_box(&answer)).unwrap();
            read.images.into_iter().for_each(|image| {
                if let ImageLocation::Base64(text) = image.location {
                    send(OutputImage::Base64(text));
                }
            });
        });
    });
    group.bench_function("bytes that become base64", |bencher| {
        bencher.iter(|| send(OutputImage::Bytes(black_box(&bytes).clone())));
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1_500))
        .sample_size(20)
        .configure_from_args();
    vectors(&mut criterion);
    images(&mut criterion);
    counting(&mut criterion);
    criterion.final_summary();
}
