"""A gRPC server without generated code: messages are bytes."""

import os
import sys
import time
from concurrent import futures

import grpc


def peer(request, context):
    return context.peer().encode()


def unary(request, context):
    for key, value in context.invocation_metadata():
        if key == "x-in":
            context.send_initial_metadata([("x-initial", value)])
    context.set_trailing_metadata([("x-sum", "42"), ("x-blob-bin", b"\x00\xff")])
    return request.upper()


def fail(request, context):
    context.set_trailing_metadata([("x-why", "because")])
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: ü")


def down(request, context):
    for n in range(5):
        yield request + str(n).encode()


def up(requests, context):
    return b",".join(requests)


def both(requests, context):
    for request in requests:
        yield request[::-1]


cancelled = []


def slow(request, context):
    context.add_callback(lambda: cancelled.append(request))
    while context.is_active():
        time.sleep(0.02)
    return b"late"


def was_cancelled(request, context):
    deadline = time.monotonic() + 5
    while request not in cancelled and time.monotonic() < deadline:
        time.sleep(0.02)
    return b"yes" if request in cancelled else b"no"


def flood(request, context):
    for _ in range(64):
        yield b"x" * 65536


def die(request, context):
    os._exit(1)


def die_midway(request, context):
    yield b"first"
    time.sleep(0.2)
    os._exit(1)


methods = {
    "Peer": grpc.unary_unary_rpc_method_handler(peer),
    "Flood": grpc.unary_stream_rpc_method_handler(flood),
    "Die": grpc.unary_unary_rpc_method_handler(die),
    "DieMidway": grpc.unary_stream_rpc_method_handler(die_midway),
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Down": grpc.unary_stream_rpc_method_handler(down),
    "Up": grpc.stream_unary_rpc_method_handler(up),
    "Both": grpc.stream_stream_rpc_method_handler(both),
    "Slow": grpc.unary_unary_rpc_method_handler(slow),
    "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
}

server = grpc.server(futures.ThreadPoolExecutor(16))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Demo", methods),))
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()
