//! Several connections of one thread to a server that speaks RESP, each with a call under way.
//!
//! A thread with one connection has [`Connection`](super::Connection), which waits for its own replies.
//!
//! 1. [`Connections::send`] sends a call, as far as the system takes it. The rest follows when there is room.
//! 2. [`Connections::wait`] waits for all connections at once, so that one system call brings replies of several.
//! 3. [`Connections::receive`] reads what has come over one of them, and [`Connections::answer`] parses it in the
//!    memory that received it. All connections take turns with this memory, so that it stays in the processor's cache.

use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};

use super::{CLOSED, Endpoint, Inbox, Reply, SILENCE_MAX, failed, silent};

/// The connections of one thread, none of which any other thread uses.
#[derive(Debug)]
pub struct Connections {
    endpoint: Endpoint,
    /// Their numbers among the connections of all threads, from 0 on.
    numbers: Range<u64>,
    lanes: Vec<Lane>,
    poll: Poll,
    events: Events,
    /// Connections that something has come over, or that have room for a rest.
    ready: Vec<usize>,
    /// The memory that received the last replies, while no connection waits for the rest of one.
    spare: Inbox,
    patience: Duration,
}

#[derive(Debug)]
struct Lane {
    stream: TcpStream,
    /// The rest of a call.
    unsent: Vec<u8>,
    /// Empty between two calls, and before anything has come.
    replies: Inbox,
}

impl Lane {
    /// Whether the connection has not ended, if nothing is expected of it.
    fn is_open(&self) -> bool {
        self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Get,
    Put,
    Delete,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// The value of a key, if there is one.
    Found(Option<&'a [u8]>),
    /// A value is stored.
    Stored,
    /// Whether there was a key to delete.
    Deleted(bool),
    /// The server did not do what was asked: a sentence that begins with "it".
    Refused(String),
}

impl Request {
    /// Appends the request to those of a call. The value is that of a put, and other requests leave it out.
    #[inline]
    pub(crate) fn add_to(self, call: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        match self {
            Request::Get => super::get(key, call),
            Request::Put => super::set(key, value, call),
            Request::Delete => super::request(&[b"DEL", key], call),
        }
    }

    /// The name of the command.
    fn command(self) -> &'static str {
        match self {
            Request::Get => "GET",
            Request::Put => "SET",
            Request::Delete => "DEL",
        }
    }
}

impl Connections {
    /// Connects those of each thread, which have these numbers. The error names the connection that failed.
    pub(crate) fn of_threads(endpoint: Endpoint, threads: &[Range<u64>]) -> Result<Vec<Self>, String> {
        threads.iter().map(|numbers| Self::open(endpoint, numbers.clone())).collect()
    }

    /// Connects those of one thread. The error names the connection that failed.
    pub(crate) fn open(endpoint: Endpoint, numbers: Range<u64>) -> Result<Self, String> {
        let count = (numbers.end - numbers.start) as usize;
        let poll = Poll::new().map_err(|error| format!("its connections cannot be waited for: {error}"))?;
        let mut connections = Connections {
            endpoint,
            numbers,
            lanes: Vec::with_capacity(count),
            poll,
            events: Events::with_capacity(count),
            ready: Vec::with_capacity(count),
            spare: Inbox::default(),
            patience: SILENCE_MAX,
        };
        for place in 0..count {
            let lane = connections.connect(place).map_err(|error| connections.named(place, &error))?;
            connections.lanes.push(lane);
        }
        Ok(connections)
    }

    fn connect(&self, place: usize) -> Result<Lane, String> {
        let fail = |error| format!("its connection cannot be waited for: {error}");
        let stream = self.endpoint.connect()?.into_stream();
        stream.set_nonblocking(true).map_err(fail)?;
        let mut stream = TcpStream::from_std(stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(place), both).map_err(fail)?;
        Ok(Lane { stream, unsent: Vec::new(), replies: Inbox::default() })
    }

