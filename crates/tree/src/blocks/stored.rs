//! A generation of blocks as bytes: formats and dictionaries, and nothing of who does the work.
//!
//! ```text
//! 0        u8  number of the format that packs where values are written
//! 1        u8  Huffman codes: 0 dynamic, 1 fixed, 2 canned
//! 2        u8  number of the background's format, 0 for the same one
//! 3        u8  1 if nothing is packed densely, else 0
//! 4        varint, dictionary of the first format
//! ..       varint, dictionary of the background's
//! ```

use std::sync::Arc;

use ziptier_codec::block::{Dictionary, Huffman, Setting};
use ziptier_codec::format::Format;

use super::BlockCoding;

use crate::codec_options::{BlockOptions, CodecChoice, CodecOptions};
use crate::fields::FieldReader;
use crate::numbers::write_varint;

const HUFFMAN: [Huffman; 3] = [Huffman::Dynamic, Huffman::Fixed, Huffman::Canned];

impl BlockCoding {
    /// The bytes that [`BlockCoding::from_bytes`] rebuilds it from.
    pub fn to_bytes(&self) -> Vec<u8> {
        let background =
            self.dense.as_ref().filter(|_| self.has_background_codec()).map(|dense| &dense.setting);
        let front = &self.front.setting;
        let huffman = HUFFMAN.iter().position(|mode| *mode == front.huffman).unwrap_or_default() as u8;
        let background_format = background.map_or(0, |setting| setting.format.number());
        let mut bytes =
            vec![front.format.number(), huffman, background_format, u8::from(self.dense.is_none())];
        for setting in [Some(front), background] {
            let dictionary = setting.and_then(|setting| setting.dictionary.as_ref());
            let dictionary = dictionary.map_or(Vec::new(), |dictionary| dictionary.to_bytes());
            write_varint(dictionary.len() as u32, &mut bytes);
            bytes.extend_from_slice(&dictionary);
        }
        bytes
    }

    /// The coding that `bytes` describe, which may be any. Levels, engine and device come from `options`, if these name
    /// the same formats. Counters come from `first`, the coding that the store begins with.
    pub fn from_bytes(
        bytes: &[u8],
        generation: u32,
        options: &CodecOptions,
        first: Option<&Self>,
    ) -> Result<Self, String> {
        let stored = Stored::read(bytes).ok_or("a generation of blocks has unknown fields")?;
        let own = first.filter(|first| stored.is_of(first));
        let foreign = match own {
            Some(_) => None,
            None => Self::first(&stored.options(options)).map_err(|error| error.to_string())?,
        };
        let template =
            own.or(foreign.as_deref()).ok_or("a generation of blocks has a format without blocks")?;
        let with = |setting: &Setting, dictionary: &Option<Arc<Dictionary>>| Setting {
            dictionary: dictionary.clone(),
            ..setting.clone()
        };
        let [of_front, of_background] = stored.dictionaries()?;
        let front = with(&template.front.setting, &of_front);
        let dense = template.dense.as_ref().filter(|_| !stored.without_dense).map(|dense| {
            let dictionary = if dense.kept.is_some() { &of_background } else { &of_front };
            with(&dense.setting, dictionary)
        });
        Self::new(template.options.clone(), front, dense, generation, template.totals.clone())
            .map_err(|error| error.to_string())
    }
}

impl BlockCoding {
    /// Whether both pack in the same formats and with the same kind of codes.
    pub(crate) fn packs_like(&self, other: &Self) -> bool {
        self.to_bytes()[..3] == other.to_bytes()[..3]
    }

    /// The same under another number.
    pub fn renumbered(&self, generation: u32) -> Self {
        let dense = self.dense.as_ref().map(|dense| dense.setting.clone());
        Self::new(self.options.clone(), self.front.setting.clone(), dense, generation, self.totals.clone())
            .expect("the same settings were sound")
    }
}

/// A format that the coding in `bytes` needs and `is_built` denies. Such bytes are sound: a program with that format
/// reads what they code.
pub fn format_not_built(bytes: &[u8], is_built: impl Fn(Format) -> bool) -> Option<Format> {
    let stored = Stored::read(bytes)?;
    let mut codecs = [Some(stored.format), stored.background].into_iter().flatten();
    codecs.find_map(|codec| codec.block_format().filter(|format| !is_built(*format)))
}

struct Stored<'a> {
    format: CodecChoice,
    huffman: Huffman,
    background: Option<CodecChoice>,
    without_dense: bool,
    dictionaries: [&'a [u8]; 2],
}

