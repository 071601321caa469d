//! The setting for writing blocks: format, level, Huffman mode and dictionary, and the engine that follows from them.

#[cfg(feature = "deflate")]
use super::deflate;
use super::none::Copying;
use super::{DeviceSource, Dictionary, Engine, Path, split};
use crate::format::Format;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// Which Huffman codes `deflate` may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Huffman {
    /// Codes made for each block and stored in front of it, or the fixed codes if these give a smaller block.
    #[default]
    Dynamic,
    /// The codes of RFC 1951, section 3.2.6: no header and no tables to build, at a lower ratio.
    Fixed,
    /// The codes of the dictionary, trained with it and shared by all its blocks: no header and no tables to build.
    /// Only the engines `software` and `iaa` read such blocks.
    Canned,
}

impl Huffman {
    /// Every mode.
    pub const ALL: &[Huffman] = &[Huffman::Dynamic, Huffman::Fixed, Huffman::Canned];

    /// The name that is used on every surface.
    pub fn name(self) -> &'static str {
        match self {
            Huffman::Dynamic => "dynamic",
            Huffman::Fixed => "fixed",
            Huffman::Canned => "canned",
        }
    }
}

impl fmt::Display for Huffman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Huffman {
    type Err = SettingError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Huffman::ALL.iter().copied().find(|mode| mode.name() == name);
        found.ok_or_else(|| SettingError::UnknownHuffman { name: name.to_owned() })
    }
}

/// How blocks are to be written.
///
/// ```
/// use ziptier_codec::block::{Setting, frame};
/// use ziptier_codec::format::Format;
///
/// let engine = Setting::new(Format::Zstd).with_level(-3).engine()?;
/// let mut codec = engine.open()?; // one for each thread, to be kept
/// let block = b"{\"user\":1},{\"user\":2},{\"user\":3},{\"user\":4}".repeat(10);
/// let mut stored = Vec::new();
/// frame::pack(codec.as_mut(), engine.format(), &block, &mut stored)?;
/// assert!(stored.len() < block.len() / 4);
///
/// let mut raw = Vec::new();
/// frame::unpack(codec.as_mut(), engine.format(), &stored, &mut raw, 4096)?;
/// assert_eq!(raw, block);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Setting {
    /// The format.
    pub format: Format,
    /// The trade-off of speed and ratio, in the format's own numbers: see [`levels`](Setting::levels).
    pub level: i32,
    /// The Huffman codes. Formats other than `deflate` ignore this field.
    pub huffman: Huffman,
    /// Whether a device may, must or must not do the work.
    pub path: Path,
    /// The source of the devices of engine `iaa`. Other engines ignore this field.
    pub device: DeviceSource,
    /// The dictionary of the blocks. It must have been made for this format, and reading needs the same dictionary.
    pub dictionary: Option<Arc<Dictionary>>,
    /// The most [parts](split) of a block, which several engines of a device work on side by side. 1 for whole blocks.
    pub split: u32,
}

impl Setting {
    /// A format at its default level: 1 for `token` and `lz4`, 3 for `zstd`, 6 for `deflate`.
    pub fn new(format: Format) -> Setting {
        let level = match format {
            Format::None => 0,
            Format::Token | Format::Lz4 => 1,
            Format::Zstd => 3,
            Format::Deflate => 6,
        };
        Setting {
            format,
            level,
            huffman: Huffman::default(),
            path: Path::default(),
            device: DeviceSource::default(),
            dictionary: None,
            split: 1,
        }
    }

    /// The same with another level.
    #[must_use]
    pub fn with_level(self, level: i32) -> Setting {
        Setting { level, ..self }
    }

    /// The same with another Huffman mode.
    #[must_use]
    pub fn with_huffman(self, huffman: Huffman) -> Setting {
        Setting { huffman, ..self }
    }

    /// The same on another path.
    #[must_use]
    pub fn with_path(self, path: Path) -> Setting {
        Setting { path, ..self }
    }

    /// The same setting with another source of devices. With a model, engine `iaa` is preferred.
    #[must_use]
    pub fn with_device(self, device: DeviceSource) -> Setting {
        Setting { device, ..self }
    }

    /// The same with a dictionary.
    #[must_use]
    pub fn with_dictionary(self, dictionary: Arc<Dictionary>) -> Setting {
        Setting { dictionary: Some(dictionary), ..self }
    }

    /// The same with blocks of up to so many [parts](split). Only format `deflate` has parts, without a dictionary.
    #[must_use]
    pub fn with_split(self, split: u32) -> Setting {
        Setting { split, ..self }
    }

