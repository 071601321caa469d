//! Clients of a server that speaks RESP: one thread, many connections, requests in pipelines, every reply compared.
//!
//! As redis-benchmark does it: a connection sends a batch, waits for all of its replies, and sends the next. Only the
//! server's CPU time is measured, so what this thread spends does not matter as long as it keeps the connections busy.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::data::keys::Keys;
use crate::data::values::Values;
use crate::servers::resp::{self, SILENCE_MAX};

/// One request, with the version of the value that is written or expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Set(u64, u32),
    Get(u64, u32),
}

/// The interval at which the client checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The pause between two looks at the clock where requests have a rate.
const PACE: Duration = Duration::from_micros(100);

/// How requests are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Requests of a connection before it waits for their replies.
    pub(crate) pipeline: usize,
    /// Requests per second over all connections; as many as go where there is none.
    pub(crate) rate: Option<f64>,
}

/// The keys and values.
pub(crate) struct Records<'a> {
    pub(crate) keys: Keys,
    pub(crate) values: &'a Values,
}

impl Records<'_> {
    fn encode(&self, call: Call, out: &mut Vec<u8>) {
        match call {
            Call::Set(key, version) => {
                resp::set(self.keys.room().key(key), self.values.slice(key, version), out);
            }
            Call::Get(key, _) => resp::get(self.keys.room().key(key), out),
        }
    }

    fn reply(&self, call: Call, out: &mut Vec<u8>) {
        out.clear();
        match call {
            Call::Set(..) => out.extend_from_slice(b"+OK\r\n"),
            Call::Get(key, version) => resp::value(self.values.slice(key, version), out),
        }
    }
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    waiting: VecDeque<Call>,
}

impl Connection {
    fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Connection { stream, out: Vec::new(), sent: 0, received: Vec::new(), waiting: VecDeque::new() })
    }

    fn send(&mut self) -> Result<(), String> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err("the server closed a connection".into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("a request could not be sent: {error}")),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn receive(&mut self, part: &mut [u8]) -> Result<(), String> {
        loop {
            match self.stream.read(part) {
                Ok(0) => return Err("the server closed a connection".into()),
                Ok(got) => self.received.extend_from_slice(&part[..got]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("a reply could not be received: {error}")),
            }
        }
    }

    /// Compares the replies that are there; returns how many were.
    fn check(&mut self, records: &Records<'_>, expected: &mut Vec<u8>) -> Result<u64, String> {
        let (mut at, mut checked) = (0, 0);
        while let Some(&call) = self.waiting.front() {
            records.reply(call, expected);
            let there = &self.received[at..];
            let length = there.len().min(expected.len());
            if there[..length] != expected[..length] {
                let said = String::from_utf8_lossy(&there[..there.len().min(60)]).into_owned();
                let wanted = String::from_utf8_lossy(&expected[..expected.len().min(60)]).into_owned();
                return Err(format!("wrong answer to {call:?}: {said:?}, and {wanted:?} was expected"));
            }
            if there.len() < expected.len() {
                break;
            }
            at += expected.len();
            checked += 1;
            self.waiting.pop_front();
        }
        self.received.drain(..at);
        match self.waiting.is_empty() && !self.received.is_empty() {
            true => Err(format!("{} bytes came that nobody asked for", self.received.len())),
            false => Ok(checked),
        }
    }
}

