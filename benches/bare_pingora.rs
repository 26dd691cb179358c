//! Plain Pingora proxy: the baseline of the end-to-end benchmark.
//!
//! `bare-pingora LISTEN UPSTREAM`: every request goes to the one upstream, and nothing is parsed or changed. One worker
//! thread, Pingora's defaults.

#![allow(clippy::print_stderr, clippy::expect_used, reason = "a tool for measuring, run by hand")]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;

struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: bare-pingora LISTEN UPSTREAM");
        std::process::exit(2);
    };
    let upstream = upstream.parse().expect("UPSTREAM is an address and a port");
    // The pool has the size of the gateway's, so that neither opens connections during the measurement.
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: 2048,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&Arc::clone(&server.configuration), Bare { upstream });
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
