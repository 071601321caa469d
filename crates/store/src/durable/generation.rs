//! Generations of codings as files. Without its generation no body can be read, so each has two files of the same
//! bytes, and damage to one of them loses nothing.
//!
//! A file holds the bytes that decoders and encoders are rebuilt from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::crc32c;
use ziptier_codec::format::Format;
use ziptier_codec::token::Dictionary;
use ziptier_codec::token::entropy::Codes;
use ziptier_media::disk::{Caching, Disk, DiskError, read_full_at, write_all_at};
use ziptier_tree::blocks::{BlockCoding, format_not_built};
use ziptier_tree::codec_options::CodecOptions;
use ziptier_tree::coding::Coding;
use ziptier_tree::fields::{FieldReader, FormatError};

use crate::Error;

const SIGNATURE: &[u8; 8] = b"ziptrdic";
/// The format that is written.
const VERSION: u32 = 2;
/// The oldest one that is read: it is the same, and its kinds are tokens and blocks.
const VERSION_MIN: u32 = 1;
const TOKENS: u32 = 1;
const BLOCKS: u32 = 2;
/// Tokens with codes.
const CODES: u32 = 3;
/// No generation takes as much.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The stored form of a coding.
pub(crate) fn to_bytes(coding: &Coding) -> Vec<u8> {
    let (kind, payload) = match coding {
        Coding::Tokens(dictionary) => match dictionary.codes() {
            None => (TOKENS, dictionary.to_bytes()),
            Some(codes) => (CODES, with_codes(dictionary, codes)),
        },
        Coding::Blocks(blocks) => (BLOCKS, blocks.to_bytes()),
    };
    let mut bytes = SIGNATURE.to_vec();
    for field in [VERSION, coding.generation(), kind, payload.len() as u32] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&payload);
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes
}

/// The length of the dictionary's bytes, these bytes, and those of its codes.
fn with_codes(dictionary: &Dictionary, codes: &Codes) -> Vec<u8> {
    let dictionary_bytes = dictionary.to_bytes();
    let mut bytes = (dictionary_bytes.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&dictionary_bytes);
    bytes.extend_from_slice(&codes.to_bytes(dictionary));
    bytes
}

/// The generation that `bytes`, which may be any, say they are, and what it is rebuilt from.
fn parse(bytes: &[u8]) -> Result<(u32, u32, &[u8]), FormatError> {
    let mut reader = FieldReader(bytes);
    if reader.bytes(SIGNATURE.len()) != Some(SIGNATURE) {
        return Err("it has not the signature of a generation of dictionaries".into());
    }
    // Every version ends with its checksum, so a damaged number is no version.
    let is_whole =
        bytes.split_last_chunk().is_some_and(|(rest, sum)| u32::from_le_bytes(*sum) == crc32c(rest));
    let version = reader.u32().ok_or("it ends too early")?;
    if is_whole && !(VERSION_MIN..=VERSION).contains(&version) {
        return Err(FormatError::Version(format!(
            "it has version {version}, and this program reads versions {VERSION_MIN} to {VERSION}"
        )));
    }
    let mut fields = || -> Option<_> {
        let (number, kind, len) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let payload = reader.bytes(len as usize)?;
        reader.u32().filter(|_| reader.is_empty()).map(|_| (number, kind, payload))
    };
    let found = fields().ok_or("it has another length than it says")?;
    if is_whole { Ok(found) } else { Err("it fails its check".into()) }
}

/// Rebuilds generation `number`; `bytes` may be any, and the inner error is what is wrong with them.
///
/// # Errors
/// The program was built without a format of theirs. They are not damaged, and nobody may leave them out.
pub(crate) fn from_bytes(
    bytes: &[u8],
    number: u32,
    options: &CodecOptions,
    first: Option<&Coding>,
) -> Result<Result<Coding, FormatError>, Error> {
    if let Ok((_, BLOCKS, payload)) = parse(bytes)
        && let Some(format) = format_not_built(payload, Format::is_built)
    {
        return Err(Error::EngineUnavailable {
            reason: format!(
                "the store has blocks of format {format} (generation {number}), and this program was built without \
                 it: build it with the feature {format} of ziptier; nothing was changed"
            ),
        });
    }
    Ok(rebuilt(bytes, number, options, first))
}

