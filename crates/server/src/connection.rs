//! One client's socket: what it still owes us, what we still owe it, and one turn of work for it.
//!
//! Sockets are edge-triggered, so a connection remembers whether there may be more to read and room to write. A turn
//! is bounded; a connection with work left asks for another one after all others have had theirs.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mio::net::TcpStream;

use crate::command::{self, Client, Session};
use crate::refusal::Refusal;
use crate::reply::{Output, Reply};
use crate::request::{Discard, Parser};
use crate::shared::{ClientInfo, Counters, Shared};

/// Bytes read at a time into the buffer that a worker's connections share.
const READ_BYTES: usize = 64 << 10;
/// An unfinished request below this size is completed in the shared buffer, a larger one in its own.
const SMALL_REQUEST_BYTES: usize = READ_BYTES / 2;
/// Most bytes read of a large request before others have their turn.
const LARGE_READ_BYTES: usize = 1 << 20;
/// Replies are written once so many bytes have gathered, and at the end of a turn.
const WRITE_BYTES: usize = 64 << 10;
/// Unsent replies at which a client's further requests wait: enough for clients that send a long pipeline before
/// they read the first reply.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// The same when all connections together hold too much.
const OUTPUT_BYTES_MAX_CROWDED: usize = 64 << 10;
/// Buffers of replies that a worker keeps for the next ones that have to wait, and how large.
const KEPT_OUTPUTS: usize = 64;
const KEPT_OUTPUT_BYTES: usize = 16 << 10;
/// Reads, or pieces of a large reply, in one turn.
const STEPS_PER_TURN: usize = 16;

/// Buffers that all connections of a worker use in turn.
pub(crate) struct Workspace {
    input: Box<[u8]>,
    reply: Reply,
    value: Vec<u8>,
    parsers: Vec<Parser>,
    /// Emptied buffers for replies that have to wait.
    outputs: Vec<Output>,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self {
            input: vec![0; READ_BYTES].into(),
            reply: Reply::default(),
            value: Vec::new(),
            parsers: Vec::new(),
            outputs: Vec::new(),
        }
    }
}

/// What a connection needs after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// An event of its socket.
    Wait,
    /// Another turn.
    Again,
    /// To be dropped.
    Close,
}

/// A client's connection.
pub(crate) struct Connection {
    socket: Socket,
    client: Client,
    resp3: bool,
    /// Bytes that no request was made of yet.
    input: Vec<u8>,
    /// Where parsing of `input` stopped.
    parser: Option<Box<Parser>>,
    /// The rest of a request that there is no room for.
    discard: Option<Discard>,
    /// `input` may hold whole requests, left because a reply had to leave first.
    unparsed: bool,
    /// Replies that the socket has not taken.
    output: Output,
    /// What this connection adds to the server's sum.
    held_bytes: usize,
    /// A further turn is due.
    pub(crate) queued: bool,
    /// The worker knows that replies have to wait.
    pub(crate) held: bool,
}

struct Socket {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// The client will send nothing more: read to the end, there will be no further event.
    half_closed: bool,
}

/// The socket failed or its peer went away: there is nobody to tell.
struct Gone;

