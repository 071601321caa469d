//! A client's socket: edge-triggered, so it remembers whether there may be more to read and room to write.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

use crate::reply::Output;
use crate::shared::Counters;

/// Reads after the client's last reply.
const LAST_READS: usize = 16;

pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The client will send nothing more: read to the end, there will be no further event.
    pub(crate) half_closed: bool,
}

/// The socket failed or its peer went away, so no error can be sent.
pub(crate) struct Gone;

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, readable: false, writable: true, half_closed: false }
    }

    /// Writes releasable bytes, as many as the socket takes.
    pub(crate) fn flush(&mut self, output: &mut Output, counters: &Counters) -> Result<(), Gone> {
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
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Gone> {
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

    /// Appends at most `limit` bytes to `buffer`, which has room for them.
    pub(crate) fn read_more(&mut self, buffer: &mut Vec<u8>, limit: usize) -> Result<usize, Gone> {
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

    /// Ends the stream after its last byte. Reads and drops the bytes that the client has sent meanwhile. Closing with
    /// unread bytes would reset the connection and could destroy the last reply on its way.
    pub(crate) fn end(&mut self, scratch: &mut [u8]) {
        if self.stream.shutdown(Shutdown::Write).is_ok() {
            for _ in 0..LAST_READS {
                if !matches!(self.stream.read(scratch), Ok(1..)) {
                    break;
                }
            }
        }
    }
}
