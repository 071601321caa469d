//! `ziptier doctor`: prints what the crates found out about this machine.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use ziptier_accel::discovery::{Discovery, Places};
use ziptier_eval::folded;
use ziptier_findings::{Recorder, Remedy, Section, shell_word};

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of a screen
    #[arg(long, conflicts_with = "record")]
    json: bool,
    /// Root of a recorded tree (with folders sys, dev, proc, usr, etc) to look at instead of this machine. In such a
    /// tree, device nodes count as permitted if others may read and write them
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// New folder for a copy of the files that doctor reads, for `doctor --root` on another machine. The copy has no
    /// addresses, no other boot options and no contents of programs [default: none, doctor prints its screen]
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

pub(crate) fn doctor(arguments: &Arguments) -> ExitCode {
    if let Some(fault) = fault_of(&arguments.root) {
        let root = arguments.root.display();
        output::say(&format!("error: {root} {fault}; give the root of a recorded tree\n"));
        return ExitCode::from(2);
    }
    if let Some(target) = &arguments.record {
        return record(&arguments.root, target);
    }
    let report = Report::make(&arguments.root);
    let text = if arguments.json { format!("{:#}\n", report.to_json()) } else { report.to_screen() };
    output::print(&text);
    ExitCode::SUCCESS
}

/// Why a folder is no tree of a machine. Of any other folder the screen would say that the machine has no device.
fn fault_of(root: &Path) -> Option<&'static str> {
    let has = |name: &str| root.join(name).is_dir();
    if !root.is_dir() {
        Some("is no folder")
    } else if root != Path::new("/") && !has("proc") && !has("sys") {
        Some("has neither proc nor sys")
    } else {
        None
    }
}

fn record(root: &Path, target: &Path) -> ExitCode {
    let recorded = Recorder::create(root, target).and_then(|mut recorder| {
        ziptier_accel::doctor::record(&mut recorder, &places(root));
        ziptier_codec::doctor::record(&mut recorder);
        ziptier_media::places::record(&mut recorder);
        recorder.finish()
    });
    match recorded {
        Ok(()) => {
            let folder = shell_word(&target.to_string_lossy());
            output::print(&format!("recorded; read it by: ziptier doctor --root {folder}\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            let target = target.display();
            output::say(&format!("error: cannot record in {target}: {error}; name a folder to be made\n"));
            ExitCode::FAILURE
        }
    }
}

fn places(root: &Path) -> Places {
    let mut places = Places::below(root);
    if root != Path::new("/") {
        places.may_open = others_may;
    }
    places
}

/// The last remedy: the use of a device, or the possible gain of one.
fn last_remedy(found: &Discovery) -> Remedy {
    let (purpose, command) = if found.pci.is_empty() && found.devices.is_empty() {
        let command = "ziptier bench --codec deflate --codec-engine software,iaa --model devices=4";
        ("No command brings a device. Predict what one would bring, by a model of it", command)
    } else {
        let command = "ziptier serve --codec deflate --codec-engine iaa";
        let is_usable = found.usable().next().is_some();
        (
            if is_usable {
                "Serve a store that uses the device"
            } else {
                "Then serve a store that uses the device"
            },
            command,
        )
    };
    Remedy { purpose: purpose.into(), commands: vec![command.into()] }
}

struct Report {
    headline: String,
    /// Whether a queue can be used.
    is_hardware: bool,
    sections: Vec<Section>,
}

impl Report {
    fn make(root: &Path) -> Report {
        let found = Discovery::read(&places(root));
        let mut sections = ziptier_accel::doctor::examine(root, &found);
        let [libraries, paths] = ziptier_codec::doctor::examine(root, &found);
        sections.push(libraries);
        sections.extend(ziptier_media::places::examine(root));
        sections.push(paths);
        if let Some(last) = sections.last_mut() {
            last.remedies.push(last_remedy(&found));
        }
        let is_hardware = found.usable().next().is_some();
        Report { headline: ziptier_accel::doctor::headline(&found), is_hardware, sections }
    }

    fn remedies(&self) -> impl Iterator<Item = &Remedy> {
        self.sections.iter().flat_map(|section| &section.remedies)
    }

    fn to_screen(&self) -> String {
        let mut screen = folded("", &self.headline);
        for section in &self.sections {
            let subjects = section.findings.iter().map(|finding| finding.subject.chars().count());
            let width = subjects.max().unwrap_or(0);
            let _ = writeln!(screen, "\n{}", section.title);
            for finding in &section.findings {
                let begin = format!("  {} {:width$}  ", finding.mark.sign(), finding.subject);
                screen += &folded(&begin, &finding.text);
            }
        }
        screen.push_str("\nWhat to do\n");
        for (index, remedy) in self.remedies().enumerate() {
            screen += &folded(&format!("  {}. ", index + 1), &format!("{}:", remedy.purpose));
            // A command stays one line, to be given as it is.
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

/// In a recorded tree, owners mean nothing.
fn others_may(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o006 == 0o006)
}
