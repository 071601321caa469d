//! Entropy-coded values: a tenth to a third smaller than token numbers of one width, and slower to decode. For values
//! that are seldom read.
//!
//! A [`Codes`] belongs to a dictionary. It has a prefix code for each *context*, and the token before a token decides
//! about the context. So the frequent successors of a token take few bits. A coded value becomes an entropy-coded one,
//! and an entropy-coded one becomes the coded value again, without a new parse: both hold the same tokens. Each value
//! can still be decoded alone.
//!
//! # An entropy-coded value
//!
//! ```text
//! code 0 | code 1 | ... | a set bit | zero bits up to a byte | check (2 bytes)
//! ```
//!
//! - Bits lie as those of numbers do, the lowest first. The last set bit before the check says where the codes end.
//! - A token without a code of its own is an *escape* and the token's number.
//! - The check is that of a coded value, seeded with the codes as well.
//!
//! # A block in parts
//!
//! RocksDB unpacks blocks whole. [`Recoder::recode_block`] puts the tokens of such a block into four parts, which
//! [`Codes::decode_parts`] decodes side by side in half to six tenths of the time. `parts.rs` draws the bytes. They do
//! not tell whether they have parts: the caller has to know it.

mod contexts;
mod lengths;
mod parts;
mod reader;
mod recoder;
mod serial;
mod table;

use super::encode::{Effort, Encoder};
use super::error::{CodesError, DecodeError};
use super::{CHECK_BYTES, Dictionary, TOKEN_BYTES_MAX, decode, numbers, train};
use crate::checksum::check16;
use contexts::{Contexts, Pairs};
use reader::Reader;
pub use recoder::Recoder;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use table::Table;

/// Scratch of an encoder for a group of samples, at most.
const SCRATCH_BYTES_MAX: usize = 384 << 10;

/// Bytes of a value that are expected for each of its entropy-coded bytes. A value that has more takes another step.
const EXPECTED_RATIO: usize = 8;

/// Numbers that tell codes apart.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Prefix codes of the tokens of one dictionary.
///
/// Immutable and shared by all threads, as the dictionary is; the state of coding lives in a [`Recoder`].
pub struct Codes {
    table: Table,
    /// Of checks.
    seed: u32,
    /// No other codes of the process have it. A stranger can make codes that share the seed of others.
    number: u64,
}

impl Codes {
    /// Makes codes for a dictionary from samples, which should look like the values to come. `effort` is that of the
    /// values that will be recoded.
    ///
    /// The training holds at most `bytes_max` beside the samples. Where all samples need more, it takes the first ones
    /// only. It takes 14 to 28 ms for each MB of text or markup (`examples/entropy_table.rs`).
    pub fn train(
        dictionary: &Dictionary,
        encoder: &mut Encoder,
        effort: Effort,
        samples: &[&[u8]],
        bytes_max: usize,
    ) -> Codes {
        let fixed_bytes =
            dictionary.tokens() * contexts::TOKEN_BYTES + size_of_val(samples) + SCRATCH_BYTES_MAX;
        let sample_bytes: usize = samples.iter().map(|sample| sample.len()).sum();
        let room = (bytes_max.saturating_sub(fixed_bytes) / contexts::NUMBER_BYTES).min(sample_bytes);
        let (mut numbers, mut ends) = (Vec::with_capacity(room), Vec::with_capacity(room));
        train::for_each_group(samples, |group| {
            let mut has_room = true;
            dictionary.parse(encoder, effort, group, |value| {
                has_room &= value.len() <= room - numbers.len();
                if has_room {
                    numbers.extend_from_slice(value);
                    ends.push(numbers.len());
                }
            });
            has_room
        });
        Codes::of_numbers(dictionary, &numbers, &ends)
    }

