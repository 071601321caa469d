//! Libraries that engines need, and the path that each codec takes on a machine, with the reason.

use crate::block::qpl::{LIBRARY_VARIABLE, Qpl};
use crate::block::{Preloaded, record_preloaded};
use std::path::{Path, PathBuf};
use ziptier_accel::discovery::{Discovery, QueueMode};
use ziptier_findings::{Finding, Recorder, Section, shell_word};

/// The folders of libraries.
const FOLDERS: [&str; 7] = [
    "usr/local/lib",
    "usr/local/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "opt/qpl/lib",
];

const QPL: [&str; 2] = ["libqpl.so.1", "libqpl.so"];
const ACCEL_CONFIG: [&str; 1] = ["libaccel-config.so.1"];
const ZLIB: [&str; 1] = ["libz.so.1"];
const SHIM: [&str; 2] = ["libzlib-accel.so", "libzlib_accel.so"];

/// The finding if the library is missing.
const NO_QPL: &str = "not installed (engine qpl needs it, no other; ZIPTIER_QPL names its file elsewhere)";

/// The libraries of a machine for the engines.
struct Libraries {
    qpl: Option<PathBuf>,
    /// The result of loading it. A library of a recorded tree is not loaded.
    qpl_loaded: Option<Result<&'static str, String>>,
    /// The library through which libqpl finds devices.
    accel_config: Option<PathBuf>,
    zlib: Option<PathBuf>,
    shim: Option<PathBuf>,
    /// The shim, mapped into this process before libz.
    preloaded: Option<Preloaded>,
}

/// Looks for libraries below a root, which is `/` for this machine, and combines them with the discovered devices.
pub fn examine(root: &Path, found: &Discovery) -> [Section; 2] {
    let libraries = Libraries::find(root);
    [libraries.section(root), paths(&libraries, found)]
}

/// Records only what [`examine`] reads: the names of the libraries, not their contents.
pub fn record(recorder: &mut Recorder) {
    for folder in FOLDERS {
        for name in QPL.iter().chain(&ACCEL_CONFIG).chain(&ZLIB).chain(&SHIM) {
            recorder.presence(&format!("{folder}/{name}"));
        }
    }
    record_preloaded(recorder);
}

impl Libraries {
    fn find(root: &Path) -> Libraries {
        let first = |names: &[&str]| {
            let mut all =
                FOLDERS.iter().flat_map(|folder| names.iter().map(move |name| root.join(folder).join(name)));
            all.find(|path| path.exists())
        };
        let is_here = root == Path::new("/");
        Libraries {
            qpl: first(&QPL),
            qpl_loaded: is_here.then(Qpl::library_version),
            accel_config: first(&ACCEL_CONFIG),
            zlib: first(&ZLIB),
            shim: first(&SHIM),
            preloaded: Preloaded::find_below(root),
        }
    }

    /// Whether engine `qpl` can be used.
    fn has_qpl(&self) -> bool {
        match &self.qpl_loaded {
            Some(loaded) => loaded.is_ok(),
            None => self.qpl.is_some(),
        }
    }

