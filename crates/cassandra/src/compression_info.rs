//! `CompressionInfo.db`: the compressor of an SSTable, and where each chunk begins.
//!
//! | bytes | field |
//! |---|---|
//! | 2 + n | simple name of the compressor's class, its length first |
//! | 4 | number of options |
//! | 2 + n, twice each | name and value of an option |
//! | 4 | bytes of a chunk before it was compressed |
//! | 4 | bytes from which on a chunk is stored raw; since version `na` |
//! | 8 | bytes of all chunks before they were compressed |
//! | 4 | number of chunks |
//! | 8 each | offset of the chunk in `Data.db` |
//!
//! Numbers are big-endian, as Java's `DataOutput` writes them.

/// No node writes larger chunks: `chunk_length_in_kb` counts in an int, and buffers of chunks are kept in memory.
const CHUNK_BYTES_MAX: u32 = 1 << 26;
/// The bytes of the checksum behind each chunk in `Data.db`.
pub(crate) const CHECKSUM_BYTES: u64 = 4;
/// The bytes of a chunk's offset, here and in the memory of the node.
pub(crate) const OFFSET_BYTES: u64 = 8;

/// How an SSTable is compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionInfo {
    /// Simple name of the compressor's class, such as `LZ4Compressor`.
    pub compressor: String,
    /// Names and values of the compressor's options.
    pub options: Vec<(String, String)>,
    /// Bytes of a chunk before it is compressed; the last one may be shorter.
    pub chunk_bytes: u32,
    /// A chunk of so many bytes or more in `Data.db` is stored raw.
    pub raw_from_bytes: u32,
    /// Bytes of all chunks before they are compressed.
    pub raw_bytes: u64,
    /// Where each chunk begins in `Data.db`, ascending. Chunks without bytes may follow the last one that has some: a
    /// compaction leaves one.
    pub offsets: Vec<u64>,
}

/// What is wrong with the bytes, and where.
pub(crate) struct Fault {
    pub(crate) offset: u64,
    pub(crate) what: String,
}

impl CompressionInfo {
    /// The value of an option, if it is set.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(set, _)| set == name).map(|(_, value)| value.as_str())
    }

    /// The table's `min_compress_ratio`: the shortest decimal number of which Cassandra makes the bound of raw chunks.
    /// `None` if no chunk is stored raw.
    pub fn min_compress_ratio(&self) -> Option<f64> {
        if !(1..=self.chunk_bytes).contains(&self.raw_from_bytes) {
            return None;
        }
        let [chunk, bound] = [self.chunk_bytes, self.raw_from_bytes].map(f64::from);
        let decimals = (0..=9).flat_map(|digits| {
            let scale = 10f64.powi(digits);
            [f64::floor, f64::ceil].map(|round| round(chunk / bound * scale) / scale)
        });
        // Cassandra rounds up.
        Some({ decimals }.find(|ratio| (chunk / ratio).ceil() == bound).unwrap_or(chunk / bound))
    }

    /// Reads the contents of a file. `bounds_raw` says whether it has the field for chunks that are stored raw.
    pub(crate) fn parse(bytes: &[u8], bounds_raw: bool) -> Result<CompressionInfo, Fault> {
        let mut reader = Reader { bytes, at: 0 };
        let compressor = reader.text("the compressor's name")?;
        let options = reader.int("the number of options")?;
        let options = (0..options)
            .map(|_| Ok((reader.text("an option's name")?, reader.text("an option's value")?)))
            .collect::<Result<Vec<_>, Fault>>()?;
        let chunk_bytes = reader.int("the length of chunks")?;
        if !chunk_bytes.is_power_of_two() || chunk_bytes > CHUNK_BYTES_MAX {
            return Err(reader.fault(format!(
                "chunks of {chunk_bytes} bytes; their length is a power of two, {CHUNK_BYTES_MAX} at most"
            )));
        }
        let raw_from_bytes = if bounds_raw { reader.int("the bound of raw chunks")? } else { u32::MAX };
        let raw_bytes = reader.long("the length of all chunks")?;
        let chunks = u64::from(reader.int("the number of chunks")?);
        let left = bytes.len() - reader.at;
        if left as u64 != chunks * 8 || chunks < raw_bytes.div_ceil(chunk_bytes.into()) {
            return Err(reader.fault(format!(
                "{chunks} chunks of {chunk_bytes} bytes for {raw_bytes} bytes, and {left} bytes of offsets"
            )));
        }
        let offsets =
            (0..chunks).map(|_| reader.long("the offset of a chunk")).collect::<Result<Vec<_>, Fault>>()?;
        let ascend = offsets.windows(2).all(|pair| {
            let stored = pair[1].checked_sub(pair[0]);
            stored.is_some_and(|stored| stored >= CHECKSUM_BYTES)
        });
        if !ascend {
            return Err(reader.fault("offsets of chunks do not ascend".into()));
        }
        Ok(CompressionInfo { compressor, options, chunk_bytes, raw_from_bytes, raw_bytes, offsets })
    }
}

