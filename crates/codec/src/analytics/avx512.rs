//! The inner loops for AVX-512 with byte permutation (Intel since Ice Lake, AMD since Zen 4).
//!
//! Sixteen elements of *w* bits are 2*w* bytes, 64 at most, and begin at a whole byte. One permutation moves each
//! element's bytes into its own lane; a shift and a mask finish the work. An element of up to 25 bits lies within four
//! bytes. A wider one may touch five bytes, so two permutations fill lanes of 64 bits. Big-endian elements differ in
//! the order of bytes and the distance of the shift. Both come from a table.

use super::Endian;
use super::kernels::{Bits, CHUNK, Packing, Totals};
use super::portable;
use std::arch::x86_64::*;

/// Elements of a vector.
const LANES: usize = 16;

/// Bytes of a vector.
const VECTOR_BYTES: usize = 64;

/// The widest element that lies within four bytes wherever it begins.
const NARROW_WIDTH_MAX: u32 = 25;

/// Proof that the machine has the instructions of these functions. Only [`Avx512::detect`] makes one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Avx512> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi");
        has.then_some(Avx512(()))
    }

    /// [`Kernels::unpack`](super::kernels::Kernels::unpack).
    pub(super) fn unpack(self, bytes: &[u8], packing: Packing, values: &mut [u32; CHUNK]) {
        // SAFETY: `self` exists, so the machine has the instructions.
        unsafe { unpack(bytes, packing, values) }
    }

    /// [`Kernels::scan`](super::kernels::Kernels::scan).
    pub(super) fn scan(self, bytes: &[u8], packing: Packing, low: u32, high: u32) -> Bits {
        // SAFETY: as above.
        unsafe { scan(bytes, packing, low, high) }
    }

    /// [`Kernels::select`](super::kernels::Kernels::select).
    pub(super) fn select(self, values: &[u32; CHUNK], bits: &Bits, selected: &mut [u32; CHUNK]) -> usize {
        // SAFETY: as above.
        unsafe { select(values, bits, selected) }
    }

    /// [`Kernels::expand`](super::kernels::Kernels::expand).
    pub(super) fn expand(self, values: &[u32], bits: &Bits, expanded: &mut [u32; CHUNK]) {
        // SAFETY: as above.
        unsafe { expand(values, bits, expanded) }
    }

    /// [`Kernels::total`](super::kernels::Kernels::total).
    pub(super) fn total(self, values: &[u32], totals: &mut Totals) {
        // SAFETY: as above.
        unsafe { total(values, totals) }
    }

    /// [`Kernels::pack`](super::kernels::Kernels::pack).
    pub(super) fn pack(self, values: &[u32], packing: Packing, out: &mut Vec<u8>) {
        // SAFETY: as above.
        unsafe { pack(values, packing, out) }
    }
}

/// The sources of the bytes of a vector's lanes, and the distances of the shifts.
struct Lanes {
    /// Sources for sixteen lanes of 32 bits, or for the first and the last eight elements in lanes of 64 bits.
    sources: [[u8; VECTOR_BYTES]; 2],
    /// Distances as 32-bit numbers for narrow lanes, as 64-bit numbers for wide lanes.
    shifts: [[u8; VECTOR_BYTES]; 2],
}

/// By order and width less 1.
static LANES_OF: [[Lanes; 32]; 2] = {
    let mut all =
        [const { [const { Lanes { sources: [[0; VECTOR_BYTES]; 2], shifts: [[0; VECTOR_BYTES]; 2] } }; 32] };
            2];
    let mut width = 1;
    while width <= 32 {
        all[0][width - 1] = lanes(width, false);
        all[1][width - 1] = lanes(width, true);
        width += 1;
    }
    all
};

const fn lanes(width: usize, big: bool) -> Lanes {
    let mut lanes = Lanes { sources: [[0; VECTOR_BYTES]; 2], shifts: [[0; VECTOR_BYTES]; 2] };
    let lane_bytes = if width <= NARROW_WIDTH_MAX as usize { 4 } else { 8 };
    let mut element = 0;
    while element < LANES {
        let lane = element * lane_bytes;
        let (vector, at) = (lane / VECTOR_BYTES, lane % VECTOR_BYTES);
        let (first, bit) = (element * width / 8, element * width % 8);
        let mut byte = 0;
        while byte < lane_bytes {
            // The highest byte of the lane is the first of a big-endian element. A lane may reach past the sixteen
            // elements; the shift or the mask removes those bits.
            let from = if big { first + lane_bytes - 1 - byte } else { first + byte };
            lanes.sources[vector][at + byte] = (from % VECTOR_BYTES) as u8;
            byte += 1;
        }
        lanes.shifts[vector][at] = (if big { 8 * lane_bytes - bit - width } else { bit }) as u8;
        element += 1;
    }
    lanes
}

/// [`Lanes`] in registers.
#[derive(Clone, Copy)]
struct Unpacker {
    sources: [__m512i; 2],
    shifts: [__m512i; 2],
    mask: __m512i,
    is_wide: bool,
    /// Bytes of sixteen elements.
    group_bytes: usize,
}