    /// As [`train`](Self::train), from values as the dictionary has coded them, such as blocks that were cut into rows.
    /// The training holds at most `bytes_max` beside them. Where all of them need more, it takes the first ones only.
    ///
    /// # Errors
    ///
    /// A value is damaged, hostile or of another dictionary.
    pub fn train_coded(
        dictionary: &Dictionary,
        coded: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Codes, DecodeError> {
        let bits = dictionary.bits();
        let fixed_bytes = dictionary.tokens() * contexts::TOKEN_BYTES;
        let room = bytes_max.saturating_sub(fixed_bytes) / contexts::NUMBER_BYTES;
        let (mut numbers, mut ends) = (Vec::new(), Vec::new());
        for value in coded {
            dictionary.raw_len(value)?;
            let payload = &value[..value.len() - CHECK_BYTES];
            let count = payload.len() * 8 / bits as usize;
            if count > room - numbers.len() {
                break;
            }
            numbers.extend((0..count).map(|position| numbers::get(payload, position, bits) as u16));
            ends.push(numbers.len());
        }
        Ok(Codes::of_numbers(dictionary, &numbers, &ends))
    }

    /// Codes for values of these numbers, which end before each of `ends`.
    fn of_numbers(dictionary: &Dictionary, numbers: &[u16], ends: &[usize]) -> Codes {
        let contexts = Contexts::cluster(&Pairs::count(numbers, ends, dictionary.tokens()));
        Codes::of(Table::new(&contexts, dictionary.bits()), dictionary)
    }

    fn of(table: Table, dictionary: &Dictionary) -> Codes {
        let seed = dictionary.fingerprint() ^ serial::fingerprint(&table, dictionary.tokens());
        Codes { table, seed, number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// The codes as self-describing bytes: version, the dictionary's fingerprint, contexts, codes, CRC32C.
    pub fn to_bytes(&self, dictionary: &Dictionary) -> Vec<u8> {
        serial::to_bytes(&self.table, dictionary)
    }

    /// Loads stored codes of this dictionary. The bytes may be any: the loader checks lengths before it allocates.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, hostile or of another dictionary.
    pub fn from_bytes(dictionary: &Dictionary, bytes: &[u8]) -> Result<Codes, CodesError> {
        Ok(Codes::of(serial::parse(bytes, dictionary)?, dictionary))
    }

    /// Bytes of heap that the codes hold: 150 KB for 14 bits.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Appends the value to `out` and returns its length. The dictionary is that of the codes.
    ///
    /// An error leaves the length of `out` unchanged. `out` grows by at most `max_bytes` and a few KiB, apart from the
    /// doubling of a `Vec`.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, hostile or of other codes, or the value is longer than `max_bytes`.
    pub fn decode_append(
        &self,
        dictionary: &Dictionary,
        coded: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let start = out.len();
        let mut short = [0; 8];
        let reader = self.reader(coded, &mut short);
        let decoded =
            reader.and_then(|reader| append_rest(reader, dictionary.table(), out, start, max_bytes));
        if decoded.is_err() {
            out.truncate(start);
        }
        decoded
    }

    /// As [`decode_append`](Self::decode_append), for a block [in parts](Recoder::recode_block).
    ///
    /// # Errors
    ///
    /// As of [`decode_append`](Self::decode_append).
    pub fn decode_parts(
        &self,
        dictionary: &Dictionary,
        coded: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let start = out.len();
        let mut short = [0; 8];
        let decoded = self.reader(coded, &mut short).and_then(|mut reader| {
            append_groups(&mut reader, dictionary.table(), out, max_bytes)?;
            append_rest(reader, dictionary.table(), out, start, max_bytes)
        });
        if decoded.is_err() {
            out.truncate(start);
        }
        decoded
    }

    /// As [`decode_append`](Self::decode_append), to the start of `target`, whose length is the limit. Returns the
    /// value. All bytes of `target` may change.
    ///
    /// # Errors
    ///
    /// As of [`decode_append`](Self::decode_append).
    pub fn decode_into<'t>(
        &self,
        dictionary: &Dictionary,
        coded: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<&'t mut [u8], DecodeError> {
        let mut short = [0; 8];
        let mut reader = self.reader(coded, &mut short)?;
        let written = reader.decode(dictionary.table(), target)?;
        if !reader.is_done() {
            let raw_bytes = written + reader.measure(dictionary.table())?;
            return Err(DecodeError::TooLong { raw_bytes, max_bytes: target.len() });
        }
        reader.finish()?;
        // SAFETY: the reader wrote that many bytes.
        Ok(unsafe { target[..written].assume_init_mut() })
    }

    /// The length of the value, without its bytes. The check is verified as in decoding.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, hostile or of other codes.
    pub fn raw_len(&self, dictionary: &Dictionary, coded: &[u8]) -> Result<usize, DecodeError> {
        self.reader(coded, &mut [0; 8])?.measure(dictionary.table())
    }

    /// As [`raw_len`](Self::raw_len), of a block [in parts](Recoder::recode_block).
    ///
    /// # Errors
    ///
    /// As of [`raw_len`](Self::raw_len).
    pub fn parts_raw_len(&self, dictionary: &Dictionary, coded: &[u8]) -> Result<usize, DecodeError> {
        self.reader(coded, &mut [0; 8])?.measure_parts(dictionary.table())
    }

    /// A reader of the codes of a value whose check is right.
    fn reader<'c>(&'c self, coded: &'c [u8], short: &'c mut [u8; 8]) -> Result<Reader<'c>, DecodeError> {
        let length = || DecodeError::Length { coded_bytes: coded.len() };
        let (payload, stored) = coded.split_last_chunk::<CHECK_BYTES>().ok_or_else(length)?;
        let (stored, computed) = (u16::from_le_bytes(*stored), check16(self.seed, payload));
        if stored != computed {
            return Err(DecodeError::Check { stored, computed });
        }
        let last = payload.last().copied().and_then(std::num::NonZero::new).ok_or_else(length)?;
        let end = payload.len() * 8 - 1 - last.leading_zeros() as usize;
        let bytes = match coded.len() {
            0..8 => {
                short[..coded.len()].copy_from_slice(coded);
                &short[..]
            }
            _ => coded,
        };
        Ok(Reader::new(&self.table, bytes, end, coded.len()))
    }

