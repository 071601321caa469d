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
                let path = clap_complete::generate_to(shell, &mut command, "ziptier", folder)?;
                let text = fs::read_to_string(&path)?;
                fs::write(&path, without_hidden(&text, &command))
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

/// Takes hidden commands and options out of completions. clap_complete offers them all.
fn without_hidden(text: &str, command: &clap::Command) -> String {
    let commands: Vec<&str> = command
        .get_subcommands()
        .filter(|command| command.is_hide_set())
        .map(|command| command.get_name())
        .collect();
    let options: Vec<&str> = command
        .get_subcommands()
        .flat_map(|command| command.get_arguments())
        .filter(|option| option.is_hide_set())
        .filter_map(|option| option.get_long())
        .collect();
    // fish and zsh have a line for each. bash has lists of words, of which fish repeats those of commands.
    let is_of = |line: &&str| {
        commands
            .iter()
            .any(|name| line.contains(&format!("-a \"{name}\"")) || line.starts_with(&format!("'{name}:")))
            || options.iter().any(|name| {
                line.contains(&format!(" -l {name} ")) || line.starts_with(&format!("'--{name}=["))
            })
    };
    let mut words: Vec<String> = commands.iter().map(|name| format!(" {name} ")).collect();
    words.extend(options.iter().map(|name| format!(" --{name} ")));
    let shown = |line: &str| words.iter().fold(line.to_owned(), |line, word| line.replace(word, " ")) + "\n";
    text.lines().filter(|line| !is_of(line)).map(shown).collect()
}
