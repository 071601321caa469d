//! The C interface as `make capi` installs it, for the tests that compile C.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tests are built with the codec of the whole workspace, which has the engine `zlib`.
const MORE_LIBRARIES: &str = "-lz";

/// The folder of the installed library. Tests are processes: one installs, and the others wait for it.
pub(crate) fn installed() -> PathBuf {
    let archive = archive();
    let mut hasher = DefaultHasher::new();
    (&archive, archive.metadata().unwrap().modified().unwrap()).hash(&mut hasher);
    for file in ["include/ziptier.h", "ziptier.map", "../../scripts/install-capi"] {
        fs::read(file).unwrap().hash(&mut hasher);
    }
    let stamp = format!("{:016x}", hasher.finish());
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
    let stamped = prefix.with_extension("stamp");
    let lock = File::create(prefix.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if fs::read_to_string(&stamped).is_ok_and(|installed| installed == stamp) {
        return prefix;
    }
    let mut install = Command::new("scripts/install-capi");
    install.current_dir("../..").arg(archive).arg(&prefix).arg(MORE_LIBRARIES);
    assert!(install.status().unwrap().success());
    fs::write(stamped, stamp).unwrap();
    prefix
}

/// The static library that Cargo built with this program: of several with other features, the newest.
fn archive() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let built = fs::read_dir(program.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let archives = built.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libziptier_capi") && name.ends_with(".a")
    });
    archives.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).expect("Cargo built the library")
}

/// What pkg-config says of the library in a folder, word by word.
pub(crate) fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let output = Command::new("pkg-config")
        .args(arguments)
        .arg("ziptier")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}
