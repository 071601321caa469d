//! The environment of memkind's libmemtier: `MEMKIND_MEM_TIERS`, `MEMKIND_MEM_THRESHOLDS`, `MEMKIND_DAX_KMEM_NODES`.
//!
//! ```text
//! MEMKIND_MEM_TIERS=KIND:DRAM,RATIO:1;KIND:KMEM_DAX,RATIO:3;POLICY:DYNAMIC_THRESHOLD
//! MEMKIND_MEM_THRESHOLDS=INIT_VAL:64,MIN_VAL:24,MAX_VAL:10000
//! ```
//!
//! Both of memkind's policies become [`Policy::Ratio`], which keeps the ratio that both aim at. `FS_DAX` maps a shared
//! file, with which a forked child sees the writes of its parent. It becomes simulated far memory, and `PATH` is not
//! opened. A tier of one medium alone becomes `only-dram` or `only-far`.

use super::mistake::Reason;
use super::{
    Configuration, FarMemory, Mistake, NODES_VARIABLE, Policy, Ratio, THRESHOLDS_VARIABLE, TIERS_VARIABLE,
    Variables, values,
};

const TIER: &str = "a tier is KIND:DRAM, KIND:KMEM_DAX or KIND:FS_DAX,PATH:folder, and RATIO:number to 65535; write \
  KIND:DRAM,RATIO:1;KIND:KMEM_DAX,RATIO:3;POLICY:STATIC_RATIO";
const TWICE: &str = "there may be one tier of DRAM and one of far memory";
const POLICY: &str = "the last part is POLICY:STATIC_RATIO, or POLICY:DYNAMIC_THRESHOLD behind two tiers";
const THRESHOLD: &str = "there is one group of thresholds in bytes, and INIT_VAL lies between MIN_VAL and MAX_VAL; \
  write INIT_VAL:64,MIN_VAL:24,MAX_VAL:10000";
const NODES: &str = "it is a list of nodes below 1024, such as 1,2";

pub(super) fn read<'a>(variables: &Variables<'a>) -> Result<Configuration, Mistake<'a>> {
    let mut to = Configuration::DEFAULT;
    tiers(&mut to, variables.tiers.unwrap_or_default())?;
    if let Some(text) = variables.thresholds {
        thresholds(&mut to, text).ok_or(mistake(THRESHOLDS_VARIABLE, text, THRESHOLD))?;
    }
    if let (Some(text), FarMemory::Auto) = (variables.nodes, to.far) {
        to.far = FarMemory::Nodes(values::nodes(text).ok_or(mistake(NODES_VARIABLE, text, NODES))?);
    }
    Ok(to)
}

fn mistake<'a>(source: &'static str, text: &'a [u8], expected: &'static str) -> Mistake<'a> {
    Mistake { source, text, reason: Reason::Expected(expected), strict: false }
}

fn tiers<'a>(to: &mut Configuration, text: &'a [u8]) -> Result<(), Mistake<'a>> {
    let wrong = |part, expected| mistake(TIERS_VARIABLE, part, expected);
    let (mut dram, mut far) = (None, None);
    let mut parts = text.split(|&byte| byte == b';');
    let policy = loop {
        let part = parts.next().ok_or(wrong(text, POLICY))?;
        if let Some(policy) = part.strip_prefix(b"POLICY:") {
            break policy;
        }
        let tier = Tier::read(part).ok_or(wrong(part, TIER))?;
        let side = if tier.kind == Kind::Dram { &mut dram } else { &mut far };
        if side.replace(tier).is_some() {
            return Err(wrong(part, TWICE));
        }
    };
    let is_policy = match policy {
        b"STATIC_RATIO" => dram.is_some() || far.is_some(),
        b"DYNAMIC_THRESHOLD" => dram.is_some() && far.is_some(),
        _ => false,
    };
    if !is_policy || parts.next().is_some() {
        return Err(wrong(text, POLICY));
    }
    to.policy = match (&dram, &far) {
        (Some(_), None) => Policy::OnlyDram,
        (None, _) => Policy::OnlyFar,
        _ => Policy::Ratio,
    };
    if let (Some(dram), Some(far)) = (&dram, &far) {
        to.ratio = Ratio { dram: dram.part, far: far.part };
    }
    if let Some(far) = far {
        to.far_limit_bytes = far.limit_bytes;
        to.far = if far.kind == Kind::File { FarMemory::Simulated } else { FarMemory::Auto };
    }
    Ok(())
}

#[derive(PartialEq)]
enum Kind {
    Dram,
    Nodes,
    File,
}

struct Tier {
    kind: Kind,
    part: u32,
    limit_bytes: u64,
}

impl Tier {
    fn read(text: &[u8]) -> Option<Tier> {
        let (mut kind, mut part, mut has_path) = (None, None, false);
        let mut limit_bytes = u64::MAX;
        for field in text.split(|&byte| byte == b',') {
            let colon = field.iter().position(|&byte| byte == b':')?;
            let value = &field[colon + 1..];
            match &field[..colon] {
                b"KIND" => kind = Some(Tier::kind(value)?),
                b"RATIO" => {
                    let parts = 1..=u64::from(Ratio::PART_MAX);
                    part = Some(values::number(value).filter(|part| parts.contains(part))? as u32);
                }
                b"PATH" => has_path = !value.is_empty(),
                b"PMEM_SIZE_LIMIT" => limit_bytes = values::bytes(value).filter(|&bytes| bytes > 0)?,
                _ => return None,
            }
        }
        let kind = kind?;
        let is_file = kind == Kind::File;
        if is_file != has_path || (limit_bytes != u64::MAX && !is_file) {
            return None;
        }
        Some(Tier { kind, part: part?, limit_bytes })
    }

    fn kind(text: &[u8]) -> Option<Kind> {
        match text {
            b"DRAM" => Some(Kind::Dram),
            b"KMEM_DAX" => Some(Kind::Nodes),
            b"FS_DAX" => Some(Kind::File),
            _ => None,
        }
    }
}

fn thresholds(to: &mut Configuration, text: &[u8]) -> Option<()> {
    // The policy needs no first threshold, but the text must be one that memkind takes.
    let mut first = None;
    for field in text.split(|&byte| byte == b',') {
        let colon = field.iter().position(|&byte| byte == b':')?;
        let bytes = values::number(&field[colon + 1..])?;
        match &field[..colon] {
            b"INIT_VAL" => first = Some(bytes),
            b"MIN_VAL" => to.threshold_min_bytes = bytes,
            b"MAX_VAL" => to.threshold_max_bytes = bytes,
            _ => return None,
        }
    }
    let bounds = to.threshold_min_bytes..=to.threshold_max_bytes;
    bounds.contains(&first.unwrap_or(to.threshold_min_bytes)).then_some(())
}
