#!/usr/bin/env python3
"""A table of SQLite as a data access function for `ziptier bench --target "exec:python3 sqlite.py"`.

The database lies in a folder for temporary files while the benchmark runs, or in the file that the argument names,
which must not exist."""
import os
import sqlite3
import sys
import tempfile

UPSERT = "INSERT INTO records VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
RANGE = "SELECT key, value FROM records WHERE key >= ? ORDER BY key LIMIT ?"

requests, replies = sys.stdin.buffer, sys.stdout.buffer
folder = tempfile.TemporaryDirectory()
path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(folder.name, "records.db")
if os.path.exists(path):
    sys.exit(f"{path} is there already; name a new file")
table = sqlite3.connect(path, isolation_level=None)
table.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")  # a commit waits for no disk
table.execute("CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

replies.write(b"ziptier 1 GET PUT DEL SCAN\n")
replies.flush()
for line in iter(requests.readline, b""):
    word, *numbers = line.split()
    key = requests.read(int(numbers[0]))
    if word == b"GET":
        found = table.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
        replies.write(b"VALUE %d\n%b" % (len(found[0]), found[0]) if found else b"NONE\n")
    elif word == b"PUT":
        value = requests.read(int(numbers[1]))
        table.execute(UPSERT, (key, value))
        replies.write(b"OK\n")
    elif word == b"DEL":
        deleted = table.execute("DELETE FROM records WHERE key = ?", (key,)).rowcount
        replies.write(b"OK\n" if deleted else b"NONE\n")
    elif word == b"SCAN":
        for key, value in table.execute(RANGE, (key, int(numbers[1]))):
            replies.write(b"RECORD %d %d\n%b%b" % (len(key), len(value), key, value))
        replies.write(b"END\n")
    else:
        replies.write(b"ERR no request %b\n" % word)
    replies.flush()
