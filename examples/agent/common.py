"""What all parts of the agent share: times, amounts, files."""

import json
import os
import re
import sys
import time

VERSION = "skerry-agent.py 1"
PROTOCOL = 1
CHUNK = 128 << 10  # bytes of items in one message
RESEND = 5  # seconds until what was not answered is sent again


def log(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def clock():
    """Seconds that nobody can set, and that go on while the machine sleeps where it can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_of_machine():
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return ""


def now_text():
    t = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + ".%03dZ" % (t % 1 * 1000)


def seconds(text):
    """Reads a duration such as 1m30s or 500ms."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    return sum(float(n) * units[u] for n, u in re.findall(r"([0-9.]+)(ms|us|µs|ns|h|m|s)", text or "0s"))


def size(text):
    """Reads an amount of bytes such as 64Mi."""
    n, unit = re.fullmatch(r"([0-9.]+)([KMGT]i)?", str(text)).groups()
    return int(float(n) * {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}[unit])


def write_file(path, data, mode=0o600):
    """Replaces a file so that a power cut leaves the old one or the new one."""
    tmp = path + ".new"
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
        f.flush()
        os.fsync(f.fileno())
    os.rename(tmp, path)
    d = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(d)
    finally:
        os.close(d)


def read_json(path, default):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return default
