//! The inner loops in plain Rust, written so that the compiler unrolls and vectorises them.
//!
//! Thirty-two elements of *w* bits are *w* words of 32 bits. With the width known to the compiler, every shift is a
//! constant.

use super::Endian;
use super::kernels::{Bits, CHUNK, Packing, Totals};

/// Elements that fill whole words, whatever their width.
const GROUP: usize = 32;

/// Calls an instance of a function for the width and order of a packing.
macro_rules! for_packing {
    ($function:ident, $packing:expr, $($argument:expr),*) => {
        for_packing!(@widths $function, $packing, ($($argument),*),
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    };
    (@widths $function:ident, $packing:expr, $arguments:tt, $($width:literal)*) => {
        match ($packing.width, $packing.endian) {
            $(
                ($width, Endian::Little) => for_packing!(@call $function, $width, false, $arguments),
                ($width, Endian::Big) => for_packing!(@call $function, $width, true, $arguments),
            )*
            (width, _) => unreachable!("a request was checked, its width is {width}"),
        }
    };
    (@call $function:ident, $width:literal, $big:literal, ($($argument:expr),*)) => {
        $function::<$width, $big>($($argument),*)
    };
}

/// [`Kernels::unpack`](super::kernels::Kernels::unpack).
pub(super) fn unpack(bytes: &[u8], packing: Packing, values: &mut [u32; CHUNK]) {
    for_packing!(unpack_width, packing, bytes, values)
}

fn unpack_width<const WIDTH: usize, const BIG: bool>(bytes: &[u8], values: &mut [u32; CHUNK]) {
    let mut groups = bytes.chunks_exact(4 * WIDTH);
    let mut targets = values.as_chunks_mut::<GROUP>().0.iter_mut();
    for (group, target) in groups.by_ref().zip(targets.by_ref()) {
        unpack_group::<WIDTH, BIG>(group, target);
    }
    let rest = groups.remainder();
    if let Some(target) = targets.next()
        && !rest.is_empty()
    {
        let mut group = [0; 4 * GROUP];
        group[..rest.len()].copy_from_slice(rest);
        unpack_group::<WIDTH, BIG>(&group[..4 * WIDTH], target);
    }
}

#[inline(always)]
fn unpack_group<const WIDTH: usize, const BIG: bool>(bytes: &[u8], values: &mut [u32; GROUP]) {
    let words = bytes[..4 * WIDTH].as_chunks::<4>().0;
    for (index, value) in values.iter_mut().enumerate() {
        let (word, shift) = (index * WIDTH / 32, index * WIDTH % 32);
        let split = shift + WIDTH > 32;
        *value = if BIG {
            let high = u32::from_be_bytes(words[word]) << shift;
            let low = if split { u32::from_be_bytes(words[word + 1]) >> (32 - shift) } else { 0 };
            (high | low) >> (32 - WIDTH)
        } else {
            let low = u32::from_le_bytes(words[word]) >> shift;
            let high = if split { u32::from_le_bytes(words[word + 1]) << (32 - shift) } else { 0 };
            (low | high) & (u32::MAX >> (32 - WIDTH))
        };
    }
}

/// [`Kernels::scan`](super::kernels::Kernels::scan).
pub(super) fn scan(bytes: &[u8], packing: Packing, low: u32, high: u32) -> Bits {
    let mut values = [0; CHUNK];
    unpack(bytes, packing, &mut values);
    between(&values, low, high)
}

/// Sets a bit for each value that is at least `low` and at most `high`. `high` is not below `low`.
pub(super) fn between(values: &[u32; CHUNK], low: u32, high: u32) -> Bits {
    let mut bits = [0; CHUNK / 64];
    let span = high - low;
    for (word, values) in bits.iter_mut().zip(values.as_chunks::<64>().0) {
        let found = values.map(|value| u8::from(value.wrapping_sub(low) <= span));
        for (index, eight) in found.as_chunks::<8>().0.iter().enumerate() {
            // The eight bytes are 0 or 1. The product has byte n's bit at 56 + n, and no two bits meet elsewhere.
            let gathered = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            *word |= gathered << (8 * index);
        }
    }
    bits
}

/// [`Kernels::select`](super::kernels::Kernels::select).
pub(super) fn select(values: &[u32; CHUNK], bits: &Bits, selected: &mut [u32; CHUNK]) -> usize {
    let mut count = 0;
    for (&word, values) in bits.iter().zip(values.as_chunks::<64>().0) {
        for (index, &value) in values.iter().enumerate() {
            selected[count.min(CHUNK - 1)] = value;
            count += (word >> index & 1) as usize;
        }
    }
    count
}

/// [`Kernels::expand`](super::kernels::Kernels::expand).
pub(super) fn expand(values: &[u32], bits: &Bits, expanded: &mut [u32; CHUNK]) {
    expanded.fill(0);
    let mut values = values.iter();
    for (&word, expanded) in bits.iter().zip(expanded.as_chunks_mut::<64>().0) {
        let mut left = word;
        while left != 0 {
            expanded[left.trailing_zeros() as usize] = values.next().copied().unwrap_or(0);
            left &= left - 1;
        }
    }
}

/// [`Kernels::total`](super::kernels::Kernels::total).
#[inline(always)]
pub(super) fn total(values: &[u32], totals: &mut Totals) {
    for &value in values {
        totals.min = totals.min.min(value);
        totals.max = totals.max.max(value);
        totals.sum = totals.sum.wrapping_add(value);
    }
}

/// [`Kernels::pack`](super::kernels::Kernels::pack).
#[inline(always)]
pub(super) fn pack(values: &[u32], packing: Packing, out: &mut Vec<u8>) {
    match (packing.width, packing.endian) {
        (8, _) => extend(values, out, |value| [value as u8]),
        (16, Endian::Little) => extend(values, out, |value| (value as u16).to_le_bytes()),
        (16, Endian::Big) => extend(values, out, |value| (value as u16).to_be_bytes()),
        (32, Endian::Little) => extend(values, out, u32::to_le_bytes),
        (32, Endian::Big) => extend(values, out, u32::to_be_bytes),
        _ => for_packing!(pack_width, packing, values, out),
    }
}

#[inline(always)]
fn extend<const BYTES: usize>(values: &[u32], out: &mut Vec<u8>, bytes: impl Fn(u32) -> [u8; BYTES]) {
    let start = out.len();
    out.resize(start + BYTES * values.len(), 0);
    let (targets, _) = out[start..].as_chunks_mut::<BYTES>();
    for (target, &value) in targets.iter_mut().zip(values) {
        *target = bytes(value);
    }
}

fn pack_width<const WIDTH: usize, const BIG: bool>(values: &[u32], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + (values.len() * WIDTH).div_ceil(8), 0);
    let (groups, rest) = values.as_chunks::<GROUP>();
    let (whole, last) = out[start..].split_at_mut(4 * WIDTH * groups.len());
    for (group, target) in groups.iter().zip(whole.chunks_exact_mut(4 * WIDTH)) {
        pack_group::<WIDTH, BIG>(group, target);
    }
    if !rest.is_empty() {
        let (mut group, mut bytes) = ([0; GROUP], [0; 4 * GROUP]);
        group[..rest.len()].copy_from_slice(rest);
        pack_group::<WIDTH, BIG>(&group, &mut bytes[..4 * WIDTH]);
        last.copy_from_slice(&bytes[..last.len()]);
    }
}

#[inline(always)]
fn pack_group<const WIDTH: usize, const BIG: bool>(values: &[u32; GROUP], bytes: &mut [u8]) {
    let words = bytes[..4 * WIDTH].as_chunks_mut::<4>().0;
    let (mut held, mut filled, mut next) = (0u64, 0, 0);
    for &value in values {
        if BIG {
            held = held << WIDTH | u64::from(value);
        } else {
            held |= u64::from(value) << filled;
        }
        filled += WIDTH;
        if filled >= 32 {
            filled -= 32;
            words[next] =
                if BIG { ((held >> filled) as u32).to_be_bytes() } else { (held as u32).to_le_bytes() };
            if !BIG {
                held >>= 32;
            }
            next += 1;
        }
    }
}
