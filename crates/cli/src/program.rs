//! The sources and libraries of this program, for the manifests of results. The build script lists it.

use ziptier_eval::Program;

/// The commit, the crates that are linked into this program, and the C library behind the allocator.
pub(crate) fn program() -> Program {
    let linked = include_str!(concat!(env!("OUT_DIR"), "/linked"));
    let mut libraries: Vec<_> = linked
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect();
    libraries.push(("jemalloc".into(), crate::heap::version()));
    let commit = env!("ZIPTIER_COMMIT");
    Program { commit: (!commit.is_empty()).then(|| commit.to_owned()), libraries }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let libraries = program().libraries;
        let has = |name: &str| libraries.iter().any(|(known, version)| known == name && !version.is_empty());
        for linked in ["ziptier", "ziptier-eval", "zstd-sys", "tikv-jemallocator", "jemalloc"] {
            assert!(has(linked), "{linked}: {libraries:?}");
        }
        // Of the tests, of another system, of build scripts, and of macros.
        for other in ["redis", "shuttle", "ziptier-testing", "windows-sys", "cc", "syn", "clap_derive"] {
            assert!(!has(other), "{other}: {libraries:?}");
        }
    }

    #[test]
    fn the_commit_is_the_one_of_the_checkout() {
        let output = std::process::Command::new("git")
            .args(["rev-parse", "HEAD:crates/cli/Cargo.toml", "HEAD"])
            .output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            ziptier_testing::not_run(
                "git",
                "it says whether this is a checkout of ziptier; run the tests in one",
            );
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let commit = program().commit.unwrap_or_default();
        assert_eq!(Some(commit.trim_end_matches('+')), said.lines().nth(1), "at the time of the build");
    }
}
