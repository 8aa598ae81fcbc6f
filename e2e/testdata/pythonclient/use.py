"""Uses the client that is made of the API's document, as docs/API.md shows it: see TestPythonClient."""

import os
import ssl

from skerryapi import AuthenticatedClient, Client
from skerryapi.api.applications import apply_app, list_apps
from skerryapi.api.instances import list_instances
from skerryapi.api.login import login
from skerryapi.models import LoginInBody, Manifest, ManifestApplication, ManifestMetadata, ManifestService
from skerryapi.models import ManifestApiVersion, ManifestKind, Problem

server = os.environ["SKERRY_SERVER"]
trust = ssl.create_default_context(cafile="ca.pem")
tokens = login.sync(client=Client(server, verify_ssl=trust), body=LoginInBody(user="admin", password=os.environ["SKERRY_PASSWORD"]))
client = AuthenticatedClient(server, tokens.access, verify_ssl=trust, raise_on_unexpected_status=True)


def manifest(name, replicas):
    """Gives a manifest, whose fields have types."""
    service = ManifestService(name="web", image="registry.example/shop:1", replicas=replicas)
    spec = ManifestApplication(services=[service])
    return Manifest(ManifestApiVersion("skerry/v1"), ManifestKind("Application"), ManifestMetadata(name=name), spec)


for name in ["anvil", "buoy", "cleat"]:
    made = apply_app.sync(client=client, body=manifest(name, 0), register=True)
    print("registered", made.key.namespace + "/" + made.key.name)

token, names = None, []
while True:
    page = list_apps.sync(client=client, limit=2, **({"continue_": token} if token else {}))
    names.append([app.key.name for app in page.items])
    if not page.continue_:
        break
    token = page.continue_
print("pages", names)
print("instances", len(list_instances.sync(client=client).items))

refused = apply_app.sync(client=client, body=manifest("dock", -1), dry_run=True)
assert isinstance(refused, Problem)
print("refused", refused.status, refused.problems[0].path)
