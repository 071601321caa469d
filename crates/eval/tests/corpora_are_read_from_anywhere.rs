//! A user with data should not have to convert it. A user without data should get one clear sentence.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Write;

use ziptier_eval::Corpus;

fn read(name: &str) -> Result<Vec<u8>, String> {
    Corpus::read(name, 1_000, 100).map(|corpus| corpus.bytes.to_vec()).map_err(|error| error.to_string())
}

fn zip(path: &std::path::Path, members: &[(&str, &str)]) {
    let mut archive = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, text) in members {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap();
}

#[test]
fn files_folders_and_archives() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let name = |file: &str| at(file).to_str().unwrap().to_owned();
    fs::write(at("a.txt"), "alpha ").unwrap();
    fs::write(at("b.zst"), zstd::encode_all(&b"beta "[..], 3).unwrap()).unwrap();
    zip(&at("c.zip"), &[("only", "gamma")]);
    assert_eq!(read(&name("a.txt")).unwrap(), b"alpha ");
    assert_eq!(read(&name("b.zst")).unwrap(), b"beta ");
    assert_eq!(read(&name("c.zip")).unwrap(), b"gamma");
    assert_eq!(read(&name("c.zip:only")).unwrap(), b"gamma");
    assert_eq!(
        read(folder.path().to_str().unwrap()).unwrap(),
        b"alpha beta gamma",
        "a folder is its files by name"
    );
}

#[test]
fn what_cannot_be_read_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let name = |file: &str| at(file).to_str().unwrap().to_owned();
    zip(&at("two.zip"), &[("one", "1"), ("other", "2")]);
    fs::write(at("empty"), "").unwrap();
    fs::write(at("torn.zst"), [0x28, 0xb5, 0x2f, 0xfd, 1, 2]).unwrap();
    fs::write(at("torn.zip"), "PK").unwrap();
    fs::create_dir(at("nothing")).unwrap();
    for (name, words) in [
        (name("missing"), "there is no such file or folder"),
        (name("empty"), "it is empty"),
        (name("nothing"), "the folder has no files"),
        (name("two.zip"), "name one of its members: one, other"),
        (name("two.zip:third"), "it has no member third; its members: one, other"),
        (name("torn.zst"), "cannot read the corpus"),
        (name("torn.zip"), "cannot read the corpus"),
        ("random:7".into(), "from 0 to 1"),
    ] {
        let sentence = read(&name).unwrap_err();
        assert!(sentence.contains(words) && !sentence.contains('\n'), "{name}: {sentence}");
    }
}
