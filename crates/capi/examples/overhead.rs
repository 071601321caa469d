//! What a call of the C interface costs beside the same call in Rust, in turns in one run: for `docs/MEASUREMENTS.md`.

use std::ffi::{CString, c_void};
use std::ptr;
use std::time::Instant;

use ::ziptier_codec::block::Setting;
use ::ziptier_codec::format::Format;
use ziptier_capi::buffer::ziptier_option;
use ziptier_capi::codec::{
    ziptier_codec, ziptier_codec_close, ziptier_codec_open, ziptier_compress, ziptier_decompress_exact,
};
use ziptier_capi::status::ziptier_status::ZIPTIER_OK;

const ROUNDS: usize = 21;
const ROUND_BYTES: usize = 4 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("format\tbytes\tcall\trust_ns_min\tc_ns_min\tdifference_ns\tquartiles_ns");
    for format in [Format::None, Format::Lz4, Format::Zstd, Format::Deflate] {
        for bytes in [64, 512, 4096, 16_384] {
            row(format, bytes)?;
        }
    }
    Ok(())
}

/// Measures blocks of one length, in both directions.
fn row(format: Format, bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let raw: Vec<u8> = (0..).flat_map(record).take(bytes).collect();
    let engine = Setting::new(format).engine()?;
    let mut rust = engine.open()?;
    let c = open(format)?;
    let mut packed = Vec::with_capacity(engine.bound(bytes));
    rust.compress(&raw, &mut packed, engine.bound(bytes))?;
    let (packed, calls) = (packed.clone(), ROUND_BYTES / bytes);
    let mut made = Vec::with_capacity(engine.bound(bytes));
    let mut target = vec![0u8; engine.bound(bytes).max(bytes)];
    let out: *mut c_void = target.as_mut_ptr().cast();

    let (mut compress, mut decompress) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let in_rust = ns_per_call(calls, || {
            made.clear();
            rust.compress(&raw, &mut made, engine.bound(bytes)).is_ok()
        })?;
        let mut length = 0;
        // SAFETY: the codec is open; source and target are as long as said.
        let in_c = ns_per_call(calls, || unsafe {
            ziptier_compress(c, raw.as_ptr().cast(), bytes, out, target.len(), &mut length) == ZIPTIER_OK
        })?;
        compress.push((in_rust, in_c));
        let in_rust = ns_per_call(calls, || {
            made.clear();
            rust.decompress(&packed, &mut made, bytes).is_ok()
        })?;
        // SAFETY: the codec is open; source and target are as long as said.
        let in_c = ns_per_call(calls, || unsafe {
            ziptier_decompress_exact(c, packed.as_ptr().cast(), packed.len(), out, bytes) == ZIPTIER_OK
        })?;
        decompress.push((in_rust, in_c));
    }
    // SAFETY: nobody uses the codec any more.
    unsafe { ziptier_codec_close(c) };
    print(format, bytes, "compress", compress);
    print(format, bytes, "decompress", decompress);
    Ok(())
}

fn record(i: u32) -> Vec<u8> {
    format!("{{\"user\":{},\"state\":\"active\",\"visits\":{}}}\n", i * 7919 % 10_007, i % 97).into_bytes()
}

fn open(format: Format) -> Result<*mut ziptier_codec, Box<dyn std::error::Error>> {
    let (name, value) = (CString::new("format")?, CString::new(format.name())?);
    let option = ziptier_option { name: name.as_ptr(), value: value.as_ptr() };
    let mut codec = ptr::null_mut();
    // SAFETY: the option lives until the call has returned.
    match unsafe { ziptier_codec_open(&option, 1, ptr::null(), &mut codec) } {
        ZIPTIER_OK => Ok(codec),
        status => Err(format!("opening the codec: {status:?}").into()),
    }
}

fn ns_per_call(calls: usize, mut call: impl FnMut() -> bool) -> Result<f64, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    for _ in 0..calls {
        if !call() {
            return Err("a call failed".into());
        }
    }
    Ok(begun.elapsed().as_nanos() as f64 / calls as f64)
}

/// Prints the fastest rounds, and the median of the differences with its quartiles.
fn print(format: Format, bytes: usize, call: &str, rounds: Vec<(f64, f64)>) {
    let sorted = |of: fn(&(f64, f64)) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let (rust, c) = (sorted(|round| round.0)[0], sorted(|round| round.1)[0]);
    let difference = sorted(|round| round.1 - round.0);
    let [low, median, high] = [1, 2, 3].map(|quarter| difference[ROUNDS * quarter / 4]);
    println!("{format}\t{bytes}\t{call}\t{rust:.0}\t{c:.0}\t{median:.0}\t{low:.0}..{high:.0}");
}
