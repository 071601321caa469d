//! Manual pages, and completions for shells, as packages ship them.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the manual pages and completions; made if it is missing
    folder: PathBuf,
}

/// Writes a manual page for `command` and for each of its subcommands, and what bash, fish and zsh complete.
pub(crate) fn pages(mut command: clap::Command, arguments: &Arguments) -> ExitCode {
    let folder = &arguments.folder;
    let written = fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command.clone(), folder))
        .and_then(|()| {
            [Shell::Bash, Shell::Fish, Shell::Zsh].into_iter().try_for_each(|shell| {
                clap_complete::generate_to(shell, &mut command, "ziptier", folder).map(|_| ())
            })
        });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = folder.display();
            output::say(&format!("error: cannot write manual pages into {folder}: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
