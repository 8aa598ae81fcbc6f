"""Sets of items that two sides keep in line (docs/EXTERNAL-AGENTS.md, "Sets")."""

import base64
import hashlib
import json
import secrets
import struct

from common import CHUNK, RESEND, clock, read_json, write_file


def value_bytes(value):
    """A value as it counts in digests: the text of a string, or CBOR, which this agent carries and does not read."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["cbor"])


def lanes(key, value):
    k, n, head = key.encode(), len(key.encode()), b""
    while n > 127:
        head += bytes([n & 127 | 128])
        n >>= 7
    h = hashlib.sha256(head + bytes([n]) + k + value_bytes(value)).digest()
    return struct.unpack(">QQ", h[:16])


def digest(items):
    """Of {key: value}: each of two lanes is a sum, so that the order does not matter."""
    a = b = 0
    for key, value in items.items():
        x, y = lanes(key, value)
        a, b = (a + x) & (1 << 64) - 1, (b + y) & (1 << 64) - 1
    return struct.pack(">QQ", a, b).hex()


class Replica:
    """What the cluster wants here. It is kept on disk before it is acknowledged."""

    def __init__(self, path):
        self.path = path
        d = read_json(path, {})
        self.inc, self.gen = d.get("incarnation", ""), d.get("gen", 0)
        self.items, self.orphans = d.get("items", {}), d.get("orphans", {})  # orphans: key -> [value, incarnation]
        self.retired, self.part = d.get("retired", []), None

    def save(self):
        write_file(self.path, json.dumps({"incarnation": self.inc, "gen": self.gen, "items": self.items, "orphans": self.orphans, "retired": self.retired}))

    def state(self):
        held = {k: v for k, (v, _) in self.orphans.items()}
        out = {"set": "desired", "incarnation": self.inc, "gen": self.gen, "digest": digest(self.items), "orphans": len(held), "orphanDigest": digest(held)}
        if self.part:
            head = self.part["head"]
            out.update(partIncarnation=head["incarnation"], partGen=head["gen"], partDigest=head["digest"], partNext=self.part["next"])
        return out

    def ack(self):
        return dict(self.state(), type="set-ack")

    def want(self, reason, of):
        return {"type": "set-want", "set": "desired", "incarnation": self.inc, "gen": self.gen, "reason": reason, "of": of}

    def basis(self, m):
        """None when a change can be applied to what is held, else the answer."""
        inc, base, gen = m.get("incarnation", ""), m.get("base", 0), m.get("gen", 0)
        if inc in self.retired:
            return self.want("retired", inc)
        if inc != self.inc:
            return self.want("snapshot", inc)
        if gen <= self.gen:
            return self.ack()
        if base > self.gen:
            return self.want("gap", inc)
        return None

    def apply(self, m):
        """Takes set-delta or set-chunk. Gives (keys that changed, keys that were deleted, the answer)."""
        inc = m.get("incarnation", "")
        if m.get("set") != "desired" or not inc:
            return [], [], None
        if m["type"] == "set-delta":
            answer = self.basis(m)
            return ([], [], answer) if answer else self.change(m, m.get("items", []))
        if inc in self.retired:
            return [], [], self.want("retired", inc)
        if m.get("delta"):
            answer = self.basis(m)
            if answer:
                return [], [], answer
        elif inc == self.inc and m.get("gen", 0) <= self.gen:
            return [], [], self.ack()
        head = {k: m.get(k, d) for k, d in (("incarnation", ""), ("base", 0), ("gen", 0), ("digest", ""), ("delta", False))}
        index = m.get("index", 0)
        if not self.part or self.part["head"] != head:
            if index:
                return [], [], self.want("gap", inc)
            self.part = {"head": head, "next": 0, "items": []}
        if index != self.part["next"]:
            return [], [], self.ack()
        self.part["items"] += m.get("items", [])
        self.part["next"] += 1
        if not m.get("last"):
            return [], [], self.ack()
        items, self.part = self.part["items"], None
        return self.change(m, items) if m.get("delta") else self.install(m, items)

    def change(self, m, items):
        fresh = dict(self.items)
        for it in items:
            if it.get("deleted"):
                fresh.pop(it["key"], None)
            else:
                fresh[it["key"]] = it.get("value", "")
        if digest(fresh) != m["digest"]:
            return [], [], self.want("snapshot", m["incarnation"])
        dead = [it["key"] for it in items if it.get("deleted")]
        return self.take(m, fresh, dead)

    def install(self, m, items):
        fresh = {it["key"]: it.get("value", "") for it in items if not it.get("deleted")}
        if digest(fresh) != m["digest"]:
            return [], [], self.want("snapshot", m["incarnation"])
        dead = [it["key"] for it in items if it.get("deleted")]
        absent = [k for k in self.items if k not in fresh and k not in dead]
        if m["incarnation"] == self.inc:
            dead += absent  # within one life of the source, absence from a complete snapshot deletes
        else:
            for k in absent:  # a new life may have forgotten it: it runs on until it is named or deleted
                self.orphans[k] = [self.items[k], self.inc]
            if self.inc:
                self.retired = (self.retired + [self.inc])[-16:]
        self.inc = m["incarnation"]
        return self.take(m, fresh, dead)

    def take(self, m, fresh, dead):
        was = dict(self.items)
        was.update({k: v for k, (v, _) in self.orphans.items()})
        adopted = [k for k in fresh if k in self.orphans]
        deleted = [k for k in dead if k in was and k not in fresh]
        changed = [k for k in fresh if was.get(k) != fresh[k] or k in adopted]
        for k in list(fresh) + dead:
            self.orphans.pop(k, None)
        self.items, self.gen = fresh, m.get("gen", 0)
        self.save()
        return sorted(changed), sorted(deleted), self.ack()

    def held(self, m):
        """Answers set-held-want with all orphans."""
        items = [{"key": k, "value": v, "incarnation": i} for k, (v, i) in sorted(self.orphans.items())]
        return {"type": "set-held", "set": "desired", "digest": digest({k: v for k, (v, _) in self.orphans.items()}), "items": items, "last": True}


class Source:
    """What this agent reports: a set of a new life at each start of the agent."""

    def __init__(self):
        self.restart()
        self.items, self.gens, self.tombs = {}, {}, {}

    def restart(self):
        self.inc, self.gen = secrets.token_hex(8), getattr(self, "gen", 0) + 1
        self.peer, self.sent, self.at = None, None, 0.0  # peer: generation that the cluster holds, None: nothing of this life

    def state(self):
        return {"set": "observed", "incarnation": self.inc, "gen": self.gen, "digest": digest(self.items)}

    def put(self, key, value):
        text = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        if self.items.get(key) != text:
            self.gen += 1
            self.items[key], self.gens[key] = text, self.gen
            self.tombs.pop(key, None)

    def delete(self, key):
        if key in self.items:
            self.gen += 1
            del self.items[key], self.gens[key]
            self.tombs[key] = self.gen

    def connect(self, held):
        same = held.get("incarnation") == self.inc and held.get("gen", 0) <= self.gen
        self.peer, self.sent = held.get("gen", 0) if same else None, None

    def acked(self, m):
        if m.get("incarnation") == self.inc:
            self.peer = max(self.peer or 0, m.get("gen", 0))
            self.tombs = {k: g for k, g in self.tombs.items() if g > self.peer}

    def wanted(self, m):
        if m.get("reason") == "retired" and m.get("of") == self.inc:
            self.restart()
        self.peer = m.get("gen", 0) if m.get("reason") == "gap" and m.get("incarnation") == self.inc else None
        self.sent = None

    def next(self):
        """What is to be sent now: a delta where the cluster holds something of this life, else everything in parts."""
        if self.peer == self.gen or self.sent == self.gen and clock() - self.at < RESEND:
            return []
        self.sent, self.at = self.gen, clock()
        head = {"set": "observed", "incarnation": self.inc, "gen": self.gen, "digest": digest(self.items)}
        if self.peer is not None:
            items = [{"key": k, "gen": g, "value": self.items[k]} for k, g in self.gens.items() if g > self.peer]
            items += [{"key": k, "gen": g, "deleted": True} for k, g in self.tombs.items() if g > self.peer]
            if sum(len(it.get("value", "")) for it in items) < CHUNK:
                return [dict(head, type="set-delta", base=self.peer, items=items)]
        parts, size = [[]], 0
        for k in sorted(self.items):
            if size > CHUNK:
                parts.append([])
                size = 0
            parts[-1].append({"key": k, "gen": self.gens[k], "value": self.items[k]})
            size += len(k) + len(self.items[k])
        return [dict(head, type="set-chunk", index=n, items=p, last=n == len(parts) - 1) for n, p in enumerate(parts)]
