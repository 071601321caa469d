//! Glob patterns of `SCAN MATCH` and `CONFIG GET`: `*`, `?`, `[a-c]`, `[^a]`, `\` before a literal.
//!
//! A pattern is compiled once into an automaton whose states are bits, one per element. For each byte of a text every
//! word of states is shifted once, whatever the pattern says. So a text costs its length times the pattern's words, and
//! a hostile pattern costs no more than another one of its length. The method is that of Baeza-Yates and Gonnet, "A new
//! approach to text searching", 1992.

use crate::refusal::Refusal;

/// Most elements, besides stars, behind the plain beginning of a pattern. A text of 64 KiB takes some milliseconds
/// then.
pub(crate) const ELEMENTS_MAX: usize = 4096;
/// Bits of a word of states.
const BITS: usize = 64;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Literal bytes that every match starts with.
    prefix: Box<[u8]>,
    /// The number of elements besides stars behind the plain beginning. No match has fewer bytes there.
    elements: usize,
    /// Words of states.
    words: usize,
    /// For each byte, as many words: element `i` takes the byte if bit `i` is set.
    takes: Vec<u64>,
    /// State `i`, in which `i` elements have been matched, takes any byte and stays if bit `i` is set: a star comes
    /// next.
    stays: Vec<u64>,
}

/// The bytes that one element of a pattern matches, as 256 bits.
type Class = [u64; 4];

impl Pattern {
    /// # Errors
    ///
    /// If it has more than [`ELEMENTS_MAX`] elements behind its plain beginning.
    pub(crate) fn new(pattern: &[u8]) -> Result<Self, Refusal> {
        Self::new_counted(pattern).map(|(pattern, _)| pattern)
    }

    /// As [`Pattern::new`], and returns the number of bits that were set one by one.
    fn new_counted(pattern: &[u8]) -> Result<(Self, usize), Refusal> {
        let prefix = literal_prefix(pattern);
        let rest = &pattern[prefix.len()..];
        let mut elements = 0;
        for_each_element(rest, |class| elements += usize::from(class.is_some()));
        if elements > ELEMENTS_MAX {
            return Err(Refusal::said(format!(
                "ERR the pattern has {elements} elements behind its plain beginning; at most {ELEMENTS_MAX} are matched"
            )));
        }
        let words = elements / BITS + 1;
        let (mut takes, mut stays) = (vec![0_u64; 256 * words], vec![0; words]);
        // The elements that take most bytes: `takes` has the bytes that they do not take, until the end.
        let mut wide = vec![0_u64; words];
        let (mut at, mut steps) = (0, 0);
        for_each_element(rest, |class| match class {
            None => stays[at / BITS] |= 1 << (at % BITS),
            Some(class) => {
                let bit = 1_u64 << (at % BITS);
                let is_wide = class.iter().map(|word| word.count_ones()).sum::<u32>() > 128;
                if is_wide {
                    wide[at / BITS] |= bit;
                }
                for_each_byte(if is_wide { class.map(|word| !word) } else { class }, |byte| {
                    takes[byte * words + at / BITS] |= bit;
                    steps += 1;
                });
                at += 1;
            }
        });
        for takes in takes.chunks_exact_mut(words) {
            takes.iter_mut().zip(&wide).for_each(|(takes, wide)| *takes ^= wide);
        }
        Ok((Self { prefix: prefix.into(), elements, words, takes, stays }, steps))
    }

    /// The literal bytes that every match starts with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Words looked at for each byte of a text.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.prefix.len() + (self.takes.capacity() + self.stays.capacity()) * size_of::<u64>()
    }

    /// Whether the whole of `text` matches. `states` is scratch.
    pub(crate) fn matches(&self, text: &[u8], states: &mut Vec<u64>) -> bool {
        self.matches_counted(text, states).0
    }

    /// As [`Pattern::matches`], and returns the number of words of states that were processed.
    fn matches_counted(&self, text: &[u8], states: &mut Vec<u64>) -> (bool, usize) {
        let Some(text) = text.strip_prefix(&*self.prefix) else { return (false, 0) };
        if text.len() < self.elements {
            return (false, 0);
        }
        if self.elements == 0 {
            return (text.is_empty() || self.stays[0] & 1 == 1, 0);
        }
        states.clear();
        states.resize(self.words, 0);
        states[0] = 1;
        let mut steps = 0;
        for &byte in text {
            let takes = &self.takes[usize::from(byte) * self.words..][..self.words];
            let (mut carry, mut any) = (0, 0);
            for ((state, takes), stays) in states.iter_mut().zip(takes).zip(&self.stays) {
                let taken = *state & takes;
                *state = taken << 1 | carry | *state & stays;
                carry = taken >> (BITS - 1);
                any |= *state;
            }
            steps += self.words;
            if any == 0 {
                return (false, steps);
            }
        }
        (states[self.elements / BITS] >> (self.elements % BITS) & 1 == 1, steps)
    }
}

/// Calls `each` with the class of each element of `pattern`; `None` for a star.
fn for_each_element(pattern: &[u8], mut each: impl FnMut(Option<Class>)) {
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        at += 1;
        match byte {
            b'*' => each(None),
            b'?' => each(Some([u64::MAX; 4])),
            b'[' => {
                let (class, next) = class(pattern, at);
                at = next;
                each(Some(class));
            }
            b'\\' if at < pattern.len() => {
                each(Some(range(pattern[at], pattern[at])));
                at += 1;
            }
            literal => each(Some(range(literal, literal))),
        }
    }
}

