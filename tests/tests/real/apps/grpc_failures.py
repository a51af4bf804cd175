"""What a client learns when the server of its call is gone."""

import sys

import grpc

target, authority, mode = sys.argv[1:4]
channel = grpc.insecure_channel(target, options=[("grpc.default_authority", authority), ("grpc.enable_retries", 0)])


def ok(name):
    print("ok", name, flush=True)


def failure(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise SystemExit("the failure was swallowed")


def verdict(error):
    metadata = dict(error.trailing_metadata())
    names = ["code", "delivery", "reason", "retry-read", "retry-write"]
    return [metadata.get("bridgehead-" + name) for name in names], metadata


if mode == "silent":
    error = failure(lambda: channel.unary_unary("/demo.Demo/Die")(b"", timeout=20))
    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    facts, metadata = verdict(error)
    assert facts == ["BH_APP_STARTING", "unknown", "closed_before_head", "safe", "verify_first"], metadata
    assert metadata["grpc-retry-pushback-ms"] == "-1", metadata
    ok("died in silence")

    error = failure(lambda: channel.unary_unary("/demo.Demo/Unary")(b"", timeout=20))
    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    facts, metadata = verdict(error)
    assert facts == ["BH_APP_STARTING", "not_delivered", "connect_refused", "safe", "safe"], metadata
    assert metadata["grpc-retry-pushback-ms"] == "2000", metadata
    ok("down")
else:
    answers = channel.unary_stream("/demo.Demo/DieMidway")(b"", timeout=20)
    assert next(answers) == b"first"
    error = failure(lambda: list(answers))
    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE), error
    ok("died midway")
