"""The clients of a load send what they are told, and count what fails."""

import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from channelhash.lab.benchmarks.http_load import load


@contextmanager
def serving(seen: Counter):
    """A server that knows some bodies, refuses one and hangs up at another."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen[self.path, body] += 1
            if body == b"hang up":
                self.close_connection = True
                return
            self.send_response(404 if body == b"unknown" else 200)
            self.send_header("Content-Length", str(100_000))
            self.end_headers()
            self.wfile.write(b"x" * 100_000)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_response_is_counted_once():
    seen = Counter()
    with serving(seen) as address:
        measured = load(address, [b"one", b"two", b"unknown"], clients=3, seconds=0.3)
    assert seen.total() == len(measured.seconds) + measured.errors
    assert measured.errors == seen["/search", b"unknown"] > 0
    assert {body for _, body in seen} == {b"one", b"two", b"unknown"}
    assert all(seconds > 0 for seconds in measured.seconds)


def test_a_connection_that_ends_is_an_error_and_not_asked_again():
    seen = Counter()
    with serving(seen) as address:
        measured = load(address, [b"hang up"], clients=2, seconds=0.3)
    assert (measured.errors, measured.seconds) == (2, [])