fn rebuilt(
    bytes: &[u8],
    number: u32,
    options: &CodecOptions,
    first: Option<&Coding>,
) -> Result<Coding, FormatError> {
    let (found, kind, payload) = parse(bytes)?;
    if found != number {
        return Err(format!("it is generation {found}, and {number} is wanted").into());
    }
    match kind {
        TOKENS => Ok(Coding::Tokens(Arc::new(rebuilt_tokens(payload, number)?))),
        CODES => {
            let mut reader = FieldReader(payload);
            let dictionary = reader.u32().and_then(|len| reader.bytes(len as usize));
            let dictionary = rebuilt_tokens(dictionary.ok_or("its dictionary ends too early")?, number)?;
            let codes = Codes::from_bytes(&dictionary, reader.0).map_err(|error| error.to_string())?;
            Ok(Coding::Tokens(Arc::new(dictionary.with_codes(codes))))
        }
        BLOCKS => {
            let first = first.and_then(Coding::blocks).map(|blocks| &**blocks);
            BlockCoding::from_bytes(payload, number, options, first)
                .map(|blocks| Coding::Blocks(Arc::new(blocks)))
                .map_err(FormatError::Damaged)
        }
        _ => Err(format!("it is of an unknown kind, {kind}").into()),
    }
}

fn rebuilt_tokens(bytes: &[u8], number: u32) -> Result<Dictionary, String> {
    let dictionary = Dictionary::from_bytes(bytes).map_err(|error| error.to_string())?;
    match dictionary.generation() {
        generation if generation == number => Ok(dictionary),
        generation => Err(format!("its dictionary is generation {generation}")),
    }
}

/// The folder of generations.
pub(crate) struct GenerationFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Generations of which both files are durable.
    whole: BTreeSet<u32>,
    /// Generations of which neither file could be read. The images that they decode may be whole, and the files may be
    /// readable another day.
    left_out: BTreeSet<u32>,
}

/// A generation as it was found.
pub(crate) struct FoundGeneration {
    pub(crate) coding: Coding,
    /// Its stored form.
    pub(crate) bytes: Vec<u8>,
    /// The fault of one of its files.
    pub(crate) damage: Option<Error>,
}

impl GenerationFiles {
    /// The files of a folder, which is made if it is missing; none is known to be whole.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, Error> {
        disk.create_dir(dir)?;
        Ok(Self { disk, dir: dir.to_path_buf(), whole: BTreeSet::new(), left_out: BTreeSet::new() })
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.whole.contains(&number)
    }

    /// Generations that [`GenerationFiles::read`] found no whole file of: no other one may have their numbers.
    pub(crate) fn left_out(&self) -> &BTreeSet<u32> {
        &self.left_out
    }

    /// Writes a generation's two files, durable when this returns.
    pub(crate) fn write(&mut self, coding: &Coding) -> Result<u64, Error> {
        self.write_bytes(coding.generation(), &to_bytes(coding))
    }

    /// As [`GenerationFiles::write`], of its stored form; the bytes that were written.
    pub(crate) fn write_bytes(&mut self, number: u32, bytes: &[u8]) -> Result<u64, Error> {
        self.paths(number).iter().try_for_each(|path| self.write_file(path, bytes))?;
        self.whole.insert(number);
        Ok(2 * bytes.len() as u64)
    }

    /// Writes the damaged one of a generation's two files anew, durable when this returns. The whole one is not
    /// touched.
    pub(crate) fn mend(&mut self, number: u32, found: &FoundGeneration) -> Result<(), Error> {
        if let Some(Error::FileDamaged { path, .. } | Error::FileForeign { path, .. }) = &found.damage {
            self.write_file(path, &found.bytes)?;
            self.whole.insert(number);
        }
        Ok(())
    }

    /// Replaces the contents of a file by `bytes`, all or nothing. An interrupted call leaves a new file, which is
    /// removed with the files of other generations.
    fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let new = path.with_extension("new");
        match self.disk.remove(&new) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let file = self.disk.create(&new, Caching::Cached)?;
        write_all_at(&*file, 0, bytes)?;
        file.sync_data().map_err(DiskError::of_new_file)?;
        self.disk.rename(&new, path)?;
        Ok(self.disk.sync_dir(&self.dir)?)
    }

    /// Reads a generation from whichever file is whole.
    ///
    /// # Errors
    /// Neither is, or the program was built without a format of theirs.
    pub(crate) fn read(
        &mut self,
        number: u32,
        options: &CodecOptions,
        first: Option<&Coding>,
    ) -> Result<FoundGeneration, Error> {
        let mut damage = None;
        let mut found: Option<FoundGeneration> = None;
        for path in self.paths(number) {
            let read = self.read_file(&path)?;
            let coding = match &found {
                // The second need only be the same.
                Some(found) if read.as_ref() == Ok(&found.bytes) => continue,
                Some(_) => Err(read.err().unwrap_or_else(|| "it is not the same as its copy".into())),
                None => match read {
                    Ok(bytes) => from_bytes(&bytes, number, options, first)?.map(|coding| (coding, bytes)),
                    Err(fault) => Err(fault),
                },
            };
            match coding {
                Ok((coding, bytes)) => found = Some(FoundGeneration { coding, bytes, damage: None }),
                Err(fault) => {
                    let error = Error::of_bytes(fault, path, 0);
                    // A salvage may not leave out what a newer program reads, whatever the other file is.
                    if damage.is_none() || matches!(error, Error::FileForeign { .. }) {
                        damage = Some(error);
                    }
                }
            }
        }
        match (found, damage) {
            (Some(found), damage) => {
                if damage.is_none() {
                    self.whole.insert(number);
                }
                Ok(FoundGeneration { damage, ..found })
            }
            (None, Some(damage)) => {
                self.left_out.insert(number);
                Err(damage)
            }
            (None, None) => unreachable!("a file is whole or damaged"),
        }
    }

    /// Bytes of a file; the inner error is what is wrong with it.
    fn read_file(&self, path: &Path) -> Result<Result<Vec<u8>, FormatError>, Error> {
        match read_whole(&*self.disk, path) {
            Ok(bytes) => Ok(parse(&bytes).map(|_| ()).map(|()| bytes)),
            Err(error) if error.is_not_found() => Ok(Err("it is missing".into())),
            Err(error) => error.unreadable().map(|reason| Err(reason.into())).ok_or_else(|| error.into()),
        }
    }

    /// Removes the files of all other generations, but for those that were left out.
    pub(crate) fn keep_only(&mut self, numbers: &BTreeSet<u32>) -> Result<(), Error> {
        let kept = numbers.union(&self.left_out).flat_map(|number| self.paths(*number));
        let kept: Vec<PathBuf> = kept.collect();
        for name in self.disk.list(&self.dir)? {
            let path = self.dir.join(&name);
            if name.starts_with("generation-") && !kept.contains(&path) {
                self.disk.remove(&path)?;
            }
        }
        self.whole.retain(|number| numbers.contains(number));
        Ok(())
    }

    fn paths(&self, number: u32) -> [PathBuf; 2] {
        [1, 2].map(|copy| self.dir.join(format!("generation-{number:08x}-{copy}")))
    }
}

