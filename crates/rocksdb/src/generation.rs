//! A generation: the dictionaries that many files share.
//!
//! Each file carries its generation, so that it can be read alone. A reader finds a loaded generation by a hash of its
//! bytes, so a database with a thousand files holds only a few generations. That matters for speed: eight token tables
//! at once miss the caches and triple the time of a decode.
//!
//! # As bytes
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature `zrdb` |
//! | 4 | 1 | version: 1, or 2 if the tokens have codes |
//! | 5 | 3 | zero |
//! | 8 | 4 | n, bytes of the packed token dictionary, 0 if there is none |
//! | 12 | 4 | bytes of the token dictionary, front-coded |
//! | 16 | 4 | m, bytes of the block dictionary, 0 if there is none |
//! | 20 | 4 | of version 2 alone: k, bytes of the packed codes |
//! | 24 | 4 | of version 2 alone: bytes of the codes |
//! | 20 or 28 | n | token dictionary, as `ziptier_codec::token` stores it, front-coded, as a zstd frame without its magic number |
//! | | m | block dictionary, as `ziptier_codec::block` stores it: for zstd, or for deflate with canned codes |
//! | | k | codes of the tokens, as `ziptier_codec::token::packed` packs them |
//! | end - 4 | 4 | CRC32C of everything before |
//!
//! Numbers are little-endian. Earlier releases refuse version 2 by its number.

use crate::counters::Counted;
use crate::settings::{self, Private};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{self, BlockError, Contexts, Huffman, Path, Setting};
use ziptier_codec::checksum::crc32c;
use ziptier_codec::format::Format;
use ziptier_codec::token::{self, packed};

const SIGNATURE: [u8; 4] = *b"zrdb";
const VERSION: u8 = 1;
/// The version with codes, whose header has two lengths more.
const VERSION_OF_CODES: u8 = 2;
const HEADER_BYTES: usize = 20;
const LENGTHS_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// The longest stored generation, and the longest token dictionary. This crate makes none that is longer.
const BYTES_MAX: usize = 4 << 20;

/// Dictionaries, ready for packing and unpacking.
pub struct Generation {
    bytes: Box<[u8]>,
    tokens: Option<token::Dictionary>,
    blocks: Blocks,
}

/// The dictionary for blocks other than tokens.
enum Blocks {
    /// Nothing that is shared.
    Alone,
    /// zstd with a dictionary.
    Zstd(Contexts),
    /// Deflate with canned codes and history.
    Canned(Canned),
}

/// Contexts of a dictionary with canned codes, for every setting that managers of this process use.
pub(crate) struct Canned {
    dictionary: Arc<block::Dictionary>,
    on_cpu: Counted,
    others: Mutex<Vec<(Setting, Asked)>>,
}

/// What came of asking for the contexts of a setting.
enum Asked {
    Made(Arc<Counted>),
    /// So many blocks ago no engine took the dictionary.
    Refused(u32),
}

/// A device is asked again for a dictionary after so many blocks: its queue may have been full.
const ASK_AGAIN_AFTER: u32 = 1 << 10;

/// Why bytes are no generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerationError {
    /// The bytes are something else, such as a dictionary of RocksDB's own.
    #[error("expected a dictionary of ziptier, found other bytes")]
    Foreign,
    /// A later version wrote them.
    #[error(
        "expected a dictionary of version {VERSION} or {VERSION_OF_CODES}, found version {0}; \
         read the file with the ziptier that wrote it"
    )]
    Version(u8),
    /// They were changed, or cut.
    #[error("the dictionary of a file is damaged: {0}")]
    Damaged(String),
    /// An engine failed, such as for lack of memory. This says nothing against the bytes.
    #[error("the dictionary of a file could not be loaded: {0}; the file may be sound, so try again")]
    Engine(String),
}

impl GenerationError {
    fn of(error: packed::UnpackError) -> GenerationError {
        match error {
            packed::UnpackError::Frame(BlockError::Engine { reason, .. }) => GenerationError::Engine(reason),
            error => GenerationError::Damaged(error.to_string()),
        }
    }
}

/// All generations of this process that are in use, by a hash of their bytes.
static IN_USE: Mutex<Option<HashMap<u128, Weak<Generation>>>> = Mutex::new(None);