impl Socket {
    /// Writes as much of what may leave as the socket takes.
    fn flush(&mut self, output: &mut Output, counters: &Counters) -> Result<(), Gone> {
        while self.writable && !output.sendable().is_empty() {
            match self.stream.write(output.sendable()) {
                Ok(0) => return Err(Gone),
                Ok(count) => {
                    counters.bytes_out.add(count as u64);
                    output.advance(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Reads once into `buffer`; 0 when there is nothing now, `Gone` at the end of the stream or on failure.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Gone> {
        loop {
            return match self.stream.read(buffer) {
                Ok(0) => Err(Gone),
                Ok(count) => {
                    // A short read has emptied the socket; what comes later makes a new event.
                    self.readable = count == buffer.len() || self.half_closed;
                    Ok(count)
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    Ok(0)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Err(Gone),
            };
        }
    }

    /// Appends at most `limit` bytes to `buffer`, which grows with what arrives.
    fn read_more(&mut self, buffer: &mut Vec<u8>, limit: usize) -> Result<usize, Gone> {
        let before = buffer.len();
        let outcome = (&mut self.stream).take(limit as u64).read_to_end(buffer);
        let count = buffer.len() - before;
        match outcome {
            // At the end of the stream this may be the last request; the next read finds nothing.
            Ok(_) if count > 0 => Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(count)
            }
            // The request can't be completed any more.
            Ok(_) | Err(_) => Err(Gone),
        }
    }

    /// Ends the stream after its last byte. What the client has sent meanwhile is read and dropped: closing over
    /// unread bytes would reset the connection and could destroy the last reply on its way.
    fn end(&mut self, scratch: &mut [u8]) {
        if self.stream.shutdown(Shutdown::Write).is_ok() {
            for _ in 0..STEPS_PER_TURN {
                if !matches!(self.stream.read(scratch), Ok(1..)) {
                    break;
                }
            }
        }
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, info: Arc<ClientInfo>) -> Self {
        Self {
            socket: Socket { stream, readable: false, writable: true, half_closed: false },
            client: Client { info, closing: false, wrote: false, streaming: None },
            resp3: false,
            input: Vec::new(),
            parser: None,
            discard: None,
            unparsed: false,
            output: Output::default(),
            held_bytes: 0,
            queued: false,
            held: false,
        }
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.socket.stream
    }

    pub(crate) fn id(&self) -> u64 {
        self.client.info.id
    }

    /// Notes what an event said.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.socket.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.socket.writable |= event.is_writable();
        self.socket.half_closed |= event.is_read_closed();
    }

    /// Reads, runs and answers what there is, within bounds.
    pub(crate) fn turn(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Next {
        // Replies gather in the worker's buffer, or behind those that wait already.
        let waiting = !self.output.is_empty();
        if waiting {
            mem::swap(&mut self.output, &mut space.reply.output);
        }
        space.reply.resp3 = self.resp3;
        let next = self.work(space, shared, counters).unwrap_or(Next::Close);
        self.resp3 = space.reply.resp3;
        if waiting {
            mem::swap(&mut self.output, &mut space.reply.output);
        } else if !space.reply.output.is_empty() {
            let empty = space.outputs.pop().unwrap_or_default();
            self.output = mem::replace(&mut space.reply.output, empty);
        }
        if self.output.is_empty() && self.output.held_bytes() > 0 {
            let output = mem::take(&mut self.output);
            if output.held_bytes() <= KEPT_OUTPUT_BYTES && space.outputs.len() < KEPT_OUTPUTS {
                space.outputs.push(output);
            }
        }
        space.reply.output.recycle(4 * WRITE_BYTES);
        self.account(shared);
        next
    }

    /// Whether there are replies that must wait for what they say to be durable.
    pub(crate) fn holds_replies(&self) -> bool {
        self.output.is_held()
    }

    /// What the replies say is durable, or that cannot be known: then those who wrote are told so, and no more. Another turn is due.
    pub(crate) fn release(&mut self, durable: &Result<(), Refusal>) {
        if let Err(refusal) = durable
            && self.client.wrote
        {
            self.output.drop_held();
            let mut reply = Reply { output: mem::take(&mut self.output), resp3: self.resp3 };
            reply.error(refusal);
            self.output = reply.output;
            self.client.streaming = None;
            self.client.closing = true;
        }
        self.client.wrote = false;
        self.output.release();
    }

    fn work(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<Next, Gone> {
        for _ in 0..STEPS_PER_TURN {
            self.flush(space, shared, counters)?;
            let unsent = space.reply.output.unsent().len();
            if self.client.streaming.is_some() {
                if unsent > 0 {
                    return Ok(Next::Wait);
                }
                self.stream_on(space, shared, counters)?;
                continue;
            }
            if self.client.closing {
                if unsent > 0 {
                    return Ok(Next::Wait);
                }
                self.socket.end(&mut space.input);
                return Ok(Next::Close);
            }
            if unsent > output_bytes_max(shared) {
                return Ok(Next::Wait);
            }
            if self.unparsed {
                self.run_own(space, shared, counters)?;
            } else if !self.socket.readable {
                return Ok(Next::Wait);
            } else if self.input.len() < SMALL_REQUEST_BYTES {
                self.read_small(space, shared, counters)?;
            } else {
                self.read_large(space, shared, counters)?;
            }
        }
        self.flush(space, shared, counters)?;
        Ok(Next::Again)
    }

    /// Writes what the socket takes, of replies that need not wait.
    fn flush(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<(), Gone> {
        if !shared.holds_replies {
            space.reply.output.release();
        }
        self.socket.flush(&mut space.reply.output, counters)
    }

    /// Adds the next piece of a long reply.
    fn stream_on(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<(), Gone> {
        let Some(streaming) = &mut self.client.streaming else { return Ok(()) };
        let more = streaming.next(shared, counters, &mut space.reply, &mut space.value);
        if !more.map_err(|_| Gone)? {
            self.client.streaming = None;
        }
        Ok(())
    }

    /// Reads behind the few bytes that are left of an unfinished request, and runs what is complete.
    fn read_small(
        &mut self,
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<(), Gone> {
        let left = self.input.len();
        space.input[..left].copy_from_slice(&self.input);
        let Ok(count) = self.socket.read(&mut space.input[left..]) else {
            // Half-closed clients still read: what they are owed must leave first.
            self.client.closing = true;
            return Ok(());
        };
        if count == 0 {
            return Ok(());
        }
        counters.bytes_in.add(count as u64);
        let input = mem::take(&mut space.input);
        let commands_before = counters.commands.get();
        let consumed = self.run_or_drop(&input[..left + count], space, shared, counters);
        shared.note_requests(counters.commands.get() - commands_before, count);
        self.input.clear();
        if let Ok(consumed) = consumed {
            self.input.extend_from_slice(&input[consumed..left + count]);
        }
        space.input = input;
        consumed?;
        self.release_input();
        Ok(())
    }

    /// Goes on with a large request in its own buffer.
    fn read_large(
        &mut self,
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<(), Gone> {
        if !shared.has_room(LARGE_READ_BYTES)
            || shared.client_bytes.load(Relaxed) > shared.config.client_bytes_max
        {
            self.give_up();
            if self.discard.is_some() {
                return Ok(());
            }
        }
        // Not beyond the argument that is arriving: what follows belongs into the shared buffer.
        let held = self.input.len();
        let wanted = self.parser.as_ref().and_then(|parser| parser.bytes_wanted()).unwrap_or(0);
        let limit = wanted.saturating_sub(held).clamp(READ_BYTES, LARGE_READ_BYTES);
        let Ok(count) = self.socket.read_more(&mut self.input, limit) else {
            self.client.closing = true;
            return Ok(());
        };
        counters.bytes_in.add(count as u64);
        self.account(shared);
        self.run_own(space, shared, counters)
    }

    /// Drops what has come of the request that is arriving; what is to come will be dropped as it comes.
    fn give_up(&mut self) {
        let Some((position, mut discard)) = self.parser.as_mut().and_then(|parser| parser.abandon()) else {
            return;
        };
        // The input ends within the request, perhaps within the line that announces an argument.
        let (done, _) = discard.feed(&self.input[position..]).unwrap_or_default();
        self.input = self.input[position + done..].to_vec();
        self.parser = None;
        self.discard = Some(discard);
    }

    /// Drops the rest of a request that was given up and refuses it; then runs what is complete. Returns how many
    /// bytes are done with.
    fn run_or_drop(
        &mut self,
        input: &[u8],
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<usize, Gone> {
        let Some(discard) = &mut self.discard else { return self.run(input, space, shared, counters) };
        match discard.feed(input) {
            Ok((done, false)) => Ok(done),
            Ok((done, true)) => {
                self.discard = None;
                counters.errors.add(1);
                space.reply.error(&Refusal::OUT_OF_MEMORY);
                Ok(done + self.run(&input[done..], space, shared, counters)?)
            }
            Err(error) => {
                space.reply.error(&Refusal::said(format!("ERR {error}")));
                counters.errors.add(1);
                self.client.closing = true;
                Ok(input.len())
            }
        }
    }

    /// Runs the complete requests of the connection's own buffer.
    fn run_own(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<(), Gone> {
        let mut input = mem::take(&mut self.input);
        let consumed = self.run(&input, space, shared, counters)?;
        if consumed > 0 {
            let rest = input.len() - consumed;
            if rest < SMALL_REQUEST_BYTES && input.capacity() > 2 * READ_BYTES {
                input = input[consumed..].to_vec();
            } else {
                input.drain(..consumed);
            }
        }
        self.input = input;
        self.release_input();
        Ok(())
    }

    /// Runs the complete requests of `input`; returns how many bytes they were.
    fn run(
        &mut self,
        input: &[u8],
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<usize, Gone> {
        let mut parser = match self.parser.take() {
            Some(parser) => *parser,
            None => space.parsers.pop().unwrap_or_default(),
        };
        let mut outcome = Ok(());
        let mut announced = 0;
        self.unparsed = loop {
            if announced == 0 {
                announced = command::announce(&parser, input, shared).max(1);
            }
            announced -= 1;
            let args = match parser.next(input) {
                Ok(Some(args)) => args,
                Ok(None) => break false,
                Err(error) => {
                    space.reply.error(&Refusal::said(format!("ERR {error}")));
                    counters.errors.add(1);
                    self.client.closing = true;
                    break false;
                }
            };
            let mut session = Session {
                shared,
                counters,
                client: &mut self.client,
                reply: &mut space.reply,
                value: &mut space.value,
            };
            command::run(&mut session, &args);
            if self.client.closing || self.client.streaming.is_some() {
                break true;
            }
            if space.reply.output.unsent().len() >= WRITE_BYTES {
                outcome = self.flush(space, shared, counters);
                if outcome.is_err() || space.reply.output.unsent().len() > output_bytes_max(shared) {
                    break true;
                }
            }
        };
        let consumed = parser.consumed();
        parser.release();
        if consumed == input.len() {
            self.unparsed = false;
            parser.reset();
            if space.parsers.len() < 16 {
                space.parsers.push(parser);
            }
        } else {
            self.parser = Some(Box::new(parser));
        }
        outcome.map(|()| consumed)
    }

    /// A connection that waits for a request holds no buffer.
    fn release_input(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
        }
    }

    /// Brings the server's sum of connection memory up to date.
    fn account(&mut self, shared: &Shared) {
        let parser = self.parser.as_ref().map_or(0, |parser| parser.held_bytes());
        let reply = self.client.streaming.as_ref().map_or(0, |streaming| streaming.held_bytes());
        let held = self.input.capacity() + self.output.held_bytes() + parser + reply;
        if held != self.held_bytes {
            shared.client_bytes.fetch_add(held.wrapping_sub(self.held_bytes), Relaxed);
            self.held_bytes = held;
        }
    }

    /// Gives up what the connection counted for; it is dropped next.
    pub(crate) fn retire(&mut self, shared: &Shared) {
        shared.client_bytes.fetch_sub(self.held_bytes, Relaxed);
        self.held_bytes = 0;
    }

    /// Last words at a stop: what may leave and the socket takes at once.
    pub(crate) fn dismiss(&mut self, durable: &Result<(), Refusal>, counters: &Counters) {
        self.release(durable);
        let _ = self.socket.flush(&mut self.output, counters);
        let _: io::Result<()> = self.socket.stream.shutdown(Shutdown::Write);
    }
}

fn output_bytes_max(shared: &Shared) -> usize {
    match shared.clients_over_budget() {
        true => OUTPUT_BYTES_MAX_CROWDED,
        false => OUTPUT_BYTES_MAX.min(shared.config.client_bytes_max),
    }
}
