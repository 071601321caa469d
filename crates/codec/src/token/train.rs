//! Choosing the tokens.
//!
//! Two steps alternate:
//!
//! 1. *Merging* ([`merge`](super::merge)) walks through the samples once, as a greedy encoder would, and joins frequent
//!    pairs of tokens. This is OnPair's method, but it continues to half as many tokens again as there is room for.
//! 2. *Pruning* parses the samples as the real encoder does, and drops the tokens whose loss costs least. These are
//!    intermediate steps to longer tokens, and joins that are no longer used. Another walk fills the room.

use super::decode::Table;
use super::encode::{Effort, Encoder};
use super::error::DictionaryError;
use super::matcher::Matcher;
use super::{TOKEN_BYTES_MAX, merge, tokens_max};
use std::cmp::Reverse;

/// Bytes that a training holds for each token that it tries.
const TOKEN_TRAINING_BYTES: usize = 320;

/// Walks through the samples. The second one gains 1 %; a third would gain half a percent more.
const ROUNDS: usize = 2;

/// The most prefixes of all tokens of a trained dictionary. They determine the matcher's memory.
///
/// Text, tables and markup need 2 to 3.5 per token.
pub(super) fn nodes_max(bits: u32) -> usize {
    (1 << bits) * 7 / 2
}

/// Bytes that a training holds at most, beside its samples.
///
/// The counts of pairs have a fixed size, and shuffling needs a list of the samples. The rest depends on tokens. Text
/// and random bytes took up to 150 bytes per token. Long repeated stretches take more, because their tokens share no
/// prefixes.
pub(super) fn memory_bytes_expected(bits: u32, samples: usize) -> usize {
    merge::PAIR_COUNTS_BYTES + samples * size_of::<&[u8]>() + crowd(bits) * TOKEN_TRAINING_BYTES
}

/// Tokens that are tried for so many bits.
fn crowd(bits: u32) -> usize {
    (tokens_max(bits) * 3 / 2).min(tokens_max(16))
}

/// At most 2^bits tokens in the order of their numbers, the most used first, so that they share cache lines.
pub(super) fn train(samples: &[&[u8]], bits: u32) -> Result<Vec<Vec<u8>>, DictionaryError> {
    let room = tokens_max(bits);
    let crowd = crowd(bits);
    let mut tokens: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    let mut used = Vec::new();
    for round in 0..ROUNDS {
        merge::merge(&merge::shuffled(samples, round as u64), &mut tokens, crowd);
        let last = round + 1 == ROUNDS;
        let keep = if last { room } else { room * 7 / 10 };
        let nodes = if last { nodes_max(bits) } else { usize::MAX };
        (tokens, used) = prune(samples, tokens, keep, nodes)?;
    }
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_unstable_by_key(|&number| (Reverse(used[number]), number));
    Ok(order.into_iter().map(|number| std::mem::take(&mut tokens[number])).collect())
}

/// The index with which the encoder parses by tokens that are not yet a dictionary. Drops the newest tokens if all of
/// them have none: long ones that share no beginnings, such as small numbers of 16 bytes, need more slots than there
/// are.
fn index(tokens: &mut Vec<Vec<u8>>) -> Result<Matcher, DictionaryError> {
    let bits = super::BITS.into_iter().find(|&bits| tokens.len() <= tokens_max(bits));
    match Matcher::new(&Table::new(tokens.iter().map(Vec::as_slice), bits.unwrap_or(16))) {
        Err(DictionaryError::TooLarge { .. }) if tokens.len() > 256 => {
            tokens.truncate((tokens.len() * 3 / 4).max(256));
            index(tokens)
        }
        indexed => indexed,
    }
}

/// How often each token is used for the samples.
fn count(samples: &[&[u8]], tokens: &[Vec<u8>], matcher: &Matcher) -> Vec<u32> {
    let mut used = vec![0u32; tokens.len()];
    let mut encoder = Encoder::new();
    for_each_group(samples, |group| {
        encoder.parse(matcher, Effort::Dense, group, |numbers| {
            numbers.iter().for_each(|&number| used[usize::from(number)] += 1);
        });
        true
    });
    used
}

/// Gives samples to `each` in groups that are parsed together, while it returns `true`. Longer samples are cut, so that
/// an encoder needs little scratch.
pub(super) fn for_each_group(samples: &[&[u8]], mut each: impl FnMut(&[&[u8]]) -> bool) {
    const GROUP: usize = 64;
    const GROUP_BYTES: usize = 64 << 10;
    let parts: Vec<&[u8]> = samples.iter().flat_map(|sample| sample.chunks(GROUP_BYTES)).collect();
    let mut rest = parts.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |part: &&&[u8]| {
            bytes += part.len();
            bytes <= GROUP_BYTES
        };
        let (group, behind) = rest.split_at(rest.iter().take(GROUP).take_while(fits).count().max(1));
        rest = behind;
        if !each(group) {
            return;
        }
    }
}

/// Keeps the single bytes and the `keep` tokens that are worth most, as far as they have at most `nodes_max` prefixes.
///
/// The worth of a token is the number of tokens that the samples would need more without it. Returns the tokens, and
/// the uses of each before the others were dropped.
fn prune(
    samples: &[&[u8]],
    mut tokens: Vec<Vec<u8>>,
    keep: usize,
    nodes_max: usize,
) -> Result<(Vec<Vec<u8>>, Vec<u32>), DictionaryError> {
    let matcher = index(&mut tokens)?;
    let used = count(samples, &tokens, &matcher);
    let mut ranked: Vec<(u64, usize)> = (256..tokens.len())
        .filter(|&number| used[number] > 0)
        .map(|number| (u64::from(used[number]) * parts_more(&tokens[number], &matcher), number))
        .collect();
    ranked.sort_unstable_by_key(|&(worth, number)| (Reverse(worth), number));
    ranked.truncate(keep - 256);
    let mut kept: Vec<Vec<u8>> =
        ranked.iter().map(|&(_, number)| std::mem::take(&mut tokens[number])).collect();
    if nodes_max != usize::MAX {
        kept.truncate(merge::tokens_within(&kept, nodes_max));
    }
    let kept_used = ranked.iter().map(|&(_, number)| used[number]).take(kept.len());
    let used = used[..256].iter().copied().chain(kept_used).collect();
    tokens.truncate(256);
    tokens.append(&mut kept);
    Ok((tokens, used))
}

/// The number of shorter tokens that write a token, less one.
fn parts_more(token: &[u8], matcher: &Matcher) -> u64 {
    let mut padded = [0; 2 * TOKEN_BYTES_MAX];
    padded[..token.len()].copy_from_slice(token);
    let mut parts = [u64::MAX; TOKEN_BYTES_MAX + 1];
    parts[token.len()] = 0;
    for at in (0..token.len()).rev() {
        let longest_allowed = if at == 0 { token.len() - 1 } else { token.len() - at };
        let window = padded[at..].first_chunk().expect("twice as many bytes as a token has");
        let mut part = matcher.longest(window);
        loop {
            let length = part.length();
            if length <= longest_allowed {
                parts[at] = parts[at].min(parts[at + length] + 1);
            }
            if length == 1 {
                break;
            }
            part = matcher.shorter(part);
        }
    }
    parts[0] - 1
}