impl Generation {
    /// Whether the bytes claim to be a generation.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&SIGNATURE)
    }

    /// The generation of these dictionaries, shared with all users of the same bytes.
    pub(crate) fn new(
        tokens: Option<&token::Dictionary>,
        blocks: Option<&block::Dictionary>,
    ) -> Result<Arc<Generation>, GenerationError> {
        let damaged = |error: BlockError| GenerationError::Damaged(error.to_string());
        let codes = tokens.and_then(|tokens| Some(packed::pack_codes(tokens.codes()?, tokens)));
        let codes = codes.transpose().map_err(damaged)?;
        let tokens = tokens.map(packed::pack).transpose().map_err(damaged)?;
        let (packed, token_bytes) =
            tokens.map_or((Vec::new(), 0), |tokens| (tokens.bytes, tokens.coded_bytes));
        let blocks = blocks.map(block::Dictionary::to_bytes).unwrap_or_default();
        let mut lengths = vec![packed.len(), token_bytes, blocks.len()];
        lengths.extend(codes.iter().flat_map(|codes| [codes.bytes.len(), codes.coded_bytes]));
        let version = if codes.is_some() { VERSION_OF_CODES } else { VERSION };
        let mut bytes = [&SIGNATURE[..], &[version, 0, 0, 0]].concat();
        bytes.extend(lengths.iter().flat_map(|&length| (length as u32).to_le_bytes()));
        bytes.extend_from_slice(&packed);
        bytes.extend_from_slice(&blocks);
        bytes.extend(codes.into_iter().flat_map(|codes| codes.bytes));
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        Generation::load(&bytes)
    }

    /// The generation that these bytes describe. Any bytes may be given; lengths are checked before anything is
    /// allocated.
    pub fn load(bytes: &[u8]) -> Result<Arc<Generation>, GenerationError> {
        Generation::load_hashed(bytes, xxhash_rust::xxh3::xxh3_128(bytes))
    }

    /// Files may come from strangers, who can make two dictionaries with one hash. So the bytes are compared, and
    /// different bytes are another generation.
    fn load_hashed(bytes: &[u8], hash: u128) -> Result<Arc<Generation>, GenerationError> {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use = in_use.get_or_insert_default();
        let known = in_use.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| *known.bytes == *bytes) {
            return Ok(known);
        }
        let loaded = Arc::new(Generation::parse(bytes)?);
        in_use.retain(|_, generation| generation.strong_count() > 0);
        in_use.insert(hash, Arc::downgrade(&loaded));
        Ok(loaded)
    }

    fn parse(bytes: &[u8]) -> Result<Generation, GenerationError> {
        let damaged = |what: &str| GenerationError::Damaged(what.to_owned());
        if !Generation::is_one(bytes) {
            return Err(GenerationError::Foreign);
        }
        let field = |at: usize| {
            let four = bytes.get(at..at + 4).ok_or_else(|| damaged("it ends within its header"))?;
            Ok(u32::from_le_bytes(four.try_into().expect("four bytes were taken")))
        };
        let (packed_bytes, token_bytes, block_bytes) =
            (field(8)? as usize, field(12)? as usize, field(16)? as usize);
        let (header_bytes, packed_code_bytes, code_bytes) = match bytes[4] {
            VERSION => (HEADER_BYTES, 0, 0),
            VERSION_OF_CODES => (HEADER_BYTES + LENGTHS_BYTES, field(20)? as usize, field(24)? as usize),
            version => return Err(GenerationError::Version(version)),
        };
        if bytes.len().max(token_bytes) > BYTES_MAX
            || bytes.len() != header_bytes + packed_bytes + block_bytes + packed_code_bytes + CHECKSUM_BYTES
        {
            return Err(damaged("its length is not what its header says"));
        }
        let (content, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if crc32c(content).to_le_bytes() != stored {
            return Err(damaged("its checksum does not match"));
        }
        let (packed, rest) = content[header_bytes..].split_at(packed_bytes);
        let (blocks, codes) = rest.split_at(block_bytes);
        let tokens = (!packed.is_empty()).then(|| packed::unpack(packed, token_bytes)).transpose();
        let blocks = (!blocks.is_empty()).then(|| block::Dictionary::from_bytes(blocks)).transpose();
        Ok(Generation {
            bytes: bytes.into(),
            tokens: with_codes(tokens.map_err(GenerationError::of)?, codes, code_bytes)?,
            blocks: Blocks::of(blocks.map_err(|error| damaged(&error.to_string()))?)
                .map_err(|error| damaged(&error.to_string()))?,
        })
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The token dictionary.
    pub(crate) fn tokens(&self) -> Option<&token::Dictionary> {
        self.tokens.as_ref()
    }

    /// Whether its tokens have codes.
    pub(crate) fn has_codes(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.codes().is_some())
    }

    /// Contexts of zstd with the generation's dictionary.
    pub(crate) fn zstd(&self) -> Option<&Contexts> {
        if let Blocks::Zstd(contexts) = &self.blocks { Some(contexts) } else { None }
    }

    /// Canned codes.
    pub(crate) fn canned(&self) -> Option<&Canned> {
        if let Blocks::Canned(canned) = &self.blocks { Some(canned) } else { None }
    }

    /// Whether new files of a format can be packed by it.
    pub(crate) fn serves(&self, private: Private) -> bool {
        self.canned().is_some() == (private == Private::Canned)
    }

    /// Bytes of heap that it holds, codes included, contexts apart.
    pub fn memory_bytes(&self) -> usize {
        let tokens = self.tokens.as_ref().map_or(0, token::Dictionary::memory_bytes);
        let blocks = match &self.blocks {
            Blocks::Alone => 0,
            Blocks::Zstd(contexts) => contexts.engine().memory_bytes(),
            Blocks::Canned(canned) => canned.dictionary.memory_bytes(),
        };
        self.bytes.len() + tokens + blocks
    }
}

