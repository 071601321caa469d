//! Reads the next requests ahead, so that a worker can announce their keys to the store before it runs them.
//!
//! Do not use this module to run a request: only [`Parser::next`] checks one, and nothing here moves the parser.

use super::{Parser, number_line};

/// Most arguments of a request that [`Parser::look_ahead`] understands.
const ANNOUNCED_ARGUMENTS_MAX: i64 = 8;

/// The beginning of a request that was not parsed yet.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Announced<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) key: &'a [u8],
}

impl<'a> Announced<'a> {
    /// Reads the request at `at`, if it is whole and has a usual number of arguments. Returns its end.
    fn read(&mut self, input: &'a [u8], at: usize) -> Option<usize> {
        input.get(at).filter(|&&byte| byte == b'*')?;
        let (count, mut at) = number_line(input, at + 1).ok()??;
        if !(2..=ANNOUNCED_ARGUMENTS_MAX).contains(&count) {
            return None;
        }
        for index in 0..count {
            input.get(at).filter(|&&byte| byte == b'$')?;
            let (len, start) = number_line(input, at + 1).ok()??;
            let end = start.checked_add(usize::try_from(len).ok()?)?;
            let argument = input.get(start..end)?;
            match index {
                0 => self.name = argument,
                1 => self.key = argument,
                _ => {}
            }
            at = end + 2;
        }
        (at <= input.len()).then_some(at)
    }
}

impl Parser {
    /// Reads name and first argument of the next whole requests in `input`, until `found` is full or a request is
    /// unusual. Returns their number. [`Parser::next`] still checks all of them.
    pub(crate) fn look_ahead<'a>(&self, input: &'a [u8], found: &mut [Announced<'a>]) -> usize {
        if !self.is_idle() {
            return 0;
        }
        let mut at = self.position;
        for (count, announced) in found.iter_mut().enumerate() {
            let Some(next) = announced.read(input, at) else { return count };
            at = next;
        }
        found.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_requests_are_announced_and_none_is_consumed() {
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
        let get = b"*2\r\n$3\r\nGET\r\n$2\r\nbb\r\n";
        let input = [&set[..], get, get].concat();
        let mut parser = Parser::default();
        for end in 0..=input.len() {
            let mut found = [Announced::default(); 4];
            let count = parser.look_ahead(&input[..end], &mut found);
            let whole = [set.len(), set.len() + get.len(), input.len()];
            assert_eq!(count, whole.iter().filter(|&&len| len <= end).count());
            let keys: Vec<_> = found[..count].iter().map(|request| (request.name, request.key)).collect();
            assert_eq!(keys, [(&b"SET"[..], &b"a"[..]), (b"GET", b"bb"), (b"GET", b"bb")][..count]);
        }
        let mut found = [Announced::default(); 1];
        assert_eq!(parser.next(&input).unwrap().unwrap().at(1), b"a");
        assert_eq!(parser.look_ahead(&input, &mut found), 1);
        assert_eq!(found[0].key, b"bb");
        let unusual: [&[u8]; 5] = [
            b"PING\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"*2\r\n$-1\r\n",
            b"*2\r\nx",
            b"*2\r\n$9223372036854775807\r\n",
        ];
        for input in unusual {
            assert_eq!(Parser::default().look_ahead(input, &mut found), 0);
        }
    }
}
