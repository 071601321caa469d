//! `ziptier alloc class`: ratios and budgets that several programs share.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use ziptier_alloc::classes::{ClassError, ClassSeen, Locked, default_path};
use ziptier_alloc::configuration::{ClassName, Configuration, FilePath, Ratio};

use super::sentence;
use crate::output::{mib, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a class, or change the options that are named
    Set {
        /// Name of the class: a-z, 0-9, - and _
        name: String,

        /// ratio=DRAM:FAR or ratio=none, dram-limit=BYTES and far-limit=BYTES for all members together, separated by
        /// blanks or commas
        #[arg(value_name = "OPTION=VALUE")]
        options: Vec<String>,

        #[command(flatten)]
        file: ClassFile,
    },
    /// List the classes and their members
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        file: ClassFile,
    },
    /// Delete a class
    Delete {
        /// Name of the class
        name: String,

        /// Delete it although it has members; these go on by their own options
        #[arg(long)]
        force: bool,

        #[command(flatten)]
        file: ClassFile,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ClassFile {
    /// File of the classes, as the option class-file of the programs names it [default: that of this user below
    /// /dev/shm]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ClassFile {
    fn path(&self) -> Result<FilePath, String> {
        match &self.file {
            None => Ok(default_path()),
            Some(path) => {
                let path = std::path::absolute(path).map_err(sentence)?;
                let text = path.as_os_str().as_encoded_bytes();
                FilePath::new(text)
                    .ok_or_else(|| format!("{}: the path has more than 127 bytes", path.display()))
            }
        }
    }

    fn open(&self, open: fn(&FilePath) -> Result<Locked, ClassError>) -> Result<Locked, String> {
        let path = self.path()?;
        open(&path).map_err(|error| format!("{}: {error}", path.as_c_str().to_string_lossy()))
    }
}

pub(super) fn run(command: &Command) -> Result<String, String> {
    match command {
        Command::Set { name, options, file } => set(name, options, file),
        Command::List { json, file } => list(*json, file),
        Command::Delete { name, force, file } => {
            let (name, classes) = (class_name(name)?, file.open(Locked::open)?);
            classes.delete(&name, *force).map_err(|error| format!("{}: {error}", name.as_str()))?;
            Ok(String::new())
        }
    }
}

fn class_name(name: &str) -> Result<ClassName, String> {
    let wrong =
        || format!("`{name}` is no name of a class: it has 1 to 31 of the characters a-z, 0-9, - and _");
    ClassName::new(name.as_bytes()).ok_or_else(wrong)
}

fn set(name: &str, options: &[String], file: &ClassFile) -> Result<String, String> {
    let name = class_name(name)?;
    let (mut ratio, mut limits) = (None, [None; 2]);
    let options = options.iter().flat_map(|text| text.split([',', ';', '\n'])).map(str::trim);
    for option in options.filter(|option| !option.is_empty()) {
        if option == "ratio=none" {
            ratio = Some(None);
            continue;
        }
        // The allocator's own words would name options that a class does not have.
        let name = option.split_once('=').map(|(name, _)| name);
        if !matches!(name, Some("ratio" | "dram-limit" | "far-limit")) {
            return Err(format!("`{option}`: a class has ratio=, dram-limit= and far-limit= alone"));
        }
        let mut configuration = Configuration::DEFAULT;
        configuration.change(option.as_bytes()).map_err(sentence)?;
        match name {
            Some("ratio") => ratio = Some(Some(configuration.ratio)),
            Some("dram-limit") => limits[0] = Some(configuration.dram_limit_bytes),
            _ => limits[1] = Some(configuration.far_limit_bytes),
        }
    }
    file.open(Locked::open_or_create)?.set(&name, ratio, limits).map_err(sentence)?;
    Ok(String::new())
}

fn list(json: bool, file: &ClassFile) -> Result<String, String> {
    let classes = file.open(Locked::open)?;
    let mut seen: Vec<ClassSeen> = classes.classes().collect();
    seen.sort_unstable_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
    if json {
        return Ok(format!("{:#}\n", Value::from_iter(seen.iter().map(|class| class_json(&classes, class)))));
    }
    let mut rows = Vec::new();
    for class in &seen {
        let ratio = class.ratio.map_or_else(|| "own".to_owned(), ratio_text);
        let [dram, far] =
            [0, 1].map(|medium: usize| used(class.live_bytes[medium], class.limit_bytes[medium]));
        rows.push(vec![class.name.as_str().to_owned(), ratio, class.members.to_string(), dram, far]);
        for member in classes.members(&class.name) {
            let [dram, far] = member.live_bytes.map(mib);
            rows.push(vec![format!("  process {}", member.pid), String::new(), String::new(), dram, far]);
        }
    }
    Ok(table(&["class", "ratio", "members", "in DRAM", "in far memory"], rows, 2))
}

fn ratio_text(ratio: Ratio) -> String {
    format!("{}:{}", ratio.dram, ratio.far)
}

fn used(bytes: u64, limit_bytes: u64) -> String {
    if limit_bytes == u64::MAX { mib(bytes) } else { format!("{} of {}", mib(bytes), mib(limit_bytes)) }
}

fn class_json(classes: &Locked, class: &ClassSeen) -> Value {
    let limit = |medium: usize| Some(class.limit_bytes[medium]).filter(|&bytes| bytes != u64::MAX);
    let members = classes.members(&class.name).map(|member| {
        json!({ "process": member.pid, "dram_bytes": member.live_bytes[0], "far_bytes": member.live_bytes[1] })
    });
    json!({
        "name": class.name.as_str(),
        "ratio": class.ratio.map(ratio_text),
        "dram_limit_bytes": limit(0),
        "far_limit_bytes": limit(1),
        "dram_bytes": class.live_bytes[0],
        "far_bytes": class.live_bytes[1],
        "members": members.collect::<Vec<_>>(),
    })
}
