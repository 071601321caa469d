//! The contents of a block.
//!
//! ```text
//! varint   bytes of the first value, times two; odd if lengths differ
//! varint   bytes of each other value, if lengths differ
//! ..       the values
//! ```
//!
//! A block whose values are all empty has an empty frame. A record whose value lies elsewhere has an empty one here. A
//! record's place in its block is thus its distance from the block's first record.
//!
//! No value is longer than one that lies in its record: longer ones are damage.

use crate::sizes::INLINE_BYTES_MAX;

/// Writes the contents of a block in place of what is in `raw`; `false` if all values are empty.
pub fn lay_out(values: &[&[u8]], raw: &mut Vec<u8>) -> bool {
    raw.clear();
    let Some((first, rest)) = values.split_first() else { return false };
    let differ = rest.iter().any(|value| value.len() != first.len());
    if !differ && first.is_empty() {
        return false;
    }
    write_number(2 * first.len() + usize::from(differ), raw);
    if differ {
        rest.iter().for_each(|value| write_number(value.len(), raw));
    }
    values.iter().for_each(|value| raw.extend_from_slice(value));
    true
}

/// The range of value `place` of `count` in the contents of a block; `None` if these are no contents.
pub(super) fn span(raw: &[u8], place: usize, count: usize) -> Option<(usize, usize)> {
    let (head, mut at) = read_number(raw, 0)?;
    let first = head >> 1;
    if head & 1 == 0 {
        let start = at + place * first;
        let is_sound = at + count * first == raw.len() && place < count && first <= INLINE_BYTES_MAX;
        return is_sound.then_some((start, start + first));
    }
    let (mut before, mut len, mut sum) = (0, first, first);
    for index in 1..count {
        let (next, behind) = read_number(raw, at)?;
        at = behind;
        if index <= place {
            before += len;
            len = next;
        }
        sum += next;
    }
    let is_sound = at + sum == raw.len() && place < count && len <= INLINE_BYTES_MAX;
    is_sound.then_some((at + before, at + before + len))
}

/// Appends the ranges of all values of a block's contents to `spans`, counted from `base`; `false` if these are no
/// contents.
pub(crate) fn spans(raw: &[u8], count: usize, base: usize, spans: &mut Vec<(usize, usize)>) -> bool {
    let before = spans.len();
    for place in 0..count {
        match span(raw, place, count) {
            Some((start, end)) => spans.push((base + start, base + end)),
            None => {
                spans.truncate(before);
                return false;
            }
        }
    }
    true
}

fn write_number(value: usize, out: &mut Vec<u8>) {
    crate::numbers::write_varint(u32::try_from(value).expect("a block is smaller than 4 GiB"), out);
}

/// A number of at most three bytes, and where the next one begins.
#[inline]
fn read_number(raw: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, byte) in raw.get(at..)?.iter().take(3).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((value, at + index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_block_is_found_and_other_bytes_are_refused() {
        let cases: [&[&[u8]]; 6] = [
            &[b"one"],
            &[b"one", b"two", b"six"],
            &[b"", b"a", b"", &[7; 300]],
            &[&[1; 2048], b"", b""],
            &[b"", b"x"],
            &[&[9; 128][..]; 64],
        ];
        let mut raw = Vec::new();
        for values in cases {
            assert!(lay_out(values, &mut raw));
            for (place, value) in values.iter().enumerate() {
                let (start, end) = span(&raw, place, values.len()).expect("it was laid out");
                assert_eq!(&raw[start..end], *value);
            }
            assert_eq!(span(&raw, values.len(), values.len()), None);
            assert_eq!(span(&raw[..raw.len() - 1], 0, values.len()), None);
            raw.push(0);
            assert_eq!(span(&raw, 0, values.len()), None);
        }
        let long: [&[&[u8]]; 2] = [&[&[7; INLINE_BYTES_MAX + 1]], &[b"a", &[7; INLINE_BYTES_MAX + 1]]];
        for values in long {
            assert!(lay_out(values, &mut raw));
            assert_eq!(span(&raw, values.len() - 1, values.len()), None);
        }
        assert!(!lay_out(&[], &mut raw) && !lay_out(&[b"", b""], &mut raw));
        assert_eq!(span(&[0xff; 9], 0, 1), None);
        assert_eq!(span(&[], 0, 1), None);
    }
}