impl<'a> Stored<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = FieldReader(bytes);
        let format = codec_of(reader.u8()?)?;
        let huffman = *HUFFMAN.get(usize::from(reader.u8()?))?;
        let background = match reader.u8()? {
            0 => None,
            number => Some(codec_of(number)?),
        };
        let without_dense = reader.u8().filter(|flag| *flag < 2)? == 1;
        let dictionaries = [reader.string()?, reader.string()?];
        reader.is_empty().then_some(Self { format, huffman, background, without_dense, dictionaries })
    }

    /// Whether `first` packs in the same formats.
    fn is_of(&self, first: &BlockCoding) -> bool {
        let background = first.dense.as_ref().filter(|_| first.has_background_codec());
        self.format.block_format() == Some(first.front.setting.format)
            && self.background.and_then(CodecChoice::block_format)
                == background.map(|dense| dense.setting.format)
            && self.huffman == first.front.setting.huffman
    }

    /// Options that give these formats.
    fn options(&self, usual: &CodecOptions) -> CodecOptions {
        let block = BlockOptions {
            bytes: usual.block.bytes,
            huffman: self.huffman,
            background_codec: self.background,
            ..BlockOptions::default()
        };
        CodecOptions { codec: self.format, block }
    }

    fn dictionaries(&self) -> Result<[Option<Arc<Dictionary>>; 2], String> {
        let load = |bytes: &[u8]| match bytes {
            [] => Ok(None),
            _ => Dictionary::from_bytes(bytes)
                .map(|own| Some(Arc::new(own)))
                .map_err(|error| error.to_string()),
        };
        Ok([load(self.dictionaries[0])?, load(self.dictionaries[1])?])
    }
}

fn codec_of(number: u8) -> Option<CodecChoice> {
    let codecs = [CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate];
    codecs.into_iter().find(|codec| codec.block_format().map(Format::number) == Some(number))
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;
    use crate::blocks::Effort;

    fn options(codec: CodecChoice, background_codec: Option<CodecChoice>, huffman: Huffman) -> CodecOptions {
        CodecOptions { codec, block: BlockOptions { background_codec, huffman, ..BlockOptions::default() } }
    }

    fn all_options() -> Vec<CodecOptions> {
        let (lz4, zstd, deflate) = (CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate);
        vec![
            options(lz4, None, Huffman::Dynamic),
            options(zstd, None, Huffman::Dynamic),
            options(lz4, Some(zstd), Huffman::Dynamic),
            options(zstd, Some(deflate), Huffman::Canned),
            options(deflate, None, Huffman::Dynamic),
            options(deflate, None, Huffman::Canned),
            options(deflate, None, Huffman::Fixed),
        ]
    }

    fn samples() -> Vec<String> {
        (0..4000).map(|n| format!("value {} of a block, and of another", n * 7919 % 3001)).collect()
    }

    #[test]
    fn a_generation_is_rebuilt_with_its_encoders_whatever_the_options_are() {
        let samples = samples();
        let samples: Vec<&[u8]> = samples.iter().map(String::as_bytes).collect();
        let raw = samples[..20].concat();
        for options in all_options() {
            let first = BlockCoding::first(&options).unwrap().unwrap();
            let trained = first.trained(&samples, 7).unwrap();
            for coding in [&*first, &trained] {
                let bytes = coding.to_bytes();
                for others in all_options() {
                    let their_first = BlockCoding::first(&others).unwrap().unwrap();
                    let generation = coding.generation();
                    let rebuilt =
                        BlockCoding::from_bytes(&bytes, generation, &others, Some(&their_first)).unwrap();
                    assert_eq!((rebuilt.generation(), rebuilt.to_bytes()), (generation, bytes.clone()));
                    for effort in [Effort::Fast, Effort::Dense] {
                        let (mut packed, mut again, mut out) = (Vec::new(), Vec::new(), Vec::new());
                        coding.pack(effort, &raw, &mut packed);
                        rebuilt.unpack(&packed, &mut out).unwrap();
                        assert_eq!(out, raw);
                        rebuilt.pack(effort, &raw, &mut again);
                        assert_eq!(packed, again, "{effort:?}, {options:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_format_that_is_missing_is_named() {
        let bytes = |codec, background| {
            let options = options(codec, background, Huffman::Dynamic);
            BlockCoding::first(&options).unwrap().unwrap().to_bytes()
        };
        let lz4_and_zstd = bytes(CodecChoice::Lz4, Some(CodecChoice::Zstd));
        let missing =
            |without: &[Format]| format_not_built(&lz4_and_zstd, |format| !without.contains(&format));
        assert_eq!(missing(&[]), None);
        assert_eq!(missing(&[Format::Deflate]), None);
        assert_eq!(missing(&[Format::Lz4]), Some(Format::Lz4));
        assert_eq!(missing(&[Format::Zstd]), Some(Format::Zstd));
        // Bytes that are none are damaged, whatever this program can read.
        assert_eq!(format_not_built(&lz4_and_zstd[..3], |_| false), None);
    }

    #[test]
    fn bytes_that_are_none_are_an_error() {
        let options = options(CodecChoice::Zstd, None, Huffman::Dynamic);
        let samples = samples();
        let samples: Vec<&[u8]> = samples.iter().map(String::as_bytes).collect();
        let first = BlockCoding::first(&options).unwrap().unwrap();
        let bytes = first.trained(&samples, 1).unwrap().to_bytes();
        for end in 0..bytes.len() {
            assert!(BlockCoding::from_bytes(&bytes[..end], 1, &options, Some(&first)).is_err(), "{end}");
        }
        for (at, value) in [(0, 0), (0, 1), (0, 9), (1, 3), (2, 1), (3, 2), (10, 0xff)] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert!(BlockCoding::from_bytes(&bytes, 1, &options, Some(&first)).is_err(), "byte {at}");
        }
    }
}
