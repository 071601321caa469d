//! Lists the crates that the command is linked with, and the commit that it is built from. Benchmarks write both into
//! the manifests of their results.
//!
//! 1. `cargo tree` names the crates for the target and the features of this build. It leaves out those that only build
//!    scripts, macros or tests use.
//! 2. git names the commit. A package that `cargo package` made brings the commit along.
//!
//! Cargo runs this script again when a source of a crate of the workspace changes, or when the checkout moves. The
//! checkout moves with `HEAD` and with the branch that `HEAD` names, which lies in a file of its own or is packed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The file in which `cargo package` notes the commit.
const PACKAGED_FROM: &str = ".cargo_vcs_info.json";

fn main() {
    let tree = tree();
    if let Err(reason) = &tree {
        println!("cargo::warning=the command will not know its libraries, for {reason}");
    }
    let lines = tree.unwrap_or_default();
    let sources = sources(&lines);
    let moves = moves();
    for path in sources.iter().chain(&moves).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=ZIPTIER_COMMIT={}", commit(&sources).unwrap_or_default());
    let versions: Vec<_> =
        versions(&lines).into_iter().map(|(name, versions)| format!("{name} {versions}\n")).collect();
    let list = Path::new(&variable("OUT_DIR")).join("linked");
    fs::write(&list, versions.concat()).expect("Cargo's folder for what a build script makes can be written");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// The output of a command, or the failure.
fn printed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?} does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        return Err(format!("{command:?} ended with {}: {said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A crate a line: name, version, and in parentheses the folder of a crate of the workspace.
fn tree() -> Result<Vec<String>, String> {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--edges", "normal,no-proc-macro"]);
    cargo.args(["--prefix", "none", "--format", "{p}", "--target", &variable("TARGET")]);
    cargo.args(["--no-default-features", "--features", &variable("CARGO_CFG_FEATURE")]);
    Ok(printed(&mut cargo)?.lines().map(str::to_owned).collect())
}

/// Versions by name; of a crate that is there in several versions, all.
fn versions(lines: &[String]) -> BTreeMap<&str, String> {
    let pairs: BTreeSet<_> =
        lines.iter().filter_map(|line| line.split(' ').next().zip(line.split(' ').nth(1))).collect();
    let mut versions: BTreeMap<&str, String> = BTreeMap::new();
    for (name, version) in pairs {
        let known = versions.entry(name).or_default();
        if !known.is_empty() {
            known.push_str(", ");
        }
        known.push_str(version.trim_start_matches('v'));
    }
    versions
}

/// The files and folders that the command is compiled from.
fn sources(lines: &[String]) -> Vec<PathBuf> {
    let folder = |line: &String| Some(PathBuf::from(line.split_once(" (/")?.1.split(')').next()?));
    let folders: BTreeSet<_> =
        lines.iter().filter_map(folder).map(|path| Path::new("/").join(path)).collect();
    let mut sources: Vec<_> = folders
        .iter()
        .flat_map(|folder| ["src", "Cargo.toml", "build.rs"].map(|part| folder.join(part)))
        .collect();
    sources.extend(["build.rs", "Cargo.lock", PACKAGED_FROM].map(PathBuf::from));
    sources.extend(["../../Cargo.lock", "../../Cargo.toml"].map(PathBuf::from));
    sources.retain(|path| path.exists());
    sources
}

/// The files of git that change when the checkout moves. A branch without a file gets one in its folder.
fn moves() -> Vec<PathBuf> {
    let branch = printed(Command::new("git").args(["symbolic-ref", "--quiet", "HEAD"])).unwrap_or_default();
    let names =
        ["HEAD", "logs/HEAD", "packed-refs", branch.trim()].into_iter().filter(|name| !name.is_empty());
    let paths =
        printed(Command::new("git").arg("rev-parse").args(names.flat_map(|name| ["--git-path", name])));
    let mut paths: Vec<_> = paths.unwrap_or_default().lines().map(PathBuf::from).collect();
    if let Some(path) = paths.last_mut().filter(|_| !branch.is_empty()) {
        while !path.exists() && path.pop() {}
    }
    paths
}

/// The commit, with a plus sign if a source differs from it.
fn commit(sources: &[PathBuf]) -> Option<String> {
    if let Ok(packaged) = fs::read_to_string(PACKAGED_FROM) {
        return Some(packaged.split_once("\"sha1\": \"")?.1.split('"').next()?.to_owned());
    }
    // A checkout of something else that has this crate among its files is no checkout of ziptier.
    let known =
        printed(Command::new("git").args(["rev-parse", "HEAD:crates/cli/Cargo.toml", "HEAD"])).ok()?;
    let commit = known.lines().nth(1)?;
    let changes = printed(
        Command::new("git").args(["--no-optional-locks", "status", "--porcelain", "--"]).args(sources),
    )
    .ok()?;
    Some(format!("{commit}{}", if changes.is_empty() { "" } else { "+" }))
}
