"""A bucket on loopback for TensorFlow's gs:// client: an emulator behind a proxy.

The client has fixed addresses, but it is libcurl: it obeys https_proxy and
CURL_CA_BUNDLE. The proxy ends TLS for Google's hosts with a throw-away certificate and
passes the bytes to gcp-storage-emulator. TensorFlow reads other variables when it
starts, so it must run in its own process.
"""

import contextlib
import re
import socket
import ssl
import threading
import time
from pathlib import Path
from unittest import mock

import trustme
from gcp_storage_emulator.handlers import buckets, objects
from gcp_storage_emulator.server import create_server

HOSTS = ("www.googleapis.com", "storage.googleapis.com", "oauth2.googleapis.com")
METHODS = (b"GET ", b"POST ", b"PUT ", b"DELETE ", b"HEAD ")
# TensorFlow reads these when it is imported, and the rest of `Bucket.env` on use.
AT_IMPORT = {
    "GCS_STAT_CACHE_MAX_AGE": "0",
    "GCS_MATCHING_PATHS_CACHE_MAX_AGE": "0",
    "GCS_RETRY_CONFIG_MAX_RETRIES": "1",
    "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "1000",
}


class Bucket:
    """What a test has in hand: `env` for subprocesses, and faults to switch on.

    latency: seconds that every request waits. silent: requests are never answered.
    requests: the request lines so far. peak: the most that waited at one time.
    refused: numbers of requests, from 0, that are answered with 503 only.
    """

    def __init__(self, folder, server):
        self._storage = server._storage
        self._address = server._api._httpd.socket.getsockname()
        self.latency, self.silent, self.requests = 0.0, False, []
        self.refused = range(0)
        self.peak, self._waiting, self._lock = 0, 0, threading.Lock()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*HOSTS).configure_cert(self._tls)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets, proxy = [], f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.env = {
            "https_proxy": proxy,
            "http_proxy": proxy,
            "no_proxy": "",  # nothing gets out
            "CURL_CA_BUNDLE": str(folder / "ca.pem"),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "NO_GCE_CHECK": "true",
            **AT_IMPORT,
        }
        threading.Thread(target=self._accept, daemon=True).start()

    def seed_objects(self, bucket, folder):
        """Make a bucket with every file below the folder."""
        buckets.create_bucket(bucket, self._storage)
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                data = path.read_bytes()
                resource = objects._make_object_resource(
                    "", bucket, name, "application/octet-stream", str(len(data))
                )
                self._storage.create_file(bucket, name, data, resource)

    def read_objects(self, bucket, folder):
        """Return the bytes of the objects below a folder of the bucket, by name."""
        return {
            name.removeprefix(f"{folder}/"): self._storage.get_file(bucket, name)
            for name in self._storage.objects[bucket]
            if name.startswith(f"{folder}/")
        }

    def close(self):
        self.silent = False
        for opened in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                opened.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(client,), daemon=True
                ).start()

    def _serve(self, client):
        with contextlib.suppress(OSError):
            self._sockets.append(client)
            client.settimeout(120)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096) or b"\r\n\r\n"
            if head.startswith(b"CONNECT "):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                client, head = self._tls.wrap_socket(client, server_side=True), b""
            server, answering = None, None
            try:
                while data := head or client.recv(1 << 16):
                    head = b""
                    if data.startswith(METHODS):
                        if b"\r\nExpect: 100-continue\r\n" in data:
                            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                        data = _mend_upload(data)
                        self._admit(data.split(b"\r\n")[0])
                        if len(self.requests) - 1 in self.refused:
                            self._refuse(client)
                            return
                    if server is None:
                        # Not before a request: the emulator serves one at a time.
                        server = socket.create_connection(self._address, timeout=120)
                        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        self._sockets += [client, server]
                        work = (server, client)
                        answering = threading.Thread(
                            target=self._answer, args=work, daemon=True
                        )
                        answering.start()
                    server.sendall(data)
            finally:
                if server is not None:
                    with contextlib.suppress(OSError):
                        # Else the emulator would wait for a client that was killed.
                        server.shutdown(socket.SHUT_WR)
                    answering.join()
                    server.close()
                # Only here: OpenSSL in another thread would read a reused number.
                client.close()

    def _refuse(self, client):
        client.sendall(
            b"HTTP/1.1 503 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        while client.recv(1 << 16):  # its body, or a reset would lose the answer
            pass

    def _admit(self, line):
        self.requests.append(line.decode())
        while self.silent:
            time.sleep(0.1)
        with self._lock:
            self._waiting += 1
            self.peak = max(self.peak, self._waiting)
        time.sleep(self.latency)
        with self._lock:
            self._waiting -= 1

    def _answer(self, server, client):
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        for connection in (client, server):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _mend_upload(request):
    """Return a request of TensorFlow as the emulator understands it."""
    head, blank, body = request.partition(b"\r\n\r\n")
    # An upload continues at an address that the emulator names without TLS.
    head = re.sub(rb"^(\w+) http://[^/]+", rb"\1 ", head)
    head = head.replace(b"\r\nExpect: 100-continue", b"")
    # It sends a length and chunks; the chunks count (RFC 9112, 6.3), but not here.
    if b"\r\nTransfer-Encoding: chunked" in head:
        head = re.sub(rb"\r\nContent-Length: \d+", b"", head)
    return head + blank + body


def _tell_received(response, storage, upload_id, fallback_end=0):
    """Answer how much of an upload has arrived; the emulator counts a byte for none.

    Source:
    https://cloud.google.com/storage/docs/performing-resumable-uploads#status-check
    """
    del fallback_end
    response.status = objects.GoogleHTTPStatus.RESUME_INCOMPLETE
    if received := storage.get_resumable_byte_count(upload_id):
        response["Range"] = f"bytes=0-{received - 1}"


@contextlib.contextmanager
def serve_bucket(folder):
    """Yield a Bucket until the block ends. folder: gets the certificate."""
    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    # Its queue of 5 would drop connections, and TCP try again only after a second.
    server._api._httpd.socket.listen(128)
    # It sends a head and a body: without this the body would wait 40 ms, now and then.
    server._api._httpd.RequestHandlerClass.disable_nagle_algorithm = True
    bucket = Bucket(Path(folder), server)
    try:
        with mock.patch.object(objects, "_resumable_incomplete", _tell_received):
            yield bucket
    finally:
        bucket.close()
        server.stop()
