//! Checksums: CRC-32 with gzip's and RFC 3720's polynomials, XOR of 16-bit words, and CRCs of up to 64 bits of any
//! polynomial.

/// Which CRC-32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polynomial {
    Gzip,
    /// RFC 3720's, known as CRC32C.
    Castagnoli,
}

type Slices = [[u32; 256]; 8];

const fn slices(polynomial: u32) -> Slices {
    let mut slices = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        slices[0][i] = crc;
        i += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut i = 0;
        while i < 256 {
            let before = slices[slice - 1][i];
            slices[slice][i] = before >> 8 ^ slices[0][(before & 255) as usize];
            i += 1;
        }
        slice += 1;
    }
    slices
}

static GZIP: Slices = slices(0xEDB8_8320);
static CASTAGNOLI: Slices = slices(0x82F6_3B78);

/// CRC-32 and XOR of the bytes of a job, or of several in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checksums {
    pub(super) polynomial: Polynomial,
    pub(super) crc: u32,
    pub(super) xor: u16,
}

impl Checksums {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let slices = match self.polynomial {
            Polynomial::Gzip => &GZIP,
            Polynomial::Castagnoli => &CASTAGNOLI,
        };
        self.crc = crc32(slices, self.crc, bytes);
        self.xor ^= xor16(bytes);
    }
}

fn crc32(slices: &Slices, seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = !seed;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ u64::from(crc);
        crc = (0..8).fold(0, |crc, byte| crc ^ slices[7 - byte][(word >> (8 * byte)) as usize & 255]);
    }
    for &byte in rest {
        crc = crc >> 8 ^ slices[0][usize::from(crc as u8 ^ byte)];
    }
    !crc
}

fn xor16(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words = words.iter().fold(0, |xor, word| xor ^ u16::from_le_bytes(*word));
    rest.iter().fold(words, |xor, &byte| xor ^ u16::from(byte))
}

/// A CRC of the degree that the lowest 1 of a left-aligned polynomial gives it.
///
/// Normally, bits of a byte are taken from the low end and the result is reflected. With `big_endian`, bits are taken
/// from the high end and the result is left-aligned. An inverted CRC begins and ends with all its bits inverted.
pub(super) struct Crc64 {
    polynomial: u64,
    table: Box<[u64; 256]>,
}

impl Crc64 {
    pub(super) fn new(polynomial: u64) -> Crc64 {
        let table = std::array::from_fn(|byte| {
            (0..8).fold((byte as u64) << 56, |crc, _| crc << 1 ^ if crc >> 63 == 1 { polynomial } else { 0 })
        });
        Crc64 { polynomial, table: Box::new(table) }
    }

    pub(super) fn polynomial(&self) -> u64 {
        self.polynomial
    }

    pub(super) fn of(&self, bytes: &[u8], big_endian: bool, invert: bool) -> u64 {
        // The register always shifts to the left. Reflection applies to the bytes and the result.
        let ones = if invert { u64::MAX << self.polynomial.trailing_zeros() } else { 0 };
        let mut crc = ones;
        for &byte in bytes {
            let byte = if big_endian { byte } else { byte.reverse_bits() };
            crc = crc << 8 ^ self.table[usize::from((crc >> 56) as u8 ^ byte)];
        }
        crc ^= ones;
        if big_endian { crc } else { crc.reverse_bits() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check input of CRC catalogues.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn check_values_are_those_of_the_catalogues() {
        let of = |polynomial| {
            let mut sums = Checksums { polynomial, crc: 0, xor: 0 };
            sums.add(&CHECK[..5]);
            sums.add(&CHECK[5..]);
            sums.crc
        };
        assert_eq!(of(Polynomial::Gzip), 0xCBF4_3926);
        assert_eq!(of(Polynomial::Castagnoli), 0xE306_9283);
        let long: Vec<u8> = CHECK.repeat(9);
        let mut bytewise = 0;
        long.chunks(1).for_each(|byte| bytewise = crc32(&GZIP, bytewise, byte));
        assert_eq!(crc32(&GZIP, 0, &long), bytewise);
        assert_eq!(xor16(&[1, 2, 4, 8, 16]), u16::from_le_bytes([1 ^ 4 ^ 16, 2 ^ 8]));
    }

    #[test]
    fn any_polynomial_gives_its_check_value() {
        // CRC-64/XZ, CRC-64/ECMA-182, CRC-32 (gzip's), CRC-32/BZIP2, CRC-16/XMODEM, CRC-16/ARC.
        let crc = |polynomial, big_endian, invert| Crc64::new(polynomial).of(CHECK, big_endian, invert);
        assert_eq!(crc(0x42F0_E1EB_A9EA_3693, false, true), 0x995D_C9BB_DF19_39FA);
        assert_eq!(crc(0x42F0_E1EB_A9EA_3693, true, false), 0x6C40_DF5F_0B49_7347);
        assert_eq!(crc(0x04C1_1DB7 << 32, false, true), 0xCBF4_3926);
        assert_eq!(crc(0x04C1_1DB7 << 32, true, true), 0xFC89_1918 << 32);
        assert_eq!(crc(0x1021 << 48, true, false), 0x31C3 << 48);
        assert_eq!(crc(0x8005 << 48, false, false), 0xBB3D);
    }
}
