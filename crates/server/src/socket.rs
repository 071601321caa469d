//! A client's socket: edge-triggered, so it remembers whether there may be more to read and room to write. With TLS it
//! encrypts and decrypts on the way.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

use crate::reply::Output;
use crate::shared::Counters;
use crate::tls::{Session, Step};

/// Reads after the client's last reply.
const LAST_READS: usize = 16;

pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The client will send nothing more: read to the end, there will be no further event.
    pub(crate) half_closed: bool,
    tls: Option<Box<Session>>,
}

/// The socket failed or its peer went away, so no error can be sent.
pub(crate) struct Gone;

impl Socket {
    pub(crate) fn new(stream: TcpStream, tls: Option<Box<Session>>) -> Self {
        Self { stream, readable: false, writable: true, half_closed: false, tls }
    }

    /// Bytes of memory that TLS holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.held_bytes())
    }

    /// Whether bytes of an answer have left the output, but not the process.
    pub(crate) fn is_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_pending())
    }

    /// Writes releasable bytes, as many as the socket takes.
    pub(crate) fn flush(&mut self, output: &mut Output, counters: &Counters) -> Result<(), Gone> {
        if self.tls.is_some() {
            return self.flush_encrypted(output, counters);
        }
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

    fn flush_encrypted(&mut self, output: &mut Output, counters: &Counters) -> Result<(), Gone> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while self.writable {
            let mut sent = 0;
            let step = tls.flush(&mut self.stream, &mut sent);
            counters.bytes_out.add(sent);
            match step {
                Step::Bytes(_) if output.sendable().is_empty() => break,
                Step::Bytes(_) => match tls.encrypt(output.sendable()) {
                    // Nothing waits, and nothing is taken: the connection has ended.
                    0 => return Err(Gone),
                    count => output.advance(count),
                },
                Step::WouldBlock => self.writable = false,
                Step::Gone => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Reads once into `buffer`; 0 when there is nothing now, `Gone` at the end of the stream or on failure.
    pub(crate) fn read(&mut self, buffer: &mut [u8], counters: &Counters) -> Result<usize, Gone> {
        if let Some(tls) = &mut self.tls {
            let mut received = 0;
            let step = tls.read(&mut self.stream, buffer, &mut received);
            counters.bytes_in.add(received);
            return match step {
                Step::Bytes(count) => Ok(count),
                Step::WouldBlock => {
                    self.readable = false;
                    Ok(0)
                }
                Step::Gone => Err(Gone),
            };
        }
        loop {
            return match self.stream.read(buffer) {
                Ok(0) => Err(Gone),
                Ok(count) => {
                    counters.bytes_in.add(count as u64);
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

    /// Appends at most `limit` bytes to `buffer`, which has room for them.
    pub(crate) fn read_more(
        &mut self,
        buffer: &mut Vec<u8>,
        limit: usize,
        counters: &Counters,
    ) -> Result<usize, Gone> {
        let before = buffer.len();
        if self.tls.is_some() {
            return self
                .read_more_encrypted(buffer, before + limit, counters)
                .map(|()| buffer.len() - before);
        }
        let outcome = (&mut self.stream).take(limit as u64).read_to_end(buffer);
        let count = buffer.len() - before;
        counters.bytes_in.add(count as u64);
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

    /// Appends to `buffer` until it has `end` bytes or the socket has no more.
    fn read_more_encrypted(
        &mut self,
        buffer: &mut Vec<u8>,
        end: usize,
        counters: &Counters,
    ) -> Result<(), Gone> {
        let before = buffer.len();
        while self.readable && buffer.len() < end {
            let at = buffer.len();
            buffer.resize(end.min(at + ENCRYPTED_READ_BYTES), 0);
            let outcome = self.read(&mut buffer[at..], counters);
            buffer.truncate(at + *outcome.as_ref().unwrap_or(&0));
            match outcome {
                Ok(_) => {}
                Err(Gone) if at > before => break,
                Err(Gone) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Ends the stream after its last byte. Reads and drops the bytes that the client has sent meanwhile. Closing with
    /// unread bytes would reset the connection and could destroy the last reply on its way.
    pub(crate) fn end(&mut self, scratch: &mut [u8]) {
        self.say_end();
        if self.stream.shutdown(Shutdown::Write).is_ok() {
            for _ in 0..LAST_READS {
                if !matches!(self.stream.read(scratch), Ok(1..)) {
                    break;
                }
            }
        }
    }

    /// Tells a client with TLS that nothing more will come.
    pub(crate) fn say_end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.end(&mut self.stream);
        }
    }
}

/// A record of TLS has at most so many bytes of plain text.
const ENCRYPTED_READ_BYTES: usize = 16 << 10;
