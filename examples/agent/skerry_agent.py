#!/usr/bin/env python3
"""A small worker agent for Skerry in Python, for devices on which Skerry's own binary does not run.

It joins a site by its cluster's MQTT listener, reports the machine, runs native processes and keeps them running while the cluster
is away, and while the agent itself is. docs/EXTERNAL-AGENTS.md describes what it speaks. It needs Python 3.9 or newer, OpenSSL
1.1.1 or newer as a library and as a command, and a POSIX system.

    skerry_agent.py --cluster HOST:8883 --join TOKEN --name plc-7 --data /var/lib/skerry-agent
"""

import argparse
import collections
import fcntl
import json
import os
import platform
import queue
import random
import re
import secrets
import shutil
import signal
import sys
import threading
import time
import traceback

from common import PROTOCOL, VERSION, boot_of_machine, clock, log, read_json, write_file
from identity import Identity, find_ca
from mqtt import MQTT
from processes import Instance, fence
from sets import Replica, Source


class Agent:
    def __init__(self, options):
        self.opt, self.dir = options, os.path.abspath(options.data)
        self.addresses = collections.deque()  # the first is the one to try now
        for a in options.cluster.split(","):
            host, _, port = a.strip().rpartition(":")
            self.addresses.append((host.strip("[]"), int(port)))
        os.makedirs(os.path.join(self.dir, "instances"), 0o700, exist_ok=True)
        self.lock = os.open(os.path.join(self.dir, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another agent uses %s" % self.dir)
        self.id = Identity(self.dir)
        self.boot = secrets.token_hex(8)
        self.machine = platform.node()
        self.desired, self.observed = Replica(os.path.join(self.dir, "desired.json")), Source()
        self.instances, self.ignored = {}, collections.Counter()
        self.inbox = queue.Queue(1024)  # of the network's thread
        self.conn, self.connected, self.renewing = None, False, 0.0
        self.seq, self.reported, self.report_every, self.facts_told = 0, -1e9, 10.0, False
        self.pings = collections.deque()
        self.contact = None  # when the cluster surely heard this agent last
        kept = read_json(os.path.join(self.dir, "contact.json"), None)
        if kept and kept["boot"] == boot_of_machine() != "":
            self.contact = kept["at"]
        self.stopping, self.trouble, self.trouble_at = False, "", -1e9

    # joining

    def join(self):
        if self.id.data:
            self.id.load()
            return
        parts = (self.opt.join or "").strip().split(".")
        if len(parts) != 5 or parts[:2] != ["skt1", "worker"]:
            sys.exit("this device has not joined yet; get a token with `skerry token create --role worker` at the cluster, and start with --join TOKEN")
        for host, port in self.addresses:
            try:
                ca = find_ca(host, port, parts[4])
                break
            except RuntimeError as e:
                log("%s:%d: %s" % (host, port, e))
        else:
            sys.exit("no address of the cluster answers")
        write_file(self.id.ca, ca)
        self.id.make_key()
        conn = MQTT(host, port, self.id, "join-" + secrets.token_hex(6), "join/device", 15)
        try:
            conn.publish({"type": "join", "token": ".".join(parts), "tier": "worker", "name": self.opt.name or "", "csr": self.id.request(),
                          "machine": self.machine, "boot": self.boot, "version": VERSION})
            answer = conn.receive()
        finally:
            conn.sock.close()
        if answer["type"] != "joined":
            sys.exit("the cluster refuses: %s %s" % (answer.get("reason"), answer.get("hint", "")))
        self.id.keep(answer)
        log("joined site %s as %s" % (answer["site"], answer["name"]))

    # the network's thread

    def network(self):
        wait, renew = 0.5, False
        while not self.stopping:
            try:
                conn = MQTT(*self.addresses[0], self.id, self.id.data["name"] + "-" + self.boot, self.id.data["name"], self.opt.keepalive)
            except (OSError, RuntimeError, IndexError) as e:
                log("cannot connect: %s" % e)
                self.addresses.rotate(-1)  # of several that share a site one leads
                if len(self.addresses) > 1:
                    wait = min(wait, 5)
            else:
                refused = None
                try:
                    self.inbox.put(("up", conn, renew))
                    while True:
                        m = conn.receive()
                        if m and m["type"] == "refuse":
                            refused = m
                        if m and m["type"] == "welcome":
                            wait = 0.5
                        self.inbox.put(("message", conn, m))
                except (OSError, ValueError, KeyError) as e:
                    log("connection ended: %s" % e)
                with conn.lock:
                    conn.sock.close()
                renew = bool(refused and refused.get("code") == "expired")
                if refused:
                    log("the cluster refuses: %s: %s %s" % (refused.get("code"), refused.get("reason"), refused.get("hint", "")))
                    wait = max(wait, refused.get("retryAfter", 0) / 1000)
                self.inbox.put(("down", conn, None))
            time.sleep(wait / 2 + random.random() * wait)
            wait = min(2 * wait, 30)

    # what comes

    def handle(self, kind, conn, m):
        if kind == "up":
            self.conn, self.connected = conn, False
            self.pings.clear()
            if m:
                self.renew()
            else:
                self.send({"type": "hello", "tier": "worker", "name": self.id.data["name"], "version": VERSION, "protocolMin": PROTOCOL, "protocolMax": PROTOCOL,
                           "boot": self.boot, "machine": self.machine, "time": int(time.time() * 1000), "sets": [self.desired.state(), self.observed.state()]})
        elif conn is not self.conn:
            pass  # of a connection that is over
        elif kind == "down":
            self.conn, self.connected = None, False
            self.keep_contact()
        elif m is None:  # a ping was answered: the cluster heard us when it was sent, at the earliest
            if self.pings:
                self.contact = self.pings.popleft()
        else:
            self.message(m)

    def message(self, m):
        kind = m.get("type")
        if kind == "welcome":
            self.connected, self.facts_told, self.reported = True, False, -1e9
            held = [s for s in m.get("sets") or [] if s.get("set") == "observed"]
            self.observed.connect(held[0] if held else {})
            pace = m.get("pace") or {}
            self.report_every = pace.get("report", 0) / 1000 or 10.0
            log("connected to %s" % m.get("name"))
        elif kind in ("set-delta", "set-chunk"):
            changed, deleted, answer = self.desired.apply(m)
            for key in changed:
                self.wanted(key)
            for key in deleted:
                self.unwanted(key)
            if answer:
                self.send(answer)
        elif kind == "set-held-want":
            self.send(self.desired.held(m))
        elif kind == "set-ack":
            self.observed.acked(m)
        elif kind == "set-want":
            self.observed.wanted(m)
        elif kind == "ping":
            self.send({"type": "pong", "nonce": m.get("nonce", 0)})
        elif kind == "joined":
            self.id.keep(m)
            log("renewed the certificate")
            if not self.connected:
                self.conn.close()  # and come again with it
        elif kind != "refuse":
            self.ignored["unknown-type"] += 1  # perhaps of a later version

    def wanted(self, key):
        value = self.desired.items.get(key)
        if key.startswith("ep/"):
            for i in self.instances.values():
                self.write_endpoints(i)
            return
        if not key.startswith("inst/"):
            return
        try:
            a = json.loads(value)
            ok = "inst/" + a["id"] == key and isinstance(a["spec"], dict) and re.fullmatch("[a-z0-9-]+", a["id"])
        except (TypeError, ValueError, KeyError):
            ok = False
        if not ok:
            self.ignored["unreadable"] += 1
            log("cannot read %s" % key)
            return
        i = self.instances.get(a["id"])
        if i is None:
            self.begin(a)
        elif fence(a) < fence(i.a):
            self.ignored["lower-token"] += 1  # an old word that was overtaken
        else:
            i.assign(a)

    def unwanted(self, key):
        if key.startswith("inst/"):
            i = self.instances.get(key[5:])
            if i is None:
                self.observed.delete(key)
            else:
                i.end()

    def gone(self, name):
        """All of an instance is gone; perhaps it is wanted again, under another token."""
        del self.instances[name]
        key = "inst/" + name
        if key in self.desired.items:
            self.wanted(key)
        if name not in self.instances:
            self.observed.delete(key)

    def begin(self, a):
        i = self.instances[a["id"]] = Instance(self, a)
        i.begin()

    def write_endpoints(self, i):
        """The endpoints of the services that an instance is linked to, as SKERRY_ENDPOINTS names them."""
        out = {}
        app = i.a["service"]["app"]
        for link in i.spec.get("links") or []:
            value = self.desired.items.get("ep/%s/%s/%s" % (app["namespace"], app["name"], link["service"]))
            out[link["service"]] = json.loads(value).get("endpoints") or [] if isinstance(value, str) and value else []
        if os.path.isdir(i.home()):
            write_file(os.path.join(i.home(), "endpoints.json"), json.dumps(out), 0o644)

    # what goes

    def send(self, m):
        try:
            if self.conn:
                self.conn.publish(m)
        except OSError:
            self.conn.close()

    def renew(self):
        self.renewing = clock()
        self.send({"type": "renew", "counter": self.id.data["counter"], "attempt": self.id.attempt(), "machine": self.machine, "boot": self.boot})

    def report(self):
        self.seq += 1
        r = {"seq": self.seq, "used": {}, "instances": {}}
        if clock() - self.trouble_at < 60:
            r["refusing"] = "its agent is in trouble: " + self.trouble[:200]
        if not self.facts_told:
            r["facts"], self.facts_told = self.facts(), True
        try:
            r["used"]["cpu"] = round(os.getloadavg()[0], 3)
            with open("/proc/meminfo") as f:
                kib = {k: int(v.split()[0]) for k, v in (line.split(":") for line in f)}
            r["used"]["memory"] = (kib["MemTotal"] - kib["MemAvailable"]) * 1024
        except (OSError, KeyError, ValueError):
            pass  # a system that does not tell
        self.send({"type": "report", "kind": "worker", "payload": json.dumps(r)})
        self.reported = clock()

    def facts(self):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        arch = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(platform.machine(), platform.machine())
        f = {"capacity": {"cpu": self.opt.cpu or os.cpu_count() or 1, "memory": str(self.opt.memory or memory), "storage": str(shutil.disk_usage(self.dir).free)},
             "arch": arch, "os": "%s (Python %s)" % (platform.system().lower(), platform.python_version()), "kernel": platform.release(), "version": VERSION,
             "runtimes": [{"name": "native", "passed": True, "version": VERSION, "abilities": ["ports"]},
                          {"name": "oci", "passed": False, "cause": "this agent runs plain processes", "cure": "run Skerry's own worker where it can"}]}
        if self.opt.address:
            f["address"] = self.opt.address
        if self.opt.label:
            f["labels"] = dict(x.split("=", 1) for x in self.opt.label)
        if self.opt.taint:
            f["taints"] = self.opt.taint
        if self.opt.area:
            f["area"] = self.opt.area
        return f

    def keep_contact(self):
        if self.contact is not None and any(isinstance(i.spec.get("onDisconnect"), dict) for i in self.instances.values()):
            write_file(os.path.join(self.dir, "contact.json"), json.dumps({"boot": boot_of_machine(), "at": self.contact}))

    # life

    def load(self):
        """Takes up what an earlier life of this agent left: what runs goes on, what ended is seen to have ended."""
        for name in os.listdir(os.path.join(self.dir, "instances")):
            d = read_json(os.path.join(self.dir, "instances", name, "instance.json"), None)
            if d:
                i = self.instances[name] = Instance(self, d["assignment"], d)
                i.save()
        for key in list(self.desired.items):  # what was acknowledged and not yet done
            self.wanted(key)
        for name in list(self.instances):
            key = "inst/" + name
            if key not in self.desired.items and key not in self.desired.orphans and not self.instances[name].ending:
                self.unwanted(key)

    def clean_up(self):
        """Ends all that runs, for a device that is taken away."""
        for name in os.listdir(os.path.join(self.dir, "instances")):
            d = read_json(os.path.join(self.dir, "instances", name, "instance.json"), None)
            if d:
                self.instances[name] = Instance(self, d["assignment"], d)
                self.instances[name].end()
        while self.instances:
            for name, i in list(self.instances.items()):
                if not i.tick():
                    del self.instances[name]
            time.sleep(0.1)

    def tick(self, name):
        if not self.instances[name].tick():
            self.gone(name)

    def guarded(self, do, *args):
        """Whatever goes wrong, such as a full disk or a message that makes no sense, what runs goes on. What is not on disk was not
        acknowledged: it comes again."""
        try:
            do(*args)
            return
        except Exception as e:
            if self.trouble != repr(e):
                log("trouble: %r" % e)
                traceback.print_exc()
            self.trouble, self.trouble_at = repr(e), clock()
        if do == self.handle:
            self.desired = Replica(self.desired.path)
            if self.conn:
                self.conn.close()

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))
        signal.signal(signal.SIGINT, lambda *_: setattr(self, "stopping", True))
        self.load()
        threading.Thread(target=self.network, daemon=True).start()
        pinged = 0.0
        while not self.stopping:
            try:
                self.guarded(self.handle, *self.inbox.get(timeout=0.1))
                while True:
                    self.guarded(self.handle, *self.inbox.get_nowait())
            except queue.Empty:
                pass
            for name in list(self.instances):
                self.guarded(self.tick, name)
            if not self.conn:
                continue
            if clock() - pinged > self.opt.keepalive / 2:
                pinged = clock()
                self.pings.append(pinged)
                self.keep_contact()
                try:
                    self.conn.ping()
                except OSError:
                    self.conn.close()
            if self.connected:
                for m in self.observed.next():
                    self.send(m)
                if clock() - self.reported > self.report_every:
                    self.report()
                if self.id.due() and clock() - self.renewing > min(60, self.id.data["life"] / 10):
                    self.renew()
        if self.conn:
            self.conn.close()
        log("stopped; what runs goes on")


