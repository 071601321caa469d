//! The options that a store is opened with.

use ziptier_media::far::{FarOptions, FarPlace};
use ziptier_tree::blocks::BlockCoding;
use ziptier_tree::clock::Clock;
use ziptier_tree::codec_options::{BlockOptions, CodecChoice, CodecOptions};
use ziptier_tree::tree::TreeOptions;

use crate::Error;
use crate::durable::DurableOptions;
use crate::places::far_medium::FarRatio;
use crate::places::ssd::SsdOptions;

/// The smallest memory limit a store accepts: below this its own structures would crowd out the data.
pub const MEMORY_LIMIT_BYTES_MIN: u64 = 1 << 20;

/// How to open a [`Store`](crate::Store). [`Options::default`] is a store in DRAM without a limit. Each field names its
/// default; set others by `Options { codec: CodecChoice::Zstd, ..Options::default() }`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory the store may hold, as [`MemoryUse::total_bytes`](crate::MemoryUse::total_bytes) counts them, 1
    /// MiB at least. `None`, the default, means no limit. At the limit writes are refused, and nothing is lost.
    ///
    /// The count is in jemalloc's size classes, and the process holds more than it: see
    /// [Memory](crate::Store#memory). The store does not look at the memory of the process.
    pub memory_limit_bytes: Option<u64>,
    /// Far memory to use beside DRAM, and how much of it; default `None`. Cold leaves go there when DRAM nears its
    /// limit; when both are full, leaves go to SSD, or writes are refused. The store drops the former contents of a
    /// file.
    pub far: Option<FarOptions>,
    /// At which ratio of bytes large values lie in DRAM and far memory. `None`, the default, puts them into far memory
    /// when DRAM nears its limit. A ratio without `far` is refused.
    pub far_ratio: Option<FarRatio>,
    /// The SSD for leaves that neither DRAM nor far memory has room for. `None`, the default, keeps all in memory. A
    /// store with a folder that has leaves on SSD goes on using the SSD. `None` then means the same place without a
    /// limit.
    pub ssd: Option<SsdOptions>,
    /// Whether a store at its limit evicts records instead of refusing writes; default `false`. Without a limit nothing
    /// is evicted, until [`Store::set_memory_limit`](crate::Store::set_memory_limit) gives one. The store evicts
    /// records that are seldom read, by the rules of S3-FIFO. Then a key may be gone at any time; a value that is there
    /// is the newest. With a folder, keys that were evicted may come back when the store is opened anew, with the
    /// newest value that they had. The store refuses a value above half of the limit, and evicts nothing for it.
    pub eviction: bool,
    /// How bodies are coded; default [`CodecChoice::Auto`].
    pub codec: CodecChoice,
    /// How values are packed in blocks; default [`BlockOptions::default`]. The codecs without blocks ignore it.
    pub block: BlockOptions,
    /// Whether leaves that are read far more than others are kept raw although `codec` names their form; default
    /// `false`. Then every read of a settled value is one of that form. `Auto` keeps such leaves raw whatever this
    /// says, and
    /// `None` has no other form.
    pub heating: bool,
    /// Bytes of a leaf's landing at least, 256 to 65,536; default 768. Larger means fewer merges and more uncompressed
    /// bytes. A landing has room for a twentieth of its leaf's records, and for three, up to 4 KiB.
    pub landing_bytes: usize,
    /// Threads that settle, recode, heat, train dictionaries and, with `background_packing`, pack: at most 64, default
    /// 1. 0 leaves everything but packs to [`Store::settle`](crate::Store::settle).
    pub background_threads: usize,
    /// Whether full landings are packed by the background threads; default `false`. Otherwise the writer that fills one
    /// packs it: its bytes are in that core's cache, so that a write costs about half the CPU time.
    pub background_packing: bool,
    /// How full a landing may be, in per cent (1 to 100, default 100), before a background thread is told to pack it.
    /// Below 100 the writer need not wait for that. Without `background_packing` it means nothing.
    pub landing_watermark_pct: u8,
    /// The folder in which the store is kept. With `None`, the default, the store ends with its process.
    pub durable: Option<DurableOptions>,
    /// The clock by which keys expire; default [`Clock::system`]. Tests give their own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ziptier::{Clock, Options, PutMeta, Store};
    ///
    /// let clock = Clock::manual(1_000);
    /// let store = Store::open(Options { clock: clock.clone(), ..Options::default() })?;
    /// store.put_with(b"key", b"value", PutMeta { expires_at_ms: Some(3_000), flags: 0 })?;
    /// clock.advance(Duration::from_millis(1_999));
    /// assert!(store.get(b"key")?.is_some());
    /// clock.advance(Duration::from_millis(1));
    /// assert!(store.get(b"key")?.is_none());
    /// # Ok::<(), ziptier::Error>(())
    /// ```
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_limit_bytes: None,
            far: None,
            far_ratio: None,
            ssd: None,
            eviction: false,
            codec: CodecChoice::Auto,
            block: BlockOptions::default(),
            heating: false,
            landing_bytes: 768,
            background_threads: 1,
            background_packing: false,
            landing_watermark_pct: 100,
            durable: None,
            clock: Clock::system(),
        }
    }
}

