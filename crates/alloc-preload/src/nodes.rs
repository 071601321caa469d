//! The NUMA nodes that have memory and no processors: what the kernel makes of CXL memory and persistent memory.

use std::ffi::CStr;

use ziptier_alloc::configuration::NodeSet;

/// The nodes, or none where the kernel lists none.
pub(crate) fn without_processors() -> NodeSet {
    let (mut with_memory, mut with_processors) = (NodeSet::default(), NodeSet::default());
    add(&mut with_memory, c"/sys/devices/system/node/has_memory");
    add(&mut with_processors, c"/sys/devices/system/node/has_cpu");
    let mut nodes = NodeSet::default();
    with_memory.iter().filter(|&node| !with_processors.contains(node)).for_each(|node| nodes.insert(node));
    nodes
}

/// Adds the nodes of a file such as `0,2-3`.
fn add(nodes: &mut NodeSet, path: &CStr) {
    let mut text = [0; 4096];
    // SAFETY: the path is a C string, and the buffer has as many bytes as the call says.
    let len = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let len = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        len
    };
    let text = str::from_utf8(&text[..len.max(0) as usize]).unwrap_or_default();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u32>()) {
            (first..=last.min(NodeSet::NODES - 1)).for_each(|node| nodes.insert(node));
        }
    }
}
