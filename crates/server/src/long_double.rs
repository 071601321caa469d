//! The arithmetic of `INCRBYFLOAT`: x87's 80-bit floating point, which Redis uses so that 10.5 + 0.1 is 10.6.
//!
//! A number is 64 bits of mantissa and a binary exponent. Reading, adding and printing round once, to the nearest,
//! ties to even, as C's `strtold`, `+` and `printf("%.17Lf")` do on x86.

/// Longest text that is read or written, as in Redis.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// The exponent of the smallest number: 2^-16445.
const EXPONENT_MIN: i32 = -16_445;
/// The exponent of the largest numbers, whose mantissa is 2^63 to 2^64 - 1.
const EXPONENT_MAX: i32 = 16_384 - 64;
/// Digits behind the point that are printed.
const FRACTION_DIGITS: u32 = 17;

/// A finite number: `mantissa * 2^exponent`. The mantissa has its top bit set unless the exponent is the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Finite {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// A number that text can spell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LongDouble(Value);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Finite(Finite),
    Infinite,
}

impl LongDouble {
    pub(crate) const ZERO: Self = Self(Value::Finite(Finite { negative: false, mantissa: 0, exponent: 0 }));

    /// Reads `text` as `strtold` does, but neither blanks nor a NaN, nor what is too large or too small for the type.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
            return Some(Self(Value::Infinite));
        }
        let (mut numerator, exponent, base) = match digits {
            [b'0', b'x' | b'X', hex @ ..] => {
                let (number, exponent) = scan(hex, 16, b'p')?;
                (number, exponent, 2)
            }
            decimal => {
                let (number, exponent) = scan(decimal, 10, b'e')?;
                (number, exponent, 10)
            }
        };
        let zero = Finite { negative, mantissa: 0, exponent: 0 };
        if numerator.is_zero() {
            return Some(Self(Value::Finite(zero)));
        }
        // Beyond this no digits of an allowed text bring the number back into range.
        let exponent_max = if base == 2 { 40_000 } else { 11_000 };
        if exponent.abs() > exponent_max {
            return None;
        }
        let power = exponent.unsigned_abs() as u32;
        let finite = if base == 2 {
            round(negative, numerator, exponent as i32, false)?
        } else if exponent < 0 {
            let mut denominator = Natural::from(1);
            denominator.multiply_by_ten(power);
            // A quotient of 66 or 67 bits: what is left of it only breaks ties.
            let shift = denominator.bits() as i32 + 66 - numerator.bits() as i32;
            numerator.shift_left(shift.max(0) as u32);
            denominator.shift_left((-shift).max(0) as u32);
            let (quotient, rest) = numerator.divide(&denominator);
            round(negative, Natural::from(quotient), -shift, rest)?
        } else {
            numerator.multiply_by_ten(power);
            round(negative, numerator, 0, false)?
        };
        Some(Self(Value::Finite(finite)))
    }

    /// The sum, if it is a finite number.
    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
        let (Value::Finite(a), Value::Finite(b)) = (self.0, other.0) else { return None };
        if a.mantissa == 0 || b.mantissa == 0 {
            return Some(Self(Value::Finite(if a.mantissa == 0 { b } else { a })));
        }
        let (large, small) =
            if (a.exponent, a.mantissa) >= (b.exponent, b.mantissa) { (a, b) } else { (b, a) };
        // Two bits above for the carry, 62 below: what falls out beyond them only breaks ties.
        let distance = (large.exponent - small.exponent) as u32;
        let wide = u128::from(large.mantissa) << 62;
        let narrow = u128::from(small.mantissa) << 62;
        let shifted = narrow.checked_shr(distance).unwrap_or(0);
        let lost = shifted.checked_shl(distance).unwrap_or(0) != narrow;
        let sum = match (large.negative == small.negative, lost) {
            (true, _) => wide + shifted,
            (false, false) => wide - shifted,
            // The lost bits are more than nothing and less than one unit, so one more unit is subtracted.
            (false, true) => wide - shifted - 1,
        };
        let finite = if sum == 0 && !lost {
            Finite { negative: false, mantissa: 0, exponent: 0 }
        } else {
            round(large.negative, Natural::from(sum), large.exponent - 62, lost)?
        };
        Some(Self(Value::Finite(finite)))
    }

    /// The number with up to 17 digits behind the point and no zeros at the end.
    pub(crate) fn text(self) -> String {
        let Value::Finite(Finite { negative, mantissa, exponent }) = self.0 else { return "inf".into() };
        let mut text = if exponent >= 0 {
            let mut whole = Natural::from(u128::from(mantissa));
            whole.shift_left(exponent as u32);
            whole.decimal()
        } else {
            // 64 bits times 10^17 are 121 bits: the whole number of last digits, before it is rounded.
            let scaled = u128::from(mantissa) * 10u128.pow(FRACTION_DIGITS);
            let shift = exponent.unsigned_abs();
            let floor = scaled.checked_shr(shift).unwrap_or(0);
            let rest = if shift < 128 { scaled & ((1 << shift) - 1) } else { 0 };
            let half = if shift <= 128 { 1u128 << (shift - 1) } else { u128::MAX };
            let up = rest > half || (rest == half && floor % 2 == 1);
            let units = floor + u128::from(up);
            let scale = 10u128.pow(FRACTION_DIGITS);
            format!("{}.{:017}", units / scale, units % scale)
        };
        if text.contains('.') {
            text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        }
        if negative && text != "0" { format!("-{text}") } else { text }
    }
}

