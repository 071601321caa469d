//! Values that spell numbers: `INCR` `DECR` `INCRBY` `DECRBY` `INCRBYFLOAT`.

use super::Session;
use crate::backend::{Old, Update};
use crate::integer::strict_i64;
use crate::long_double::LongDouble;
use crate::refusal::Refusal;
use crate::request::Args;

/// Longest text that Redis takes for a number with a fraction.
const FLOAT_BYTES_MAX: u64 = 5 << 10;
/// Bytes that each of its digits counts in a turn: reading it multiplies all digits before.
const DIGIT_BYTES: u64 = 8;

pub(super) fn incr(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    add(session, args.at(1), 1)
}

pub(super) fn decr(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    add(session, args.at(1), -1)
}

pub(super) fn incrby(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let increment = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    add(session, args.at(1), increment)
}

pub(super) fn decrby(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let decrement = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    let increment = decrement.checked_neg().ok_or(Refusal::fixed("ERR decrement would overflow"))?;
    add(session, args.at(1), increment)
}

/// Adds to the integer that a key's value spells; a missing key counts as 0.
fn add(session: &mut Session<'_>, key: &[u8], increment: i64) -> Result<(), Refusal> {
    let mut sum = Ok(0);
    session.backend.update(key, &mut |old| {
        let (number, expires_at_ms) = match old {
            Some((Old::Whole(value), meta)) => {
                (strict_i64(value).ok_or(Refusal::NOT_INTEGER), meta.expires_at_ms)
            }
            Some((Old::Large(_), _)) => (Err(Refusal::NOT_INTEGER), None),
            None => (Ok(0), None),
        };
        sum = number.and_then(|number| number.checked_add(increment).ok_or(Refusal::INCREMENT_OVERFLOW));
        match &sum {
            Ok(sum) => {
                let mut digits = itoa::Buffer::new();
                Update::Put { value: digits.format(*sum).as_bytes().to_vec(), expires_at_ms }
            }
            Err(_) => Update::Keep,
        }
    })?;
    session.reply.integer(sum?);
    Ok(())
}

pub(super) fn incrbyfloat(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut sum = Ok(String::new());
    let mut digits = 0;
    let updated = session.backend.update(args.at(1), &mut |old| {
        let meta = old.as_ref().map(|(_, meta)| *meta);
        digits = meta.map_or(0, |meta| meta.len.min(FLOAT_BYTES_MAX));
        let expires_at_ms = meta.and_then(|meta| meta.expires_at_ms);
        let value = old.map_or(Ok(LongDouble::ZERO), |(value, _)| float(value));
        sum = value.and_then(|value| {
            let increment = LongDouble::parse(args.at(2)).ok_or(Refusal::NOT_FLOAT)?;
            value.checked_add(increment).map(LongDouble::text).ok_or(Refusal::NOT_FINITE)
        });
        match &sum {
            Ok(text) => Update::Put { value: text.clone().into_bytes(), expires_at_ms },
            Err(_) => Update::Keep,
        }
    });
    session.client.worked_bytes += digits * DIGIT_BYTES;
    updated?;
    session.reply.bulk(sum?.as_bytes());
    Ok(())
}

/// The number that a value spells. A value that cannot be read is not taken for one that spells none.
fn float(value: Old<'_>) -> Result<LongDouble, Refusal> {
    let number = match value {
        Old::Whole(text) => LongDouble::parse(text),
        Old::Large(value) if value.len() > FLOAT_BYTES_MAX => None,
        Old::Large(mut value) => {
            let (len, mut text) = (value.len(), Vec::new());
            value.read_at(0, len as usize, &mut text)?;
            LongDouble::parse(&text)
        }
    };
    number.ok_or(Refusal::NOT_FLOAT)
}

#[cfg(test)]
mod tests {
    use super::float;
    use crate::backend::{BackendError, Old, ValueReader};
    use crate::refusal::Refusal;

    struct Unreadable;

    impl ValueReader for Unreadable {
        fn len(&self) -> u64 {
            3000
        }

        fn read_at(&mut self, _: u64, _: usize, _: &mut Vec<u8>) -> Result<(), BackendError> {
            Err(BackendError::Refused("the value is damaged".into()))
        }
    }

    #[test]
    fn an_unreadable_value_is_no_wrong_number() {
        let refusal = Refusal::from(BackendError::Refused("the value is damaged".into()));
        assert_eq!(float(Old::Large(Box::new(Unreadable))), Err(refusal));
        assert_eq!(float(Old::Large(Box::new(vec![b'x'; 3000]))), Err(Refusal::NOT_FLOAT));
    }
}
