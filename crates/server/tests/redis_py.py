"""What redis-py's users do, against the server on port argv[1] in protocol argv[2]."""

import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

port, protocol = int(sys.argv[1]), int(sys.argv[2])
# On a busy machine an answer may take its time, and a request that is sent again may be carried out twice.
db = redis.Redis(
    port=port,
    protocol=protocol,
    client_name="script",
    socket_timeout=None,
    socket_connect_timeout=None,
    retry=Retry(NoBackoff(), 0),
)
# Moments stay the same however long the script takes.
MOMENT = 4_102_444_800
db.flushall()

assert db.ping()
assert db.echo("hello") == b"hello"
assert db.client_getname() in ("script", b"script")
assert isinstance(db.client_id(), int)
assert any(client["name"] == "script" for client in db.client_list())

assert db.set("k", b"\x00\xff\r\n") is True
assert db.get("k") == b"\x00\xff\r\n"
assert db.get("missing") is None
assert db.set("k", "w", nx=True) is None
assert db.set("k", "w", xx=True, get=True) == b"\x00\xff\r\n"
assert db.set("k", "v", exat=MOMENT) and db.expiretime("k") == MOMENT
assert db.set("k", "w", keepttl=True) and db.pexpiretime("k") == MOMENT * 1000
assert db.persist("k") and db.ttl("k") == -1
began = time.monotonic()
assert db.expire("k", 5000)
left_ms = db.pttl("k")
assert left_ms <= 5_000_000 <= left_ms + 1000 * (time.monotonic() - began) + 100, left_ms
assert db.ttl("missing") == -2
assert db.type("k") == b"string" and db.type("missing") == b"none"

assert db.mset({"a": "1", "b": "2"})
assert db.mget("a", "b", "missing") == [b"1", b"2", None]
assert db.incr("a") == 2
assert db.decr("a") == 1
assert db.append("a", "0") == 2 and db.strlen("a") == 2
assert db.exists("a", "b", "missing") == 2
assert db.getex("a", exat=MOMENT) == b"10" and db.expiretime("a") == MOMENT
assert db.getset("a", "11") == b"10" and db.ttl("a") == -1
assert db.setnx("a", "12") is False and db.msetnx({"a": "1", "z": "2"}) in (False, 0)
assert db.incrbyfloat("float", 10.5) == 10.5 and db.incrbyfloat("float", "0.1") == 10.6
assert db.setrange("range", 6, "world") == 11 and db.getrange("range", 6, -1) == b"world"
assert db.rename("range", "moved") and db.copy("moved", "copied") and db.getdel("copied") is not None
assert db.touch("moved", "missing") == 1 and db.unlink("moved", "float") == 2
assert sorted(db.keys("?")) == [b"a", b"b", b"k"] and db.randomkey() in (b"a", b"b", b"k")
assert db.object("encoding", "a") in (b"int", "int") and db.memory_usage("a") > 0
assert db.delete("a", "missing") == 1
try:
    db.incr("k")
    raise AssertionError("INCR of text")
except redis.ResponseError as error:
    assert str(error) == "value is not an integer or out of range", error
try:
    db.execute_command("NOSUCH", "x")
    raise AssertionError("unknown command")
except redis.ResponseError as error:
    assert str(error).startswith("unknown command 'NOSUCH'"), error

# A pipeline is sent whole before its first reply is read.
with db.pipeline(transaction=False) as pipe:
    for number in range(20_000):
        pipe.set(f"key:{number:06}", f"value {number} " * 20)
    assert all(pipe.execute())
    for number in range(20_000):
        pipe.get(f"key:{number:06}")
    replies = pipe.execute()
assert all(reply.startswith(b"value %d " % number) for number, reply in enumerate(replies))

# A transaction, which this server lacks, leaves nothing behind, and the connection is as good as before.
try:
    db.pipeline().set("k", "in a transaction").delete("b").execute()
    raise AssertionError("a transaction")
except redis.ResponseError as error:
    assert "MULTI is not supported" in str(error), error
assert db.get("k") == b"w" and db.exists("b") == 1

assert db.dbsize() == 20_002
assert {key for key in db.scan_iter(count=1000)} == {b"k", b"b"} | {b"key:%06d" % n for n in range(20_000)}
assert sum(1 for _ in db.scan_iter(match="key:0000?5", count=500)) == 10

info = db.info()
assert info["redis_version"] and info["connected_clients"] >= 1 and info["logical_bytes"] > 0, info
assert "used_memory" in db.info("memory") and "codec" in db.info("codec")
assert db.config_get("maxmemory")["maxmemory"].isdigit()
assert db.command_count() > 20
assert "get" in {name.lower() for name in db.command()}

# Threads share one pool of connections and one counter.
db.delete("counter")


def count():
    for _ in range(500):
        db.incr("counter")


threads = [threading.Thread(target=count) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert db.get("counter") == b"2000"
db.flushall()
assert db.dbsize() == 0
