//! `ziptier doctor`: prints what the crates found out about this machine.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use ziptier_accel::discovery::{Discovery, Places};
use ziptier_findings::{Remedy, Section};

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of a screen
    #[arg(long)]
    json: bool,
    /// Look at a recorded tree (its folders sys, dev, proc, usr, etc) instead of this machine; device nodes count as
    /// permitted if others may read and write them
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

pub(crate) fn doctor(arguments: &Arguments) -> ExitCode {
    if !arguments.root.is_dir() {
        eprintln!("error: {} is no folder; give the root of a recorded tree", arguments.root.display());
        return ExitCode::from(2);
    }
    let report = Report::make(&arguments.root);
    let text = if arguments.json { format!("{:#}\n", report.to_json()) } else { report.to_screen() };
    output::print(&text);
    ExitCode::SUCCESS
}

/// What is left to say where no command helps.
const NOTHING_TO_DO: &str =
    "  Nothing: no command brings a device. Every format works on the CPU, and --model models a device.\n";

struct Report {
    headline: String,
    /// Whether a queue can be used.
    is_hardware: bool,
    sections: Vec<Section>,
}

impl Report {
    fn make(root: &Path) -> Report {
        let mut places = Places::below(root);
        if root != Path::new("/") {
            places.may_open = others_may;
        }
        let found = Discovery::read(&places);
        let mut sections = ziptier_accel::doctor::examine(root, &found);
        let [libraries, paths] = ziptier_codec::doctor::examine(root, &found);
        sections.extend([libraries, ziptier_media::places::examine(root), paths]);
        let is_hardware = found.usable().next().is_some();
        Report { headline: ziptier_accel::doctor::headline(&found), is_hardware, sections }
    }

    fn remedies(&self) -> impl Iterator<Item = &Remedy> {
        self.sections.iter().flat_map(|section| &section.remedies)
    }

    fn to_screen(&self) -> String {
        let mut screen = format!("{}\n", self.headline);
        for section in &self.sections {
            let subjects = section.findings.iter().map(|finding| finding.subject.chars().count());
            let width = subjects.max().unwrap_or(0);
            let _ = writeln!(screen, "\n{}", section.title);
            for finding in &section.findings {
                let sign = finding.mark.sign();
                let _ = writeln!(screen, "  {sign} {:width$}  {}", finding.subject, finding.text);
            }
        }
        screen.push_str("\nWhat to do\n");
        if self.remedies().next().is_none() {
            screen.push_str(if self.is_hardware { "  Nothing: all is set.\n" } else { NOTHING_TO_DO });
        }
        for (index, remedy) in self.remedies().enumerate() {
            let _ = writeln!(screen, "  {}. {}:", index + 1, remedy.purpose);
            remedy.commands.iter().for_each(|command| screen.push_str(&format!("       {command}\n")));
        }
        screen
    }

    fn to_json(&self) -> Value {
        let sections = self.sections.iter().map(|section| {
            let findings = section.findings.iter().map(|finding| {
                json!({ "mark": finding.mark.name(), "subject": finding.subject, "text": finding.text })
            });
            json!({ "title": section.title, "findings": findings.collect::<Vec<_>>() })
        });
        let remedies =
            self.remedies().map(|remedy| json!({ "purpose": remedy.purpose, "commands": remedy.commands }));
        json!({
            "headline": self.headline,
            "hardware": self.is_hardware,
            "sections": sections.collect::<Vec<_>>(),
            "remedies": remedies.collect::<Vec<_>>(),
        })
    }
}

/// In a recorded tree nobody is owner of anything.
fn others_may(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o006 == 0o006)
}
