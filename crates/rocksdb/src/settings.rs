//! What a user of the compression manager can choose.

use std::str::FromStr;
use ziptier_codec::block::{DeviceSource, Huffman, ModelOptions, Path, Setting};
use ziptier_codec::format::Format;

/// What the manager makes of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// `deflate` where `compression` is zlib, `lz4` where it is LZ4; all else is left to RocksDB. Any RocksDB reads the files.
    #[default]
    Auto,
    /// Raw DEFLATE, RocksDB's zlib format.
    Deflate,
    /// LZ4 blocks, RocksDB's LZ4 format.
    Lz4,
    /// Tokens, and zstd where tokens do not pay: files need the plugin.
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

    /// Whether files need the plugin.
    pub fn is_private(self) -> bool {
        self == Output::Token
    }
}

/// The options of a compression manager, as its users write them.
///
/// `Default` is what an empty option string means.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// `format`.
    pub output: Output,
    /// `path`.
    pub path: Path,
    /// `huffman`.
    pub huffman: Huffman,
    /// `level`; `None` is the format's default. Tokens have 1, the fast parse, and 2, the dense one.
    pub level: Option<i32>,
    /// `verify`: every block that was packed is unpacked and compared before it is handed over.
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

    /// The token format's level.
    pub(crate) fn token_level(&self) -> i32 {
        self.level.unwrap_or(1)
    }

    fn check(&self) -> Result<(), String> {
        if self.output == Output::Token && !(1..=2).contains(&self.token_level()) {
            return Err(format!(
                "level {} was asked of format token; it has 1 (fast) and 2 (dense)",
                self.token_level()
            ));
        }
        if self.output == Output::Token && self.path == Path::Hardware {
            return Err("path hardware was asked of format token, which the CPU codes; choose format deflate, or path auto".into());
        }
        if self.huffman == Huffman::Canned {
            return Err("canned codes need a format of their own, which no file of RocksDB has yet; choose huffman dynamic or \
                        fixed"
                .into());
        }
        Ok(())
    }

    /// How blocks of a standard format are written.
    pub(crate) fn block(&self, format: Format) -> Setting {
        let mut setting = Setting::new(format).with_huffman(self.huffman);
        if let Some(level) = self.level {
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
}
