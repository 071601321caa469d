//! Codes as bytes: an [envelope].
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature `zent` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | bits of the dictionary's numbers, 10 to 16 |
//! | 6 | 2 | zero |
//! | 8 | 4 | fingerprint of the dictionary |
//! | 12 | 4 | tokens of the dictionary, n |
//! | 16 | (n + 1) / 2, up | contexts behind the tokens and where a value begins, four bits each, the lower four first |
//! | | | the code of each of 16 contexts |
//! | end - 4 | 4 | CRC32C of everything before |
//!
//! A code is 12 numbers of two bytes, which are how many symbols have codes of 0 to 11 bits. The symbols follow in the
//! order of their codes, two bytes each: a token, or 65,535 for the escape. Numbers are little-endian.

use super::contexts::CONTEXTS_MAX;
use super::table::{CODE_BITS_MAX, Symbol, Table};
use crate::checksum::crc32c;
use crate::envelope::{self, Refusal};
use crate::token::Dictionary;
use crate::token::error::CodesError;

const SIGNATURE: &[u8; 4] = b"zent";
/// No token has this number.
const ESCAPE: u16 = u16::MAX;
const LENGTHS: usize = CODE_BITS_MAX as usize + 1;

pub(super) fn to_bytes(table: &Table, dictionary: &Dictionary) -> Vec<u8> {
    let tokens = dictionary.tokens();
    envelope::seal(SIGNATURE, dictionary.bits() as u8, 0, dictionary.fingerprint(), tokens as u32, |bytes| {
        append(table, tokens, bytes);
    })
}

/// A checksum that identifies the codes of a dictionary.
pub(super) fn fingerprint(table: &Table, tokens: usize) -> u32 {
    let mut bytes = Vec::new();
    append(table, tokens, &mut bytes);
    crc32c(&bytes)
}

fn append(table: &Table, tokens: usize, bytes: &mut Vec<u8>) {
    let of_tokens = (0..tokens).map(|number| table.state(number as u16));
    let states = of_tokens.chain([table.first()]);
    let contexts: Vec<u8> = states.map(|state| state.context() as u8).collect();
    bytes.extend(contexts.chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4));
    for context in 0..CONTEXTS_MAX {
        let code = table.code(context);
        let mut of_length = [0u16; LENGTHS];
        code.iter().for_each(|symbol| of_length[usize::from(symbol.bits)] += 1);
        let symbols = code.iter().map(|symbol| symbol.token.unwrap_or(ESCAPE));
        bytes.extend(of_length.into_iter().chain(symbols).flat_map(u16::to_le_bytes));
    }
}

/// Reads the tables of a dictionary. The bytes may be any.
pub(super) fn parse(bytes: &[u8], dictionary: &Dictionary) -> Result<Table, CodesError> {
    let stored = envelope::open(SIGNATURE, bytes).map_err(|refusal| match refusal {
        Refusal::Signature => CodesError::NotCodes,
        Refusal::Version { version } => CodesError::Version { version },
        Refusal::Checksum { stored, computed } => CodesError::Checksum { stored, computed },
    })?;
    let tokens = dictionary.tokens();
    let of_dictionary = (dictionary.bits() as u8, dictionary.fingerprint(), tokens as u32);
    if (stored.own, stored.generation, stored.count) != of_dictionary || stored.extra != 0 {
        return Err(CodesError::OtherDictionary);
    }
    let mut content = stored.content;
    let nibbles = take(&mut content, (tokens + 1).div_ceil(2))?;
    if tokens.is_multiple_of(2) && nibbles.last().is_some_and(|last| last >> 4 != 0) {
        return Err(CodesError::Padding);
    }
    let contexts: Vec<u8> = nibbles.iter().flat_map(|pair| [pair & 15, pair >> 4]).take(tokens + 1).collect();
    let mut codes = Vec::new();
    for context in 0..CONTEXTS_MAX {
        let of_length = numbers(take(&mut content, 2 * LENGTHS)?);
        let symbols: usize = of_length.iter().map(|&count| usize::from(count)).sum();
        let symbols = numbers(take(&mut content, 2 * symbols)?);
        let lengths = (0..).zip(of_length).flat_map(|(bits, count)| std::iter::repeat_n(bits, count.into()));
        let token = |&number: &u16| (number != ESCAPE).then_some(number);
        let code: Vec<Symbol> =
            symbols.iter().zip(lengths).map(|(number, bits)| Symbol { token: token(number), bits }).collect();
        if !is_code(&code, tokens) {
            return Err(CodesError::NoCode { context });
        }
        codes.push(code);
    }
    match content {
        [] => Ok(Table::with_codes(&contexts, dictionary.bits(), codes)),
        _ => Err(CodesError::Length),
    }
}

/// The next bytes of the content.
fn take<'b>(content: &mut &'b [u8], bytes: usize) -> Result<&'b [u8], CodesError> {
    let (taken, rest) = content.split_at_checked(bytes).ok_or(CodesError::Length)?;
    *content = rest;
    Ok(taken)
}

fn numbers(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|&pair| u16::from_le_bytes(pair)).collect()
}

/// Whether symbols of ascending lengths make a complete code of the dictionary's tokens and one escape.
fn is_code(code: &[Symbol], tokens: usize) -> bool {
    let taken: u64 = code.iter().map(|symbol| 1 << (CODE_BITS_MAX - u32::from(symbol.bits))).sum();
    let escapes = code.iter().filter(|symbol| symbol.token.is_none()).count();
    let are_tokens = code.iter().all(|symbol| symbol.token.is_none_or(|token| usize::from(token) < tokens));
    taken == 1 << CODE_BITS_MAX && escapes == 1 && are_tokens
}