    fn section(&self, root: &Path) -> Section {
        let mut section = Section::new("Libraries");
        section.add(match (&self.qpl_loaded, &self.qpl) {
            (Some(Ok(version)), _) => Finding::good("libqpl", format!("{version}, loads")),
            (Some(Err(reason)), path) if path.is_some() || std::env::var_os(LIBRARY_VARIABLE).is_some() => {
                Finding::bad("libqpl", format!("does not load: {reason}"))
            }
            (Some(Err(_)), _) => Finding::note("libqpl", NO_QPL),
            (None, Some(path)) => Finding::good("libqpl", told(root, path)),
            (None, None) => Finding::note("libqpl", NO_QPL),
        });
        match &self.accel_config {
            _ if !self.has_qpl() => {}
            Some(path) => section.add(Finding::good("accel-config", told(root, path))),
            None => {
                section.add(Finding::note(
                    "accel-config",
                    "no libaccel-config: libqpl finds no devices without it",
                ));
            }
        }
        section.add(match &self.zlib {
            Some(path) => Finding::good("libz", told(root, path)),
            None => Finding::note("libz", "not where libraries usually lie"),
        });
        section.add(match (&self.preloaded, &self.shim) {
            (Some(preloaded), _) => {
                Finding::good("zlib-accel", format!("preloaded: {}", preloaded.library.display()))
            }
            (None, Some(path)) => Finding::note("zlib-accel", format!("{}, not preloaded", told(root, path))),
            (None, None) => Finding::note("zlib-accel", "neither preloaded nor installed"),
        });
        if let Some(preloaded) = &self.preloaded {
            let settings =
                preloaded.configuration.as_deref().unwrap_or("its defaults: no /etc/zlib-accel.conf");
            section.add(Finding::note("its settings", settings));
        }
        if let (None, Some(path)) = (&self.preloaded, &self.shim) {
            let path = Path::new("/").join(path.strip_prefix(root).unwrap_or(path));
            let preload = format!("LD_PRELOAD={} ziptier doctor", shell_word(&path.to_string_lossy()));
            section.remedy("Optional: have libz's calls accelerated (engine zlib)", [preload]);
        }
        section
    }
}

/// A library's path as its machine sees it, with the version if its file's name has one.
fn told(root: &Path, path: &Path) -> String {
    let shown = Path::new("/").join(path.strip_prefix(root).unwrap_or(path));
    let file = path.canonicalize().ok();
    let name = file.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let version = name.as_deref().and_then(|name| name.split_once(".so.")).map(|(_, version)| version);
    match version.filter(|version| version.contains('.')) {
        Some(version) => format!("{version}, {}", shown.display()),
        None => shown.display().to_string(),
    }
}

fn paths(libraries: &Libraries, found: &Discovery) -> Section {
    let mut section = Section::new("Which path each codec takes");
    let queues: Vec<String> = found.usable().map(|usable| usable.name()).collect();
    let why_not = ziptier_accel::doctor::why_not(found);
    section.add(Finding::note("token, lz4, zstd", "CPU: no device has these formats"));
    section.add(Finding::note("deflate, software", "CPU"));
    section.add(match &why_not {
        None => Finding::good("deflate, iaa", format!("device: {}", listed(&queues))),
        Some(why) => Finding::note("deflate, iaa", format!("CPU: {why}")),
    });
    section.add(qpl(libraries, found, why_not.as_deref()));
    section.add(match libraries.preloaded {
        Some(_) => Finding::good("deflate, zlib", "zlib-accel, which decides by itself (zlib_accel_preload)"),
        None => Finding::note("deflate, zlib", "CPU: nothing stands before libz (zlib_system)"),
    });
    section.add(match &why_not {
        None => Finding::good("analytics", "device, or the CPU where a program asks for it"),
        Some(why) => Finding::note("analytics", format!("CPU: {why}")),
    });
    section.add(match why_not {
        None => Finding::good("--path hardware", "starts"),
        Some(why) => Finding::note("--path hardware", format!("refuses to start: {why}")),
    });
    section
}

/// Intel's library takes shared queues only.
fn qpl(libraries: &Libraries, found: &Discovery, why_not: Option<&str>) -> Finding {
    let subject = "deflate, qpl";
    if !libraries.has_qpl() {
        return Finding::note(subject, "unavailable: no libqpl");
    }
    let shared = found.usable().filter(|usable| usable.queue.mode == QueueMode::Shared);
    let shared: Vec<String> = shared.map(|usable| usable.name()).collect();
    match (&shared[..], why_not) {
        ([_, ..], _) if libraries.accel_config.is_none() => Finding::note(
            subject,
            "CPU: libqpl finds devices through libaccel-config, which is not installed",
        ),
        ([], Some(why)) => Finding::note(subject, format!("CPU: {why}")),
        ([], None) => Finding::note(subject, "CPU: libqpl takes shared queues only"),
        (names, _) => Finding::good(subject, format!("device: {}", listed(names))),
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [one, two, three, rest @ ..] if !rest.is_empty() => {
            format!("{one}, {two}, {three} and {} more", rest.len())
        }
        names => names.join(", "),
    }
}
