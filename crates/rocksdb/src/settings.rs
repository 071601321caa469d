//! The options of the compression manager.

use std::str::FromStr;
use std::sync::Arc;
use ziptier_codec::block::parts::Parts;
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{DeviceSource, Engine, Huffman, ModelOptions, Path, Setting};
use ziptier_codec::format::Format;

/// The default level of canned codes: lazy, which costs about as much as zstd.
const CANNED_LEVEL: i32 = 5;

/// The output format of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// `deflate` if `compression` is zlib, `lz4` if it is LZ4. All other blocks are left to RocksDB. Any RocksDB reads
    /// the files.
    #[default]
    Auto,
    /// Raw DEFLATE, RocksDB's zlib format; with canned codes a format of its own.
    Deflate,
    /// LZ4 blocks, RocksDB's LZ4 format.
    Lz4,
    /// Tokens, and zstd if tokens do not pay. Reading the files needs the plugin.
    Token,
}

impl Output {
    /// Every output with its name.
    pub const ALL: &[(Output, &str)] = &[
        (Output::Auto, "auto"),
        (Output::Deflate, "deflate"),
        (Output::Lz4, "lz4"),
        (Output::Token, "token"),
    ];

    fn name(self) -> &'static str {
        Output::ALL.iter().find(|(output, _)| *output == self).map_or("", |(_, name)| name)
    }
}

/// A format whose files need the plugin. Its files carry a [generation](crate::generation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Private {
    /// Tokens, and zstd.
    Tokens,
    /// DEFLATE with canned codes and history, and DEFLATE.
    Canned,
}

/// The options of a compression manager, as its users write them.
///
/// `Default` equals an empty option string.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// `format`.
    pub output: Output,
    /// `path`.
    pub path: Path,
    /// `huffman`.
    pub huffman: Huffman,
    /// `level`; `None` is the format's default. Tokens have level 1, the fast parse, and 2, the dense one, with codes
    /// if they pay. Deflate with canned codes has 1 (fast), 2 to 5 (lazy, the default), 6 to 9 (dense) and 10 to 12
    /// (densest). For `lz4`, levels below 0 are accelerated, 1 is LZ4's default, and 2 to 12 are LZ4-HC. For `auto`,
    /// the level is deflate's.
    pub level: Option<i32>,
    /// `verify`: the manager unpacks every packed block and compares it before handing it over.
    pub verify: bool,
    /// `model`: modelled devices instead of those of the machine.
    pub model: Option<ModelOptions>,
}

impl Settings {
    /// Reads the options; `level` 0 and an empty `model` are their defaults.
    pub fn parse(
        format: &str,
        path: &str,
        huffman: &str,
        level: i32,
        model: &str,
    ) -> Result<Settings, String> {
        let found = Output::ALL.iter().find(|(_, name)| *name == format);
        let Some(&(output, _)) = found else {
            let names: Vec<&str> = Output::ALL.iter().map(|(_, name)| *name).collect();
            return Err(format!(
                "the compression manager `ziptier` has no format `{format}`; choose one of {}",
                names.join(", ")
            ));
        };
        let settings = Settings {
            output,
            path: Path::from_str(path).map_err(|error| error.to_string())?,
            huffman: Huffman::from_str(huffman).map_err(|error| error.to_string())?,
            level: (level != 0).then_some(level),
            verify: false,
            model: match model {
                "" => None,
                text => Some(ModelOptions::from_str(text).map_err(|error| error.to_string())?),
            },
        };
        settings.check()?;
        Ok(settings)
    }

    /// The private format that this asks for, if it does.
    pub fn private(&self) -> Option<Private> {
        match (self.output, self.huffman) {
            (Output::Token, _) => Some(Private::Tokens),
            (Output::Deflate, Huffman::Canned) => Some(Private::Canned),
            _ => None,
        }
    }

    /// The token format's level.
    pub(crate) fn token_level(&self) -> i32 {
        self.level.unwrap_or(1)
    }

    /// The standard format to which the level applies: LZ4 if all blocks are LZ4.
    fn levels(&self) -> Format {
        if self.output == Output::Lz4 { Format::Lz4 } else { Format::Deflate }
    }

    fn check(&self) -> Result<(), String> {
        if self.output == Output::Token && !(1..=2).contains(&self.token_level()) {
            return Err(format!(
                "level {} was asked of format token; it has 1 (fast) and 2 (dense)",
                self.token_level()
            ));
        }
        if self.output == Output::Token && self.path == Path::Hardware {
            return Err(
                "path hardware was asked of format token, which the CPU codes; choose format deflate, \
                 or path auto"
                    .into(),
            );
        }
        if self.huffman == Huffman::Canned && self.output != Output::Deflate {
            return Err(format!(
                "canned codes were asked of format {}; choose format deflate, whose files need the plugin then",
                self.output.name()
            ));
        }
        Ok(())
    }

    /// How blocks of a standard format are written.
    pub(crate) fn block(&self, format: Format) -> Setting {
        let huffman = if self.huffman == Huffman::Canned { Huffman::Dynamic } else { self.huffman };
        let mut setting = Setting::new(format).with_huffman(huffman);
        if let Some(level) = self.level.filter(|_| self.levels() == format) {
            setting = setting.with_level(level);
        }
        if format == Format::Deflate {
            setting = setting.with_path(self.path);
        }
        match &self.model {
            Some(model) => setting.with_device(DeviceSource::Modelled(model.clone())),
            None => setting,
        }
    }

    /// The setting for blocks with canned codes: the requested one if the manager writes such blocks, otherwise
    /// software.
    pub(crate) fn canned(&self) -> Setting {
        if self.private() != Some(Private::Canned) {
            return Setting::new(Format::Deflate).with_path(Path::Software);
        }
        let level = self.level.unwrap_or(CANNED_LEVEL);
        self.block(Format::Deflate).with_level(level)
    }
}

/// The engine of a setting. On the path `auto` it uses the machine's devices, if this process may use any. On the CPU,
/// ordinary DEFLATE gets entry points behind its streams. RocksDB ignores them, because its zlib stops at the end of
/// the stream.
pub(crate) fn engine(setting: &Setting) -> Result<Arc<dyn Engine>, SettingError> {
    let engine = setting.engine_of_machine()?;
    let is_ordinary = setting.huffman == Huffman::Dynamic && setting.dictionary.is_none();
    if engine.format() == Format::Deflate && engine.name() == "software" && is_ordinary {
        return Ok(Arc::new(Parts::new(setting.level)?));
    }
    Ok(engine)
}
