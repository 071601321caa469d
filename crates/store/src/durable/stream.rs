//! The stream of a dump: frames with checksums that depend on their order. `docs/FORMATS.md` draws it.

use std::io::{Read, Write};

use ziptier_codec::checksum::{crc32c, crc32c_append};

use crate::Error;

const SIGNATURE: &[u8; 8] = b"ziptrdmp";
/// The format that is written. Version 2 is the same, and has no dictionaries with codes.
const VERSION: u32 = 3;
/// The oldest one that is read: a leaf has no parts, and its frame is the key and the image.
const VERSION_MIN: u32 = 1;
/// No frame is longer: the longest is a record of the log.
const FRAME_BYTES_MAX: usize = (1 << 30) + 64;
/// Bytes that are read at a time into a frame. A frame that only claims to be long takes no memory.
const STEP_BYTES: usize = 1 << 20;

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Start LSN and durable LSN (8 bytes each).
    Start,
    /// The file of a generation.
    Generation,
    /// A piece of a large value; pieces are numbered from 0 on.
    Piece,
    /// A leaf. Its fields are the key that it begins with (its length in 4 bytes, then itself), whether its parts were
    /// in memory, too (1), and the bytes of keys and values of its parts (8). Its image follows, if it has one. The
    /// places of pieces are their numbers.
    Leaf,
    /// LSN (8 bytes), and the record.
    Record,
    /// The number of frames before (8 bytes).
    End,
    /// A part of the next leaf: its lowest key (its length in 4 bytes, then itself), its records (2), and its image.
    Part,
}

const KINDS: [Kind; 7] =
    [Kind::Start, Kind::Generation, Kind::Piece, Kind::Leaf, Kind::Record, Kind::End, Kind::Part];

/// Writes a stream.
pub(super) struct Output<'a> {
    to: &'a mut dyn Write,
    frames: u64,
    pub(super) bytes: u64,
}

impl<'a> Output<'a> {
    pub(super) fn begin(to: &'a mut dyn Write) -> Result<Self, Error> {
        let mut output = Self { to, frames: 0, bytes: 0 };
        output.put(SIGNATURE)?;
        output.put(&VERSION.to_le_bytes())?;
        Ok(output)
    }

    /// Writes a frame, whose payload is given in parts.
    pub(super) fn frame(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), Error> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let head = head(kind as u8, u32::try_from(len).expect("a frame is below 4 GiB"));
        let checksum = parts.iter().fold(checksum(self.frames, &head), |sum, part| crc32c_append(sum, part));
        self.put(&head)?;
        self.put(&checksum.to_le_bytes())?;
        parts.iter().try_for_each(|part| self.put(part))?;
        self.frames += 1;
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<u64, Error> {
        let frames = self.frames;
        self.frame(Kind::End, &[&frames.to_le_bytes()])?;
        self.to.flush().map_err(failed)?;
        Ok(self.bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes).map_err(failed)
    }
}

fn head(kind: u8, len: u32) -> [u8; 5] {
    let [a, b, c, d] = len.to_le_bytes();
    [kind, a, b, c, d]
}

fn checksum(frames: u64, head: &[u8]) -> u32 {
    crc32c_append(crc32c(&frames.to_le_bytes()), head)
}

fn failed(error: std::io::Error) -> Error {
    Error::Stream { reason: error.to_string() }
}

/// Reads a stream, which may be any bytes.
pub(super) struct Input<'a> {
    pub(super) version: u32,
    from: &'a mut dyn Read,
    frames: u64,
    offset: u64,
    payload: Vec<u8>,
}

impl<'a> Input<'a> {
    pub(super) fn begin(from: &'a mut dyn Read) -> Result<Self, Error> {
        let mut input = Self { version: 0, from, frames: 0, offset: 0, payload: Vec::new() };
        if &input.array::<8>()? != SIGNATURE {
            return Err(Error::Stream { reason: "it has not the signature of a dump".to_owned() });
        }
        input.version = u32::from_le_bytes(input.array()?);
        if (VERSION_MIN..=VERSION).contains(&input.version) {
            return Ok(input);
        }
        let reason = format!(
            "it has version {}, and this program reads versions {VERSION_MIN} to {VERSION}",
            input.version
        );
        Err(Error::Stream { reason })
    }

    /// The next frame. After [`Kind::End`] nothing may follow.
    pub(super) fn frame(&mut self) -> Result<(Kind, &[u8]), Error> {
        let head = self.array::<5>()?;
        let stored = u32::from_le_bytes(self.array()?);
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(self.damaged("a frame is too long"));
        }
        self.payload.clear();
        while self.payload.len() < len {
            let start = self.payload.len();
            self.payload.resize(len.min(start + STEP_BYTES), 0);
            let mut payload = std::mem::take(&mut self.payload);
            let read = self.read(&mut payload[start..]);
            self.payload = payload;
            read?;
        }
        let kind = KINDS.get(usize::from(head[0])).copied();
        if stored != crc32c_append(checksum(self.frames, &head), &self.payload) {
            return Err(self.damaged("a frame fails its check"));
        }
        let kind = kind.ok_or_else(|| self.damaged("a frame is of no known kind"))?;
        if kind == Kind::End && (self.payload != self.frames.to_le_bytes() || self.goes_on()?) {
            return Err(self.damaged("it has another length than it says"));
        }
        self.frames += 1;
        Ok((kind, &self.payload))
    }

    pub(super) fn damaged(&self, reason: &str) -> Error {
        Error::Stream { reason: format!("it is damaged before byte {}: {reason}", self.offset) }
    }

    fn goes_on(&mut self) -> Result<bool, Error> {
        Ok(self.from.read(&mut [0]).map_err(failed)? > 0)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.from.read_exact(into).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged("it ends too early"),
            _ => failed(error),
        })?;
        self.offset += into.len() as u64;
        Ok(())
    }
}
