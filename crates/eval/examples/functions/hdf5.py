#!/usr/bin/env python3
"""A file of HDF5 as a data access function for `ziptier bench --target "exec:python3 hdf5.py"`: a selection by key from
a file that is made once and only read then. It needs h5py.

The file has four data sets: the bytes of all keys in their order, one behind the other, the end of each key, and the
same two of the values."""
import bisect
import os
import sys
import tempfile

import h5py
import numpy

requests, replies = sys.stdin.buffer, sys.stdout.buffer
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "records.h5")
loaded, keys, ends, values, read_bytes = {}, [], [0], None, 0


def write():
    order = sorted(loaded)
    with h5py.File(path, "w") as file:
        for name, parts in ("key", order), ("value", [loaded[key] for key in order]):
            file[f"{name}s"] = numpy.frombuffer(b"".join(parts), numpy.uint8)
            file[f"{name}_ends"] = numpy.cumsum([len(part) for part in parts])


def read():
    """All keys, the ends of the values, and the data set of their bytes."""
    file = h5py.File(path, "r")
    bytes_of_keys, key_ends = file["keys"][:].tobytes(), [0, *file["key_ends"][:].tolist()]
    keys = [bytes_of_keys[start:end] for start, end in zip(key_ends, key_ends[1:])]
    return keys, [0, *file["value_ends"][:].tolist()], file["values"]


def select(first, last):
    """The bytes of the values of so many keys, by one selection."""
    global read_bytes
    start, end = ends[first], ends[last]
    read_bytes += end - start
    return values[start:end].tobytes() if end > start else b""


replies.write(b"ziptier 1 LOAD GET SCAN STAT\n")
replies.flush()
for line in iter(requests.readline, b""):
    word, *numbers = line.split()
    key = requests.read(int(numbers[0])) if numbers else b""
    at = bisect.bisect_left(keys, key)
    if word == b"LOAD":
        loaded[key] = requests.read(int(numbers[1]))
        replies.write(b"OK\n")
    elif word == b"LOADED":
        write()
        loaded.clear()
        keys, ends, values = read()
        replies.write(b"OK\n")
    elif word == b"GET":
        found = select(at, at + 1) if at < len(keys) and keys[at] == key else None
        replies.write(b"NONE\n" if found is None else b"VALUE %d\n%b" % (len(found), found))
    elif word == b"SCAN":
        last = min(at + int(numbers[1]), len(keys))
        found = select(at, last)
        for one in range(at, last):
            value = found[ends[one] - ends[at] : ends[one + 1] - ends[at]]
            replies.write(b"RECORD %d %d\n%b%b" % (len(keys[one]), len(value), keys[one], value))
        replies.write(b"END\n")
    elif word == b"STAT":
        held = os.path.getsize(path) if os.path.exists(path) else 0
        replies.write(b"STAT read=%d held=%d\n" % (read_bytes, held))
    else:
        replies.write(b"ERR no request %b\n" % word)
    replies.flush()
