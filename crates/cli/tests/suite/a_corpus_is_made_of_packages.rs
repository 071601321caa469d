//! A clone without files of its own would test codecs on generated data and measure nothing real. `scripts/make-corpus`
//! gives it real files, keeps whole ones, replaces damaged ones, and says in one sentence what it lacks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATE_SOURCE: &str = "pub fn answer() -> u32 {\n    42\n}\n";

/// A machine with one crate, the middle of a program, and no Debian packages.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        let folder = machine.0.path();
        for (name, text) in
            [("src/lib.rs", CRATE_SOURCE), ("README.md", "A crate.\n"), ("data.bin", "no source")]
        {
            let path = folder.join("one-1.2.3").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let package = |name: &str, source: &str| {
            let manifest = folder.join(format!("{name}-1.2.3/Cargo.toml"));
            let manifest = manifest.display();
            format!(r#"{{"name":"{name}","version":"1.2.3","source":{source},"manifest_path":"{manifest}"}}"#)
        };
        let packages =
            format!(r#"{{"packages":[{},{}]}}"#, package("one", r#""a registry""#), package("ours", "null"));
        fs::write(folder.join("metadata"), packages).unwrap();
        fs::create_dir_all(folder.join("sysroot/bin")).unwrap();
        fs::write(folder.join("sysroot/bin/cargo"), "0123456789abcdef").unwrap();
        let here = folder.display();
        machine.program("apt-get", "exit 1");
        machine.program("cargo", &format!("[ $1 = -V ] && echo cargo 9.8.7 || cat {here}/metadata"));
        machine.program("rustc", &format!("[ $1 = -vV ] && echo host: here || echo {here}/sysroot"));
        machine
    }

    fn program(&self, name: &str, line: &str) {
        let path = self.0.path().join("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn corpus(&self, name: &str) -> PathBuf {
        self.0.path().join("corpus").join(name)
    }

    fn make(&self) -> (Output, String) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/make-corpus");
        let path = format!("{}/bin:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new(script).arg(self.corpus("")).env("PATH", path).output().unwrap();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        (output, said)
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_corpus_is_listed_kept_and_mended() {
    let machine = Machine::new();
    let (output, said) = machine.make();
    assert!(output.status.success() && said.contains("SOURCES.tsv lists"), "{said}");
    assert!(said.contains("lacks them") || said.contains("without apt-get"), "{said}");
    assert_eq!(text(&machine.corpus("files/source")), CRATE_SOURCE);
    assert_eq!(text(&machine.corpus("files/text")), "A crate.\n");
    assert_eq!(text(&machine.corpus("files/code")), "456789abcdef");
    let sources = text(&machine.corpus("SOURCES.tsv"));
    assert!(
        sources.starts_with("file\tpackage\tversion\tfiles\tbytes\tsha256\ntext\tcrate one\t1.2.3\t1\t9\t")
    );
    assert!(sources.contains("\nsource\tcrate one\t1.2.3\t1\t34\t"), "{sources}");
    assert!(sources.contains("\ncode\tprogram cargo\t9.8.7\t1\t12\t"), "{sources}");
    let mut sums = Command::new("sha256sum");
    assert!(
        sums.args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(machine.corpus(""))
            .status()
            .unwrap()
            .success()
    );

    // A whole corpus stays as it is, whatever the machine lacks.
    let cargo = machine.0.path().join("bin/cargo");
    let whole = text(&cargo);
    machine.program("cargo", "exit 101");
    let (output, said) = machine.make();
    assert!(output.status.success() && said.is_empty(), "{said}");

    fs::write(machine.corpus("files/text"), "An error.\n").unwrap();
    let (output, said) = machine.make();
    assert_eq!(output.status.code(), Some(1));
    let sentence = "make-corpus: Cargo cannot fetch the crates of Cargo.lock; go online and try again, or set \
                    ZIPTIER_CORPUS to a folder of real files\n";
    assert_eq!(said, sentence);

    fs::write(cargo, whole).unwrap();
    assert!(machine.make().0.status.success());
    assert_eq!(text(&machine.corpus("files/text")), "A crate.\n");
}
