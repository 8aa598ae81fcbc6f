"""What schemathesis does not ask, and how it sends what it does not know: see TestOpenAPI."""

import os

import schemathesis


@schemathesis.hook
def filter_case(ctx, case):
    """Keep the user who asks, the token and the site that answers, and ask for no log that never ends."""
    query, path, operation = case.query or {}, case.path_parameters or {}, case.operation.path
    if operation.endswith("/logs") and str(query.get("follow", "false")).lower() != "false":
        return False
    kept = {"harbour", "w1", os.environ["ASKER"], os.environ["TOKEN_ID"]}
    if path.get("user") == os.environ["ASKER"] or case.method == "DELETE" and kept & {v for v in path.values() if isinstance(v, str)}:
        return False
    # A field that is null counts as absent (docs/API.md): whoever expects that to be refused is wrong.
    return not (isinstance(case.body, dict) and None in case.body.values())


@schemathesis.serializer("application/zstd")
def stream(ctx, value):
    """Send a snapshot that is none."""
    return value if isinstance(value, bytes) else str(value).encode()
