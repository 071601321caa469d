//! One thread with one event loop and many connections.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::net::sockopt;
use slab::Slab;

use crate::connection::{Connection, Next, Place, Workspace};
use crate::jobs::Done;
use crate::refusal::Refusal;
use crate::shared::{ClientInfo, Message, Shared};
use crate::socket::Socket;
use crate::tls::Tls;

/// Events of the waker; connections have the small numbers.
pub(crate) const WAKE: Token = Token(usize::MAX);
/// Events of the listening socket.
pub(crate) const LISTEN: Token = Token(usize::MAX - 1);

/// Turns of connections with work left between two polls of all sockets: some milliseconds.
const TURNS_PER_LOOK: usize = 16;

/// More seconds than that Linux does not take.
const KEEPALIVE_S_MAX: u64 = 32_767;

/// A worker's thread.
pub(crate) struct Worker {
    index: usize,
    poll: Poll,
    /// New connections; the waker says when to look.
    inbox: Receiver<Message>,
    shared: Arc<Shared>,
    connections: Slab<Connection>,
    space: Workspace,
    /// Connections that have work left.
    ready: VecDeque<usize>,
    /// Connections with replies that wait for durability.
    held: Vec<usize>,
    /// The value of [`Shared::sweeps`] when a check of clients was last noticed.
    swept: u64,
    /// The time at which that was, in [`Shared::seconds`], until clients are checked.
    sweep_s: Option<u64>,
}

