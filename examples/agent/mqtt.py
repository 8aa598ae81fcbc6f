"""MQTT 3.1.1, as much as is needed."""

import json
import re
import select
import socket
import ssl
import struct
import threading

from common import clock


class MQTT:
    """A connection: one topic to hear, one to speak on, quality of service 0."""

    def __init__(self, host, port, identity, client, name, keepalive):
        self.up, self.down = "skerry/%s/up" % name, "skerry/%s/down" % name
        raw = socket.create_connection((host, port), timeout=10)
        try:
            self.sock = identity.context().wrap_socket(raw)
        except BaseException:
            raw.close()
            raise
        # One thread reads and another writes; TLS is for one at a time. So the socket never blocks, and whoever uses it holds the lock.
        self.lock, self.buffer, self.silent = threading.Lock(), bytearray(), 2 * keepalive
        self.sock.setblocking(False)
        try:
            names = self.sock.getpeercert().get("subjectAltName", ())
            if not any(kind == "URI" and re.match(r"skerry://[^/]+/cluster/", v) for kind, v in names):
                raise RuntimeError("this is no cluster: %s" % (names,))
            body = struct.pack(">H4sBBH", 4, b"MQTT", 4, 2, keepalive) + self.text(client)
            self.write(0x10, body)
            kind, body = self.read()
            if kind != 0x20 or body[1] != 0:
                raise RuntimeError("the cluster's MQTT listener answers CONNECT with code %d" % body[1])
            self.write(0x82, struct.pack(">H", 1) + self.text(self.down) + b"\0")
            kind, body = self.read()
            if kind != 0x90 or body[2] > 2:
                raise RuntimeError("the cluster refuses the topic %s" % self.down)
        except BaseException:
            self.sock.close()
            raise

    @staticmethod
    def text(s):
        b = s.encode()
        return struct.pack(">H", len(b)) + b

    def write(self, head, body=b""):
        n, length = len(body), b""
        while True:
            length += bytes([n & 127 | (128 if n > 127 else 0)])
            n >>= 7
            if not n:
                break
        left, deadline = memoryview(bytes([head]) + length + body), clock() + self.silent
        with self.lock:
            while left:
                try:
                    left = left[self.sock.send(left):]
                    continue
                except ssl.SSLWantWriteError:
                    select.select([], [self.sock], [], 1)
                except ssl.SSLWantReadError:
                    select.select([self.sock], [], [], 1)
                if clock() > deadline:
                    raise TimeoutError("the cluster does not read")

    def exactly(self, n):
        deadline = clock() + self.silent
        while len(self.buffer) < n:
            part = None
            with self.lock:
                try:
                    part = self.sock.recv(65536)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
            if part:
                self.buffer += part
            elif part is not None:
                raise ConnectionError("the cluster closed the connection")
            elif clock() > deadline:
                raise TimeoutError("the cluster is silent")
            else:
                select.select([self.sock], [], [], 0.5)
        out = bytes(self.buffer[:n])
        del self.buffer[:n]
        return out

    def read(self):
        head, n, shift = self.exactly(1)[0], 0, 0
        while True:
            b = self.exactly(1)[0]
            n |= (b & 127) << shift
            shift += 7
            if b < 128:
                break
        return head & 0xF0, self.exactly(n)

    def publish(self, message):
        self.write(0x30, self.text(self.up) + json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode())

    def ping(self):
        self.write(0xC0)

    def receive(self):
        """The next message, or None for the answer to a ping."""
        kind, body = self.read()
        if kind == 0x30:
            n = struct.unpack(">H", body[:2])[0]
            return json.loads(body[2 + n:])
        if kind == 0xD0:
            return None
        raise ConnectionError("a packet of kind %d has no place here" % (kind >> 4))

    def close(self):
        """Ends the connection; the thread that reads sees it and lets the socket go."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
