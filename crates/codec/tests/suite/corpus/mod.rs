//! Real data for the tests, or, loudly, data made up in its place.

use std::path::{Path, PathBuf};

/// A file of the corpus, decompressed.
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// A kind of file that a test needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Bitmap,
    Code,
    Table,
    Text,
    Xml,
}

impl Kind {
    /// The name of such a file in the Calgary or the Silesia corpus, and in the corpus of `make corpus`.
    fn names(self) -> [&'static str; 2] {
        match self {
            Kind::Bitmap => ["pic", "bitmap"],
            Kind::Code => ["obj2", "code"],
            Kind::Table => ["nci", "table"],
            Kind::Text => ["book1", "text"],
            Kind::Xml => ["xml", "xml"],
        }
    }
}

/// All files of the corpus, by name.
pub(crate) fn files() -> Vec<File> {
    let paths = paths();
    if paths.is_empty() { generated() } else { paths.iter().map(|path| read(path)).collect() }
}

/// A file of each kind, in this order. A test says so if the corpus lacks a kind, and goes on without it.
pub(crate) fn files_of(kinds: &[Kind]) -> Vec<File> {
    let paths = paths();
    if paths.is_empty() {
        return generated();
    }
    let mut files = Vec::new();
    for kind in kinds {
        match paths.iter().find(|path| kind.names().contains(&name_of(path).as_str())) {
            Some(path) => files.push(read(path)),
            None => {
                let folder = ziptier_testing::corpus();
                let [usual, made] = kind.names();
                let remedy = format!("{} has neither {usual} nor {made}; run make corpus", folder.display());
                ziptier_testing::not_run("corpus", &remedy);
            }
        }
    }
    if files.is_empty() { generated() } else { files }
}

fn paths() -> Vec<PathBuf> {
    let folder = ziptier_testing::corpus();
    let mut paths = Vec::new();
    collect(&folder, &mut paths);
    paths.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    if paths.is_empty() {
        let remedy = format!(
            "{} has no files, and tests use generated data; run make corpus, or set {} to a folder of real files",
            folder.display(),
            ziptier_testing::CORPUS_VARIABLE
        );
        ziptier_testing::not_run("corpus", &remedy);
    }
    paths
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_none_or(|extension| extension != "md") {
            paths.push(path);
        }
    }
}

/// Its name without `.zst`.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".zst").to_owned()
}

fn read(path: &Path) -> File {
    let bytes = std::fs::read(path).expect("a file of the corpus is readable");
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    let bytes =
        if is_packed { zstd::decode_all(&*bytes).expect("a .zst of the corpus is sound") } else { bytes };
    File { name: name_of(path), bytes }
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

/// Whether a test tries this combination of files, settings and sizes, by their numbers. All combinations take minutes,
/// so CI tries one in `share`. Two parts meet in every way if a third one has at least `share` numbers. With
/// `ZIPTIER_SOAK`, as in `make soak`, a test tries all.
pub(crate) fn is_tried<const PARTS: usize>(share: usize, numbers: [usize; PARTS]) -> bool {
    std::env::var_os("ZIPTIER_SOAK").is_some() || numbers.iter().sum::<usize>().is_multiple_of(share)
}

/// `count` pieces of `size` bytes, spread over the file. The first of several is the end of the file, which is shorter.
pub(crate) fn pieces(bytes: &[u8], size: usize, count: usize) -> Vec<&[u8]> {
    let all = bytes.chunks(size);
    let step = (all.len() / count).max(1);
    let is_whole = count == 1 && all.len() > 1;
    all.rev().skip(usize::from(is_whole)).step_by(step).take(count).collect()
}
