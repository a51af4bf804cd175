"""A WSGI app that says how many complete requests it has seen, and what it read of this one."""

complete = 0


def app(environ, start_response):
    global complete
    body = environ["wsgi.input"].read()
    declared = environ.get("CONTENT_LENGTH")
    # A body cut short is read as a short body: only the declared length tells.
    if not declared or len(body) == int(declared):
        complete += 1
    target = environ["RAW_URI"].encode("latin-1")
    value = environ.get("HTTP_X_V", "").encode("latin-1")
    method = environ["REQUEST_METHOD"]
    line = f"origin|{complete}|{method}|{target.hex()}|{body.hex()}|{value.hex()}"
    answer = line.encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(answer)))])
    return [answer]