/// The tokens with their packed codes, if there are any.
fn with_codes(
    tokens: Option<token::Dictionary>,
    codes: &[u8],
    code_bytes: usize,
) -> Result<Option<token::Dictionary>, GenerationError> {
    match tokens {
        tokens if codes.is_empty() => Ok(tokens),
        None => Err(GenerationError::Damaged("it has codes without tokens".to_owned())),
        Some(tokens) => {
            let codes = packed::unpack_codes(&tokens, codes, code_bytes).map_err(GenerationError::of)?;
            Ok(Some(tokens.with_codes(codes)))
        }
    }
}

impl Blocks {
    fn of(dictionary: Option<block::Dictionary>) -> Result<Blocks, SettingError> {
        let Some(dictionary) = dictionary.map(Arc::new) else { return Ok(Blocks::Alone) };
        if dictionary.format() == Format::Deflate {
            return Canned::new(dictionary).map(Blocks::Canned);
        }
        let engine = Setting::new(Format::Zstd).with_dictionary(dictionary).engine()?;
        Ok(Blocks::Zstd(Contexts::new(engine)))
    }
}

impl Canned {
    fn new(dictionary: Arc<block::Dictionary>) -> Result<Canned, SettingError> {
        let setting = Setting::new(Format::Deflate).with_path(Path::Software);
        let on_cpu = Canned::contexts(&dictionary, setting)?;
        Ok(Canned { dictionary, on_cpu, others: Mutex::default() })
    }

    fn contexts(dictionary: &Arc<block::Dictionary>, setting: Setting) -> Result<Counted, SettingError> {
        let setting = setting.with_huffman(Huffman::Canned).with_dictionary(Arc::clone(dictionary));
        settings::engine(&setting).map(Counted::new)
    }

    /// Contexts on the CPU, which read everything that a device wrote.
    pub(crate) fn on_cpu(&self) -> &Contexts {
        &self.on_cpu
    }

