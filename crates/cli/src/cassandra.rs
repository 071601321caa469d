//! `ziptier cassandra`: a table of Cassandra's, without its node.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use ziptier::ByteSize;
use ziptier_cassandra::{DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MAX_6, Error, Estimate, Table, TokenOptions};

use crate::output::{self, mib};

/// No node writes larger chunks.
const CHUNK_KIB_MAX: u32 = 1 << 16;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Estimate the size of a table with other compressors and lengths of chunks. The command only reads the table's
    /// files, and the node may run
    Estimate {
        /// Folder of the table, such as /var/lib/cassandra/data/shop/orders-1b255f4def2540a60000000000000000
        dir: PathBuf,

        /// Bytes of rows that the compressors are tried on: 32MiB, 1GB
        #[arg(long, value_name = "BYTES", default_value = "32MiB")]
        sample: ByteSize,
    },
    /// Train a dictionary of tokens on rows of a table, and print the statement that gives the table both
    Train {
        /// Folder of the table, such as /var/lib/cassandra/data/shop/orders-1b255f4def2540a60000000000000000
        dir: PathBuf,

        /// KiB of a chunk before compression: a power of two. Reads decompress one chunk at least. Without it, the
        /// length stays that of the newest SSTable
        #[arg(long, value_name = "KIB", value_parser = chunk_kib)]
        chunk_kib: Option<u32>,

        /// Version of the nodes. 6 takes statements of half the length, and so a shorter dictionary
        #[arg(long, value_name = "VERSION", default_value_t = 5, value_parser = clap::value_parser!(u8).range(5..=6))]
        cassandra: u8,
    },
}

pub(crate) fn run(command: &Command) -> ExitCode {
    // A table may have thousands of files, and all are open at once.
    ziptier_server::raise_open_files();
    let done = match command {
        Command::Estimate { dir, sample } => estimate(dir, sample.0),
        Command::Train { dir, chunk_kib, cassandra } => train(dir, *chunk_kib, *cassandra),
    };
    match done {
        Ok(report) => {
            output::print(&report);
            ExitCode::SUCCESS
        }
        Err(error) => output::refuse(&error),
    }
}

fn chunk_kib(text: &str) -> Result<u32, String> {
    let kib = text.parse().ok().filter(|kib: &u32| kib.is_power_of_two() && *kib <= CHUNK_KIB_MAX);
    kib.ok_or_else(|| format!("Cassandra takes a power of two from 1 to {CHUNK_KIB_MAX}"))
}

/// The statement on stdout, so that `cqlsh -f` takes it, and all else on stderr.
fn train(dir: &Path, chunk_kib: Option<u32>, cassandra: u8) -> Result<String, Error> {
    let table = Table::open(dir)?;
    let bytes_max = if cassandra == 6 { DICTIONARY_BYTES_MAX_6 } else { DICTIONARY_BYTES_MAX };
    let dictionary = ziptier_cassandra::train(&table, bytes_max)?;
    let mut options = TokenOptions::of(&table);
    options.chunk_kib = chunk_kib.unwrap_or(options.chunk_kib);
    let statement = options.statement(&name_of(dir), &dictionary);
    let ratio = options
        .min_compress_ratio
        .map_or("no min_compress_ratio".to_owned(), |ratio| format!("min_compress_ratio {ratio}"));
    output::say(&format!(
        "trained a dictionary on rows of {}; the statement has {} bytes, and replaces all options of the table's \
         compression by chunks of {} KiB, {ratio}; DESCRIBE TABLE prints the options that the table has\n",
        dir.display(),
        statement.len(),
        options.chunk_kib
    ));
    Ok(statement + "\n")
}

/// The name of a table by its folder, `KEYSPACE/TABLE-ID`. A folder of a node may be a link to another disk, so a path
/// with both names is taken as it is. Any other path leads to the folder with the names.
fn name_of(dir: &Path) -> String {
    let names_both = |dir: &PathBuf| has_id(dir) && dir.parent().and_then(Path::file_name).is_some();
    let given = std::path::absolute(dir).ok().filter(names_both);
    let dir = given.or_else(|| dir.canonicalize().ok()).unwrap_or_else(|| dir.to_owned());
    let name = |dir: Option<&Path>| {
        dir.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let table = name(Some(&dir));
    let table = table.rsplit_once('-').map_or(&*table, |(table, _)| table);
    format!("\"{}\".\"{table}\"", name(dir.parent()))
}

/// Whether the name of a folder ends as Cassandra's names of tables do, in 32 hexadecimal digits.
fn has_id(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str());
    let id = name.and_then(|name| name.rsplit_once('-')).map(|(_, id)| id);
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn estimate(dir: &Path, sample_bytes: u64) -> Result<String, Error> {
    let table = Table::open(dir)?;
    let estimate = Estimate::of(&table, sample_bytes, |done, all| {
        output::show_progress(&format!("trying the compressors on a sample: {} %", done * 100 / all.max(1)));
    });
    output::show_progress("");
    Ok(estimated(&table, &estimate?))
}

/// One line for each compressor and length of chunks, beside the table as it is.
fn estimated(table: &Table, estimate: &Estimate) -> String {
    let sample_mb = estimate.sample_bytes as f64 * 1e-6;
    let rows = estimate.formats.iter().map(|format| {
        let ms = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3 / sample_mb);
        vec![
            format.name.clone(),
            format!("{} KiB", format.chunk_bytes >> 10),
            mib(format.bytes),
            format!("{:.3}", format.bytes as f64 / estimate.bytes.max(1) as f64),
            ms(format.compress),
            ms(format.decompress),
        ]
    });
    let titles = ["compressor", "chunks", "then", "then/now", "compress/MB", "read/MB"];
    let has_tokens = estimate.formats.iter().any(|format| format.name.ends_with("token"));
    let no_tokens =
        if has_tokens { "" } else { "no tokens: the rows are too few, or have too little in common\n" };
    format!(
        "{} now, in {}; rows of {} before compression\n{}tried on {} of rows; CPU time for each MB of them\n\
         {no_tokens}",
        mib(estimate.bytes),
        output::count(table.ss_tables().len() as u64, "SSTable", "SSTables"),
        mib(table.raw_bytes()),
        output::table(&titles, rows, 1),
        mib(estimate.sample_bytes)
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    /// The statement named the folder on the other disk as the keyspace.
    #[test]
    fn a_table_on_another_disk_has_the_keyspace_of_its_link() {
        let folder = tempfile::tempdir().unwrap();
        let id = "orders-1b255f4def2540a60000000000000000";
        let [disk, shop] = ["disk", "shop"].map(|name| folder.path().join(name));
        create_dir_all(disk.join(id)).unwrap();
        create_dir_all(&shop).unwrap();
        symlink(disk.join(id), shop.join(id)).unwrap();
        assert_eq!(name_of(&shop.join(id)), r#""shop"."orders""#);

        let shortcut = folder.path().join("shortcut");
        symlink(disk.join(id), &shortcut).unwrap();
        assert_eq!(name_of(&shortcut), r#""disk"."orders""#);
        assert_eq!(name_of(&disk.join(id).join("..").join(id)), r#""disk"."orders""#);
    }
}
