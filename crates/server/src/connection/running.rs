//! Runs the requests that a connection has received.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{
    Connection, OUTPUT_BYTES_MAX_STRANGER, Place, READ_BYTES, SMALL_REQUEST_BYTES, TURN_BYTES, WRITE_BYTES,
    Workspace,
};
use crate::backend::Patience;
use crate::command::{self, Session};
use crate::jobs::{Job, Length};
use crate::refusal::Refusal;
use crate::request::OwnedArgs;
use crate::shared::{Counters, Shared};
use crate::socket::Gone;

impl Connection {
    /// Drops the rest of a request that was given up and refuses it. Then runs complete requests. Returns the number of
    /// consumed bytes.
    pub(super) fn run_or_drop(
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
                counters.refused_writes.add(1);
                space.reply.error(&Refusal::OUT_OF_MEMORY);
                let consumed = self.run(&input[done..], space, shared, counters);
                if let Some((taken, _)) = &mut self.deferred {
                    taken.behind(done);
                }
                Ok(done + consumed?)
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
    pub(super) fn run_own(
        &mut self,
        space: &mut Workspace,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<(), Gone> {
        let mut input = mem::take(&mut self.input);
        let consumed = self.run_or_drop(&input, space, shared, counters)?;
        if let Some((taken, length)) = self.deferred.take() {
            let (request, rest) = taken.move_from(input);
            self.hand_over(Some(request), length, shared);
            input = rest;
        } else if consumed > 0 {
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

    /// Runs the complete requests of `input`, and returns their bytes.
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
            let is_stranger = self.client.must_authenticate(shared);
            parser.restrict(is_stranger);
            if announced == 0 && !is_stranger {
                announced = command::announce(&parser, input, shared.backend_of(&self.database)).max(1);
            }
            announced = usize::saturating_sub(announced, 1);
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
                backend: shared.backend_of(&self.database),
                counters,
                client: &mut self.client,
                reply: &mut space.reply,
                value: &mut space.value,
                request: None,
                patience: Patience::Brief,
            };
            let unsent = session.reply.output.unsent().len();
            command::run(&mut session, &args);
            self.choose();
            let written = space.reply.output.unsent().len() - unsent;
            // Work that shows neither in the request nor in the reply took its time, too.
            self.turn_bytes += written.max(self.client.worked_bytes as usize);
            if let Some(length) = self.client.deferred.take() {
                self.deferred = Some((parser.take(), length));
                break true;
            }
            if self.client.closing || self.client.streaming.is_some() || self.turn_bytes > TURN_BYTES {
                break true;
            }
            let write_bytes = if is_stranger { OUTPUT_BYTES_MAX_STRANGER } else { WRITE_BYTES };
            if space.reply.output.unsent().len() >= write_bytes {
                outcome = self.flush(space, shared, counters);
                if outcome.is_err() || !self.may_answer(&space.reply.output, shared) {
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
            parser.fit();
            self.parser = Some(Box::new(parser));
        }
        outcome.map(|()| consumed)
    }

    /// A connection that waits for a request holds no buffer.
    pub(super) fn release_input(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
        }
    }

    /// Hands a request over to a thread of its own; without one, the next step of the reply that the client waits for.
    pub(super) fn hand_over(&mut self, request: Option<OwnedArgs>, length: Length, shared: &Shared) {
        let (request, mut client) = (request.map(Arc::new), self.client.twin());
        client.streaming = self.client.streaming.take();
        let of_reply = client.streaming.as_ref().map_or(0, |streaming| streaming.held_bytes());
        let request_bytes = of_reply + request.as_ref().map_or(0, |request| request.held_bytes());
        self.job_bytes = Some(request_bytes);
        self.client.info.job_bytes.store(request_bytes, Relaxed);
        shared.budget.note_running(request_bytes);
        let Place { worker, key } = self.place;
        let (resp3, database) = (self.resp3, self.database.clone());
        shared.jobs.push(Job { worker, key, client, resp3, database, request, request_bytes, length });
    }
}
