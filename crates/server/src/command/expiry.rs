//! Expiry: `EXPIRE` `PEXPIRE` `EXPIREAT` `PEXPIREAT` `TTL` `PTTL` `EXPIRETIME` `PEXPIRETIME` `PERSIST`, and
//! the arithmetic of deadlines that `SET` and `GETEX` share.

use super::Session;
use crate::backend::Update;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::shared::unix_ms;

/// The unit of a time argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// The origin of a time argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    FromNow,
    Unix,
}

/// A time as a client wrote it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time<'a> {
    pub(super) text: &'a [u8],
    pub(super) unit: Unit,
    pub(super) clock: Clock,
}

impl Time<'_> {
    /// The unit and origin of the time in `SET key value option time` and `GETEX key option time`, if `option` takes a
    /// time.
    pub(super) fn option(option: &[u8]) -> Option<(Unit, Clock)> {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        match option.len() {
            2 if is(b"EX") => Some((Unit::Seconds, Clock::FromNow)),
            2 if is(b"PX") => Some((Unit::Milliseconds, Clock::FromNow)),
            4 if is(b"EXAT") => Some((Unit::Seconds, Clock::Unix)),
            4 if is(b"PXAT") => Some((Unit::Milliseconds, Clock::Unix)),
            _ => None,
        }
    }

    /// The moment in milliseconds of Unix time. A moment before 1970 becomes 0. `least` is the smallest number that
    /// `command` allows.
    pub(super) fn deadline(&self, command: &str, least: i64) -> Result<u64, Refusal> {
        let time = strict_i64(self.text).ok_or(Refusal::NOT_INTEGER)?;
        let base = if self.clock == Clock::FromNow { unix_ms() as i64 } else { 0 };
        let scale = if self.unit == Unit::Seconds { 1000 } else { 1 };
        let moment = time.checked_mul(scale).and_then(|ms| ms.checked_add(base));
        match moment {
            Some(moment) if time >= least => Ok(moment.max(0) as u64),
            _ => Err(Refusal::expire_time(command)),
        }
    }
}

/// Whether a key with this deadline is gone.
pub(super) fn has_passed(deadline_ms: u64) -> bool {
    deadline_ms <= unix_ms()
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
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            match option {
                _ if is(b"NX") => condition.absent = true,
                _ if is(b"XX") => condition.present = true,
                _ if is(b"GT") => condition.greater = true,
                _ if is(b"LT") => condition.less = true,
                _ => return Err(Refusal::quoting("ERR Unsupported option ", option, "")),
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
    let expires_at_ms = Time { text: args.at(2), unit, clock }.deadline(command, i64::MIN)?;
    let key = args.at(1);
    let backend = session.backend;
    let passed = has_passed(expires_at_ms);
    let changed = if condition.is_none() {
        if passed { backend.delete(key)? } else { backend.set_expiry(key, Some(expires_at_ms))? }
    } else {
        let mut changed = false;
        backend.update_meta(key, &mut |old| {
            changed = old.is_some_and(|meta| condition.allows(meta.expires_at_ms, expires_at_ms));
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
    Ok(match session.read_meta(key)? {
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

/// Answers with the moment at which a key ends, as `shown`: -2 when there is no key, -1 when it stays.
fn answer_moment(session: &mut Session<'_>, key: &[u8], shown: fn(u64) -> u64) -> Result<(), Refusal> {
    let moment = match session.read_meta(key)? {
        None => -2,
        Some(meta) => meta.expires_at_ms.map_or(-1, |moment| shown(moment) as i64),
    };
    session.reply.integer(moment);
    Ok(())
}

pub(super) fn expiretime(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    answer_moment(session, args.at(1), |moment| moment.saturating_add(500) / 1000)
}

pub(super) fn pexpiretime(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    answer_moment(session, args.at(1), |moment| moment)
}

pub(super) fn persist(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut changed = false;
    session.backend.update_meta(args.at(1), &mut |old| {
        changed = old.is_some_and(|meta| meta.expires_at_ms.is_some());
        if changed { Update::Expire { expires_at_ms: None } } else { Update::Keep }
    })?;
    session.reply.integer(changed.into());
    Ok(())
}
