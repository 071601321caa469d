//! Expiry: `EXPIRE` `PEXPIRE` `EXPIREAT` `PEXPIREAT` `TTL` `PTTL` `PERSIST`, and
//! the arithmetic of deadlines that `SET` shares.

use super::Session;
use crate::backend::Update;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::shared::unix_ms;

/// What a time argument counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// What a time argument counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    FromNow,
    Unix,
}

/// The moment that `text` names, in milliseconds of Unix time; a past one before 1970 becomes 0.
/// `least` is the smallest argument that `command` allows.
pub(super) fn deadline(
    command: &str,
    text: &[u8],
    unit: Unit,
    clock: Clock,
    least: i64,
) -> Result<u64, Refusal> {
    let time = strict_i64(text).ok_or(Refusal::NOT_INTEGER)?;
    let base = if clock == Clock::FromNow { unix_ms() as i64 } else { 0 };
    let scale = if unit == Unit::Seconds { 1000 } else { 1 };
    let moment = time.checked_mul(scale).and_then(|ms| ms.checked_add(base));
    match moment {
        Some(moment) if time >= least => Ok(moment.max(0) as u64),
        _ => Err(Refusal::expire_time(command)),
    }
}

/// The condition of `EXPIRE key seconds NX|XX|GT|LT`.
#[derive(Default)]
struct Condition {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl Condition {
    fn parse(args: &Args<'_>) -> Result<Self, Refusal> {
        let mut condition = Self::default();
        for option in args.from(3) {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" => condition.absent = true,
                b"XX" => condition.present = true,
                b"GT" => condition.greater = true,
                b"LT" => condition.less = true,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(Refusal(format!("ERR Unsupported option {option}").into()));
                }
            }
        }
        if condition.absent && (condition.present || condition.greater || condition.less) {
            return Err(Refusal::fixed(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if condition.greater && condition.less {
            return Err(Refusal::fixed("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    fn is_none(&self) -> bool {
        !(self.absent || self.present || self.greater || self.less)
    }

    /// No expiry counts as one that never comes.
    fn allows(&self, old: Option<u64>, new: u64) -> bool {
        !(self.absent && old.is_some()
            || self.present && old.is_none()
            || self.greater && old.is_none_or(|old| new <= old)
            || self.less && old.is_some_and(|old| new >= old))
    }
}

pub(super) fn expire(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    change_expiry(session, args, "expire", Unit::Seconds, Clock::FromNow)
}

pub(super) fn pexpire(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    change_expiry(session, args, "pexpire", Unit::Milliseconds, Clock::FromNow)
}

pub(super) fn expireat(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    change_expiry(session, args, "expireat", Unit::Seconds, Clock::Unix)
}

pub(super) fn pexpireat(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    change_expiry(session, args, "pexpireat", Unit::Milliseconds, Clock::Unix)
}

fn change_expiry(
    session: &mut Session<'_>,
    args: &Args<'_>,
    command: &str,
    unit: Unit,
    clock: Clock,
) -> Result<(), Refusal> {
    let condition = Condition::parse(args)?;
    let expires_at_ms = deadline(command, args.at(2), unit, clock, i64::MIN)?;
    let key = args.at(1);
    let backend = &session.shared.backend;
    let passed = expires_at_ms <= unix_ms();
    let changed = if condition.is_none() {
        if passed { backend.delete(key)? } else { backend.set_expiry(key, Some(expires_at_ms))? }
    } else {
        let mut changed = false;
        backend.update(key, &mut |old| {
            changed = old.is_some_and(|(_, meta)| condition.allows(meta.expires_at_ms, expires_at_ms));
            match changed {
                true if passed => Update::Delete,
                true => Update::Expire { expires_at_ms: Some(expires_at_ms) },
                false => Update::Keep,
            }
        })?;
        changed
    };
    session.reply.integer(changed.into());
    Ok(())
}

/// Milliseconds that a key has left: -2 when there is no key, -1 when it stays.
fn left_ms(session: &Session<'_>, key: &[u8]) -> Result<i64, Refusal> {
    Ok(match session.shared.backend.meta(key)? {
        None => -2,
        Some(meta) => meta.expires_at_ms.map_or(-1, |moment| moment.saturating_sub(unix_ms()) as i64),
    })
}

pub(super) fn ttl(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let left = left_ms(session, args.at(1))?;
    session.reply.integer(if left < 0 { left } else { left.saturating_add(500) / 1000 });
    Ok(())
}

pub(super) fn pttl(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let left = left_ms(session, args.at(1))?;
    session.reply.integer(left);
    Ok(())
}

pub(super) fn persist(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let backend = &session.shared.backend;
    let key = args.at(1);
    let expires = backend.meta(key)?.is_some_and(|meta| meta.expires_at_ms.is_some());
    let changed = expires && backend.set_expiry(key, None)?;
    session.reply.integer(changed.into());
    Ok(())
}