/// The bytes that are not read yet.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn fault(&self, what: String) -> Fault {
        Fault { offset: self.at as u64, what }
    }

    fn take(&mut self, length: usize, name: &str) -> Result<&'a [u8], Fault> {
        let rest = &self.bytes[self.at..];
        let taken = rest
            .get(..length)
            .ok_or_else(|| self.fault(format!("{name} needs {length} bytes, {} are left", rest.len())))?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, name: &str) -> Result<[u8; N], Fault> {
        Ok(self.take(N, name)?.try_into().expect("so many bytes were taken"))
    }

    /// A number that Java holds in an `int` and that is never below 0.
    fn int(&mut self, name: &str) -> Result<u32, Fault> {
        let number = i32::from_be_bytes(self.array(name)?);
        u32::try_from(number).map_err(|_| self.fault(format!("{name} is {number}")))
    }

    fn long(&mut self, name: &str) -> Result<u64, Fault> {
        let number = i64::from_be_bytes(self.array(name)?);
        u64::try_from(number).map_err(|_| self.fault(format!("{name} is {number}")))
    }

    fn text(&mut self, name: &str) -> Result<String, Fault> {
        let length = u16::from_be_bytes(self.array(name)?);
        let text = std::str::from_utf8(self.take(length.into(), name)?);
        text.map(str::to_owned).map_err(|_| self.fault(format!("{name} is no UTF-8")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
    }

    fn stored(offsets: &[u64]) -> Vec<u8> {
        let mut bytes = text("LZ4Compressor");
        bytes.extend(1u32.to_be_bytes());
        bytes.extend([text("lz4_compressor_type"), text("fast")].concat());
        bytes.extend([16384u32.to_be_bytes(), 0x7fff_ffffu32.to_be_bytes()].concat());
        bytes.extend((offsets.len() as u64 * 16384 - 100).to_be_bytes());
        bytes.extend((offsets.len() as u32).to_be_bytes());
        offsets.iter().for_each(|offset| bytes.extend(offset.to_be_bytes()));
        bytes
    }

    #[test]
    fn all_fields_are_read() {
        let info = CompressionInfo::parse(&stored(&[0, 7000, 15000]), true).ok().unwrap();
        assert_eq!(info.compressor, "LZ4Compressor");
        assert_eq!(info.options, [("lz4_compressor_type".to_owned(), "fast".to_owned())]);
        assert_eq!((info.chunk_bytes, info.raw_from_bytes), (16384, i32::MAX as u32));
        assert_eq!((info.raw_bytes, info.offsets), (3 * 16384 - 100, vec![0, 7000, 15000]));
    }

    /// Cassandra's `CompressionParams.calcMaxCompressedLength`.
    #[test]
    fn a_ratio_is_the_shortest_that_gives_the_bound() {
        let mut info = CompressionInfo::parse(&stored(&[0]), true).ok().unwrap();
        assert_eq!(info.min_compress_ratio(), None);
        for chunk_bytes in [1024, 4096, 16_384, 1 << 20] {
            for ratio in [1.0, 1.1, 1.125, 1.25, 1.3, 1.5, 2.0, 3.0, 10.0] {
                info.chunk_bytes = chunk_bytes;
                info.raw_from_bytes = (f64::from(chunk_bytes) / ratio).ceil() as u32;
                assert_eq!(info.min_compress_ratio(), Some(ratio), "{chunk_bytes}");
            }
        }
        info.raw_from_bytes = 0;
        assert_eq!(info.min_compress_ratio(), None);
    }

    #[test]
    fn an_older_version_lacks_the_bound_of_raw_chunks() {
        let mut bytes = stored(&[0]);
        let at = bytes.windows(4).position(|four| four == [0x7f, 0xff, 0xff, 0xff]).unwrap();
        bytes.drain(at..at + 4);
        assert_eq!(CompressionInfo::parse(&bytes, false).ok().unwrap().raw_from_bytes, u32::MAX);
    }

    #[test]
    fn wrong_bytes_are_named() {
        let fault = |bytes: &[u8]| CompressionInfo::parse(bytes, true).err().unwrap().what;
        assert!(fault(&stored(&[0, 3])).contains("do not ascend"));
        assert!(fault(&stored(&[9, 3])).contains("do not ascend"));
        let sound = stored(&[0, 7000]);
        assert!(fault(&[&sound[..], &[0]].concat()).contains("17 bytes of offsets"));
        for length in 0..sound.len() {
            fault(&sound[..length]);
        }
        let at = sound.windows(4).position(|four| four == 16384u32.to_be_bytes()).unwrap();
        for (chunk, words) in
            [(-1i32, "the length of chunks is -1"), (0, "chunks of 0 bytes"), (12288, "power")]
        {
            let mut bytes = sound.clone();
            bytes[at..at + 4].copy_from_slice(&chunk.to_be_bytes());
            assert!(fault(&bytes).contains(words), "{chunk}");
        }
    }
}
