//! The source of value bytes: a file, a folder, a compressed file, a member of an archive, or a generator.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::generator::{GENERATED_ROOM, Generator};
use crate::error::Error;

/// More than this is not read: values need no more, and a wrong path should not fill the memory.
const CORPUS_BYTES_MAX: u64 = 4 << 30;

/// Bytes to cut values from.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// Its name as given.
    pub name: String,
    /// Its content.
    pub bytes: Arc<Vec<u8>>,
}

impl Corpus {
    /// Reads a file, a folder (its files one after the other, by name), a `.zst`, or a named member of a zip
    /// (`FILE.zip:MEMBER`, or `FILE.zip` if it has only one member). For `json`, `log`, `timeseries`, `lorem` and
    /// `random:ETA` it generates about `generated_bytes` bytes, with `period` bytes per value.
    pub fn read(name: &str, generated_bytes: usize, period: usize) -> Result<Self, Error> {
        Self::read_into(name, generated_bytes, period, Vec::with_capacity)
    }

    /// The same, into the vector that `room` makes for so many bytes.
    pub(crate) fn read_into(
        name: &str,
        generated_bytes: usize,
        period: usize,
        room: fn(usize) -> Vec<u8>,
    ) -> Result<Self, Error> {
        let bytes = match Generator::parse(name)? {
            Some(generator) => {
                generator.bytes_into(room(generated_bytes + GENERATED_ROOM), generated_bytes, period, 1)
            }
            None => read_path(name, room)?,
        };
        if bytes.is_empty() {
            return Err(bad(name, "it is empty"));
        }
        Ok(Corpus { name: name.into(), bytes: Arc::new(bytes) })
    }
}

fn bad(path: &str, reason: impl ToString) -> Error {
    Error::Corpus { path: path.into(), reason: reason.to_string() }
}

fn read_path(name: &str, room: fn(usize) -> Vec<u8>) -> Result<Vec<u8>, Error> {
    let path = Path::new(name);
    if !path.exists() {
        if let Some((archive, member)) =
            name.rsplit_once(':').filter(|(archive, _)| archive.ends_with(".zip"))
        {
            return exactly(room, |sink| copy_zip(Path::new(archive), Some(member), sink))
                .map_err(|reason| bad(name, reason));
        }
        return Err(bad(name, "there is no such file or folder"));
    }
    if path.is_dir() {
        return read_folder(path, room).map_err(|reason| bad(name, reason));
    }
    exactly(room, |sink| copy_file(path, sink)).map_err(|reason| bad(name, reason))
}

fn read_folder(folder: &Path, room: fn(usize) -> Vec<u8>) -> Result<Vec<u8>, String> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| error.to_string())?;
    files.retain(|path| path.is_file());
    files.sort();
    if files.is_empty() {
        return Err("the folder has no files".into());
    }
    exactly(room, |sink| {
        files.iter().try_for_each(|file| {
            copy_file(file, sink).map_err(|reason| format!("{}: {reason}", file.display()))
        })
    })
}

fn copy_file(path: &Path, sink: &mut Sink) -> Result<(), String> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension == Some("zip") {
        return copy_zip(path, None, sink);
    }
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    if extension == Some("zst") {
        return sink.copy(zstd::Decoder::new(file).map_err(|error| error.to_string())?);
    }
    sink.copy(file)
}

fn copy_zip(path: &Path, member: Option<&str>, sink: &mut Sink) -> Result<(), String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| error.to_string())?;
    let members: Vec<String> = archive
        .file_names()
        .filter_map(Result::ok)
        .filter(|name| !name.ends_with('/'))
        .map(|name| name.into_owned())
        .collect();
    let member = match (member, members.as_slice()) {
        (Some(member), _) => member,
        (None, [only]) => only,
        (None, _) => return Err(format!("name one of its members: {}", listed(&members))),
    };
    let entry = archive
        .by_name(member)
        .map_err(|_| format!("it has no member {member}; its members: {}", listed(&members)))?;
    sink.copy(entry)
}

fn listed(members: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = if members.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", members.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "))
}

/// Reads twice: first to count, then into a buffer of that size. A buffer that grows would leave free pages behind,
/// which a store could fill without its resident memory growing.
fn exactly(
    room: fn(usize) -> Vec<u8>,
    read: impl Fn(&mut Sink) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let mut sink = Sink { bytes: None, count: 0 };
    read(&mut sink)?;
    sink = Sink { bytes: Some(room(sink.count as usize)), count: 0 };
    read(&mut sink)?;
    Ok(sink.bytes.unwrap_or_default())
}

/// Counts bytes, and keeps them if it has a buffer.
struct Sink {
    bytes: Option<Vec<u8>>,
    count: u64,
}

impl Sink {
    fn copy(&mut self, mut source: impl Read) -> Result<(), String> {
        let mut part = vec![0; 1 << 16];
        loop {
            let got = match source.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            self.count += got as u64;
            if self.count > CORPUS_BYTES_MAX {
                return Err(format!("it is longer than {} GiB", CORPUS_BYTES_MAX >> 30));
            }
            if let Some(bytes) = &mut self.bytes {
                bytes.extend_from_slice(&part[..got]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The address of the room for the last corpus, and its length.
    static ROOM: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    fn room(bytes: usize) -> Vec<u8> {
        let room: Vec<u8> = Vec::with_capacity(bytes);
        ROOM[0].store(room.as_ptr().addr(), Ordering::Relaxed);
        ROOM[1].store(room.capacity(), Ordering::Relaxed);
        room
    }

    /// Memory that is made anew would lie on other pages, and leave free ones behind.
    #[test]
    fn a_corpus_lies_in_the_room_that_was_made_for_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("text"), [7; 100_000]).unwrap();
        for name in [folder.path().to_str().unwrap(), "json", "random:0.5"] {
            let corpus = Corpus::read_into(name, 100_000, 128, room).unwrap();
            let [begin, bytes] = ROOM.each_ref().map(|one| one.load(Ordering::Relaxed));
            assert_eq!((corpus.bytes.as_ptr().addr(), corpus.bytes.capacity()), (begin, bytes), "{name}");
            assert!(corpus.bytes.len() >= 100_000, "{name}");
        }
    }
}