    /// Their numbers among the connections of all threads.
    pub(crate) fn numbers(&self) -> &Range<u64> {
        &self.numbers
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// The time for which the server may be silent.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The sentence for a connection that has failed.
    pub(crate) fn named(&self, place: usize, sentence: &str) -> String {
        let port = self.lanes.get(place).and_then(|lane| lane.stream.local_addr().ok()).map(|own| own.port());
        let port = port.map(|port| format!(", from port {port}")).unwrap_or_default();
        format!("connection {}{port}: {sentence}", self.numbers.start + place as u64 + 1)
    }

    /// The sentence for a server that was silent for too long.
    pub(crate) fn silence(&self) -> String {
        silent("answer", self.patience)
    }

    /// Connects anew what has failed. Nothing of the old connection is left.
    pub(crate) fn replace(&mut self, place: usize) -> Result<(), String> {
        self.lanes[place] = self.connect(place)?;
        Ok(())
    }

    /// Connects anew what the server has closed while no call was under way, as servers do with clients that rest for
    /// long. The error names the connection that failed.
    pub(crate) fn renew(&mut self) -> Result<(), String> {
        for place in 0..self.lanes.len() {
            if !self.lanes[place].is_open() {
                self.replace(place).map_err(|error| self.named(place, &error))?;
            }
        }
        Ok(())
    }

    /// Sends a call over a connection that rests, and forgets its bytes.
    pub(crate) fn send(&mut self, place: usize, call: &mut Vec<u8>) -> Result<(), String> {
        let Lane { stream, unsent, .. } = &mut self.lanes[place];
        let sent = write(stream, call).map(|sent| unsent.extend_from_slice(&call[sent..]));
        call.clear();
        sent
    }

    /// Waits until something has come, for so long at most; whether anything has.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<bool, String> {
        let fail = |error: std::io::Error| format!("its connections cannot be waited for: {error}");
        let mut timeout = at_most;
        if !at_most.subsec_nanos().is_multiple_of(1_000_000) {
            // epoll counts milliseconds, and arrivals come at any time between.
            let mut all = [PollFd::new(self.poll.registry().as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut all, Some(at_most.into()), None) {
                Ok(_) | Err(Errno::EINTR) => timeout = Duration::ZERO,
                Err(error) => return Err(fail(error.into())),
            }
        }
        match self.poll.poll(&mut self.events, Some(timeout)) {
            // The caller waits again.
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            done => done.map_err(fail)?,
        }
        self.ready.extend(self.events.iter().map(|event| event.token().0));
        Ok(!self.ready.is_empty())
    }

    /// The next connection that something has come over.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        self.ready.pop()
    }

    /// Reads what has come over a connection; whether anything has. Unless the call is whole then, the caller asks
    /// until nothing has: the system tells of new bytes alone, and of the end of a connection once.
    pub(crate) fn receive(&mut self, place: usize) -> Result<bool, String> {
        let Lane { stream, unsent, replies } = &mut self.lanes[place];
        if !unsent.is_empty() {
            let sent = write(stream, unsent)?;
            unsent.drain(..sent);
        }
        if replies.is_empty() {
            std::mem::swap(replies, &mut self.spare);
        }
        loop {
            match stream.read(replies.room()) {
                Ok(0) => return Err(CLOSED.into()),
                Ok(got) => {
                    replies.came(got);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if replies.is_empty() {
                        std::mem::swap(replies, &mut self.spare);
                    }
                    return Ok(false);
                }
                Err(error) => return Err(failed("answer", &error)),
            }
        }
    }

    /// The next answer that has come over a connection; nothing while it is not whole.
    #[inline]
    pub(crate) fn answer(&mut self, place: usize, request: Request) -> Result<Option<Answer<'_>>, String> {
        let replies = &mut self.lanes[place].replies;
        let Some(reply) = replies.next_reply()? else { return Ok(None) };
        Ok(Some(match (request, replies.at(reply)) {
            (Request::Get, Reply::Value(value)) => Answer::Found(Some(value)),
            (Request::Get, Reply::Nothing) => Answer::Found(None),
            (Request::Put, Reply::Status(b"OK")) => Answer::Stored,
            (Request::Delete, Reply::Integer(deleted)) => Answer::Deleted(deleted == 1),
            (request, other) => Answer::Refused(other.unexpected(request.command())),
        }))
    }

    /// Forgets the answers to a call, all of which were read.
    pub(crate) fn end(&mut self, place: usize) -> Result<(), String> {
        let replies = &mut self.lanes[place].replies;
        replies.forget()?;
        std::mem::swap(replies, &mut self.spare);
        Ok(())
    }
}

/// Writes as much as the system takes now, and returns how much that was.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<usize, String> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(CLOSED.into()),
            Ok(taken) => sent += taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("take a request", &error)),
        }
    }
    Ok(sent)
}