    /// The levels of an engine for a format, `None` if this program has no such engine. No engine has a level 0,
    /// because it means something else in every library.
    pub fn levels(format: Format, engine: &str) -> Option<RangeInclusive<i32>> {
        match (format, engine) {
            (Format::None, "cpu") => Some(0..=0),
            #[cfg(feature = "zstd")]
            (Format::Token, "cpu") => Some(super::token::LEVELS),
            #[cfg(feature = "lz4")]
            (Format::Lz4, "cpu") => Some(super::lz4::LEVELS),
            #[cfg(feature = "zstd")]
            (Format::Zstd, "cpu") => Some(super::zstd::LEVELS),
            #[cfg(feature = "deflate")]
            (Format::Deflate, "software") => Some(deflate::LEVELS),
            #[cfg(feature = "zlib")]
            (Format::Deflate, "zlib") => Some(super::zlib::LEVELS),
            #[cfg(feature = "iaa")]
            (Format::Deflate, "iaa") => Some(deflate::LEVELS),
            #[cfg(feature = "qpl")]
            (Format::Deflate, "qpl") => Some(super::qpl::LEVELS),
            _ => None,
        }
    }

    /// The names of the engines that can work for a format, the preferred one first.
    pub fn engine_names(format: Format) -> &'static [&'static str] {
        match format {
            Format::None | Format::Token | Format::Lz4 | Format::Zstd => &["cpu"],
            Format::Deflate => &["software", "iaa", "qpl", "zlib"],
        }
    }

    /// Whether an engine of that name takes a path to a device. `zlib` does not: a preloaded library decides by itself.
    pub fn has_hardware(engine: &str) -> bool {
        matches!(engine, "iaa" | "qpl")
    }

    /// The preferred engine; on the path `hardware` one that has a device.
    ///
    /// Share it among threads; each opens a context of its own.
    pub fn engine(&self) -> Result<Arc<dyn Engine>, SettingError> {
        match self.format {
            Format::Deflate if self.prefers_device() => self.engine_named("iaa"),
            Format::Deflate => self.engine_named("software"),
            _ => self.engine_named("cpu"),
        }
    }

    /// As [`engine`](Self::engine), but on the path `auto` it takes the machine's devices for `deflate` if this process
    /// may use any.
    pub fn engine_of_machine(&self) -> Result<Arc<dyn Engine>, SettingError> {
        let is_open = self.format == Format::Deflate
            && self.path == Path::Auto
            && self.device == DeviceSource::Discovered;
        match is_open && self.clone().with_path(Path::Hardware).engine().is_ok() {
            true => self.engine_named("iaa"),
            false => self.engine(),
        }
    }

    fn prefers_device(&self) -> bool {
        match self.path {
            Path::Hardware => true,
            Path::Auto => self.device != DeviceSource::Discovered,
            Path::Software => false,
        }
    }

    fn check_split(&self) -> Result<(), SettingError> {
        if !split::PARTS.contains(&self.split) {
            return Err(SettingError::Parts { split: self.split });
        }
        let hindrance = match self.format {
            _ if self.split == 1 => return Ok(()),
            Format::Deflate if self.dictionary.is_some() => "blocks with a dictionary",
            Format::Deflate if self.huffman == Huffman::Canned => "blocks with canned codes",
            Format::Deflate => return Ok(()),
            _ => "blocks of another format than deflate",
        };
        Err(SettingError::NotSplit { what: hindrance })
    }

    /// The engine of that name, or the reason why it cannot follow the setting.
    pub fn engine_named(&self, name: &str) -> Result<Arc<dyn Engine>, SettingError> {
        self.check_split()?;
        let known =
            |format, name| Setting::engine_names(format).iter().find(|engine| **engine == name).copied();
        if self.path == Path::Hardware
            && let Some(engine) = known(self.format, name)
            && !Setting::has_hardware(engine)
        {
            return Err(SettingError::NoHardware { engine });
        }
        let dictionary = self.dictionary.clone();
        let cannot = |engine, what| SettingError::Unsupported { engine, format: self.format, what };
        match (self.format, name) {
            (Format::None, "cpu") if dictionary.is_some() => Err(cannot("cpu", "a dictionary")),
            (Format::None, "cpu") => Ok(Arc::new(Copying::new())),
            #[cfg(feature = "zstd")]
            (Format::Token, "cpu") => Ok(Arc::new(super::token::Tokens::new(self.level, dictionary)?)),
            #[cfg(feature = "lz4")]
            (Format::Lz4, "cpu") => Ok(Arc::new(super::lz4::Lz4::new(self.level, dictionary)?)),
            #[cfg(feature = "zstd")]
            (Format::Zstd, "cpu") => Ok(Arc::new(super::zstd::Zstd::new(self.level, dictionary)?)),
            #[cfg(feature = "libdeflate")]
            (Format::Deflate, "software") if self.huffman == Huffman::Dynamic && dictionary.is_none() => {
                Ok(Arc::new(super::libdeflate::Libdeflate::new(self.level)?.with_split(self.split)))
            }
            #[cfg(feature = "deflate")]
            (Format::Deflate, "software") => {
                let engine = deflate::Deflate::new(self.level, self.huffman, dictionary)?;
                Ok(Arc::new(engine.with_split(self.split)))
            }
            #[cfg(feature = "iaa")]
            (Format::Deflate, "iaa") => Ok(Arc::new(super::iaa::Iaa::new(self)?)),
            (Format::Deflate, "qpl") if self.split > 1 => Err(cannot("qpl", "blocks in parts")),
            (Format::Deflate, "zlib") if self.split > 1 => Err(cannot("zlib", "blocks in parts")),
            #[cfg(feature = "qpl")]
            (Format::Deflate, "qpl") => {
                Ok(Arc::new(super::qpl::Qpl::new(self.level, self.huffman, dictionary, self.path)?))
            }
            (Format::Deflate, "zlib") if self.huffman == Huffman::Canned => {
                Err(cannot("zlib", "canned codes"))
            }
            #[cfg(feature = "zlib")]
            (Format::Deflate, "zlib") => {
                Ok(Arc::new(super::zlib::Zlib::new(self.level, self.huffman, dictionary)?))
            }
            (format, name) if let Some(engine) = known(format, name) => {
                let feature = match format {
                    // zstd packs the dictionary.
                    Format::Token => "zstd",
                    _ if format.is_built() => engine,
                    _ => format.name(),
                };
                Err(SettingError::NotBuilt { engine, format, feature })
            }
            (format, _) => Err(SettingError::UnknownEngine { name: name.to_owned(), format }),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} level {}", self.format, self.level)?;
        if self.format == Format::Deflate {
            write!(f, ", {} Huffman codes", self.huffman)?;
        }
        if self.split > 1 {
            write!(f, ", up to {} parts", self.split)?;
        }
        if let Some(dictionary) = &self.dictionary {
            write!(f, ", dictionary {} of {} bytes", dictionary.generation(), dictionary.content().len())?;
        }
        Ok(())
    }
}

