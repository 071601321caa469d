//! The names of rows of the suite of codecs. They are those of the published evaluation if it has the row, and similar
//! new names otherwise.

use crate::run::spec::RunSpec;
use crate::target::options::{Huffman, Path};

/// Columns that name a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublishedNames {
    pub(crate) run: String,
    pub(crate) codec: String,
    /// The expected worker. A measured row names the actual one.
    pub(crate) engine: &'static str,
    pub(crate) qpl_mode: Option<String>,
}

impl PublishedNames {
    pub(crate) fn of(spec: &RunSpec) -> Self {
        let options = &spec.options;
        let mode = options.huffman.unwrap_or(Huffman::Dynamic);
        let on_device = options.path == Some(Path::Hardware);
        let device = |on_device| if on_device { "hardware" } else { "software" };
        let named = |run: String, codec: &str, engine| {
            let codec = codec.to_owned();
            PublishedNames { run, codec, engine, qpl_mode: None }
        };
        match (spec.codec.as_str(), options.engine.as_deref()) {
            // The published run of the software baseline has this name for both of its codecs.
            ("lz4", _) => named("software_fixed".into(), "lz4", "cpu"),
            ("deflate", Some("qpl")) => {
                let run = match options.path {
                    Some(Path::Hardware) => format!("qpl_iaa_{mode}"),
                    Some(Path::Software) => format!("software_{mode}"),
                    Some(Path::Auto) | None => format!("qpl_auto_{mode}"),
                };
                let qpl_mode = Some(mode.to_string());
                PublishedNames { qpl_mode, ..named(run, "qpl", device(on_device)) }
            }
            ("deflate", Some("zlib")) if spec.preload.is_some() => {
                named("zlib_accel".into(), "zlib_accel", "zlib_accel_preload")
            }
            ("deflate", Some("zlib")) => named(format!("zlib_system_{mode}"), "zlib_accel", "zlib_system"),
            ("deflate", Some("iaa")) if options.model.is_some() => {
                named(format!("iaa_modelled_{mode}"), "deflate", "modelled")
            }
            ("deflate", Some("iaa")) => named(format!("iaa_{mode}"), "deflate", device(on_device)),
            ("deflate", Some(engine)) => named(format!("deflate_{engine}_{mode}"), "deflate", "software"),
            (codec @ ("none" | "auto" | "token"), _) => named(codec.into(), codec, "none"),
            (codec, _) => named(codec.into(), codec, "cpu"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::options::TargetOptions;

    fn names(codec: &str, engine: Option<&str>, path: Option<Path>, huffman: Huffman) -> [String; 4] {
        let (engine, huffman) = (engine.map(str::to_owned), Some(huffman));
        let options = TargetOptions { engine, path, huffman, ..TargetOptions::default() };
        let names =
            PublishedNames::of(&RunSpec { codec: codec.into(), options, ..RunSpec::new("store", "json") });
        [names.run, names.codec, names.engine.into(), names.qpl_mode.unwrap_or("NA".into())]
    }

    #[test]
    fn rows_that_are_published_bear_their_published_names() {
        let fixed = Huffman::Fixed;
        assert_eq!(names("lz4", None, None, fixed), ["software_fixed", "lz4", "cpu", "NA"]);
        let qpl = |path, mode| names("deflate", Some("qpl"), Some(path), mode);
        assert_eq!(qpl(Path::Software, fixed), ["software_fixed", "qpl", "software", "fixed"]);
        assert_eq!(qpl(Path::Hardware, fixed), ["qpl_iaa_fixed", "qpl", "hardware", "fixed"]);
        assert_eq!(qpl(Path::Hardware, Huffman::Dynamic), ["qpl_iaa_dynamic", "qpl", "hardware", "dynamic"]);
        let preloaded = RunSpec {
            codec: "deflate".into(),
            preload: Some("/opt/libzlib-accel.so".into()),
            options: TargetOptions { engine: Some("zlib".into()), ..TargetOptions::default() },
            ..RunSpec::new("store", "json")
        };
        let names = PublishedNames::of(&preloaded);
        assert_eq!(
            (&*names.run, &*names.codec, names.engine),
            ("zlib_accel", "zlib_accel", "zlib_accel_preload")
        );
        assert_eq!(names.qpl_mode, None);
    }
}
