"""Drives every call shape through the gateway and prints `ok NAME` for each."""

import queue
import sys
import time

import grpc

target, authority = sys.argv[1], sys.argv[2]
channel = grpc.insecure_channel(target, options=[("grpc.default_authority", authority), ("grpc.enable_retries", 0)])


def ok(name):
    print("ok", name, flush=True)


call = channel.unary_unary("/demo.Demo/Unary").with_call(b"hello", metadata=[("x-in", "there")], timeout=20)
assert call[0] == b"HELLO", call
assert dict(call[1].initial_metadata())["x-initial"] == "there"
ok("unary")
trailing = dict(call[1].trailing_metadata())
assert trailing["x-sum"] == "42" and trailing["x-blob-bin"] == b"\x00\xff", trailing
ok("trailers")

got = list(channel.unary_stream("/demo.Demo/Down")(b"n", timeout=20))
assert got == [b"n0", b"n1", b"n2", b"n3", b"n4"], got
ok("server stream")

got = channel.stream_unary("/demo.Demo/Up")(iter([b"a", b"b", b"c"]), timeout=20)
assert got == b"a,b,c", got
ok("client stream")

# Ping-pong: each answer is awaited before the next message is sent, so nothing may be buffered.
outgoing = queue.Queue()
answers = channel.stream_stream("/demo.Demo/Both")(iter(outgoing.get, None), timeout=30)
for word in [b"one", b"two", b"x" * 200_000]:
    outgoing.put(word)
    assert next(answers) == word[::-1]
outgoing.put(None)
assert list(answers) == []
ok("both ways")

try:
    channel.unary_unary("/demo.Demo/Fail")(b"", timeout=20)
    raise SystemExit("the failure was swallowed")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error
    assert error.details() == "no such thing: ü", error.details()
    assert dict(error.trailing_metadata())["x-why"] == "because"
ok("error")

# The server answers at once, before a stream of requests is over.
try:
    channel.stream_unary("/demo.Demo/Absent")(iter([b"x" * 100_000] * 20), timeout=20)
    raise SystemExit("the failure was swallowed")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
ok("unimplemented")

begun = time.monotonic()
try:
    channel.unary_unary("/demo.Demo/Slow")(b"deadline", timeout=1)
    raise SystemExit("the deadline was ignored")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    assert time.monotonic() - begun < 10
ok("deadline")

future = channel.unary_unary("/demo.Demo/Slow").future(b"cancelled", timeout=30)
time.sleep(0.5)
future.cancel()
assert channel.unary_unary("/demo.Demo/WasCancelled")(b"cancelled", timeout=20) == b"yes"
ok("cancel")
