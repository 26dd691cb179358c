//! Proxy that refuses every request, and notes its host: a client under test reaches loopback only.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Maximum number of hosts that are noted.
const HOSTS: usize = 100;

/// Refusing proxy. It stops when it is dropped.
#[derive(Debug)]
pub(super) struct Outside {
    addr: SocketAddr,
    hosts: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Outside {
    pub(super) async fn start() -> Outside {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let hosts = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = hosts.clone();
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let noted = noted.clone();
                tokio::spawn(async move {
                    let mut socket = BufReader::new(socket);
                    let mut line = String::new();
                    if socket.read_line(&mut line).await.is_ok() {
                        let target = line.split(' ').nth(1).unwrap_or_default();
                        let host = target.trim_start_matches("http://").split(['/', ':']).next();
                        let mut noted = noted.lock().unwrap();
                        if noted.len() < HOSTS {
                            noted.insert(host.unwrap_or_default().to_owned());
                        }
                    }
                    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = socket.get_mut().write_all(refusal.as_bytes()).await;
                });
            }
        });
        Outside { addr, hosts, task }
    }

    /// Returns the variables by which programs use the proxy for everything but loopback.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![("NODE_USE_ENV_PROXY", "1".to_owned())];
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            variables.push((name, format!("http://{}", self.addr)));
        }
        for name in ["no_proxy", "NO_PROXY"] {
            variables.push((name, "127.0.0.1,localhost,::1".to_owned()));
        }
        variables
    }

    /// Returns the hosts that were asked for.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.hosts.lock().unwrap().iter().cloned().collect()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.task.abort();
    }
}
