//! Deadlines of a socket, on one timer: pings, a client that reads or sends too slowly, the lifetime, and the wait for the
//! client's close frame.

use std::time::Duration;

use tokio::time::Instant;

use config::Limits;

/// Wait for the client's close frame, after the gateway's was written.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Minimum rate of a message in bytes per second, once it has taken longer than two of the time-outs of a body: the same
/// as for request bodies over HTTP.
const MIN_RATE: u64 = 8 * 1024;

/// Deadline that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A ping is to be sent.
    Ping,
    /// The client was silent since the ping before the last.
    Silent,
    /// The client does not read.
    SlowReader,
    /// A message does not arrive in time.
    SlowMessage,
    /// The socket has reached its lifetime.
    Lifetime,
    /// The client has not answered the close frame.
    Close,
}

/// Deadlines of one socket.
#[derive(Debug)]
pub(super) struct Deadlines {
    ping: Duration,
    write: Duration,
    message: Duration,
    next_ping: Instant,
    /// Whether anything has arrived since the last ping, and whether that ping was sent while nothing was to be written.
    heard: bool,
    pinged: bool,
    /// `None` once it has passed.
    lifetime: Option<Instant>,
    /// Since when bytes wait to be written, and how many waited then.
    writing: Option<(Instant, usize)>,
    /// Since when a message arrives, and its length so far.
    reading: Option<(Instant, usize)>,
    close: Option<Instant>,
}

impl Deadlines {
    /// Deadlines of a socket that opens now.
    pub(super) fn new(limits: &Limits) -> Self {
        let now = Instant::now();
        Deadlines {
            ping: limits.websocket_ping,
            write: limits.write_timeout,
            message: limits.body_timeout * 2,
            next_ping: now + limits.websocket_ping,
            heard: true,
            pinged: false,
            lifetime: Some(now + limits.websocket_lifetime),
            writing: None,
            reading: None,
            close: None,
        }
    }

    /// Returns the next deadline.
    pub(super) fn next(&self) -> Instant {
        let write = self.writing.map(|(since, _)| since + self.write);
        let read = self.reading.map(|(since, length)| self.message_end(since, length));
        [write, read, self.lifetime, self.close].into_iter().flatten().fold(self.next_ping, Instant::min)
    }

    fn message_end(&self, since: Instant, length: usize) -> Instant {
        since + self.message + Duration::from_secs(length as u64 / MIN_RATE)
    }

    /// Takes the deadline that has passed; `None` if none has. `waiting` is the number of bytes that wait to be written.
    pub(super) fn take(&mut self, now: Instant, waiting: usize) -> Option<Due> {
        if self.close.is_some_and(|close| close <= now) {
            return Some(Due::Close);
        }
        if let Some((since, before)) = self.writing
            && since + self.write <= now
        {
            if waiting >= before {
                return Some(Due::SlowReader);
            }
            // It reads, if slowly.
            self.writing = Some((now, waiting));
        }
        if let Some((since, length)) = self.reading
            && self.message_end(since, length) <= now
        {
            return Some(Due::SlowMessage);
        }
        if self.lifetime.is_some_and(|lifetime| lifetime <= now) {
            self.lifetime = None;
            return Some(Due::Lifetime);
        }
        if self.next_ping > now {
            return None;
        }
        self.next_ping = now + self.ping;
        // A client that still has to read what was sent before the ping is judged as a slow reader.
        if self.pinged && !self.heard {
            return Some(Due::Silent);
        }
        (self.heard, self.pinged) = (false, waiting == 0);
        Some(Due::Ping)
    }

    /// Bytes have arrived.
    pub(super) fn on_read(&mut self) {
        self.heard = true;
    }

    /// Sets the length of the message that is arriving; `None` between messages.
    pub(super) fn set_message(&mut self, length: Option<usize>) {
        self.reading =
            length.map(|length| (self.reading.map_or_else(Instant::now, |(since, _)| since), length));
    }

    /// Sets the number of bytes that wait to be written; 0 if everything is written.
    pub(super) fn set_waiting(&mut self, waiting: usize) {
        match waiting {
            0 => self.writing = None,
            _ => _ = self.writing.get_or_insert_with(|| (Instant::now(), waiting)),
        }
    }

    /// Returns whether the lifetime has passed.
    pub(super) fn is_expired(&self) -> bool {
        self.lifetime.is_none()
    }

    /// Begins the wait for the client's close frame.
    pub(super) fn begin_close(&mut self) {
        self.close.get_or_insert_with(|| Instant::now() + CLOSE_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines() -> Deadlines {
        Deadlines::new(&Limits::default())
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_ping_a_client_and_give_up_a_silent_one() {
        let mut deadlines = deadlines();
        let begun = Instant::now();
        assert_eq!(deadlines.take(begun + seconds(24), 0), None);
        assert_eq!(deadlines.take(begun + seconds(25), 0), Some(Due::Ping));
        deadlines.on_read();
        assert_eq!(deadlines.take(begun + seconds(50), 0), Some(Due::Ping));
        assert_eq!(deadlines.take(begun + seconds(75), 0), Some(Due::Silent));
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_of_a_slow_reader_move_with_what_it_reads() {
        let mut deadlines = deadlines();
        let begun = Instant::now();
        deadlines.set_waiting(1_000);
        assert_eq!(deadlines.take(begun + seconds(25), 1_000), Some(Due::Ping));
        assert_eq!(deadlines.take(begun + seconds(50), 1_000), Some(Due::Ping));
        assert_eq!(deadlines.take(begun + seconds(60), 900), None);
        deadlines.on_read();
        assert_eq!(deadlines.take(begun + seconds(119), 900), Some(Due::Ping));
        assert_eq!(deadlines.take(begun + seconds(120), 900), Some(Due::SlowReader));
        deadlines.set_waiting(0);
        deadlines.on_read();
        assert_eq!(deadlines.take(begun + seconds(121), 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_of_a_message_grow_with_it() {
        let mut deadlines = deadlines();
        let begun = Instant::now();
        deadlines.set_message(Some(0));
        deadlines.set_message(Some(10 * 8 * 1024));
        assert_eq!(deadlines.take(begun + seconds(69), 0), Some(Due::Ping));
        assert_eq!(deadlines.take(begun + seconds(70), 0), Some(Due::SlowMessage));
        deadlines.set_message(None);
        assert_eq!(deadlines.take(begun + seconds(71), 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_end_the_lifetime_once_and_the_close() {
        let mut deadlines = deadlines();
        let begun = Instant::now();
        assert_eq!(deadlines.take(begun + seconds(3_600), 0), Some(Due::Lifetime));
        assert!(deadlines.is_expired());
        assert_eq!(deadlines.take(begun + seconds(3_600), 0), Some(Due::Ping));
        deadlines.begin_close();
        assert_eq!(deadlines.take(begun + seconds(3_601), 0), Some(Due::Close));
    }
}
