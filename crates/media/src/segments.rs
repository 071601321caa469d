//! Segment files on SSD for immutable bodies: appended in large writes, read singly.
