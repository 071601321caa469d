#!/usr/bin/env python3
"""A data access function that keeps its records in a dictionary, and breaks the promise that its argument names."""
import subprocess
import sys
import time

requests, replies = sys.stdin.buffer, sys.stdout.buffer
lie = sys.argv[1]
records, older, puts, gets = {}, {}, 0, 0


def value_of(key):
    if lie == "older" and key in records:
        return older.get(key, records[key])
    if lie == "another":
        return records.get(key[:-1] + bytes([key[-1] | 1]), records.get(key))
    return records.get(key)


replies.write(b"ziptier 1 GET PUT DEL SCAN%b\n" % (b" WHERE=e" if lie == "filter" else b""))
replies.flush()
for line in iter(requests.readline, b""):
    word, *numbers = line.split()
    key = requests.read(int(numbers[0]))
    if word == b"GET":
        gets += 1
        found = value_of(key)
        if lie == "dies" and gets == 50:
            sys.exit("the disk is on fire")
        if lie == "babbles" and gets == 50:
            print("debug: here", flush=True)
        if lie == "refuses" and gets == 50:
            replies.write(b"ERR no such column\n")
        else:
            replies.write(b"NONE\n" if found is None else b"VALUE %d\n%b" % (len(found), found))
    elif word == b"PUT":
        puts += 1
        if lie == "daemon" and puts == 1:
            # The shell ends at once and leaves a process that takes two seconds of CPU time, however long they take.
            daemon = ["setsid", "sh", "-c", "ulimit -c 0; ulimit -t 2; while :; do :; done &"]
            nothing = subprocess.DEVNULL
            subprocess.run(daemon, check=True, stdin=nothing, stdout=nothing, stderr=nothing)
        value = requests.read(int(numbers[1]))
        is_lost = lie == "loses" and puts == 700 or lie == "thousandth" and puts % 1000 == 0
        if not is_lost:
            older[key] = records.get(key, value)
            records[key] = value
        replies.write(b"OK\n")
    elif word == b"DEL":
        is_there = key in records
        if lie != "deletes":
            records.pop(key, None)
        replies.write(b"OK\n" if is_there or lie == "claims" else b"NONE\n")
    elif word == b"SCAN":
        found = sorted(one for one in records if one >= key)[: int(numbers[1])]
        if lie == "skips":
            del found[2:3]
        for one in found:
            replies.write(b"RECORD %d %d\n%b%b" % (len(one), len(records[one]), one, records[one]))
        replies.write(b"END\n")
    replies.flush()
if lie == "stays":
    time.sleep(600)