#[cfg(test)]
impl Connections {
    /// Lets the server be silent for so long and no longer.
    pub(crate) fn be_patient_for(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    use ziptier_testing::HANG;

    use super::*;
    use crate::servers::resp::served::{Answered, Asked, serve};

    /// Two connections to a server whose right answers go through `answer`.
    fn connected(answer: impl Fn(&Asked, Vec<u8>) -> Answered + Send + Sync + 'static) -> Connections {
        Connections::open(Endpoint { socket: serve(answer), database: 0 }, 0..2).unwrap()
    }

    /// Makes a call of one request, and waits for its answer.
    fn asked(
        connections: &mut Connections,
        place: usize,
        request: Request,
        value: &[u8],
        with: impl FnOnce(Answer<'_>),
    ) -> Result<(), String> {
        let mut call = Vec::new();
        request.add_to(&mut call, b"k", value);
        connections.send(place, &mut call)?;
        answered(connections, place, request, with)
    }

    fn answered(
        connections: &mut Connections,
        place: usize,
        request: Request,
        with: impl FnOnce(Answer<'_>),
    ) -> Result<(), String> {
        loop {
            assert!(connections.wait(HANG)?, "nothing came");
            while connections.next_ready().is_some() {}
            while connections.receive(place)? {
                if let Some(answer) = connections.answer(place, request)? {
                    with(answer);
                    return connections.end(place);
                }
            }
        }
    }

    #[test]
    fn connections_take_turns_with_the_memory_of_replies() {
        let mut connections = connected(|_, right| (right, true));
        for place in [0, 1, 1, 0] {
            let value = vec![place as u8; 1_000];
            asked(&mut connections, place, Request::Put, &value, |answer| {
                assert_eq!(answer, Answer::Stored);
            })
            .unwrap();
            asked(&mut connections, 1 - place, Request::Get, &[], |answer| {
                assert_eq!(answer, Answer::Found(Some(&value)));
            })
            .unwrap();
        }
        assert!(connections.lanes.iter().all(|lane| lane.replies.bytes.is_empty()));
        assert_eq!(connections.spare.bytes.len(), super::super::BUFFER_BYTES);
    }

    /// The server reads nothing until the client has sent what the system takes.
    #[test]
    fn a_call_that_the_system_does_not_take_at_once_is_sent_as_the_server_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint { socket: listener.local_addr().unwrap(), database: 0 };
        let value = vec![b'v'; 32 << 20];
        let mut call = Vec::new();
        Request::Put.add_to(&mut call, b"k", &value);
        let bytes = call.len();
        thread::scope(|scope| {
            let (go, wait) = mpsc::channel();
            let server = scope.spawn(move || {
                let mut client = listener.accept().unwrap().0;
                wait.recv().unwrap();
                let mut read = vec![0; bytes];
                client.read_exact(&mut read).unwrap();
                client.write_all(b"+OK\r\n").unwrap();
                read
            });
            let mut connections = Connections::open(endpoint, 0..1).unwrap();
            let sent = call.clone();
            connections.send(0, &mut call).unwrap();
            assert!(call.is_empty());
            go.send(()).unwrap();
            let stored = |answer: Answer<'_>| assert_eq!(answer, Answer::Stored);
            answered(&mut connections, 0, Request::Put, stored).unwrap();
            assert!(server.join().unwrap() == sent, "the server got other bytes");
        });
    }

    /// The system tells of the bytes and of the end at once, and not again.
    #[test]
    fn a_connection_that_ends_within_a_reply_has_ended_and_another_takes_its_place() {
        let mut connections = connected(|asked, right| match asked.connection {
            0 => (b"$5\r\nab".to_vec(), false),
            _ => (right, true),
        });
        let told = asked(&mut connections, 0, Request::Get, &[], |_| {}).unwrap_err();
        assert_eq!(told, CLOSED);
        connections.replace(0).unwrap();
        let nothing = |answer: Answer<'_>| assert_eq!(answer, Answer::Found(None));
        asked(&mut connections, 0, Request::Get, &[], nothing).unwrap();
    }

    #[test]
    fn a_connection_that_ends_at_rest_is_renewed() {
        let mut connections = connected(|asked, right| (right, asked.connection > 0));
        let stored = |answer: Answer<'_>| assert_eq!(answer, Answer::Stored);
        asked(&mut connections, 0, Request::Put, b"v", stored).unwrap();
        ziptier_testing::until("the server has hung up", || !connections.lanes[0].is_open());
        connections.renew().unwrap();
        for place in [0, 1] {
            let found = |answer: Answer<'_>| assert_eq!(answer, Answer::Found(Some(b"v")));
            asked(&mut connections, place, Request::Get, &[], found).unwrap();
        }
    }

    #[test]
    fn an_answer_that_nobody_asked_for_fails_the_call_that_got_it() {
        let mut connections = connected(|_, right| (right.repeat(2), true));
        let told = asked(&mut connections, 0, Request::Delete, &[], |answer| {
            assert_eq!(answer, Answer::Deleted(false));
        });
        assert_eq!(told.unwrap_err(), "it answered more than it was asked");
    }

    #[test]
    fn an_answer_to_another_request_is_a_refusal() {
        let mut connections = connected(|_, _| (b"+OK\r\n".to_vec(), true));
        asked(&mut connections, 0, Request::Get, &[], |answer| {
            assert_eq!(answer, Answer::Refused("it answered GET with OK".into()));
        })
        .unwrap();
    }

    #[test]
    fn a_connection_that_cannot_be_made_is_named() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let told = Connections::open(Endpoint { socket, database: 0 }, 4..6).unwrap_err();
        assert!(told.starts_with(&format!("connection 5: no server answers at {socket}: ")), "{told}");
    }
}
