//! Whether an executable can have another allocator, from its ELF file.

use std::borrow::ToOwned;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::string::String;
use std::vec::Vec;

/// How an executable comes to its allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// From a shared library, which a preloaded one replaces.
    Dynamic,
    /// It is linked statically, so no loader runs that could load a library.
    Static,
    /// It defines an allocator of its own, by this function or text.
    OwnAllocator(String),
    /// It is a program for another kind of machine, or of 32 bits.
    OtherMachine,
}

impl fmt::Display for Linkage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Linkage::Dynamic => f.write_str("the executable is linked dynamically"),
            Linkage::Static => {
                f.write_str("the executable is linked statically, so no library can be loaded before it")
            }
            Linkage::OwnAllocator(name) => write!(
                f,
                "the executable has an allocator of its own ({name}), which a preloaded library does not replace; use \
                 a build that takes malloc from a shared library (for Redis and Valkey: that of Debian, or MALLOC=libc)"
            ),
            Linkage::OtherMachine => f.write_str("the executable is not one of 64 bits"),
        }
    }
}

/// Functions that tell an allocator that is linked statically.
const FUNCTIONS: [&str; 7] =
    ["malloc", "je_malloc", "_rjem_malloc", "mi_malloc", "tc_malloc", "rpmalloc", "scalable_malloc"];
/// A text of jemalloc's messages, for executables without names.
const JEMALLOC_TEXT: &[u8] = b"<jemalloc>: ";

const PT_INTERP: u32 = 3;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
/// Tables of an executable are smaller. A larger one is damaged.
const TABLE_BYTES_MAX: u64 = 256 << 20;

impl Linkage {
    /// Reads it from an ELF file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged.
    pub fn read(file: &mut File) -> io::Result<Linkage> {
        let head = read_at(file, 0, 64)?;
        if head[..4] != *b"\x7fELF" {
            return Err(ErrorKind::InvalidData.into());
        }
        // 64 bits, little-endian.
        if head[4..6] != [2, 1] {
            return Ok(Linkage::OtherMachine);
        }
        let segments =
            Table { offset: u64_at(&head, 32), entry: u16_at(&head, 54), entries: u16_at(&head, 56) };
        let sections =
            Table { offset: u64_at(&head, 40), entry: u16_at(&head, 58), entries: u16_at(&head, 60) };
        let is_dynamic = segments.rows(file, 56)?.iter().any(|row| u32_at(row, 0) == PT_INTERP);
        if !is_dynamic {
            return Ok(Linkage::Static);
        }
        let sections = sections.rows(file, 64)?;
        Ok(own_allocator(file, &sections)?.map_or(Linkage::Dynamic, Linkage::OwnAllocator))
    }
}

struct Table {
    offset: u64,
    entry: u16,
    entries: u16,
}

impl Table {
    fn rows(&self, file: &mut File, entry_min: u16) -> io::Result<Vec<Vec<u8>>> {
        if self.entries == 0 {
            return Ok(Vec::new());
        }
        if self.entry < entry_min {
            return Err(ErrorKind::InvalidData.into());
        }
        let bytes = read_at(file, self.offset, u64::from(self.entry) * u64::from(self.entries))?;
        Ok(bytes.chunks(self.entry.into()).map(<[u8]>::to_vec).collect())
    }
}

/// The function or text that tells an allocator inside.
fn own_allocator(file: &mut File, sections: &[Vec<u8>]) -> io::Result<Option<String>> {
    for section in sections.iter().filter(|row| matches!(u32_at(row, 4), SHT_SYMTAB | SHT_DYNSYM)) {
        let names = sections.get(u32_at(section, 40) as usize).ok_or(ErrorKind::InvalidData)?;
        let symbols = read_at(file, u64_at(section, 24), u64_at(section, 32))?;
        let names = read_at(file, u64_at(names, 24), u64_at(names, 32))?;
        for symbol in symbols.chunks_exact(24) {
            let is_function = matches!(symbol[4] & 15, STT_FUNC | STT_GNU_IFUNC);
            let is_defined = u16_at(symbol, 6) != 0;
            let name = names.get(u32_at(symbol, 0) as usize..).unwrap_or_default();
            let found = FUNCTIONS.iter().find(|function| {
                name.strip_prefix(function.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
            });
            if let Some(found) = found.filter(|_| is_function && is_defined) {
                return Ok(Some((*found).to_owned()));
            }
        }
    }
    Ok(contains(file, JEMALLOC_TEXT)?.then(|| "jemalloc".to_owned()))
}

/// Whether a text stands anywhere in a file.
fn contains(file: &mut File, text: &[u8]) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut window = Vec::new();
    loop {
        let read = file.take(1 << 20).read_to_end(&mut window)?;
        if window.windows(text.len()).any(|part| part == text) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        window.drain(..window.len().saturating_sub(text.len()));
    }
}

fn read_at(file: &mut File, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > TABLE_BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut buffer = Vec::new();
    let read = file.take(bytes).read_to_end(&mut buffer)?;
    if read as u64 == bytes { Ok(buffer) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
