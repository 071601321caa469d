//! Finds the library that answers calls of libz in this process: the system's, or a preloaded one of an accelerator.

use std::fs;
use std::path::{Path, PathBuf};

/// Beginnings of the file names of Intel's zlib-accel. Its builds and documents spell the name in two ways.
const SHIMS: [&str; 2] = ["libzlib-accel", "libzlib_accel"];

/// The configuration file of zlib-accel, below the root.
const CONFIGURATION: &str = "etc/zlib-accel.conf";

/// An accelerator's library that is loaded before libz. The library itself decides whether a device or libz gets a
/// block, and does not report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preloaded {
    /// The library that is mapped.
    pub library: PathBuf,
    /// Settings of its configuration file, without comments. `None` if the file cannot be read, so that the defaults
    /// hold.
    pub configuration: Option<String>,
}

impl Preloaded {
    /// The accelerator that this process has preloaded, if it has.
    pub fn find() -> Option<Preloaded> {
        Preloaded::find_below(Path::new("/"))
    }

    /// The same in a recorded tree, whose root is not `/`.
    pub(crate) fn find_below(root: &Path) -> Option<Preloaded> {
        let library = in_maps(&fs::read_to_string(root.join("proc/self/maps")).ok()?)?;
        Some(Preloaded { library, configuration: settings(&root.join(CONFIGURATION)) })
    }

    /// The library and its settings in one line.
    pub fn to_text(&self) -> String {
        let settings = match &self.configuration {
            Some(settings) => format!("/{CONFIGURATION}: {settings}"),
            None => format!("without a readable /{CONFIGURATION}, by its defaults"),
        };
        format!("{}, {settings}", self.library.display())
    }
}

/// The accelerator among the mappings of a process.
fn in_maps(maps: &str) -> Option<PathBuf> {
    maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).map(PathBuf::from).find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        SHIMS.iter().any(|shim| name.starts_with(shim))
    })
}

/// Records what [`Preloaded::find_below`] reads.
#[cfg(feature = "doctor")]
pub(crate) fn record(recorder: &mut ziptier_findings::Recorder) {
    recorder.lines("proc/self/maps", |line| in_maps(line).map(|_| line.to_owned()));
    recorder.lines(CONFIGURATION, |line| is_setting(line.trim()).then(|| line.to_owned()));
}

fn is_setting(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

fn settings(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let lines = text.lines().map(str::trim).filter(|line| is_setting(line));
    Some(lines.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accelerator_is_known_by_its_file() {
        let libz = "7f10-7f20 r-xp 00000000 08:01 42  /usr/lib/x86_64-linux-gnu/libz.so.1.2.13\n\
                    7fff-8000 rw-p 0 0:0 0  [stack]\n";
        assert_eq!(in_maps(libz), None);
        for name in ["libzlib-accel.so", "libzlib_accel.so.1"] {
            let maps = format!("{libz}7f30-7f40 r-xp 00000000 08:01 43  /opt/a b/{name}\n");
            assert_eq!(in_maps(&maps), Some(PathBuf::from(format!("/opt/a b/{name}"))));
        }
    }

    #[test]
    fn its_settings_are_told_in_one_line() {
        let path = std::env::temp_dir().join(format!("zlib-accel-{}.conf", std::process::id()));
        std::fs::write(&path, "# accelerator\nuse_iaa_compress = 1\n\n  use_zlib_compress = 1\n")
            .expect("writes");
        assert_eq!(settings(&path).as_deref(), Some("use_iaa_compress = 1, use_zlib_compress = 1"));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(settings(&path), None);
        let library = "/opt/libzlib-accel.so".into();
        let text = Preloaded { library, configuration: None }.to_text();
        assert!(text.starts_with("/opt/libzlib-accel.so, without a readable /etc"), "{text}");
    }
}
