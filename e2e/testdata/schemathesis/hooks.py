"""What schemathesis does not ask, and how it sends what it does not know: see TestOpenAPI."""

import os

import schemathesis


@schemathesis.hook
def filter_case(ctx, case):
    """Keep the user who asks and the site that answers, and ask for no log that never ends."""
    query, path, operation = case.query or {}, case.path_parameters or {}, case.operation.path
    if operation.endswith("/logs") and str(query.get("follow", "false")).lower() != "false":
        return False
    if path.get("user") == os.environ["ASKER"] or case.method == "DELETE" and set(path.values()) & {"harbour", "w1"}:
        return False
    # A field that is null counts as absent (docs/API.md): whoever expects that to be refused is wrong.
    return not (isinstance(case.body, dict) and None in case.body.values())


@schemathesis.serializer("application/zstd")
def stream(ctx, value):
    """Send a snapshot that is none."""
    return value if isinstance(value, bytes) else str(value).encode()