    /// Appends codes, which end with a set bit, and their check.
    fn seal(&self, start: usize, out: &mut Vec<u8>) {
        let check = check16(self.seed, &out[start..]);
        out.extend_from_slice(&check.to_le_bytes());
    }
}

/// Appends the turns of all groups, and leaves the rest of the last part.
fn append_groups(
    reader: &mut Reader<'_>,
    tokens: &decode::Table,
    out: &mut Vec<u8>,
    max_bytes: usize,
) -> Result<(), DecodeError> {
    let (start, whole) = (out.len(), reader.clone());
    let mut numbers = [[0; parts::PARTS]; parts::TURNS_MAX];
    while !reader.is_done() {
        let first = reader.tokens;
        let turns = reader.group(&mut numbers)?;
        let room = max_bytes - (out.len() - start);
        let room = room.min(turns * parts::PARTS * TOKEN_BYTES_MAX);
        out.reserve(room + TOKEN_BYTES_MAX);
        let target = &mut out.spare_capacity_mut()[..room + TOKEN_BYTES_MAX];
        let written = parts::write(&numbers[..turns], first, tokens, target)?;
        if written > room {
            return Err(DecodeError::TooLong { raw_bytes: whole.measure_parts(tokens)?, max_bytes });
        }
        // SAFETY: so many bytes were written behind the old end, within the capacity.
        unsafe { out.set_len(out.len() + written) };
        if turns < parts::TURNS_MAX {
            break;
        }
    }
    Ok(())
}

