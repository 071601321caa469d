//! Real data for the tests, or, loudly, data made up in its place.

use std::path::{Path, PathBuf};

/// A file of the corpus, decompressed.
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// All files below `ZIPTIER_CORPUS`, or below `../shared/corpus` beside the workspace.
pub(crate) fn files() -> Vec<File> {
    // Tests start in the folder of their crate.
    let beside = PathBuf::from("../../../shared/corpus");
    let root = std::env::var_os("ZIPTIER_CORPUS").map_or(beside, PathBuf::from);
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort_by(|a, b| a.name.cmp(&b.name));
    if files.is_empty() {
        let remedy = format!(
            "{} has no files: the tests use generated data; set ZIPTIER_CORPUS to a folder with real ones",
            root.display()
        );
        ziptier_testing::not_run("corpus", &remedy);
        files = generated();
    }
    files
}

fn collect(folder: &Path, files: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
            continue;
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".md") {
            continue;
        }
        let bytes = std::fs::read(&path).expect("a file of the corpus is readable");
        let bytes = if name.ends_with(".zst") {
            zstd::decode_all(&*bytes).expect("a .zst of the corpus is sound")
        } else {
            bytes
        };
        files.push(File { name, bytes });
    }
}

/// Text, a table, zeros and noise.
fn generated() -> Vec<File> {
    let text: String = (0..40_000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect();
    let table: Vec<u8> =
        (0..50_000u32).flat_map(|i| [i.to_le_bytes(), [0, 0, 0, (i % 3) as u8]].concat()).collect();
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let file = |name: &str, bytes| File { name: name.into(), bytes };
    vec![
        file("text", text.into_bytes()),
        file("table", table),
        file("zeros", vec![0; 200_000]),
        file("noise", noise.take(200_000).collect()),
    ]
}

/// `count` pieces of `size` bytes (or less at the end), spread over the file.
pub(crate) fn pieces(bytes: &[u8], size: usize, count: usize) -> Vec<&[u8]> {
    let all = bytes.chunks(size);
    let step = (all.len() / count).max(1);
    all.rev().step_by(step).take(count).collect()
}
