//! The connection of a client: its reads and writes, whatever the sizes of the pieces.

use std::io::IoSlice;
use std::time::Duration;

use bytes::BytesMut;
use pingora::protocols::l4::stream::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::header_timeout::HeaderTimeoutStream;

/// Lengths of pieces around the size of the write buffer, in bytes.
const LENGTHS: [usize; 12] = [10, 3_000, 5_000, 1, 3_071, 1, 3_072, 3_073, 0, 70_000, 5, 2_000];

async fn connection() -> (TcpStream, HeaderTimeoutStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, server) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let server: Stream = server.unwrap().0.into();
    (client.unwrap(), HeaderTimeoutStream::new(Box::new(server), Duration::from_secs(60)))
}

/// Pieces of different bytes.
fn pieces() -> Vec<Vec<u8>> {
    let byte = |n: usize| u8::try_from(n % 251).unwrap();
    LENGTHS.iter().enumerate().map(|(n, length)| (0..*length).map(|at| byte(at * 7 + n)).collect()).collect()
}

#[tokio::test]
async fn writes_arrive_in_order_and_a_close_leaves_none_behind() {
    for vectored in [false, true] {
        for flush_each in [false, true] {
            let (mut client, mut server) = connection().await;
            let writing = async {
                for pair in pieces().chunks(2) {
                    if vectored {
                        // What of the two is not written with one call follows.
                        let slices: Vec<IoSlice<'_>> = pair.iter().map(|piece| IoSlice::new(piece)).collect();
                        let written = server.write_vectored(&slices).await.unwrap();
                        server.write_all(pair.concat().get(written..).unwrap()).await.unwrap();
                    } else {
                        for piece in pair {
                            server.write_all(piece).await.unwrap();
                        }
                    }
                    if flush_each {
                        server.flush().await.unwrap();
                    }
                }
                server.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let (_, read) = tokio::join!(writing, client.read_to_end(&mut received));
            read.unwrap();
            assert!(received == pieces().concat(), "vectored {vectored}, flushed {flush_each}");
        }
    }
}

#[tokio::test]
async fn first_read_takes_what_has_arrived_and_appends_it() {
    let (mut client, mut server) = connection().await;
    client.write_all(&[7; 6_000]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut received = BytesMut::from(&b"before"[..]);
    while server.read_first(&mut received).await.unwrap() > 0 {}
    assert_eq!(received.len(), 6 + 6_000);
    assert!(received.starts_with(b"before\x07") && received.ends_with(&[7; 6_000]));
}
