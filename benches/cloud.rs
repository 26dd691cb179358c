//! Costs of what AWS demands of every request and message: a signature over the body, and checksums of event streams.

#![allow(missing_docs, clippy::unwrap_used, reason = "benchmark")]

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model_gateway::cloud::sigv4::{
    CanonicalRequest, CredentialScope, Credentials, PathEncoding, PayloadHash, Signer,
};
use model_gateway::framing::event_stream::{EventMessage, HeaderValue, MessageWriter, put_header};

const BODY: usize = 100 << 10;

fn sign(criterion: &mut Criterion) {
    let credentials = Credentials {
        access_key_id: "AKIDEXAMPLE".into(),
        secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
        session_token: None,
    };
    let signer = Signer::new(credentials, CredentialScope { region: "us-east-1", service: "bedrock" });
    let body = vec![b'x'; BODY];
    let headers = [("host", "bedrock-runtime.us-east-1.amazonaws.com"), ("content-type", "application/json")];
    let sign = |payload: &PayloadHash| {
        let request = CanonicalRequest {
            method: "POST",
            target: "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream",
            headers: &headers,
            payload,
            path_encoding: PathEncoding::Normalized,
        };
        signer.sign(&request, 1_795_256_000)
    };
    let mut group = criterion.benchmark_group("sigv4");
    let hash = PayloadHash::of([&body[..]]);
    group.bench_function("signature", |bencher| bencher.iter(|| sign(black_box(&hash))));
    group.throughput(Throughput::Bytes(BODY as u64));
    group.bench_function("body_of_100_KiB", |bencher| {
        bencher.iter(|| sign(&PayloadHash::of([black_box(&body[..])])));
    });
    group.finish();
}

fn messages(criterion: &mut Criterion) {
    let mut headers = Vec::new();
    put_header(":event-type", HeaderValue::Text("contentBlockDelta"), &mut headers);
    put_header(":content-type", HeaderValue::Text("application/json"), &mut headers);
    put_header(":message-type", HeaderValue::Text("event"), &mut headers);
    let payload =
        br#"{"contentBlockIndex":0,"delta":{"text":" a few words"},"p":"abcdefghijklmnopqrstuvwxyz"}"#;
    let write = |out: &mut BytesMut| {
        let writer = MessageWriter::begin(&headers, out);
        out.extend_from_slice(payload);
        writer.end(out);
    };
    let mut message = BytesMut::new();
    write(&mut message);
    let mut group = criterion.benchmark_group("event_stream");
    group.bench_function("parse", |bencher| {
        bencher.iter(|| EventMessage::parse(black_box(&message)).unwrap().payload().len());
    });
    let mut out = BytesMut::with_capacity(1_024);
    group.bench_function("write", |bencher| {
        bencher.iter(|| {
            out.clear();
            write(black_box(&mut out));
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, sign, messages);
criterion_main!(benches);
