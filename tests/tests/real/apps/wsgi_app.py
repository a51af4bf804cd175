"""A WSGI app: echoes POST bodies, sends a large answer."""


def app(environ, start_response):
    if environ["PATH_INFO"] == "/large":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (b"x" * 100_000 for _ in range(20))
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