impl Unpacker {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn new(packing: Packing) -> Unpacker {
        let lanes = &LANES_OF[usize::from(packing.endian == Endian::Big)][packing.width as usize - 1];
        Unpacker {
            sources: [load(&lanes.sources[0]), load(&lanes.sources[1])],
            shifts: [load(&lanes.shifts[0]), load(&lanes.shifts[1])],
            mask: _mm512_set1_epi32(packing.element_max() as i32),
            is_wide: packing.width > NARROW_WIDTH_MAX,
            group_bytes: 2 * packing.width as usize,
        }
    }

    /// The elements at the front of a vector.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn sixteen(&self, bytes: __m512i) -> __m512i {
        let first = _mm512_permutexvar_epi8(self.sources[0], bytes);
        let elements = if self.is_wide {
            let second = _mm512_permutexvar_epi8(self.sources[1], bytes);
            let first = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(first, self.shifts[0]));
            let second = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(second, self.shifts[1]));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second)
        } else {
            _mm512_srlv_epi32(first, self.shifts[0])
        };
        _mm512_and_si512(elements, self.mask)
    }

    /// Loads the bytes of the sixteen elements with a given number, followed by any bytes; zeros behind the end.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn bytes_of(&self, group: usize, bytes: &[u8]) -> __m512i {
        let rest = &bytes[(group * self.group_bytes).min(bytes.len())..];
        match rest.first_chunk() {
            Some(vector) => load(vector),
            None => load_part(rest),
        }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &[u8; VECTOR_BYTES]) -> __m512i {
    // SAFETY: the array has the bytes of a vector, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Loads fewer bytes than a vector has, and zeros.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_part(bytes: &[u8]) -> __m512i {
    debug_assert!(bytes.len() < VECTOR_BYTES);
    let mask = (1u64 << bytes.len()) - 1;
    // SAFETY: the mask has as many bits as there are bytes, fewer than 64. The load does not touch masked-out bytes.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_values(values: &[u32; LANES]) -> __m512i {
    // SAFETY: the array has the bytes of a vector, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_values(values: &mut [u32; LANES], vector: __m512i) {
    // SAFETY: the array has the bytes of a vector, and the store needs no alignment.
    unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), vector) }
}

/// The sixteen bits of a group.
#[inline]
fn bits_of(bits: &Bits, group: usize) -> __mmask16 {
    (bits[group / 4] >> (group % 4 * LANES)) as __mmask16
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn unpack(bytes: &[u8], packing: Packing, values: &mut [u32; CHUNK]) {
    let unpacker = Unpacker::new(packing);
    let groups = bytes.len().div_ceil(unpacker.group_bytes);
    for (group, values) in values.as_chunks_mut::<LANES>().0.iter_mut().take(groups).enumerate() {
        store_values(values, unpacker.sixteen(unpacker.bytes_of(group, bytes)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn scan(bytes: &[u8], packing: Packing, low: u32, high: u32) -> Bits {
    let unpacker = Unpacker::new(packing);
    let (low, high) = (_mm512_set1_epi32(low as i32), _mm512_set1_epi32(high as i32));
    let mut bits = [0; CHUNK / 64];
    let words = bytes.len().div_ceil(4 * unpacker.group_bytes);
    for (index, word) in bits.iter_mut().take(words).enumerate() {
        for group in 0..4 {
            let elements = unpacker.sixteen(unpacker.bytes_of(4 * index + group, bytes));
            let enough = _mm512_cmpge_epu32_mask(elements, low);
            let found = _mm512_mask_cmple_epu32_mask(enough, elements, high);
            *word |= u64::from(found) << (group * LANES);
        }
    }
    bits
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn select(values: &[u32; CHUNK], bits: &Bits, selected: &mut [u32; CHUNK]) -> usize {
    let mut count = 0;
    for (group, values) in values.as_chunks::<LANES>().0.iter().enumerate() {
        let mask = bits_of(bits, group);
        // Each earlier group gave at most sixteen values, so there is room for all sixteen lanes.
        if let Some(target) = selected[count..].first_chunk_mut() {
            store_values(target, _mm512_maskz_compress_epi32(mask, load_values(values)));
        }
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn expand(values: &[u32], bits: &Bits, expanded: &mut [u32; CHUNK]) {
    let mut padded = [0; CHUNK + LANES];
    padded[..values.len()].copy_from_slice(values);
    let mut next = 0;
    for (group, expanded) in expanded.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mask = bits_of(bits, group);
        if let Some(values) = padded[next..].first_chunk() {
            store_values(expanded, _mm512_maskz_expand_epi32(mask, load_values(values)));
        }
        next += mask.count_ones() as usize;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn total(values: &[u32], totals: &mut Totals) {
    // The compiler vectorises this well once it knows the instruction set.
    portable::total(values, totals);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn pack(values: &[u32], packing: Packing, out: &mut Vec<u8>) {
    // As above, for widths of whole bytes. Other widths are scalar work.
    portable::pack(values, packing, out);
}
