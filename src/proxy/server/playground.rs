//! Requests of the admin API's playground: they take the path of a client's request, on the threads of the workers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Method, Version, header};
use pingora::http::RequestHeader;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::{Digest, SocketDigest};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::Gateway;
use admin::{PlaygroundPart, PlaygroundRequest};
use driver::in_process::{self, InProcessRequest, ResponsePart};
use sync::supervise::{catch_panic, message_of};

/// Parts of a response that may wait for the admin port.
const PARTS: usize = 4;

/// Runs a request on the runtime of the workers. Dropping the receiver is the disconnect of the client.
pub(crate) fn submit(
    gateway: &Gateway,
    runtime: &Handle,
    request: PlaygroundRequest,
) -> mpsc::Receiver<PlaygroundPart> {
    let (sender, receiver) = mpsc::channel(PARTS);
    let gateway = gateway.clone();
    runtime.spawn(async move {
        if let Err(panic) = catch_panic(run(gateway, request, sender)).await {
            tracing::error!(panic = message_of(&*panic), "a request of the playground panicked");
        }
    });
    receiver
}

async fn run(gateway: Gateway, request: PlaygroundRequest, sender: mpsc::Sender<PlaygroundPart>) {
    let digest = Arc::new(digest_of(request.address));
    let (running, parts) = in_process::run(
        gateway,
        InProcessRequest { head: head_of(&request), body: vec![request.body], digest },
    );
    tokio::join!(running, forward(parts, sender));
}

/// Passes a response on. Returns early if its reader is gone; dropping the parts ends the request then.
async fn forward(mut parts: mpsc::Receiver<ResponsePart>, sender: mpsc::Sender<PlaygroundPart>) {
    loop {
        let part = tokio::select! {
            part = parts.recv() => part,
            () = sender.closed() => return,
        };
        let part = match part {
            Some(ResponsePart::Head(head)) => {
                PlaygroundPart::Head(head.status.as_u16(), head.headers.clone())
            }
            Some(ResponsePart::Body(piece)) => PlaygroundPart::Body(piece),
            Some(ResponsePart::End) => PlaygroundPart::End,
            None => return,
        };
        if sender.send(part).await.is_err() {
            return;
        }
    }
}

fn head_of(request: &PlaygroundRequest) -> RequestHeader {
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.method = Method::POST;
    head.version = Version::HTTP_11;
    head.uri = http::Uri::from(request.target.clone());
    head.headers.insert(header::AUTHORIZATION, request.key.clone());
    head.headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    head.headers.insert(header::CONTENT_LENGTH, request.body.len().into());
    head.headers.insert(header::USER_AGENT, http::HeaderValue::from_static("model-gateway-playground"));
    RequestHeader::from(head)
}

/// Describes the operator's connection: only its address is known, which permissions of keys are checked with.
fn digest_of(address: Option<IpAddr>) -> Digest {
    let socket = SocketDigest::from_raw_fd(-1);
    let _ = socket.peer_addr.set(address.map(|address| PeerAddress::Inet(SocketAddr::new(address, 0))));
    let _ = socket.local_addr.set(None);
    Digest { socket_digest: Some(Arc::new(socket)), ..Digest::default() }
}
