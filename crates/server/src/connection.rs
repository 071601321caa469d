//! One client's connection: its unfinished request, its unsent replies, and one turn of work for it.
//!
//! Sockets are edge-triggered, so a connection remembers whether there may be more to read and room to write. A turn is
//! bounded. A connection with work left gets another turn after all others have had theirs.

mod holding;
mod leaving;
mod running;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mio::net::TcpStream;

use crate::backend::{BackendError, Chosen, Patience};
use crate::command::{Client, Session};
use crate::jobs::{Done, Length};
use crate::refusal::Refusal;
use crate::reply::{Output, Reply};
use crate::request::{Discard, Parser, Taken};
use crate::shared::{ClientInfo, Counters, Shared};
use crate::socket::{Gone, Socket};
use crate::streaming;

/// Bytes read at a time into the buffer that a worker's connections share.
const READ_BYTES: usize = 64 << 10;
/// An unfinished request below this size is completed in the shared buffer, a larger one in its own.
const SMALL_REQUEST_BYTES: usize = READ_BYTES / 2;
/// Most bytes read of a large request before others have their turn.
const LARGE_READ_BYTES: usize = 1 << 20;
/// Replies are written when this many bytes have gathered, and at the end of a turn.
const WRITE_BYTES: usize = 64 << 10;
/// Unsent replies at which a client's further requests wait: enough for clients that send a long pipeline before
/// they read the first reply.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// The same bound as a part, one in this many, of the bytes that all clients may hold.
const OUTPUT_PART: usize = 8;
/// The same when all connections together hold too much.
const OUTPUT_BYTES_MAX_CROWDED: usize = 64 << 10;
/// The same for clients that have not sent the password, and the size at which their replies are written. Strangers
/// hold next to nothing.
const OUTPUT_BYTES_MAX_STRANGER: usize = 1 << 10;
/// Buffers of replies that a worker keeps for the next ones that have to wait, and how large.
const KEPT_OUTPUTS: usize = 64;
const KEPT_OUTPUT_BYTES: usize = 16 << 10;
/// Reads, or pieces of a large reply, in one turn.
const STEPS_PER_TURN: usize = 16;
/// Bytes of requests and replies after which a turn ends.
const TURN_BYTES: usize = 128 << 10;
/// Clients with turns of at most this many bytes go before clients with longer turns.
const SHORT_TURN_BYTES: usize = 16 << 10;
/// Bytes that a connection may hold outside the budget: the first line of a request, and the parser's state.
const FREE_BYTES: usize = 512;
/// Bytes that a piece of a reply counts in a turn, whatever its length, because making it takes time.
const STREAM_STEP_BYTES: usize = 128 << 10;
/// Scratch that a worker keeps for the next value.
const KEPT_VALUE_BYTES: usize = 256 << 10;

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

/// The state of a connection after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// An event of its socket.
    Wait,
    /// Another turn.
    Again,
    /// To be dropped.
    Close,
}

/// The worker and slot that serve a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) worker: usize,
    pub(crate) key: usize,
}

/// A client's connection.
pub(crate) struct Connection {
    socket: Socket,
    client: Client,
    place: Place,
    resp3: bool,
    /// The database that the client uses.
    database: Chosen,
    /// Bytes that no request was made of yet.
    input: Vec<u8>,
    /// The parser's state in `input`.
    parser: Option<Box<Parser>>,
    /// The rest of a request without room, which is dropped as it arrives.
    discard: Option<Discard>,
    /// A request that another thread is to run.
    deferred: Option<(Taken, Length)>,
    /// Bytes of the request that another thread runs; later ones wait for its reply.
    job_bytes: Option<usize>,
    /// Bytes of requests and replies in this turn, or the last one.
    turn_bytes: usize,
    /// Bytes of an unfinished request since the client was last active.
    trickled_bytes: usize,
    /// `input` may hold whole requests, left because a reply had to leave first.
    unparsed: bool,
    /// Replies that the socket has not taken.
    output: Output,
    /// The released replies end within one: its other pieces are not there yet, or not durable.
    released_part: bool,
    /// Bytes that this connection has taken from the budget.
    held_bytes: usize,
    /// The time since which the connection has exceeded the soft limit of unsent replies, in [`Shared::seconds`].
    slow_since_s: Option<u64>,
    /// A further turn is due.
    pub(crate) queued: bool,
    /// The worker knows that replies have to wait.
    pub(crate) held: bool,
}