/// Appends the tokens that are left to those that lie in `out` behind `start`, and returns the bytes of both.
fn append_rest(
    mut reader: Reader<'_>,
    tokens: &decode::Table,
    out: &mut Vec<u8>,
    start: usize,
    max_bytes: usize,
) -> Result<usize, DecodeError> {
    let expected_bytes = reader.left_bytes() * EXPECTED_RATIO;
    while !reader.is_done() {
        let left_max = max_bytes - (out.len() - start);
        out.reserve(expected_bytes.min(left_max) + TOKEN_BYTES_MAX);
        let written = reader.decode(tokens, out.spare_capacity_mut())?;
        // SAFETY: the reader wrote that many bytes behind the old end, within the capacity.
        unsafe { out.set_len(out.len() + written) };
        if out.len() - start > max_bytes {
            let rest = reader.measure(tokens)?;
            return Err(DecodeError::TooLong { raw_bytes: out.len() - start + rest, max_bytes });
        }
    }
    reader.finish()?;
    Ok(out.len() - start)
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codes").field("seed", &self.seed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a table in which words follow each other by rules.
    pub(super) fn rows(count: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let row = |_| {
            let (colour, size) = (random.usize(0..4), random.usize(0..3));
            let colours = ["red", "green", "blue", "black"];
            let sizes = [["tiny", "small", "little"], ["large", "huge", "great"], ["wide", "flat", "thin"]];
            let things = ["house", "garden", "window", "street"];
            let noise = random.u32(0..10_000);
            let (size, thing) = (sizes[size][random.usize(0..3)], things[(colour + size) % 4]);
            format!("the {} {thing} is {size} and has the number {noise}", colours[colour]).into_bytes()
        };
        (0..count).map(row).collect()
    }

    fn slices(rows: &[Vec<u8>]) -> Vec<&[u8]> {
        rows.iter().map(Vec::as_slice).collect()
    }

    pub(super) fn trained(bits: u32) -> (Dictionary, Codes) {
        let rows = rows(3000, 1);
        let dictionary = Dictionary::train(&slices(&rows), bits, 1).unwrap();
        let codes = Codes::train(&dictionary, &mut Encoder::new(), Effort::Fast, &slices(&rows), 1 << 24);
        (dictionary, codes)
    }

    /// A value as the dictionary and as the codes code it.
    fn coded(dictionary: &Dictionary, codes: &Codes, recoder: &mut Recoder, value: &[u8]) -> [Vec<u8>; 2] {
        let (mut plain, mut ends, mut dense) = (Vec::new(), Vec::new(), vec![7]);
        dictionary.encode_group(&mut Encoder::new(), &[value], &mut plain, &mut ends);
        recoder.recode(codes, dictionary, &plain, &mut dense).expect("the dictionary is the right one");
        dense.remove(0);
        [plain, dense]
    }

    #[test]
    fn values_come_back_however_much_room_there_is() {
        for bits in [10, 13, 16] {
            let (dictionary, codes) = trained(bits);
            let mut recoder = Recoder::new();
            let mut values = rows(50, 2);
            values.extend([vec![], vec![b't'], b"\0\xff".to_vec(), (0..=255).collect()]);
            for value in &values {
                let [plain, dense] = coded(&dictionary, &codes, &mut recoder, value);
                let mut restored = vec![1];
                recoder.restore(&codes, &dictionary, &dense, &mut restored).unwrap();
                assert_eq!(restored[1..], plain);
                assert_eq!(codes.raw_len(&dictionary, &dense), Ok(value.len()));
                for mut out in [Vec::new(), Vec::with_capacity(value.len()), Vec::with_capacity(1000)] {
                    assert_eq!(
                        codes.decode_append(&dictionary, &dense, &mut out, value.len()),
                        Ok(value.len())
                    );
                    assert_eq!(out, *value);
                }
                for room in [value.len(), value.len() + 15, value.len() + 16] {
                    let mut target = vec![MaybeUninit::new(7); room];
                    assert_eq!(codes.decode_into(&dictionary, &dense, &mut target).unwrap(), value);
                }
                if let Some(max_bytes) = value.len().checked_sub(1) {
                    let error = DecodeError::TooLong { raw_bytes: value.len(), max_bytes };
                    let mut target = vec![MaybeUninit::new(7); max_bytes];
                    assert_eq!(codes.decode_into(&dictionary, &dense, &mut target), Err(error.clone()));
                    let mut out = b"kept".to_vec();
                    assert_eq!(codes.decode_append(&dictionary, &dense, &mut out, max_bytes), Err(error));
                    assert_eq!(out, b"kept");
                }
            }
        }
    }

    /// Codes that nobody trained: small enough for an interpreter that watches every access. The tests of a process
    /// share them, since laying out their table is most of the interpreter's work.
    pub(super) static FEW_CODES: std::sync::LazyLock<(Dictionary, Codes)> = std::sync::LazyLock::new(|| {
        let tokens: Vec<Vec<u8>> =
            (0..=255).map(|byte| vec![byte]).chain([b"abcdefghijklmnop".to_vec(), b"bc".to_vec()]).collect();
        let dictionary = Dictionary::from_tokens(&tokens, 10, 0).unwrap();
        let code = [(Some(b'a'.into()), 1), (Some(256), 2), (None, 2)];
        let code = code.map(|(token, bits)| table::Symbol { token, bits });
        let all = std::iter::repeat_n(code.to_vec(), contexts::CONTEXTS_MAX);
        let table = Table::with_codes(&[[3; 129], [5; 129]].concat(), 10, all);
        let codes = Codes::of(table, &dictionary);
        (dictionary, codes)
    });

    #[test]
    fn values_of_few_codes_stay_within_their_room() {
        let (dictionary, codes) = &*FEW_CODES;
        let mut recoder = Recoder::new();
        let values =
            [&b"bcaaa"[..], b"", b"a", b"abcdefghijklmnopaabcdefghijklmnop", &[b'a'; 90], &[0xff; 70]];
        for value in values {
            let [plain, dense] = coded(dictionary, codes, &mut recoder, value);
            for room in [0, value.len(), value.len() + 7, 1000] {
                let mut out = Vec::with_capacity(room);
                assert_eq!(codes.decode_append(dictionary, &dense, &mut out, 100), Ok(value.len()));
                let mut target = vec![MaybeUninit::uninit(); room];
                let decoded = codes.decode_into(dictionary, &dense, &mut target);
                assert_eq!((decoded.is_ok(), &out[..]), (room >= value.len(), value));
            }
            let mut restored = Vec::new();
            recoder.restore(codes, dictionary, &dense, &mut restored).unwrap();
            assert_eq!(restored, plain);
        }
    }

    /// Coded values hold the same numbers as the samples that they were coded from.
    #[test]
    fn coded_values_give_the_codes_that_their_samples_give() {
        let rows = rows(500, 1);
        let dictionary = Dictionary::train(&slices(&rows), 11, 1).unwrap();
        let (mut coded, mut ends) = (Vec::new(), Vec::new());
        dictionary.encode_group_with(
            &mut Encoder::new(),
            Effort::Fast,
            &slices(&rows),
            &mut coded,
            &mut ends,
        );
        let starts = std::iter::once(0).chain(ends.iter().map(|&end| end as usize));
        let values: Vec<&[u8]> = starts.zip(&ends).map(|(start, &end)| &coded[start..end as usize]).collect();
        let trained = |count| {
            let rows = slices(&rows[..count]);
            Codes::train(&dictionary, &mut Encoder::new(), Effort::Fast, &rows, 1 << 24).to_bytes(&dictionary)
        };
        let of_coded =
            |bytes_max| Codes::train_coded(&dictionary, &values, bytes_max).unwrap().to_bytes(&dictionary);
        assert_eq!(of_coded(1 << 24), trained(rows.len()));
        assert_eq!(of_coded(0), trained(0));
        // As many values as there is room for.
        let first = values[0].len() * 8 / dictionary.bits() as usize;
        let room = dictionary.tokens() * contexts::TOKEN_BYTES + first * contexts::NUMBER_BYTES;
        assert_eq!(of_coded(room), trained(1));
        let damaged = Codes::train_coded(&dictionary, &[&values[0][1..]], 1 << 24).err();
        assert!(damaged.is_some());
    }

    /// The other rows are not among the samples.
    #[test]
    fn values_take_a_quarter_less() {
        let (dictionary, codes) = trained(12);
        let mut recoder = Recoder::new();
        let [plain, dense] = rows(500, 3).iter().fold([0, 0], |[plain, dense], value| {
            let one = coded(&dictionary, &codes, &mut recoder, value);
            [plain + one[0].len(), dense + one[1].len()]
        });
        assert!(dense * 4 < plain * 3, "{dense} of {plain} bytes");
    }

    #[test]
    fn damage_and_other_codes_are_noticed() {
        let (dictionary, codes) = trained(10);
        let other = Codes::train(&dictionary, &mut Encoder::new(), Effort::Fast, &[b"the"], 1 << 24);
        let [plain, dense] = coded(&dictionary, &codes, &mut Recoder::new(), b"the red house is tiny");
        let refused = |codes: &Codes, bytes: &[u8]| {
            let mut out = Vec::new();
            let error = codes.decode_append(&dictionary, bytes, &mut out, 1000).unwrap_err();
            assert!(out.is_empty());
            assert_eq!(codes.raw_len(&dictionary, bytes), Err(error.clone()));
            error
        };
        for bit in 0..dense.len() * 8 {
            let mut damaged = dense.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(refused(&codes, &damaged), DecodeError::Check { .. }), "bit {bit}");
        }
        assert!(matches!(refused(&other, &dense), DecodeError::Check { .. }));
        assert!(matches!(refused(&codes, &plain), DecodeError::Check { .. }));
        for coded_bytes in [0, 1] {
            assert_eq!(refused(&codes, &dense[..coded_bytes]), DecodeError::Length { coded_bytes });
        }
        let damaged = Recoder::new().recode(&codes, &dictionary, &dense, &mut Vec::new());
        assert!(damaged.is_err());
    }

    /// Codes of a stranger's file can have the seed of others.
    #[test]
    fn codes_whose_checks_share_a_seed_are_told_apart() {
        let (dictionary, codes) = trained(10);
        let other = Codes::train(&dictionary, &mut Encoder::new(), Effort::Fast, &[b"the"], 1 << 24);
        let other = Codes { seed: codes.seed, ..other };
        let mut recoder = Recoder::new();
        for codes in [&codes, &other, &codes] {
            let [_, dense] = coded(&dictionary, codes, &mut recoder, b"the red house is tiny");
            let mut value = Vec::new();
            assert_eq!(codes.decode_append(&dictionary, &dense, &mut value, 100), Ok(21));
            assert_eq!(value, b"the red house is tiny");
        }
    }

    #[test]
    fn stored_codes_are_the_same_and_damage_is_an_error() {
        let (dictionary, codes) = trained(10);
        let stored = codes.to_bytes(&dictionary);
        let loaded = Codes::from_bytes(&dictionary, &stored).unwrap();
        assert_eq!((loaded.seed, loaded.to_bytes(&dictionary)), (codes.seed, stored.clone()));
        let [_, dense] = coded(&dictionary, &codes, &mut Recoder::new(), b"the black window is great");
        let mut value = Vec::new();
        loaded.decode_append(&dictionary, &dense, &mut value, 100).unwrap();
        assert_eq!(value, b"the black window is great");
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Codes::from_bytes(&dictionary, &damaged).is_err(), "byte {at}");
            assert!(Codes::from_bytes(&dictionary, &stored[..at]).is_err(), "{at} bytes");
        }
        let (other, _) = trained(11);
        assert_eq!(Codes::from_bytes(&other, &stored).unwrap_err(), CodesError::OtherDictionary);
    }

    /// Bytes with the right checksum are codes that do what codes do, or an error.
    #[test]
    fn crafted_codes_load_or_are_refused() {
        let (dictionary, codes) = trained(10);
        let stored = codes.to_bytes(&dictionary);
        let mut random = fastrand::Rng::with_seed(4);
        let (mut loaded, mut refused) = (0, 0);
        for _ in 0..2000 {
            let mut crafted = stored[..stored.len() - 4].to_vec();
            crafted[random.usize(16..stored.len() - 4)] = random.u8(..);
            crafted.extend_from_slice(&crate::checksum::crc32c(&crafted).to_le_bytes());
            let Ok(codes) = Codes::from_bytes(&dictionary, &crafted) else {
                refused += 1;
                continue;
            };
            loaded += 1;
            let mut recoder = Recoder::new();
            let value = b"the green garden is huge and has the number 77";
            let [plain, dense] = coded(&dictionary, &codes, &mut recoder, value);
            let (mut out, mut restored) = (Vec::new(), Vec::new());
            assert_eq!(codes.decode_append(&dictionary, &dense, &mut out, value.len()), Ok(value.len()));
            recoder.restore(&codes, &dictionary, &dense, &mut restored).unwrap();
            assert_eq!((&out[..], restored), (&value[..], plain));
        }
        assert!(loaded > 0 && refused > 0, "{loaded} were loaded, {refused} refused");
    }

    /// Whatever the codes are, the decoder stays within its room, and its functions agree.
    #[test]
    fn crafted_codes_are_read_or_refused() {
        let (dictionary, codes) = trained(10);
        let mut random = fastrand::Rng::with_seed(9);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..5000 {
            let mut crafted: Vec<u8> = (0..random.usize(0..60)).map(|_| random.u8(..)).collect();
            codes.seal(0, &mut crafted);
            let length = codes.raw_len(&dictionary, &crafted);
            let mut out = Vec::new();
            assert_eq!(codes.decode_append(&dictionary, &crafted, &mut out, 1 << 16), length);
            assert!(out.capacity() < 1 << 14);
            let mut target = [MaybeUninit::new(0xA5); 400];
            let (room, behind) = target.split_at_mut(300);
            match codes.decode_into(&dictionary, &crafted, room) {
                Ok(value) => assert_eq!(value, out),
                Err(DecodeError::TooLong { raw_bytes, .. }) => assert_eq!(Ok(raw_bytes), length),
                Err(error) => assert_eq!(Err(error), length),
            }
            // SAFETY: all of it was initialised.
            assert!(behind.iter().all(|byte| unsafe { byte.assume_init() } == 0xA5));
            *if length.is_ok() { &mut read } else { &mut refused } += 1;
        }
        assert!(read > 0 && refused > 0, "{read} were read, {refused} refused");
    }
}