def main():
    p = argparse.ArgumentParser(description="A small worker agent for Skerry, for devices on which its own does not run.")
    p.add_argument("--cleanup", action="store_true", help="end all that runs, and nothing else")
    p.add_argument("--cluster", default="127.0.0.1:8883", help="address of the cluster's MQTT listener, HOST:PORT, or several with commas")
    p.add_argument("--data", required=True, help="directory for the identity and for what is to run")
    p.add_argument("--join", help="token, for the first start")
    p.add_argument("--name", help="name of this worker, if the token is not bound to one")
    p.add_argument("--keepalive", type=int, default=4, help="seconds; the cluster notices within one and a half times this that the device is gone (default 4)")
    p.add_argument("--cpu", type=float, help="cores that are offered (default all)")
    p.add_argument("--memory", type=int, help="bytes of memory that are offered (default all)")
    p.add_argument("--address", help="address at which other machines reach this one")
    p.add_argument("--area", help="area that the device is in")
    p.add_argument("--label", action="append", help="KEY=VALUE, may be repeated")
    p.add_argument("--taint", action="append", help="KEY or KEY=VALUE, may be repeated")
    agent = Agent(p.parse_args())
    if agent.opt.cleanup:
        agent.clean_up()
        return
    agent.join()
    agent.run()


if __name__ == "__main__":
    main()
