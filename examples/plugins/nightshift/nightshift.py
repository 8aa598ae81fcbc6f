#!/usr/bin/env python3
"""A scheduling plugin for Skerry, as a program: rules out workers that are under pressure.

A query comes on a line of standard input, the answer goes to a line of standard output, as often as asked. Pressure is the
share of time for which something waited for a processor, memory or a disk. LIMIT is the most that is put up with.
"""

import json
import os
import sys

LIMIT = float(os.environ.get("LIMIT", "0.5"))


def judge(query):
    scores, out = {}, {}
    for candidate in query["candidates"]:
        name, pressure = candidate["name"], candidate.get("pressure") or {}
        worst, what = max(((pressure.get(k, 0), k) for k in ("cpu", "memory", "io")))
        if worst > LIMIT:
            out[name] = f"its {what} is waited for {worst:.0%} of the time; the limit is {LIMIT:.0%}"
        else:
            # What the site's policy found counts, the more the calmer the worker is.
            scores[name] = min(1.0, max(0.0, candidate["score"] * (1 - worst)))
    return {"scores": scores, "out": out}


for line in sys.stdin:
    print(json.dumps(judge(json.loads(line))), flush=True)