/// The error of a setting that no engine can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingError {
    /// The engine has no such level.
    Level {
        /// The engine's name.
        engine: &'static str,
        /// The format.
        format: Format,
        /// The level asked for.
        level: i32,
        /// The levels there are, 0 apart.
        levels: RangeInclusive<i32>,
    },
    /// Blocks of the format need a dictionary.
    NoDictionary {
        /// The format.
        format: Format,
    },
    /// No engine has this name.
    UnknownEngine {
        /// The name asked for.
        name: String,
        /// The format.
        format: Format,
    },
    /// No Huffman mode has this name.
    UnknownHuffman {
        /// The name asked for.
        name: String,
    },
    /// No path has this name.
    UnknownPath {
        /// The name asked for.
        name: String,
    },
    /// The engine works on the CPU alone.
    NoHardware {
        /// The engine's name.
        engine: &'static str,
    },
    /// The program was built without the engine.
    NotBuilt {
        /// The engine's name.
        engine: &'static str,
        /// The format.
        format: Format,
        /// The Cargo feature that builds it.
        feature: &'static str,
    },
    /// The engine cannot work on this machine.
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// The attempt, the finding and the remedy.
        reason: String,
    },
    /// The engine cannot do something that the setting asks for.
    Unsupported {
        /// The engine's name.
        engine: &'static str,
        /// The format.
        format: Format,
        /// The part that it cannot do.
        what: &'static str,
    },
    /// The dictionary was made for another format.
    DictionaryFormat {
        /// The format of the dictionary.
        found: Format,
        /// The setting's format.
        expected: Format,
    },
    /// The setting has canned codes, but no dictionary that was trained with canned codes.
    NoCannedCodes,
    /// The library refuses the dictionary for compressing.
    DictionaryRefused {
        /// The format.
        format: Format,
    },
    /// Blocks cannot have so many parts.
    Parts {
        /// The parts asked for.
        split: u32,
    },
    /// Blocks of this kind have no parts.
    NotSplit {
        /// The kind.
        what: &'static str,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Level { engine, format, level, levels } => {
                let (first, last) = (levels.start(), levels.end());
                write!(
                    f,
                    "engine {engine} has no level {level} of format {format}: choose {first} to {last}"
                )?;
                if *first < 0 { write!(f, ", but not 0") } else { Ok(()) }
            }
            SettingError::NoDictionary { format } => {
                write!(f, "blocks of format {format} need a dictionary: train one for {format}")
            }
            SettingError::UnknownEngine { name, format } => {
                let names = Setting::engine_names(*format).join(", ");
                write!(f, "unknown engine {name:?} for format {format}: choose one of {names}")
            }
            SettingError::UnknownHuffman { name } => {
                let names: Vec<_> = Huffman::ALL.iter().map(|mode| mode.name()).collect();
                write!(f, "unknown Huffman mode {name:?}: choose one of {}", names.join(", "))
            }
            SettingError::UnknownPath { name } => {
                let names: Vec<_> = Path::ALL.iter().map(|path| path.name()).collect();
                write!(f, "unknown path {name:?}: choose one of {}", names.join(", "))
            }
            SettingError::NoHardware { engine } => {
                write!(
                    f,
                    "engine {engine} cannot be told to use a device: choose another engine, or the path auto"
                )
            }
            SettingError::NotBuilt { engine, format, feature } => {
                write!(f, "the program was built without engine {engine} of format {format}: ")?;
                write!(f, "build it with the feature {feature} of ziptier")
            }
            SettingError::Unavailable { engine, reason } => {
                write!(f, "engine {engine} cannot work here: {reason}")
            }
            SettingError::Unsupported { engine, format, what } => {
                write!(f, "engine {engine} of format {format} cannot do {what}: choose another engine")
            }
            SettingError::DictionaryFormat { found, expected } => {
                write!(f, "the dictionary was made for format {found}: train one for {expected}")
            }
            SettingError::NoCannedCodes => {
                write!(
                    f,
                    "there are no canned Huffman codes: train a dictionary for format deflate, and them with it"
                )
            }
            SettingError::DictionaryRefused { format } => {
                write!(f, "the library of format {format} refuses the dictionary: train another one")
            }
            SettingError::Parts { split } => {
                let (first, last) = (split::PARTS.start(), split::PARTS.end());
                write!(f, "blocks cannot be split into {split} parts: choose {first} to {last}")
            }
            SettingError::NotSplit { what } => {
                write!(f, "{what} cannot be split into parts: leave split out")
            }
        }
    }
}

