//! One thread with one event loop and many connections.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::connection::{Connection, Next, Workspace};
use crate::refusal::Refusal;
use crate::shared::{ClientInfo, Shared};

/// Events of the waker; connections have the small numbers.
pub(crate) const WAKE: Token = Token(usize::MAX);
/// Events of the listening socket.
pub(crate) const LISTEN: Token = Token(usize::MAX - 1);

/// A worker's thread.
pub(crate) struct Worker {
    index: usize,
    poll: Poll,
    /// New connections; the waker says when to look.
    inbox: Receiver<TcpStream>,
    shared: Arc<Shared>,
    connections: Slab<Connection>,
    space: Workspace,
    /// Connections that have work left.
    ready: VecDeque<usize>,
    /// Connections with replies that wait for what they say to be durable.
    held: Vec<usize>,
}

impl Worker {
    pub(crate) fn new(index: usize, poll: Poll, inbox: Receiver<TcpStream>, shared: Arc<Shared>) -> Self {
        Self {
            index,
            poll,
            inbox,
            shared,
            connections: Slab::new(),
            space: Workspace::new(),
            ready: VecDeque::new(),
            held: Vec::new(),
        }
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.shared.is_stopping() {
            let is_idle = self.ready.is_empty() && self.held.is_empty();
            let timeout = (!is_idle).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                if event.token() == WAKE {
                    self.adopt();
                    continue;
                }
                let key = event.token().0;
                // The connection may have closed earlier in this round.
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.notice(event);
                    if !connection.queued {
                        self.turn(key);
                    }
                }
            }
            for _ in 0..self.ready.len() {
                let Some(key) = self.ready.pop_front() else { break };
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.queued = false;
                    self.turn(key);
                }
            }
            self.release();
        }
        let durable = self.wait();
        for (_, connection) in &mut self.connections {
            connection.dismiss(&durable, &self.shared.counters[self.index]);
        }
        Ok(())
    }

    /// Waits once for what all replies of this round say, and lets them leave.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let durable = self.wait();
        // Their turns may hold replies of the next round.
        for key in mem::take(&mut self.held) {
            if let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.held) {
                connection.held = false;
                connection.release(&durable);
                self.turn(key);
            }
        }
    }

    fn wait(&self) -> Result<(), Refusal> {
        self.shared.backend.wait().map_err(|error| {
            Refusal::said(format!("ERR whether the last writes are kept is not known: {error}"))
        })
    }

    /// Takes over the connections that were handed to this worker.
    fn adopt(&mut self) {
        while let Ok(mut stream) = self.inbox.try_recv() {
            let id = self.shared.connections_accepted.fetch_add(1, Relaxed) + 1;
            // Replies are written whole; waiting for more to send would only delay them.
            let nodelay = stream.set_nodelay(true);
            let slot = self.connections.vacant_entry();
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registered = self.poll.registry().register(&mut stream, Token(slot.key()), interest);
            let (Ok(()), Ok(()), Ok(peer)) = (nodelay, registered, stream.peer_addr()) else {
                // It closed before it was served.
                self.shared.drop_connection(self.index);
                continue;
            };
            let info =
                Arc::new(ClientInfo { id, peer, connected: Instant::now(), names: Default::default() });
            self.shared.clients().insert(id, Arc::clone(&info));
            slot.insert(Connection::new(stream, info));
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
            Next::Close => {
                let mut connection = self.connections.remove(key);
                connection.retire(&self.shared);
                self.shared.clients().remove(&connection.id());
                // Dropping the socket closes it, which also takes it out of the event loop.
                let _ = self.poll.registry().deregister(connection.stream());
                self.shared.drop_connection(self.index);
                return;
            }
        }
        if connection.holds_replies() && !connection.held {
            connection.held = true;
            self.held.push(key);
        }
    }
}