/// Calls `each` with the bytes of `class`.
fn for_each_byte(class: Class, mut each: impl FnMut(usize)) {
    for (index, mut word) in class.into_iter().enumerate() {
        while word != 0 {
            each(64 * index + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}

/// The bytes from `low` to `high`.
fn range(low: u8, high: u8) -> Class {
    let mut class = [0; 4];
    for (index, word) in class.iter_mut().enumerate() {
        let first = usize::from(low).max(64 * index);
        let last = usize::from(high).min(64 * index + 63);
        if first <= last {
            *word = (u64::MAX >> (63 - (last - first))) << (first % 64);
        }
    }
    class
}

/// The class that opens before `at`, and its end. An open class ends with the pattern.
fn class(pattern: &[u8], mut at: usize) -> (Class, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut matched = [0; 4];
    loop {
        let (more, len) = match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => (range(*literal, *literal), 2),
            [low, b'-', high, ..] => (range(*low.min(high), *low.max(high)), 3),
            [literal, ..] => (range(*literal, *literal), 1),
        };
        matched.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
        at += len;
    }
    if negated {
        matched.iter_mut().for_each(|word| *word = !*word);
    }
    (matched, at)
}

/// The literal bytes that every match starts with.
fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = memchr::memchr3(b'*', b'?', b'[', pattern).unwrap_or(pattern.len());
    let end = memchr::memchr(b'\\', &pattern[..end]).unwrap_or(end);
    &pattern[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Pattern::new(pattern).unwrap().matches(text, &mut Vec::new())
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[ab", "a", true),
            ("[]", "a", false),
            ("\\", "\\", true),
            ("user:*:name", "user:12:name", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    /// The definition, which takes for ever on hostile patterns.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.first() {
            None => text.is_empty(),
            Some(b'*') => (0..=text.len()).any(|skipped| by_definition(&pattern[1..], &text[skipped..])),
            Some(_) => {
                let Some((&byte, text)) = text.split_first() else { return false };
                let (is_match, next) = match pattern {
                    [b'?', ..] => (true, 1),
                    [b'[', ..] => {
                        let (class, next) = class(pattern, 1);
                        (class[usize::from(byte / 64)] >> (byte % 64) & 1 == 1, next)
                    }
                    [b'\\', literal, ..] => (*literal == byte, 2),
                    [literal, ..] => (*literal == byte, 1),
                    [] => (false, 1),
                };
                is_match && by_definition(&pattern[next..], text)
            }
        }
    }

    #[test]
    fn random_patterns_match_as_they_are_defined_to() {
        let mut random = fastrand::Rng::with_seed(0x610b);
        let mut matched = 0;
        for _ in 0..20_000 {
            let draw = |random: &mut fastrand::Rng, of: &[u8], len_max| -> Vec<u8> {
                (0..random.usize(..=len_max)).map(|_| of[random.usize(..of.len())]).collect()
            };
            let (pattern, text) = (draw(&mut random, b"aab*?[]^-\\", 10), draw(&mut random, b"aabb-", 8));
            let expected = by_definition(&pattern, &text);
            let named = (String::from_utf8_lossy(&pattern), String::from_utf8_lossy(&text));
            assert_eq!(matches(&pattern, &text), expected, "{named:?}");
            matched += usize::from(expected);
        }
        assert!(matched > 500, "{matched}");
        // States of several words.
        for len in [62, 63, 64, 65, 127, 128, 129, 500] {
            let text = vec![b'a'; len];
            let tail = [&b"*"[..], &vec![b'?'; len]].concat();
            assert!(matches(&tail, &text) && !matches(&tail, &text[1..]), "{len}");
            assert!(matches(&[&tail[..], b"*"].concat(), &[&text[..], b"bb"].concat()), "{len}");
            assert!(!matches(&[&tail[..], b"b"].concat(), &text), "{len}");
        }
    }

    #[test]
    fn hostile_patterns_cost_a_step_a_byte_and_word() {
        let long_class = [&b"*["[..], &vec![b'a'; 1 << 20], b"]b"].concat();
        let stars = [&b"*a".repeat(1000)[..], b"b"].concat();
        let segment = [&b"*"[..], &vec![b'a'; 1000], b"b"].concat();
        let text = vec![b'a'; 64 << 10];
        for pattern in [&long_class, &stars, &segment] {
            let compiled = Pattern::new(pattern).unwrap();
            let (matched, steps) = compiled.matches_counted(&text, &mut Vec::new());
            assert!(!matched);
            assert!(steps <= text.len() * compiled.words(), "{steps}");
            assert!(compiled.held_bytes() < 64 << 10, "{}", compiled.held_bytes());
        }
        // A pattern longer than the text costs no step.
        let compiled = Pattern::new(&segment).unwrap();
        assert_eq!(compiled.matches_counted(&text[..1000], &mut Vec::new()), (false, 0));
        assert!(Pattern::new(&[&b"*"[..], &vec![b'a'; 1 << 20]].concat()).is_err());
        assert!(Pattern::new(&vec![b'a'; 1 << 20]).is_ok_and(|plain| plain.words == 1));
    }

    /// A pipeline of `SCAN`, or a `CONFIG GET` of many patterns, compiles each of them on a worker.
    #[test]
    fn hostile_patterns_are_compiled_in_few_steps_a_byte() {
        for element in [&b"?"[..], b"a", b"[^a]", b"[\0-\x7f]", b"[\0-\x80]"] {
            let pattern = [&b"*"[..], &element.repeat(ELEMENTS_MAX)].concat();
            let (_, steps) = Pattern::new_counted(&pattern).unwrap();
            assert!(steps <= 32 * pattern.len(), "{steps} for {}", String::from_utf8_lossy(element));
        }
    }

    #[test]
    fn prefix_ends_before_the_first_wildcard() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"us\\er*"), b"us");
        assert_eq!(literal_prefix(b"plain"), b"plain");
        assert_eq!(literal_prefix(b"*"), b"");
    }
}