/// Makes all the requests that `next` gives for a connection, and returns how many replies came. The first wrong one
/// ends it.
pub(crate) fn drive(
    address: SocketAddr,
    load: Load,
    records: &Records<'_>,
    stop: &AtomicBool,
    mut next: impl FnMut(usize) -> Option<Call>,
) -> Result<u64, String> {
    let fail = |error: std::io::Error| format!("the clients cannot connect: {error}");
    let (mut poll, mut events) = (Poll::new().map_err(fail)?, Events::with_capacity(load.connections));
    let mut connections = Vec::with_capacity(load.connections);
    for token in 0..load.connections {
        let mut connection = Connection::open(address).map_err(fail)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.stream, Token(token), both).map_err(fail)?;
        connections.push(connection);
    }
    let (mut part, mut expected) = (vec![0; 1 << 16], Vec::new());
    let mut idle: VecDeque<usize> = (0..load.connections).collect();
    let (began, mut heard) = (Instant::now(), Instant::now());
    let (mut started, mut done) = (0u64, 0u64);
    loop {
        let due = load.rate.map_or(u64::MAX, |rate| (began.elapsed().as_secs_f64() * rate) as u64);
        // Connections without further requests are left out.
        while started < due
            && let Some(token) = idle.pop_front()
        {
            let connection = &mut connections[token];
            for call in (0..load.pipeline).map_while(|_| next(token)) {
                records.encode(call, &mut connection.out);
                connection.waiting.push_back(call);
            }
            started += connection.waiting.len() as u64;
            connection.send()?;
        }
        if idle.is_empty() && connections.iter().all(|connection| connection.waiting.is_empty()) {
            return Ok(done);
        }
        let patience = if load.rate.is_some() { Duration::ZERO } else { LOOK };
        match poll.poll(&mut events, Some(patience)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(format!("poll: {error}")),
            _ => {}
        }
        if stop.load(Ordering::Relaxed) {
            return Err("it was told to stop".into());
        }
        if !events.is_empty() {
            heard = Instant::now();
        } else if heard.elapsed() > SILENCE_MAX && done < started {
            return Err(format!("no reply came for {} s", SILENCE_MAX.as_secs()));
        } else if load.rate.is_some() {
            std::thread::sleep(PACE);
        }
        for event in &events {
            let Token(token) = event.token();
            let connection = &mut connections[token];
            connection.send()?;
            let waited = !connection.waiting.is_empty();
            connection.receive(&mut part)?;
            done += connection.check(records, &mut expected)?;
            if waited && connection.waiting.is_empty() {
                idle.push_back(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::data::keys::KeyShape;
    use crate::data::values::ValueBytes;

    const KEYS: u64 = 50;

    fn values() -> Values {
        let corpus: Vec<u8> = (0..2_000u32).flat_map(u32::to_le_bytes).collect();
        let region = 0..corpus.len();
        Values::new(Arc::new(corpus), region, ValueBytes { min: 9, max: 30 }, 3).unwrap()
    }

    /// Answers a connection: what `answer` makes of the number of a request and of the value that was set last under
    /// its key.
    fn serve(stream: std::net::TcpStream, answer: fn(u64, Option<&[u8]>) -> Vec<u8>, count: &AtomicU64) {
        let (mut requests, mut replies) = (BufReader::new(stream.try_clone().unwrap()), stream);
        let mut held = std::collections::HashMap::new();
        let number = |text: &str| text[1..].trim().parse::<usize>().unwrap();
        let mut line = String::new();
        while matches!(requests.read_line(&mut line), Ok(read) if read > 0) {
            let parts: Vec<Vec<u8>> = (0..number(&line))
                .map(|_| {
                    line.clear();
                    requests.read_line(&mut line).unwrap();
                    let mut bytes = vec![0; number(&line) + 2];
                    requests.read_exact(&mut bytes).unwrap();
                    bytes.truncate(bytes.len() - 2);
                    bytes
                })
                .collect();
            line.clear();
            let at = count.fetch_add(1, Ordering::Relaxed);
            let reply = match parts.as_slice() {
                [_, key, value] => {
                    held.insert(key.clone(), value.clone());
                    answer(at, None)
                }
                [_, key] => answer(at, held.get(key).map(Vec::as_slice)),
                _ => unreachable!(),
            };
            // The clients are gone after a wrong answer.
            if replies.write_all(&reply).is_err() {
                return;
            }
        }
    }

    /// Sets every key and gets it, 7 requests at a time on each of three connections; the server answers by `answer`.
    fn driven(answer: fn(u64, Option<&[u8]>) -> Vec<u8>, rate: Option<f64>) -> Result<u64, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let count = AtomicU64::new(0);
        let values = values();
        let records = Records { keys: Keys::new(KeyShape::Decimal, None), values: &values };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::scope(|scope| {
                    for stream in listener.incoming().take(3) {
                        let (stream, count) = (stream.unwrap(), &count);
                        scope.spawn(move || serve(stream, answer, count));
                    }
                });
            });
            // Each connection sets its own keys and then reads them: the server above keeps a map for each.
            let mut position = [0u64; 3];
            drive(
                address,
                Load { connections: 3, pipeline: 7, rate },
                &records,
                &AtomicBool::new(false),
                |token| {
                    let at = position[token];
                    position[token] += 1;
                    let key = at / 2 * 3 + token as u64;
                    let call = if at.is_multiple_of(2) { Call::Set(key, 4) } else { Call::Get(key, 4) };
                    (key < KEYS).then_some(call)
                },
            )
        })
    }

    fn honest(_: u64, value: Option<&[u8]>) -> Vec<u8> {
        let mut reply = Vec::new();
        match value {
            None => reply.extend_from_slice(b"+OK\r\n"),
            Some(value) => resp::value(value, &mut reply),
        }
        reply
    }

    #[test]
    fn every_request_is_made_once_and_right_answers_pass() {
        assert_eq!(driven(honest, None), Ok(2 * KEYS));
        assert_eq!(driven(honest, Some(20_000.0)), Ok(2 * KEYS));
    }

    #[test]
    fn a_wrong_answer_ends_it() {
        let flipped = |at: u64, value: Option<&[u8]>| {
            let mut reply = honest(at, value);
            if at == 60 {
                let middle = reply.len() / 2;
                reply[middle] ^= 1;
            }
            reply
        };
        let said = driven(flipped, None).unwrap_err();
        assert!(said.contains("wrong answer to "), "{said}");
        let refused = |at: u64, value: Option<&[u8]>| match at {
            20.. => b"-OOM command not allowed\r\n".to_vec(),
            _ => honest(at, value),
        };
        assert!(driven(refused, None).unwrap_err().contains("-OOM command not allowed"));
        let twice = |at: u64, value: Option<&[u8]>| honest(at, value).repeat(1 + usize::from(at == 30));
        assert!(driven(twice, None).is_err());
    }
}
