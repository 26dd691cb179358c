//! Costs of what AWS demands of every request and message: a signature over the body, and checksums of event streams.
//!
//! The body is hashed once for each attempt, before its head is sent; a resend with a renewed credential signs the same
//! hash again. No part of the hash can be saved: SHA-256 reads every byte, one block after the other. The summary
//! therefore prints the hash apart from the rest, which does not depend on the body.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "benchmark")]

#[allow(dead_code, reason = "nothing here is compared with copies and trees")]
mod measure;

use std::hint::black_box;

use bytes::BytesMut;
use cloud::sigv4::{CanonicalRequest, CredentialScope, Credentials, PathEncoding, PayloadHash, Signer};
use criterion::Criterion;
use framing::event_stream::{EventMessage, HeaderValue, MessageWriter, put_header};
use measure::{Subject, criterion};

const BODY: usize = 100 << 10;

/// Measures signatures. Returns the lines of the summary; none if a case was not measured.
fn sign(criterion: &mut Criterion) -> Vec<String> {
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
    let hash = PayloadHash::of([&body[..]]);
    let mut subject = Subject::new(criterion, "sigv4, 100 KiB".to_owned(), BODY, 1);
    subject.case("hash", || PayloadHash::of([black_box(&body[..])]));
    subject.case("signature", || sign(black_box(&hash)));
    subject.case("both", || sign(&PayloadHash::of([black_box(&body[..])])));
    let [Some(hash), Some(rest), Some(both)] =
        ["hash", "signature", "both"].map(|case| subject.nanoseconds(case))
    else {
        return Vec::new();
    };
    vec![
        format!(
            "sha-256 of 100 KiB: {:.1} us, {:.2} GB/s, {}",
            hash / 1e3,
            BODY as f64 / hash,
            instructions()
        ),
        format!("signature without the hash: {:.1} us", rest / 1e3),
        format!("signed request of 100 KiB: {:.1} us", both / 1e3),
    ]
}

/// Returns which instructions of the processor the hash uses, as the crate detects them.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sha") && std::arch::is_x86_feature_detected!("sse4.1") {
        return "with the SHA extensions";
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("sha2") {
        return "with the SHA-2 extension";
    }
    "in software: this processor has no SHA extensions"
}

/// Measures messages of event streams. Returns the lines of the summary.
fn messages(criterion: &mut Criterion) -> Vec<String> {
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
    let mut subject = Subject::new(criterion, "event stream".to_owned(), message.len(), 1);
    subject.case("parse", || EventMessage::parse(black_box(&message)).unwrap().payload().len());
    let mut out = BytesMut::with_capacity(1_024);
    subject.case("write", || {
        out.clear();
        write(black_box(&mut out));
        out.len()
    });
    let line =
        |case: &str| Some(format!("event stream message, {case}: {:.0} ns", subject.nanoseconds(case)?));
    ["parse", "write"].into_iter().filter_map(line).collect()
}

fn main() {
    let mut criterion = criterion(300, 1_000);
    let signed = sign(&mut criterion);
    let framed = messages(&mut criterion);
    criterion.final_summary();
    for line in signed.into_iter().chain(framed) {
        println!("{line}");
    }
}