impl Options {
    /// How values are coded.
    pub(crate) fn codecs(&self) -> CodecOptions {
        CodecOptions { codec: self.codec, block: self.block.clone() }
    }

    /// What the tree needs of them.
    pub(crate) fn tree(&self) -> TreeOptions {
        TreeOptions {
            codecs: self.codecs(),
            heats: self.heats(),
            landing_bytes: self.landing_bytes,
            landing_watermark_pct: match self.background_packing && self.background_threads > 0 {
                true => usize::from(self.landing_watermark_pct),
                // The writer is the one who packs.
                false => 100,
            },
            evicts: self.eviction,
            recovers: self.durable.is_some(),
            clock: self.clock.clone(),
        }
    }

    /// Whether hot leaves are kept raw.
    fn heats(&self) -> bool {
        match self.codec {
            CodecChoice::Auto => true,
            CodecChoice::None => false,
            _ => self.heating,
        }
    }

    /// Says what [`Store::open`](crate::Store::open) would refuse, without opening anything.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(limit_bytes) = self.memory_limit_bytes
            && limit_bytes < MEMORY_LIMIT_BYTES_MIN
        {
            return Err(Error::LimitTooSmall { limit_bytes, min_bytes: MEMORY_LIMIT_BYTES_MIN });
        }
        if self.ssd.is_some() && self.eviction {
            let reason = "a store that evicts keeps nothing on SSD; leave out one of the two".to_owned();
            return Err(Error::Ssd { reason });
        }
        if self.far_ratio.is_some() && self.far.is_none() {
            let reason = "a ratio of DRAM to far memory was asked for without far memory; set Options::far, or leave \
                          out Options::far_ratio";
            return Err(Error::Far { reason: reason.to_owned() });
        }
        self.check_places()?;
        if !(256..=65_536).contains(&self.landing_bytes) {
            return Err(Error::LandingOutOfRange { bytes: self.landing_bytes });
        }
        if !(1..=100).contains(&self.landing_watermark_pct) {
            return Err(Error::WatermarkOutOfRange { pct: self.landing_watermark_pct });
        }
        if self.background_threads > 64 {
            return Err(Error::TooManyThreads { threads: self.background_threads });
        }
        if !(512..=16_384).contains(&self.block.bytes) {
            return Err(Error::BlockOutOfRange { bytes: self.block.bytes });
        }
        BlockCoding::first(&self.codecs())?;
        Ok(())
    }

    /// Refuses places within the folder of the store, in which a start takes no file of another kind.
    fn check_places(&self) -> Result<(), Error> {
        let Some(durable) = &self.durable else { return Ok(()) };
        if let Some(FarOptions { place: FarPlace::File(file), .. }) = &self.far
            && is_same_folder(folder_of(file), &durable.dir)
        {
            let (file, dir) = (file.display(), durable.dir.display());
            let reason = format!(
                "far file {file} would lie in {dir}, where the next start takes no file but the store's; name one in \
                 another folder"
            );
            return Err(Error::Far { reason });
        }
        let segments = self.ssd.as_ref().and_then(|ssd| ssd.path.as_ref());
        if segments.is_some_and(|segments| is_same_folder(segments, &durable.dir)) {
            let reason =
                "its folder is that of the store; name another one, or none: then segments lie within it";
            return Err(Error::Ssd { reason: reason.to_owned() });
        }
        Ok(())
    }
}

/// The folder of a file; a name alone lies in the current one.
fn folder_of(file: &std::path::Path) -> &std::path::Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref())
}

/// Whether two paths are of one folder, whether it is there or not.
fn is_same_folder(one: &std::path::Path, other: &std::path::Path) -> bool {
    let canonical = |path: &std::path::Path| path.canonicalize().ok();
    one == other || canonical(one).is_some_and(|one| canonical(other) == Some(one))
}