/// Digits with an optional point and exponent, as all digits in one number and the exponent of its last digit. That
/// counts powers of 10, or of 2 for hexadecimal digits.
fn scan(text: &[u8], radix: u32, mark: u8) -> Option<(Natural, i64)> {
    let mut number = Natural::from(0);
    let (mut digits, mut behind, mut point) = (0, 0, false);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match char::from(byte).to_digit(radix) {
            Some(digit) => {
                number.multiply_add(radix, digit);
                digits += 1;
                behind += i64::from(point);
            }
            None if byte == b'.' && !point => point = true,
            None => break,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    let mut exponent = 0i64;
    let rest = &text[at..];
    if let [first, rest @ ..] = rest {
        if first.to_ascii_lowercase() != mark {
            return None;
        }
        let (negative, digits) = match rest {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        if digits.is_empty() {
            return None;
        }
        for digit in digits {
            let digit = char::from(*digit).to_digit(10)?;
            exponent = (exponent * 10 + i64::from(digit)).min(1 << 40);
        }
        exponent = if negative { -exponent } else { exponent };
    }
    let per_digit = if radix == 16 { 4 } else { 1 };
    Some((number, exponent - behind * per_digit))
}

/// The nearest number to `number * 2^exponent`, or to a little more than that where `more` says so. None when it is too
/// large, or so small that it would be zero.
fn round(negative: bool, mut number: Natural, exponent: i32, more: bool) -> Option<Finite> {
    let bits = number.bits() as i32;
    let target = (exponent + bits - 64).max(EXPONENT_MIN);
    let drop = target - exponent;
    if drop <= 0 {
        number.shift_left(drop.unsigned_abs());
        let mantissa = number.low_u64();
        return (target <= EXPONENT_MAX).then_some(Finite { negative, mantissa, exponent: target });
    }
    let drop = drop.unsigned_abs();
    let half = number.bit(drop - 1);
    let below = more || number.any_below(drop - 1);
    number.shift_right(drop);
    let floor = number.low_u64();
    let up = half && (below || floor & 1 == 1);
    let (mantissa, target) = match floor.checked_add(u64::from(up)) {
        Some(mantissa) => (mantissa, target),
        None => (1 << 63, target + 1),
    };
    (mantissa != 0 && target <= EXPONENT_MAX).then_some(Finite { negative, mantissa, exponent: target })
}

/// A natural number of any size, in limbs of 32 bits, the lowest first and none of the highest zero.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl From<u128> for Natural {
    fn from(mut number: u128) -> Self {
        let mut limbs = Vec::new();
        while number > 0 {
            limbs.push(number as u32);
            number >>= 32;
        }
        Self(limbs)
    }
}

impl Natural {
    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |top| self.0.len() as u32 * 32 - top.leading_zeros())
    }

    fn bit(&self, index: u32) -> bool {
        self.0.get(index as usize / 32).is_some_and(|limb| limb >> (index % 32) & 1 == 1)
    }

    /// Whether any of the lowest `count` bits is set.
    fn any_below(&self, count: u32) -> bool {
        (0..count.min(self.bits())).any(|index| self.bit(index))
    }

    fn low_u64(&self) -> u64 {
        let limb = |index: usize| u64::from(self.0.get(index).copied().unwrap_or(0));
        limb(1) << 32 | limb(0)
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, count: u32) {
        if self.is_zero() {
            return;
        }
        let small = count % 32;
        if small > 0 {
            self.multiply_add(1 << small, 0);
        }
        let zeros = std::iter::repeat_n(0, count as usize / 32);
        self.0.splice(0..0, zeros);
    }

    fn shift_right(&mut self, count: u32) {
        self.0.drain(..(count as usize / 32).min(self.0.len()));
        let small = count % 32;
        if small > 0 {
            let mut above = 0;
            for limb in self.0.iter_mut().rev() {
                let shifted = *limb >> small | above << (32 - small);
                above = *limb;
                *limb = shifted;
            }
        }
        self.trim();
    }

    /// Multiplies by a power of ten.
    fn multiply_by_ten(&mut self, power: u32) {
        (0..power / 9).for_each(|_| self.multiply_add(1_000_000_000, 0));
        (0..power % 9).for_each(|_| self.multiply_add(10, 0));
    }

    /// The quotient, which fits, and whether anything is left.
    fn divide(mut self, divisor: &Self) -> (u128, bool) {
        let mut quotient = 0;
        let places = self.bits().saturating_sub(divisor.bits());
        let mut shifted = divisor.clone();
        shifted.shift_left(places);
        for _ in 0..=places {
            quotient <<= 1;
            if self.at_least(&shifted) {
                self.subtract(&shifted);
                quotient |= 1;
            }
            shifted.shift_right(1);
        }
        (quotient, !self.is_zero())
    }

    fn at_least(&self, other: &Self) -> bool {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_ge()
    }

    /// Takes away `other`, which is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0;
        for (index, limb) in self.0.iter_mut().enumerate() {
            let take = i64::from(other.0.get(index).copied().unwrap_or(0)) + borrow;
            let left = i64::from(*limb) - take;
            borrow = i64::from(left < 0);
            *limb = left as u32;
        }
        self.trim();
    }

    fn decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0u64;
            for limb in self.0.iter_mut().rev() {
                rest = rest << 32 | u64::from(*limb);
                *limb = (rest / 1_000_000_000) as u32;
                rest %= 1_000_000_000;
            }
            groups.push(rest);
            self.trim();
        }
        let Some(first) = groups.pop() else { return "0".into() };
        groups.iter().rev().fold(first.to_string(), |text, group| text + &format!("{group:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::LongDouble;

    fn sum(a: &str, b: &str) -> Option<String> {
        let number = |text: &str| LongDouble::parse(text.as_bytes());
        number(a)?.checked_add(number(b)?).map(LongDouble::text)
    }

    /// Sums as a Redis 7.0.15 on x86-64 gave them.
    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0", "3", "3"),
            ("-0", "-0", "0"),
            ("3.0", "-3.0", "0"),
            ("1", "1e-20", "1"),
            ("0.1", "0.2", "0.3"),
            ("1e18", "0.5", "1000000000000000000.5"),
            ("18446744073709551615", "0.25", "18446744073709551615"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("0x10", "0x.8p1", "17"),
            ("+1", "1.", "2"),
            (".5", "1", "1.5"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
        let huge = sum("1e4932", "0").unwrap();
        assert_eq!((huge.len(), &huge[..3]), (4933, "100"));
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1.1e4932", "1.1e4932"), None);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", " 1", "1 ", "x", "1x", "nan", ".", "-", "1e", "1e+", "0x", "e5", "--1", "1e5000", "1e-5000"]
        {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(LongDouble::parse(&[b'1'; 5120]), None);
        assert!(LongDouble::parse(&[b'1'; 4000]).is_some());
        let tiny = [&[b'0'; 10][..], b".", &[b'0'; 5000], b"1e5000"].concat();
        assert_eq!(LongDouble::parse(&tiny).unwrap().text(), "0.1");
    }
}