    /// Contexts for a level, a path and devices, for one block. `None` if no engine works so: on the path `hardware` a
    /// device may not take the dictionary.
    pub(crate) fn of(&self, setting: &Setting) -> Option<Arc<Counted>> {
        let is_same = |other: &Setting| {
            (other.level, other.path) == (setting.level, setting.path) && other.device == setting.device
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let known = others.iter().position(|(other, _)| is_same(other));
        let at = known.unwrap_or_else(|| {
            others.push((setting.clone(), Asked::Refused(ASK_AGAIN_AFTER)));
            others.len() - 1
        });
        let asked = &mut others[at].1;
        if let Asked::Refused(blocks) = asked {
            if *blocks < ASK_AGAIN_AFTER {
                *blocks += 1;
                return None;
            }
            let made = Canned::contexts(&self.dictionary, setting.clone());
            *asked = made.map_or(Asked::Refused(0), |contexts| Asked::Made(Arc::new(contexts)));
        }
        match asked {
            Asked::Made(contexts) => Some(Arc::clone(contexts)),
            Asked::Refused(_) => None,
        }
    }

    /// Puts an engine in place of that for a setting.
    #[cfg(test)]
    pub(crate) fn put(&self, setting: Setting, engine: Arc<dyn block::Engine>) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.insert(0, (setting, Asked::Made(Arc::new(Counted::new(engine)))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ziptier_codec::token::entropy::Codes;
    use ziptier_codec::token::{Effort, Encoder};

    fn rows() -> Vec<String> {
        (0..3000).map(|i| format!("row {} of the table", i * 7919 % 1000)).collect()
    }

    fn blocks(format: Format) -> block::Dictionary {
        let rows = rows();
        let samples: Vec<&[u8]> = rows.iter().map(|sample| sample.as_bytes()).collect();
        block::Dictionary::train(format, &samples, 1024, 0).unwrap()
    }

    fn one() -> Arc<Generation> {
        let rows = rows();
        let samples: Vec<&[u8]> = rows.iter().map(|sample| sample.as_bytes()).collect();
        let tokens = token::Dictionary::train(&samples, 12, 0).unwrap();
        Generation::new(Some(&tokens), Some(&blocks(Format::Zstd))).unwrap()
    }

    #[test]
    fn equal_bytes_are_one_generation() {
        let first = one();
        assert!(Arc::ptr_eq(&first, &one()));
        assert!(Arc::ptr_eq(&first, &Generation::load(first.as_bytes()).unwrap()));
        let bytes = first.as_bytes().to_vec();
        drop(first);
        assert_eq!(Generation::load(&bytes).unwrap().as_bytes(), bytes);
    }

    #[test]
    fn other_bytes_of_the_same_hash_are_another_generation() {
        let (first, other) = (one(), Generation::new(None, Some(&blocks(Format::Deflate))).unwrap());
        let hash = 7;
        let kept = Generation::load_hashed(first.as_bytes(), hash).unwrap();
        assert_eq!(Generation::load_hashed(other.as_bytes(), hash).unwrap().as_bytes(), other.as_bytes());
        assert_eq!(kept.as_bytes(), first.as_bytes());
    }

    #[test]
    fn dictionaries_of_blocks_are_those_that_blocks_have() {
        let canned = Generation::new(None, Some(&blocks(Format::Deflate))).unwrap();
        assert!(canned.serves(Private::Canned) && !canned.serves(Private::Tokens));
        assert!(one().serves(Private::Tokens) && !one().serves(Private::Canned));
        let without_codes = block::Dictionary::new(Format::Deflate, *b"history and no codes", 0).unwrap();
        for other in [&without_codes, &blocks(Format::Lz4)] {
            let error = Generation::new(None, Some(other)).err().unwrap();
            assert!(matches!(error, GenerationError::Damaged(_)), "{error}");
        }
    }

    /// One full queue would leave all blocks of a dictionary to the CPU for as long as the process runs.
    #[test]
    fn a_device_that_refused_a_dictionary_is_asked_again_after_many_blocks() {
        let generation = Generation::new(None, Some(&blocks(Format::Deflate))).unwrap();
        let canned = generation.canned().unwrap();
        let setting = Setting::new(Format::Deflate).with_path(Path::Software);
        canned.others.lock().unwrap().push((setting.clone(), Asked::Refused(0)));
        let refusals = (0..2 * ASK_AGAIN_AFTER).take_while(|_| canned.of(&setting).is_none()).count();
        assert_eq!(refusals, ASK_AGAIN_AFTER as usize);
        assert!(canned.of(&setting).is_some());
    }

    fn with_codes(bits: u32) -> Arc<Generation> {
        let rows = rows();
        let samples: Vec<&[u8]> = rows.iter().map(|sample| sample.as_bytes()).collect();
        let tokens = token::Dictionary::train(&samples, bits, 0).unwrap();
        let codes = Codes::train(&tokens, &mut Encoder::new(), Effort::Dense, &samples, 1 << 24);
        Generation::new(Some(&tokens.with_codes(codes)), None).unwrap()
    }

    /// A generation of version 2 whose checksum is right. Lengths are those of packed and unpacked bytes.
    fn sealed(tokens: (&[u8], u32), codes: (&[u8], u32)) -> Vec<u8> {
        let mut bytes = [&SIGNATURE[..], &[VERSION_OF_CODES, 0, 0, 0]].concat();
        for length in [tokens.0.len() as u32, tokens.1, 0, codes.0.len() as u32, codes.1] {
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.extend_from_slice(tokens.0);
        bytes.extend_from_slice(codes.0);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// The packed tokens of a generation with codes, and the packed codes, each with its length when it is unpacked.
    fn parts(generation: &Generation) -> [(&[u8], u32); 2] {
        let field = |at: usize| {
            u32::from_le_bytes(*generation.bytes[at..].first_chunk().expect("a header is longer"))
        };
        let content = &generation.bytes[HEADER_BYTES + LENGTHS_BYTES..];
        let (packed, rest) = content.split_at(field(8) as usize);
        [(packed, field(12)), (&rest[..field(20) as usize], field(24))]
    }

    #[test]
    fn codes_come_back_with_their_tokens_alone() {
        let sound = with_codes(12);
        assert!(sound.has_codes() && !one().has_codes());
        assert_eq!((sound.as_bytes()[4], one().as_bytes()[4]), (2, 1));
        let [tokens, codes] = parts(&sound);
        assert_eq!(sealed(tokens, codes), sound.as_bytes());
        let refusal = |bytes: &[u8]| match Generation::load(bytes) {
            Err(GenerationError::Damaged(reason)) => reason,
            other => panic!("{:?}", other.err()),
        };
        assert!(refusal(&sealed((&[], 0), codes)).contains("codes without tokens"));
        let other = with_codes(11);
        refusal(&sealed(tokens, parts(&other)[1]));
        assert!(refusal(&sealed(tokens, (codes.0, u32::MAX))).contains("too long"));
        // Codes have a checksum of their own. A bit of zstd's frame may mean nothing.
        for at in 0..codes.0.len() {
            let mut damaged = codes.0.to_vec();
            damaged[at] ^= 1 << (at % 8);
            let loaded = Generation::load(&sealed(tokens, (&damaged, codes.1)));
            let is_same = |generation: Arc<Generation>| {
                let [one, other] = [&generation, &sound]
                    .map(|of| of.tokens().and_then(|tokens| Some(tokens.codes()?.to_bytes(tokens))));
                one == other
            };
            assert!(loaded.map_or(true, is_same), "byte {at}");
            refusal(&sealed(tokens, (&codes.0[..at.max(1)], codes.1)));
        }
    }

    #[test]
    fn a_version_that_is_not_known_is_named() {
        for sound in [one(), with_codes(12)] {
            for version in [0, 3, 255] {
                let mut bytes = sound.as_bytes().to_vec();
                bytes[4] = version;
                let error = Generation::load(&bytes).err().unwrap();
                assert_eq!(error, GenerationError::Version(version));
                assert!(error.to_string().contains("version 1 or 2"), "{error}");
            }
        }
    }

    #[test]
    fn damage_is_named() {
        for sound in [one(), Generation::new(None, Some(&blocks(Format::Deflate))).unwrap(), with_codes(12)] {
            no_damage_passes(sound.as_bytes());
        }
        assert_eq!(Generation::load(b"a dictionary of zstd").err(), Some(GenerationError::Foreign));
    }

    /// People throw files away for a corruption.
    #[test]
    fn an_engine_without_memory_is_no_damage() {
        let reason = "zstd: no memory for a decompression context".to_owned();
        let refused = BlockError::Engine { engine: "cpu", reason };
        let error = GenerationError::of(packed::UnpackError::Frame(refused));
        assert!(matches!(error, GenerationError::Engine(_)) && error.to_string().contains("try again"));
        let error = GenerationError::of(packed::UnpackError::NotFrontCoded);
        assert!(matches!(error, GenerationError::Damaged(_)), "{error}");
    }

    fn no_damage_passes(sound: &[u8]) {
        for at in (0..sound.len()).step_by(7) {
            let mut bytes = sound.to_vec();
            bytes[at] ^= 1 << (at % 8);
            assert!(Generation::load(&bytes).is_err(), "byte {at}");
        }
        for length in (0..sound.len()).step_by(11) {
            assert!(Generation::load(&sound[..length]).is_err());
        }
    }
}
