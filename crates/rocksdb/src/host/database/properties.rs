//! Properties of a database: the statistics that RocksDB tells by name.

use std::ffi::{CStr, CString};

use super::Database;
use crate::host::calls::taken;

impl Database {
    /// A property in words, such as `rocksdb.stats`; nothing if there is none of that name.
    pub fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is open, and the name ends with a zero.
        let text = unsafe { (self.functions.property)(self.at.as_ptr(), name.as_ptr()) };
        taken(self.functions, text)
    }

    /// A property that is a number, such as `rocksdb.total-sst-files-size`; nothing if there is none of that name.
    pub fn property_number(&self, name: &CStr) -> Option<u64> {
        let mut number = 0;
        // SAFETY: as above; it writes one number.
        let result =
            unsafe { (self.functions.property_number)(self.at.as_ptr(), name.as_ptr(), &mut number) };
        (result == 0).then_some(number)
    }

    /// Bytes of all SST files, those included that only old snapshots and running reads need.
    pub fn sst_bytes(&self) -> u64 {
        self.property_number(c"rocksdb.total-sst-files-size").unwrap_or(0)
    }

    /// Whether a flush or a compaction runs or is due. After an error in the background, RocksDB may leave what is due
    /// undone for ever, so that only running ones count.
    pub fn has_work(&self) -> bool {
        let has = |name: &CStr| self.property_number(name).unwrap_or(0) > 0;
        let is_due = || has(c"rocksdb.mem-table-flush-pending") || has(c"rocksdb.compaction-pending");
        has(c"rocksdb.num-running-flushes")
            || has(c"rocksdb.num-running-compactions")
            || !has(c"rocksdb.background-errors") && is_due()
    }

    /// How many SST files the database has now.
    pub fn sst_files(&self) -> u64 {
        let at_level = |level: u32| {
            let name = CString::new(format!("rocksdb.num-files-at-level{level}")).ok()?;
            self.property(&name)?.trim().parse::<u64>().ok()
        };
        (0..).map_while(at_level).sum()
    }
}
