#!/usr/bin/env python3
"""A filter beside the data, as a function for `ziptier bench --target "exec:python3 filter.py --where TEXT"`.
A scan reads all records from the medium and sends only those whose value has the text.

Without `--where`, it sends all: the difference is what the filter saves of the way between medium and reader. Records
lie in one file, in the order of their keys."""
import bisect
import os
import sys
import tempfile

requests, replies = sys.stdin.buffer, sys.stdout.buffer
where = sys.argv[2].encode() if sys.argv[1:2] == ["--where"] else b""
medium = tempfile.TemporaryFile()
loaded, keys, ends, read_bytes = {}, [], [0], 0


def read(first, last):
    """The values of so many keys, by one read."""
    global read_bytes
    size = ends[last] - ends[first]
    read_bytes += size
    found = os.pread(medium.fileno(), size, ends[first])
    return [found[ends[one] - ends[first] : ends[one + 1] - ends[first]] for one in range(first, last)]


replies.write(b"ziptier 1 LOAD GET SCAN STAT%b\n" % (b" WHERE=" + where if where else b""))
replies.flush()
for line in iter(requests.readline, b""):
    word, *numbers = line.split()
    key = requests.read(int(numbers[0])) if numbers else b""
    at = bisect.bisect_left(keys, key)
    if word == b"LOAD":
        loaded[key] = requests.read(int(numbers[1]))
        replies.write(b"OK\n")
    elif word == b"LOADED":
        keys = sorted(loaded)
        for one in keys:
            medium.write(loaded[one])
            ends.append(ends[-1] + len(loaded[one]))
        medium.flush()
        loaded.clear()
        replies.write(b"OK\n")
    elif word == b"GET":
        found = read(at, at + 1)[0] if at < len(keys) and keys[at] == key else None
        replies.write(b"NONE\n" if found is None else b"VALUE %d\n%b" % (len(found), found))
    elif word == b"SCAN":
        last = min(at + int(numbers[1]), len(keys))
        for key, value in zip(keys[at:last], read(at, last)):
            if where in value:
                replies.write(b"RECORD %d %d\n%b%b" % (len(key), len(value), key, value))
        replies.write(b"END\n")
    elif word == b"STAT":
        replies.write(b"STAT read=%d held=%d\n" % (read_bytes, ends[-1]))
    else:
        replies.write(b"ERR no request %b\n" % word)
    replies.flush()
