//! Versions of the libraries that are linked into this program, for the manifests of results.

use std::collections::BTreeMap;

/// The lock file that this program was built with.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");

/// Names and versions: every crate that this one depends on, directly or not, and the C library behind the allocator.
pub(crate) fn linked_versions() -> Vec<(String, String)> {
    let packages = packages();
    let mut found = BTreeMap::new();
    let mut open = vec![env!("CARGO_PKG_NAME")];
    while let Some(name) = open.pop() {
        let Some(package) = packages.get(name) else { continue };
        if found.insert(name.to_owned(), package.version.to_owned()).is_none() {
            open.extend(&package.dependencies);
        }
    }
    found.insert("jemalloc".into(), crate::heap::version());
    found.into_iter().collect()
}

#[derive(Default)]
struct Package {
    version: &'static str,
    dependencies: Vec<&'static str>,
}

/// The packages of the lock file by name; of several versions of one, the newest.
fn packages() -> BTreeMap<&'static str, Package> {
    let mut packages = BTreeMap::new();
    for block in LOCK_FILE.split("[[package]]").skip(1) {
        let mut name = "";
        let mut package = Package::default();
        for line in block.lines() {
            let text = line.trim().trim_end_matches(',');
            let quoted = |text: &'static str| text.trim_matches('"');
            if let Some(value) = text.strip_prefix("name = ") {
                name = quoted(value);
            } else if let Some(value) = text.strip_prefix("version = ") {
                package.version = quoted(value);
            } else if text.starts_with('"') {
                package.dependencies.extend(quoted(text).split(' ').next());
            }
        }
        packages.insert(name, package);
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_and_the_compressor_are_listed() {
        let versions = linked_versions();
        for name in ["ziptier", "ziptier-eval", "zstd-sys", "tikv-jemallocator", "jemalloc"] {
            assert!(
                versions.iter().any(|(known, version)| known == name && !version.is_empty()),
                "{name}: {versions:?}"
            );
        }
    }
}
