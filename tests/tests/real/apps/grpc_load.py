"""Large messages, many calls at once, and calls beside a stream that nobody reads."""

import sys

import grpc

target, authority = sys.argv[1], sys.argv[2]
channel = grpc.insecure_channel(target, options=[("grpc.default_authority", authority), ("grpc.enable_retries", 0)])
unary = channel.unary_unary("/demo.Demo/Unary")


def ok(name):
    print("ok", name, flush=True)


# One connection per tunnel is enough for calls one after another.
peers = {channel.unary_unary("/demo.Demo/Peer")(b"", timeout=10) for _ in range(30)}
assert len(peers) <= 4, peers
ok("reuse")

large = b"a" * 3_500_000
assert unary(large, timeout=30) == large.upper()
ok("large")

calls = [(n, unary.future(b"n%d" % n, timeout=30)) for n in range(200)]
for n, call in calls:
    assert call.result() == b"N%d" % n
ok("many")

stalled = channel.unary_stream("/demo.Demo/Flood")(b"", timeout=60)
first = next(stalled)
for n in range(50):
    assert unary(b"beside", timeout=10) == b"BESIDE"
ok("beside a stalled stream")

assert len(first) + sum(len(piece) for piece in stalled) == 64 * 65536
ok("stalled stream")
