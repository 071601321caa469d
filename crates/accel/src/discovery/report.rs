//! The paragraph that says why the accelerator can or cannot be used.

use std::fmt;

use super::{Discovery, WhyNot};

/// Names that a sentence lists before it only counts.
const NAMES_MAX: usize = 4;

/// The report of a [`Discovery`]: one paragraph with the search, the findings and the obstacles.
impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usable: Vec<String> = self.usable().map(|usable| usable.name()).collect();
        match usable.len() {
            0 => f.write_str("No work queue of an Intel IAA can be used")?,
            1 => write!(f, "One work queue can be used: {}", usable[0])?,
            count => write!(f, "{count} work queues can be used: {}", listed(&usable))?,
        }
        if let Some(why) = self.why_none() {
            write!(f, ": {why} (looked below {}", self.sysfs.display())?;
            write!(f, "{})", if self.has_bus { "" } else { "; the kernel has no bus `dsa`" })?;
        }
        f.write_str(".")?;
        for (why, queues) in self.reasons() {
            write!(f, " {}: {why}.", listed(&queues))?;
        }
        match &self.oddities[..] {
            [] => Ok(()),
            [one] => write!(f, " Could not be understood: {one}."),
            [one, rest @ ..] => write!(f, " Could not be understood: {one}, and {} more.", rest.len()),
        }
    }
}

impl Discovery {
    /// Reasons in the order in which they are met, each with the queues that it keeps from use.
    pub fn reasons(&self) -> Vec<(WhyNot, Vec<String>)> {
        let mut reasons: Vec<(WhyNot, Vec<String>)> = Vec::new();
        for (device, queue, verdict) in self.verdicts() {
            let Err(why) = verdict else { continue };
            let name = format!("{}/{}", device.name, queue.name);
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
        reasons
    }
}

fn listed(names: &[String]) -> String {
    if names.len() <= NAMES_MAX {
        return names.join(", ");
    }
    format!("{} and {} more", names[..NAMES_MAX].join(", "), names.len() - NAMES_MAX)
}
