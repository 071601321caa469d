use super::*;

#[test]
fn the_next_size_waits_for_growth_after_a_rejection_and_the_largest_always() {
    let dictionaries = Dictionaries::new(Arc::default(), &CodecOptions::default());
    let adopt = |bits, generation| {
        let tokens = Dictionary::train(&[b"of the sheep in the parlour"], bits, generation);
        dictionaries.adopt(Coding::Tokens(Arc::new(tokens.expect("the sample is sound"))));
    };
    let wanted_bits = |waits, logical_bytes| {
        let schedule = Schedule { trained_at_bytes: 16 << 20, waits, ..Schedule::default() };
        match dictionaries.due(&schedule, logical_bytes, u64::MAX, false) {
            Some((Reason::Growth, Candidate::Tokens(bits))) => Some(bits),
            _ => None,
        }
    };
    let [adopted, rejected] = [false, true];
    adopt(12, 1);
    assert_eq!([adopted, rejected].map(|waits| wanted_bits(waits, 17 << 20)), [None, None]);
    assert_eq!([adopted, rejected].map(|waits| wanted_bits(waits, 24 << 20)), [Some(14), None]);
    assert_eq!([adopted, rejected].map(|waits| wanted_bits(waits, 64 << 20)), [Some(14), Some(14)]);
    adopt(BITS_CACHED, 2);
    assert_eq!([adopted, rejected].map(|waits| wanted_bits(waits, 511 << 20)), [None, None]);
    assert_eq!([adopted, rejected].map(|waits| wanted_bits(waits, 512 << 20)), [Some(16), Some(16)]);
}

#[test]
fn a_look_in_vain_waits_for_no_more_than_a_part_of_the_store() {
    let mut schedule = Schedule { drift_bytes: 8 << 20, ..Schedule::default() };
    let waits_for = |logical_bytes| {
        schedule.back_off(logical_bytes);
        schedule.drift_bytes
    };
    assert_eq!([16 << 20, 1 << 20, 1 << 40].map(waits_for), [4 << 20, 1 << 20, 2 << 20]);
}

#[test]
fn drift_trains_the_same_size_before_the_store_is_large_enough_to_grow_to_it() {
    let dictionaries = Dictionaries::new(Arc::default(), &CodecOptions::default());
    let tokens = Dictionary::train(&[b"of the sheep in the parlour"], BITS_CACHED, 1);
    dictionaries.adopt(Coding::Tokens(Arc::new(tokens.expect("the sample is sound"))));
    let due = dictionaries.due(&Schedule::default(), 17 << 20, u64::MAX, true);
    assert!(matches!(due, Some((Reason::Drift, Candidate::Tokens(BITS_CACHED)))));
}