impl Worker {
    pub(crate) fn new(index: usize, poll: Poll, inbox: Receiver<Message>, shared: Arc<Shared>) -> Self {
        Self {
            index,
            poll,
            inbox,
            shared,
            connections: Slab::new(),
            space: Workspace::new(),
            ready: VecDeque::new(),
            held: Vec::new(),
            swept: 0,
            sweep_s: None,
        }
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.shared.is_stopping() {
            let is_idle = self.ready.is_empty() && self.held.is_empty() && self.sweep_s.is_none();
            let timeout = (!is_idle).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            self.shared.counters[self.index].cycles.add(1);
            let sweep_s = self.sweep_s.take();
            for event in &events {
                if event.token() == WAKE {
                    self.receive();
                    self.notice_sweep();
                    continue;
                }
                let key = event.token().0;
                // The connection may have closed earlier in this round.
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.notice(event);
                    if connection.queued {
                        continue;
                    }
                    if connection.was_long() {
                        // Clients with short turns go first.
                        connection.queued = true;
                        self.ready.push_back(key);
                    } else {
                        self.turn(key);
                    }
                }
            }
            for _ in 0..self.ready.len().min(TURNS_PER_LOOK) {
                let Some(key) = self.ready.pop_front() else { break };
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.queued = false;
                    self.turn(key);
                }
            }
            if let Some(now_s) = sweep_s {
                self.sweep(now_s);
            }
            self.release();
        }
        self.end();
        Ok(())
    }

    /// Sends the last replies. Clients whose requests run on threads of their own wait for these requests.
    fn end(&mut self) {
        for done in self.shared.jobs.refuse(self.index) {
            self.resume(done);
        }
        self.dismiss();
        self.shared.jobs.wait();
        while let Ok(message) = self.inbox.try_recv() {
            if let Message::Done(done) = message {
                self.resume(*done);
            }
        }
        self.dismiss();
    }

    /// Sends the last replies of the clients whose requests have all ended, and closes their connections.
    fn dismiss(&mut self) {
        let durable = self.wait();
        let (space, shared) = (&mut self.space, &*self.shared);
        self.connections.retain(|_, connection| {
            let stays = connection.has_job();
            if !stays {
                connection.dismiss(&durable, space, shared, &shared.counters[self.index]);
            }
            stays
        });
    }

    /// Waits once for the durability of all replies of this round, and releases them.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let durable = self.wait();
        // Their turns may hold replies of the next round, so none has a turn before all are released.
        let mut released = mem::take(&mut self.held);
        released.retain(|key| {
            let held = self.connections.get_mut(*key).filter(|connection| connection.held);
            held.is_some_and(|connection| {
                connection.held = false;
                connection.release(&durable, &self.shared);
                true
            })
        });
        released.into_iter().for_each(|key| self.turn(key));
    }

    fn wait(&self) -> Result<(), Refusal> {
        self.shared.backend.wait().map_err(|error| Refusal::not_known(&error))
    }

    /// Handles the messages in this worker's inbox.
    fn receive(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Connection(stream, is_tls) => self.adopt(stream, is_tls),
                Message::Done(done) => {
                    let key = done.key;
                    // A server that stops begins no more requests.
                    if self.resume(*done) && !self.shared.is_stopping() {
                        self.turn(key);
                    }
                }
            }
        }
    }

    /// Gives a client the reply to a request that another thread has run. `false` if the client has gone.
    fn resume(&mut self, done: Done) -> bool {
        self.shared.budget.note_done(done.request_bytes);
        // Another client may have its slot.
        match self.connections.get_mut(done.key).filter(|client| client.id() == done.id) {
            None => {
                self.shared.budget.give(done.request_bytes);
                // The connection left its earlier cursors to others when it closed.
                self.shared.cursors.forget(done.id);
                false
            }
            Some(connection) => {
                connection.resume(done);
                true
            }
        }
    }

    /// Takes a new connection over.
    fn adopt(&mut self, mut stream: TcpStream, is_tls: bool) {
        let id = self.shared.connections_accepted.fetch_add(1, Relaxed) + 1;
        // Replies are written whole; waiting for more to send would only delay them.
        let nodelay = stream.set_nodelay(true);
        let slot = self.connections.vacant_entry();
        // Without keep-alive, a vanished peer is still noticed when data is sent to it.
        let _ = keep_alive(&stream, self.shared.settings.keepalive_s.load(Relaxed));
        let session = || self.shared.config.tls.as_ref().and_then(Tls::accept);
        let tls = if is_tls { session().map(Some) } else { Some(None) };
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(slot.key()), interest);
        let (Ok(()), Ok(()), Ok(peer), Ok(address), Some(tls)) =
            (nodelay, registered, stream.peer_addr(), stream.local_addr(), tls)
        else {
            // It closed before it was served.
            self.shared.drop_connection(self.index);
            return;
        };
        let info = Arc::new(ClientInfo::new(id, peer, address, self.shared.seconds()));
        self.shared.clients().insert(id, Arc::clone(&info));
        let place = Place { worker: self.index, key: slot.key() };
        let socket = Socket::new(stream, tls.map(Box::new));
        slot.insert(Connection::new(socket, info, place, !self.shared.settings.requires_password()));
    }

    /// Drops a connection.
    fn close(&mut self, key: usize) {
        let mut connection = self.connections.remove(key);
        connection.retire(&self.shared);
        self.shared.clients().remove(&connection.id());
        // Dropping the socket closes it, which also takes it out of the event loop.
        let _ = self.poll.registry().deregister(connection.stream());
        self.shared.drop_connection(self.index);
    }

    /// Notes that a sweep was requested. This thread may have stood still, so it first looks for what clients have sent
    /// until now.
    fn notice_sweep(&mut self) {
        let asked = self.shared.sweeps();
        if mem::replace(&mut self.swept, asked) != asked {
            self.sweep_s = Some(self.shared.seconds());
        }
    }

    /// Disconnects clients that have to go. `now_s` is a time before the last poll.
    fn sweep(&mut self, now_s: u64) {
        let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            // Clients are checked one by one, so that the next one sees the room that this one leaves.
            if self.connections[key].has_to_go(&self.shared, now_s) {
                self.close(key);
            }
        }
    }

    fn turn(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let counters = &self.shared.counters[self.index];
        match connection.turn(&mut self.space, &self.shared, counters) {
            Next::Wait => {}
            Next::Again if connection.queued => {}
            Next::Again => {
                connection.queued = true;
                self.ready.push_back(key);
            }
            Next::Close => return self.close(key),
        }
        if connection.holds_replies() && !connection.held {
            connection.held = true;
            self.held.push(key);
        }
    }
}

/// Asks the system to probe a peer that was silent for so many seconds, three times at a third of that; 0 for never.
/// This is how Redis does it.
fn keep_alive(stream: &TcpStream, seconds: u64) -> rustix::io::Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    let idle_s = seconds.min(KEEPALIVE_S_MAX);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(idle_s))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs((idle_s / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(stream, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_probed_as_often_as_was_said() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(stream);
        keep_alive(&stream, 0).unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        for (seconds, idle_s, interval_s) in [(300, 300, 100), (1, 1, 1), (1 << 31, 32_767, 10_922)] {
            keep_alive(&stream, seconds).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(idle_s));
            assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), Duration::from_secs(interval_s));
            assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), 3);
        }
    }
}
