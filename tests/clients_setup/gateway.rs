//! Gateways for the tests: the demo with its simulated providers, and a scripted listing of models.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Running demo.
pub(crate) struct Demo {
    process: Child,
    pub(crate) url: String,
    pub(crate) key: String,
}

impl Demo {
    /// Starts the demo and waits until it prints its address and key.
    pub(crate) fn start() -> Demo {
        let mut process = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
            .args(["demo", "--port", "0", "--admin-port", "0"])
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut value = |name: &str| {
            let mut found = lines.by_ref().map(Result::unwrap);
            let line = found.find(|line| line.trim_start().starts_with(name)).expect("the demo ended");
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        let (url, key) = (value("gateway "), value("key "));
        // The demo ends when its output is closed.
        std::thread::spawn(move || lines.for_each(drop));
        Demo { process, url, key }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGINT);
        let _ = self.process.wait();
    }
}

/// Serves one response to every request, for as long as the test runs. Returns the address.
pub(crate) fn scripted(status: &'static str, body: impl Into<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let body = body.into();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), status, &body);
        }
    });
    address
}

fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // The client may close the connection early, if the body is too large.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}
