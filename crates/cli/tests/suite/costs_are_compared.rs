//! `ziptier tco` and `ziptier mbwu compare` as a planner meets them: the example, the answer, and each mistake in a
//! file.

use std::path::Path;

use crate::support::{printed, refused};

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("file.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn examples_are_files_that_the_commands_take() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["servers", "rocksdb-iaa", "optane-alibaba"] {
        let sheet = file(folder.path(), &printed(&["tco", "--example", name]));
        let table = printed(&["tco", &sheet]);
        assert!(table.contains("what matters most") && table.lines().all(|line| line.len() <= 80), "{table}");
        assert!(printed(&["tco", &sheet, "--format", "tsv"]).starts_with("design\tservers_first_year"));
    }
    let slides = file(folder.path(), &printed(&["mbwu", "example"]));
    let table = printed(&["mbwu", "compare", &slides]);
    for saving in
        ["64.0 % of the money", "57.9 % of the money", "74.1 % of the money", "40.0 % of the energy"]
    {
        assert!(table.split_whitespace().collect::<Vec<_>>().join(" ").contains(saving), "{table}");
    }
    let rows: serde_json::Value =
        serde_json::from_str(&printed(&["mbwu", "compare", &slides, "--format", "json"])).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 6);
}

#[test]
fn a_mistake_in_a_file_is_one_sentence_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = printed(&["tco", "--example", "servers"]);
    let line = 1 + sheet.lines().position(|line| line.starts_with("cores")).unwrap();
    let path = file(folder.path(), &sheet.replacen("cores = 64", "cores = \"many\"", 1));
    let told = refused(&["tco", &path]);
    assert!(told.contains(&path) && told.contains(&format!("line {line}: ")), "{told}");
    assert!(told.contains("expected a number"), "{told}");
    let path = file(folder.path(), &sheet.replacen("pue = 1.4", "pue = 0.4", 1));
    assert!(refused(&["tco", &path]).contains("site.pue is 0.4; give a number from 1 to 10"));
    assert!(refused(&["tco", "/nowhere/sheet.toml"]).contains("cannot read /nowhere/sheet.toml: "));
    let slides = printed(&["mbwu", "example"]);
    let path = file(folder.path(), &slides.replacen("stage =", "phase =", 1));
    assert!(refused(&["mbwu", "compare", &path]).contains("unknown field `phase`"));
}
