//! The statistics of a store as text.

use std::fmt::Write;

use ziptier::{MemoryUse, Stats, Store};

/// Appends a line for each named field.
macro_rules! lines {
    ($text:ident, $prefix:literal, $figures:expr; $($name:ident),* $(,)?) => {{
        let figures = &$figures;
        $(let _ = writeln!($text, concat!($prefix, stringify!($name), " {}"), figures.$name);)*
    }};
}

/// One `name value` to a line.
pub(crate) fn of(store: &Store) -> String {
    let mut text = String::new();
    // While many writes are unsettled, it is the number of settled keys.
    let keys = store.len_if_quick().unwrap_or_else(|settled| settled);
    let _ = writeln!(text, "keys {keys}");
    write_memory(&mut text, &store.memory());
    write_work(&mut text, &store.stats());
    if let (Some(engine), Some(worker)) = (store.block_engine(), store.block_worker()) {
        let _ = writeln!(text, "block_engine {engine}\nblock_worker {worker}");
    }
    if let Some(ssd) = store.ssd() {
        lines!(text, "ssd_", ssd; limit_bytes, allocated_bytes, live_bytes, written_bytes, leaves, index_bytes);
    }
    if let Some(log) = store.durable_stats() {
        lines!(text, "", log; durability, log_records, log_written_bytes, log_allocated_bytes, log_syncs);
        let _ = writeln!(text, "log_is_failed {}", u8::from(log.failure.is_some()));
    }
    if let Some(checkpoints) = store.checkpoint_stats() {
        lines!(text, "", checkpoints; checkpoints);
        lines!(text, "checkpoints_", checkpoints; failed, last_took_ms);
    }
    if let Some(recovered) = store.recovered() {
        lines!(text, "recovered_", recovered; images, records, log_bytes);
        for skipped in &recovered.skipped {
            let _ = writeln!(text, "skipped {}", skipped.replace('\n', " "));
        }
    }
    text
}

fn write_memory(text: &mut String, memory: &MemoryUse) {
    let _ = writeln!(text, "held_bytes {}", memory.total_bytes());
    lines!(
        text, "", memory;
        logical_bytes, index_bytes, landing_bytes, raw_body_bytes, coded_body_bytes, packed_body_bytes, large_bytes,
        dictionary_bytes, eviction_bytes, retired_bytes, slack_bytes, far_used_bytes, far_limit_bytes,
    );
}

fn write_work(text: &mut String, stats: &Stats) {
    lines!(
        text, "", stats;
        reads_raw, reads_coded, reads_packed, reads_landing, reads_large, reads_below, ssd_reads, misses, writes,
        written_bytes, logged_bytes, packs_background, packs_foreground, evicted, splits, merges, heated, cooled,
        recoded, condensed, relaxed, sent_to_far, raised_from_far, sent_to_ssd, merged_on_ssd, raised_from_ssd,
        copied_up, values_raised, trainings, adoptions, dictionary_generation, dictionary_bits, damaged,
        coded_raw_bytes, coded_bytes, blocks_packed_fast, blocks_packed_dense, blocks_unpacked, qpl_compress_calls,
        qpl_decompress_calls, iaa_compress_calls, iaa_decompress_calls, zlib_compress_calls, zlib_decompress_calls,
        engine_fallbacks, engine_queue_full_retries, engine_faults,
    );
}
