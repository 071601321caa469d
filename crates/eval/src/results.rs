//! Columns, tables and folders of results.

pub(crate) mod folder;
pub(crate) mod footer;
pub(crate) mod row;
pub(crate) mod table;
