//! `ziptier alloc run`: starts a program with the library.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use ziptier_alloc::configuration::{Configuration, OPTIONS_VARIABLE, Variables};

use super::{library, sentence};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The library [default: the one that was installed with this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Options of the library, such as ratio=1:3
    #[arg(value_name = "OPTION=VALUE")]
    options: Vec<String>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Becomes the program.
pub(super) fn run(arguments: Arguments) -> Result<Infallible, String> {
    let options = arguments.options.join(",");
    let variables = Variables { options: Some(options.as_bytes()), ..Variables::default() };
    Configuration::read(&variables).map_err(sentence)?;
    let library = match arguments.library {
        Some(library) => library.canonicalize().map_err(|error| format!("{}: {error}", library.display()))?,
        None => library()
            .ok_or("libziptier_alloc.so was not installed with this command; name it by --library")?,
    };
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(format!(
            "{}: the loader splits LD_PRELOAD at colons and blanks; copy the library to a path without these, and name \
             it by --library",
            library.display()
        ));
    }
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut program = Command::new(&arguments.program[0]);
    program.args(&arguments.program[1..]).env("LD_PRELOAD", preload);
    if !options.is_empty() {
        program.env(OPTIONS_VARIABLE, options);
    }
    Err(format!("{}: {}", arguments.program[0].display(), program.exec()))
}