impl Connection {
    /// A client that is `trusted` need not send a password.
    pub(crate) fn new(socket: Socket, info: Arc<ClientInfo>, place: Place, trusted: bool) -> Self {
        Self {
            socket,
            client: Client::new(info, trusted),
            place,
            resp3: false,
            database: None,
            input: Vec::new(),
            parser: None,
            discard: None,
            deferred: None,
            job_bytes: None,
            // The length of its turns is not known yet.
            turn_bytes: TURN_BYTES,
            trickled_bytes: 0,
            unparsed: false,
            output: Output::default(),
            released_part: false,
            held_bytes: 0,
            slow_since_s: None,
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

    /// Whether another thread runs a request of this client, or will run it.
    pub(crate) fn has_job(&self) -> bool {
        self.job_bytes.is_some()
    }

    /// Takes the reply to a request that another thread has run. Another turn is due.
    pub(crate) fn resume(&mut self, done: Done) {
        self.job_bytes = None;
        self.resp3 = done.resp3;
        let was_closing = self.client.closing;
        self.client.take_over(done.client);
        self.choose();
        if was_closing {
            // The log has failed meanwhile. One error stands for several replies, so nothing may follow it.
            self.client.streaming = None;
        } else {
            self.output.append(done.output);
        }
    }

    /// Takes the database that the last command chose.
    fn choose(&mut self) {
        if let Some(chosen) = self.client.chosen.take() {
            self.client.rests_on_others |= self.client.rests_on_log;
            self.database = chosen;
        }
    }

    /// Notes the readiness that an event reports.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.socket.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.socket.writable |= event.is_writable();
        self.socket.half_closed |= event.is_read_closed();
    }

    /// Whether the last turn was long. A new connection counts as long.
    pub(crate) fn was_long(&self) -> bool {
        self.turn_bytes > SHORT_TURN_BYTES
    }

    /// Reads, runs and answers available requests, within bounds.
    pub(crate) fn turn(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Next {
        if self.client.info.killed.load(Relaxed) {
            return Next::Close;
        }
        let before = self.note_turn(shared, counters);
        // Replies gather in the worker's buffer, or behind those that wait already.
        let waiting = !self.output.is_empty();
        if waiting {
            mem::swap(&mut self.output, &mut space.reply.output);
        }
        space.reply.resp3 = self.resp3;
        let last_turn_bytes = mem::take(&mut self.turn_bytes);
        let next = self.work(space, shared, counters).unwrap_or(Next::Close);
        self.note_silence(&before, counters);
        if self.turn_bytes == 0 {
            // Nothing came, so the length of the turn before stays.
            self.turn_bytes = last_turn_bytes;
        }
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
        self.output.fit();
        if space.value.capacity() > KEPT_VALUE_BYTES {
            space.value = Vec::new();
        }
        let stays = next != Next::Close && self.keeps_within(shared) && !self.is_too_slow(shared);
        if stays { next } else { Next::Close }
    }

    /// Whether there are replies that must wait for durability.
    pub(crate) fn holds_replies(&self) -> bool {
        self.output.is_held()
    }

    /// Releases the replies after a wait for durability. If durability is unknown, clients whose replies depend on it
    /// get an error instead. A client that has a part of a reply gets nothing more. Another turn is due.
    pub(crate) fn release(&mut self, durable: &Result<(), Refusal>, shared: &Shared) {
        if let Err(refusal) = durable
            && self.client.may_tell_what_is_lost(shared, &self.database)
        {
            self.output.drop_held();
            if !self.released_part {
                let mut reply = Reply { output: mem::take(&mut self.output), resp3: self.resp3 };
                reply.error(refusal);
                self.output = reply.output;
            }
            self.client.streaming = None;
            self.client.closing = true;
        }
        (self.client.rests_on_log, self.client.rests_on_others) = (false, false);
        self.output.release();
        self.released_part = self.client.streaming.as_ref().is_some_and(|streaming| streaming.has_begun());
    }

    fn work(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<Next, Gone> {
        for _ in 0..STEPS_PER_TURN {
            self.flush(space, shared, counters)?;
            let unsent = space.reply.output.unsent().len();
            if self.client.streaming.is_some() {
                if unsent > 0 || self.socket.is_pending() {
                    return Ok(Next::Wait);
                }
                if self.turn_bytes > TURN_BYTES {
                    break;
                }
                self.stream_on(space, shared, counters)?;
                continue;
            }
            if self.client.closing {
                if unsent > 0 || self.socket.is_pending() {
                    return Ok(Next::Wait);
                }
                self.socket.end(&mut space.input);
                return Ok(Next::Close);
            }
            if self.job_bytes.is_some() || !self.may_answer(&space.reply.output, shared) {
                return Ok(Next::Wait);
            }
            if self.turn_bytes > TURN_BYTES {
                break;
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

    /// Whether one more reply may be added to `output`, or must wait until more of it has been sent.
    fn may_answer(&mut self, output: &Output, shared: &Shared) -> bool {
        let unsent = output.unsent().len();
        unsent <= self.output_bytes_max(shared)
            && (unsent < WRITE_BYTES || self.takes_for(output.held_bytes(), shared))
    }

    /// Writes releasable replies, as far as the socket takes them.
    fn flush(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<(), Gone> {
        if !shared.backend.holds_replies() {
            space.reply.output.release();
        }
        self.socket.flush(&mut space.reply.output, counters)
    }

    /// Adds the next piece of a long reply.
    fn stream_on(&mut self, space: &mut Workspace, shared: &Shared, counters: &Counters) -> Result<(), Gone> {
        let mut session = Session {
            shared,
            backend: shared.backend_of(&self.database),
            counters,
            client: &mut self.client,
            reply: &mut space.reply,
            value: &mut space.value,
            request: None,
            patience: Patience::Brief,
        };
        let outcome = streaming::go_on(&mut session);
        self.turn_bytes += STREAM_STEP_BYTES;
        match outcome {
            Ok(()) => {}
            Err(BackendError::TakesLong) => self.hand_over(None, Length::Long, shared),
            Err(_) => return Err(Gone),
        }
        let held = self.client.streaming.as_ref().map_or(0, |streaming| streaming.held_bytes());
        if !self.takes_for(held, shared)
            && let Some(streaming) = &mut self.client.streaming
        {
            // A walk keeps its findings until its end.
            streaming.refuse(counters, &mut space.reply);
        }
        Ok(())
    }

    /// Reads behind the few bytes of an unfinished request, and runs complete requests.
    fn read_small(
        &mut self,
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<(), Gone> {
        let left = self.input.len();
        space.input[..left].copy_from_slice(&self.input);
        let Ok(count) = self.socket.read(&mut space.input[left..], counters) else {
            // Half-closed clients still read, so unsent replies must leave first.
            self.client.closing = true;
            return Ok(());
        };
        if count == 0 {
            return Ok(());
        }
        self.turn_bytes += count;
        let input = mem::take(&mut space.input);
        let (commands_before, writes_before) = (counters.commands.get(), counters.writes.get());
        let consumed = self.run_or_drop(&input[..left + count], space, shared, counters);
        let writes = counters.writes.get() - writes_before;
        shared.note_requests(counters.commands.get() - commands_before, writes, count);
        self.input.clear();
        if let Ok(consumed) = consumed {
            if let Some((taken, length)) = self.deferred.take() {
                self.hand_over(Some(taken.copy_from(&input)), length, shared);
            }
            // Reserves exactly these bytes, not twice the earlier length.
            self.input.reserve_exact(left + count - consumed);
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
        // The read stops at the end of the arriving argument. Bytes behind it belong into the shared buffer.
        let held = self.input.len();
        let wanted = self.parser.as_ref().and_then(|parser| parser.bytes_wanted()).unwrap_or(0);
        let rest = wanted.saturating_sub(held).min(LARGE_READ_BYTES);
        let mut limit = rest.max(READ_BYTES);
        // A lower limit does not take back room that the whole argument has.
        let wanted_max = shared.budget.limit_bytes().max(self.input.capacity());
        let fits = wanted <= wanted_max && shared.has_room(LARGE_READ_BYTES);
        let mut is_grown = fits && self.grow_input(limit, wanted, shared);
        if fits && !is_grown && rest > 0 && rest < limit {
            // Bytes behind the argument have to wait if there is no room for them.
            limit = rest;
            is_grown = self.grow_input(limit, wanted, shared);
        }
        if !is_grown {
            if fits {
                shared.note_refusal(wanted.max(held + limit));
            }
            if !self.give_up() {
                // Only an inline command cannot be dropped piece by piece. The client goes with it.
                space.reply.error(&Refusal::OUT_OF_MEMORY);
                self.client.closing = true;
            }
            return Ok(());
        }
        let Ok(count) = self.socket.read_more(&mut self.input, limit, counters) else {
            self.client.closing = true;
            return Ok(());
        };
        self.turn_bytes += count;
        self.run_own(space, shared, counters)
    }

    /// Makes room for `more` bytes of a request that will have `wanted` before its next argument begins.
    fn grow_input(&mut self, more: usize, wanted: usize, shared: &Shared) -> bool {
        let (len, capacity) = (self.input.len(), self.input.capacity());
        let needed = len + more;
        if needed <= capacity {
            return true;
        }
        // The buffer grows by much, so that little is copied, but never beyond the expected length, if known.
        let generous = if wanted > len { wanted.min(2 * capacity) } else { capacity + capacity / 2 };
        let mut sizes = [needed.max(generous), needed].into_iter();
        let Some(capacity) = sizes.find(|&capacity| self.takes_for(capacity, shared)) else { return false };
        self.input.reserve_exact(capacity - len);
        true
    }

    /// Drops the received part of the arriving request; the rest will be dropped as it arrives. `false` if no request
    /// is arriving.
    fn give_up(&mut self) -> bool {
        let Some((position, mut discard)) = self.parser.as_mut().and_then(|parser| parser.abandon()) else {
            return false;
        };
        // The input ends within the request, perhaps within the line that announces an argument.
        let (done, _) = discard.feed(&self.input[position..]).unwrap_or_default();
        self.input = self.input[position + done..].to_vec();
        self.parser = None;
        self.discard = Some(discard);
        true
    }

    /// Takes the connection out of all counts, before it is dropped. A request that another thread runs counts until
    /// it is done.
    pub(crate) fn retire(&mut self, shared: &Shared) {
        if self.client.scans {
            shared.cursors.orphan(self.id());
        }
        self.free(self.job_bytes.unwrap_or(0), shared);
    }

    /// Sends the last replies at a stop: those that may leave and that the socket takes at once. Refuses the requests
    /// that were read and have not begun.
    pub(crate) fn dismiss(
        &mut self,
        durable: &Result<(), Refusal>,
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) {
        self.release(durable, shared);
        self.refuse_waiting();
        let _ = self.socket.flush(&mut self.output, counters);
        self.socket.end(&mut space.input);
    }

    /// Refuses the requests that were read and have not begun, because the server stops. Nothing may follow a reply
    /// that stays unfinished.
    fn refuse_waiting(&mut self) {
        let streaming = self.client.streaming.take();
        if self.client.closing || streaming.as_ref().is_some_and(|streaming| streaming.has_begun()) {
            return;
        }
        let mut reply = Reply { output: mem::take(&mut self.output), resp3: self.resp3 };
        if streaming.is_some() {
            reply.error(&Refusal::STOPPING);
        }
        if let Some(mut parser) = self.parser.take() {
            while let Ok(Some(_)) = parser.next(&self.input) {
                reply.error(&Refusal::STOPPING);
            }
        }
        self.output = reply.output;
        self.output.release();
    }

    /// Unsent replies at which further requests wait.
    fn output_bytes_max(&self, shared: &Shared) -> usize {
        if self.client.must_authenticate(shared) {
            return OUTPUT_BYTES_MAX_STRANGER;
        }
        match shared.clients_over_budget() {
            true => OUTPUT_BYTES_MAX_CROWDED,
            false => OUTPUT_BYTES_MAX.min(shared.budget.limit_bytes() / OUTPUT_PART),
        }
    }
}