/// All bytes of a file.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = disk.open(path, Caching::Cached)?;
    let len = file.len()?.min(FILE_BYTES_MAX);
    let mut bytes = vec![0; len as usize];
    let count = read_full_at(&*file, 0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use ziptier_codec::token::{Effort, Encoder};
    use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

    use super::*;

    const HEADER_BYTES: usize = 24;

    #[test]
    fn a_generation_with_codes_comes_back_and_damage_is_told() {
        let samples = [&b"first and second and third"[..], b"second and third and first"];
        let dictionary = Dictionary::train(&samples, 10, 7).unwrap();
        let codes = Codes::train(&dictionary, &mut Encoder::new(), Effort::Dense, &samples, 1 << 24);
        let stored_codes = codes.to_bytes(&dictionary);
        let coding = Coding::Tokens(Arc::new(dictionary.with_codes(codes)));
        let stored = to_bytes(&coding);
        let rebuilt = |bytes: &[u8]| super::rebuilt(bytes, 7, &CodecOptions::default(), None);
        let back = rebuilt(&stored).unwrap();
        let back = back.tokens().unwrap();
        assert_eq!(back.codes().unwrap().to_bytes(back), stored_codes);
        // Payloads whose own checks are right, with a part missing.
        let payload = &stored[HEADER_BYTES..stored.len() - 4];
        for len in [0, 3, 4, 100, payload.len() - stored_codes.len(), payload.len() - 1] {
            let mut cut = stored[..HEADER_BYTES - 4].to_vec();
            cut.extend_from_slice(&(len as u32).to_le_bytes());
            cut.extend_from_slice(&payload[..len]);
            cut.extend_from_slice(&crc32c(&cut).to_le_bytes());
            assert!(rebuilt(&cut).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_generation_that_has_no_room_at_its_sync_was_refused() {
        let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::FullAtSync, 0);
        let mut files = GenerationFiles::open(Arc::new(disk), Path::new("/d")).unwrap();
        assert!(files.write_bytes(1, b"bytes").is_err_and(|error| error.is_refusal()));
        assert!(!files.has(1));
    }
}
