//! Libraries that engines need, and the path that each codec takes on a machine, with the reason.

use std::fs;
use std::path::{Path, PathBuf};
use ziptier_accel::discovery::{Discovery, QueueMode};
use ziptier_findings::{Finding, Section, shell_word};

/// Where libraries lie.
const FOLDERS: [&str; 7] = [
    "usr/local/lib",
    "usr/local/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "opt/qpl/lib",
];

/// Settings of Intel's zlib-accel.
const SHIM_CONFIGURATION: &str = "etc/zlib-accel.conf";

/// What a machine has for the engines.
#[derive(Debug, Clone, Default)]
struct Libraries {
    qpl: Option<PathBuf>,
    zlib: Option<PathBuf>,
    /// zlib-accel, mapped into this process before libz.
    shim_mapped: Option<PathBuf>,
    shim: Option<PathBuf>,
}

/// Looks below a root, which is `/` for this machine, for libraries, and concludes with what was discovered there.
pub fn examine(root: &Path, found: &Discovery) -> [Section; 2] {
    let libraries = Libraries::find(root);
    [libraries.section(root), paths(&libraries, found)]
}

impl Libraries {
    fn find(root: &Path) -> Libraries {
        let first = |names: &[&str]| {
            let mut all =
                FOLDERS.iter().flat_map(|folder| names.iter().map(move |name| root.join(folder).join(name)));
            all.find(|path| path.exists())
        };
        let shims = ["libzlib-accel.so", "libzlib_accel.so"];
        let maps = fs::read_to_string(root.join("proc/self/maps")).unwrap_or_default();
        let mut mapped = maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
        let is_shim = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            shims.iter().any(|shim| name.starts_with(shim))
        };
        Libraries {
            qpl: first(&["libqpl.so.1", "libqpl.so"]),
            zlib: first(&["libz.so.1"]),
            shim_mapped: mapped.find(is_shim),
            shim: first(&shims),
        }
    }

    fn section(&self, root: &Path) -> Section {
        let mut section = Section::new("Libraries");
        section.add(match &self.qpl {
            Some(path) => Finding::good("libqpl", told(root, path)),
            None => Finding::note("libqpl", "not installed (engine qpl needs it, no other)"),
        });
        section.add(match &self.zlib {
            Some(path) => Finding::good("libz", told(root, path)),
            None => Finding::note("libz", "not where libraries usually lie"),
        });
        section.add(self.shim(root));
        if let (None, Some(path)) = (&self.shim_mapped, &self.shim) {
            let path = Path::new("/").join(path.strip_prefix(root).unwrap_or(path));
            let preload = format!("LD_PRELOAD={} ziptier doctor", shell_word(&path.to_string_lossy()));
            section.remedy("Optional: have libz's calls accelerated (engine zlib)", [preload]);
        }
        section
    }

    fn shim(&self, root: &Path) -> Finding {
        match (&self.shim_mapped, &self.shim) {
            (Some(path), _) => {
                let text = fs::read_to_string(root.join(SHIM_CONFIGURATION)).unwrap_or_default();
                let lines = text.lines().map(str::trim);
                let settings = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
                let settings = settings.collect::<Vec<_>>().join(", ");
                let settings = if settings.is_empty() { "default settings".to_owned() } else { settings };
                Finding::good("zlib-accel", format!("preloaded, {}: {settings}", path.display()))
            }
            (None, Some(path)) => Finding::note("zlib-accel", format!("{}, not preloaded", told(root, path))),
            (None, None) => Finding::note("zlib-accel", "neither preloaded nor installed"),
        }
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
    section.add(match libraries.shim_mapped {
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
    if libraries.qpl.is_none() {
        return Finding::note(subject, "unavailable: libqpl is not installed");
    }
    let shared = found.usable().filter(|usable| usable.queue.mode == QueueMode::Shared);
    let shared: Vec<String> = shared.map(|usable| usable.name()).collect();
    match (&shared[..], why_not) {
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
