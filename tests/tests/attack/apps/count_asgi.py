"""An ASGI app that says how many complete requests it has seen, and what it read of this one."""

complete = 0


async def app(scope, receive, send):
    global complete
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return  # The client left in the middle: no complete request.
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    complete += 1
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    value = b", ".join(v for n, v in scope["headers"] if n == b"x-v")
    line = f"origin|{complete}|{scope['method']}|{target.hex()}|{body.hex()}|{value.hex()}"
    answer = line.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
