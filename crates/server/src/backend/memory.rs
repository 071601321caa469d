//! The memory that a store reports: how much it holds in DRAM and beside DRAM.

/// A store's memory, in bytes.
#[derive(Debug, Clone, Default)]
pub struct MemoryUse {
    /// Keys and values as clients wrote them.
    pub logical_bytes: u64,
    /// Bytes that the store holds in DRAM: index, bodies, dictionaries, slack.
    pub held_bytes: u64,
    /// The limit on `held_bytes`, if there is one.
    pub limit_bytes: Option<u64>,
    /// `held_bytes` by purpose; the names appear in `INFO memory`.
    pub parts: Vec<(&'static str, u64)>,
    /// Anonymous memory of the process that the limit does not count: far memory of a NUMA node.
    pub far_anonymous_bytes: u64,
}

/// Memory beside DRAM, as `INFO memory` shows it.
#[derive(Debug, Clone, Default)]
pub struct FarUse {
    /// The kind of memory, in words.
    pub kind: String,
    /// The means that makes bytes durable there, in words.
    pub persistence: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes there are.
    pub limit_bytes: u64,
    /// `used_bytes` by purpose; the names appear in `INFO memory`.
    pub parts: Vec<(&'static str, u64)>,
}