impl std::error::Error for SettingError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(setting: &Setting, engine: &str) -> String {
        setting.engine_named(engine).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let deflate = Setting::new(Format::Deflate);
        assert_eq!(
            refusal(&deflate.clone().with_level(13), "software"),
            "engine software has no level 13 of format deflate: choose 1 to 12"
        );
        assert_eq!(
            refusal(&Setting::new(Format::Zstd).with_level(0), "cpu"),
            "engine cpu has no level 0 of format zstd: choose -131072 to 22, but not 0"
        );
        assert!(
            refusal(&deflate.clone().with_huffman(Huffman::Canned), "software")
                .contains("train a dictionary")
        );
        assert!(refusal(&deflate.clone().with_huffman(Huffman::Canned), "zlib").contains("canned codes"));
        assert!(refusal(&deflate, "abacus").contains("choose one of software, iaa, qpl, zlib"));
        assert!(refusal(&Setting::new(Format::Token), "cpu").contains("need a dictionary"));
        for (split, last) in [(0, "1 to 16"), (17, "1 to 16")] {
            let error = refusal(&deflate.clone().with_split(split), "software");
            assert_eq!(error, format!("blocks cannot be split into {split} parts: choose {last}"));
        }
        let canned = deflate.clone().with_huffman(Huffman::Canned).with_split(2);
        assert!(refusal(&canned, "iaa").starts_with("blocks with canned codes cannot be split into parts"));
        assert!(refusal(&Setting::new(Format::Lz4).with_split(2), "cpu").contains("another format"));
        assert!(refusal(&deflate.clone().with_split(2), "zlib").contains("cannot do blocks in parts"));
        assert_eq!(refusal(&deflate.clone().with_split(16), "software"), "");
        assert_eq!("fixed".parse(), Ok(Huffman::Fixed));
        assert!("static".parse::<Huffman>().unwrap_err().to_string().contains("dynamic, fixed, canned"));
    }

    #[test]
    fn defaults_have_engines() {
        for (format, engine) in [
            (Format::None, "cpu"),
            (Format::Lz4, "cpu"),
            (Format::Zstd, "cpu"),
            (Format::Deflate, "software"),
        ] {
            let found = Setting::new(format).engine().unwrap();
            assert_eq!((found.format(), found.name()), (format, engine));
        }
        let fixed = Setting::new(Format::Deflate).with_huffman(Huffman::Fixed);
        assert_eq!(fixed.engine().unwrap().name(), "software");
        assert_eq!(fixed.to_string(), "deflate level 6, fixed Huffman codes");
    }
}
