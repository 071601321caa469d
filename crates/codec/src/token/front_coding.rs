//! A token dictionary in which each token states how many bytes it shares with the token before.
//!
//! The list of tokens begins with the most used and is sorted behind them ([`Dictionary::sorted_behind`]), so that most
//! tokens share half of their bytes. Packed by zstd, such a list takes two thirds of the plain one.
//!
//! | bytes | field |
//! |---|---|
//! | 16 | header of the stored dictionary, n tokens |
//! | n | bytes that each token shares with the one before |
//! | n | how many bytes follow these |
//! | their sum | these, one token after the other |
//! | 4 | checksum of the stored dictionary |
//!
//! [`Dictionary::sorted_behind`]: super::Dictionary::sorted_behind

const HEADER_BYTES: usize = 16;
const COUNT_AT: usize = 12;
const CHECKSUM_BYTES: usize = 4;

/// The tokens of a stored dictionary, and the bytes before and behind its list.
struct Parts<'a> {
    header: &'a [u8],
    count: usize,
    list: &'a [u8],
    checksum: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Option<Parts<'a>> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let (list, checksum) = rest.split_at_checked(rest.len().checked_sub(CHECKSUM_BYTES)?)?;
        let count = u32::from_le_bytes(header[COUNT_AT..].try_into().ok()?) as usize;
        Some(Parts { header, count, list, checksum })
    }
}

/// Front-codes a stored dictionary; nothing if the bytes are none.
pub(super) fn front_coded(stored: &[u8]) -> Option<Vec<u8>> {
    let Parts { header, count, list, checksum } = Parts::of(stored)?;
    let (lengths, mut tokens) = list.split_at_checked(count)?;
    let (mut shared, mut rests, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: &[u8] = &[];
    for &length in lengths {
        let (token, after) = tokens.split_at_checked(length.into())?;
        let equal = before.iter().zip(token).take_while(|(one, other)| one == other).count();
        shared.push(equal as u8);
        rests.push(length - equal as u8);
        ends.extend_from_slice(&token[equal..]);
        (before, tokens) = (token, after);
    }
    Some([header, &shared, &rests, &ends, checksum].concat())
}

/// The stored dictionary again; nothing if that would be longer than `bytes_max` or the bytes are no front-coded
/// dictionary. The contents are not checked.
pub(super) fn restored(coded: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let Parts { header, count, list, checksum } = Parts::of(coded)?;
    let (shared, rest) = list.split_at_checked(count)?;
    let (rests, mut ends) = rest.split_at_checked(count)?;
    let (mut lengths, mut tokens) = (Vec::with_capacity(count), Vec::new());
    let mut before = 0..0;
    for (&equal, &rest) in shared.iter().zip(rests) {
        let (end, after) = ends.split_at_checked(rest.into())?;
        lengths.push(equal.checked_add(rest)?);
        if usize::from(equal) > before.len() || tokens.len() + usize::from(equal) + end.len() > bytes_max {
            return None;
        }
        let start = tokens.len();
        tokens.extend_from_within(before.start..before.start + usize::from(equal));
        tokens.extend_from_slice(end);
        (before, ends) = (start..tokens.len(), after);
    }
    let stored = [header, &lengths, &tokens, checksum].concat();
    (ends.is_empty() && stored.len() <= bytes_max).then_some(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Dictionary;

    fn stored() -> Vec<u8> {
        let samples: Vec<String> = (0..3000).map(|i| format!("row {} of table", i * 7919 % 1000)).collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
        Dictionary::train(&samples, 12, 0).unwrap().sorted_behind(16).unwrap().to_bytes()
    }

    #[test]
    fn dictionaries_come_back_and_share_bytes() {
        let stored = stored();
        let coded = front_coded(&stored).unwrap();
        assert_eq!(restored(&coded, stored.len()).unwrap(), stored);
        assert!(restored(&coded, stored.len() - 1).is_none());
        let shared: usize = coded[HEADER_BYTES..].iter().take(256).map(|&bytes| usize::from(bytes)).sum();
        assert!(shared > 0);
    }

    #[test]
    fn any_bytes_are_refused_or_restored_within_bounds() {
        let coded = front_coded(&stored()).unwrap();
        for length in 0..coded.len() {
            assert!(restored(&coded[..length], 1 << 20).is_none(), "{length} bytes");
        }
        for at in 0..coded.len() {
            let mut damaged = coded.clone();
            damaged[at] ^= 0x55;
            assert!(restored(&damaged, 1 << 16).is_none_or(|stored| stored.len() <= 1 << 16));
        }
        assert!(front_coded(b"short").is_none() && front_coded(&[0xff; 40]).is_none());
    }
}
