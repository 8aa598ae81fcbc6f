"""The identity of the device at its site: key, certificate, and the authority that it trusts."""

import base64
import hashlib
import json
import os
import re
import secrets
import ssl
import subprocess
import time

from common import read_json, write_file


class Identity:
    """Key, certificate and CA of this device, below one directory. The key never leaves it."""

    def __init__(self, directory):
        self.dir = directory
        self.key = os.path.join(directory, "key.pem")
        self.cert = os.path.join(directory, "cert.pem")
        self.ca = os.path.join(directory, "ca.pem")
        self.file = os.path.join(directory, "identity.json")
        self.data = read_json(self.file, None)

    def make_key(self):
        if not os.path.exists(self.key):
            made = openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
            write_file(self.key, made)

    def request(self):
        """The certificate request, DER in base64. Names in it are ignored."""
        config = os.path.join(self.dir, "request.cnf")  # a small system may have none
        write_file(config, "[req]\ndistinguished_name=dn\n[dn]\n")
        return base64.b64encode(openssl("req", "-new", "-config", config, "-key", self.key, "-subj", "/CN=device", "-outform", "DER")).decode()

    def keep(self, joined):
        """Takes a Joined. The CA stays the one that the token named."""
        pem = ssl.DER_cert_to_PEM_cert(base64.b64decode(joined["certificate"]))
        self.data = {
            "name": joined["name"],
            "site": joined["site"],
            "counter": joined["counter"],
            "received": time.time(),
            "life": joined["life"],
            "certificate": pem,
        }
        write_file(self.file, json.dumps(self.data))
        self.load()

    def load(self):
        write_file(self.cert, self.data["certificate"])  # ssl reads files only; identity.json is what counts

    def due(self):
        """Whether two thirds of the certificate's life are over, by this device's own clock."""
        age = time.time() - self.data["received"]
        return age < 0 or age > self.data["life"] * 2 / 3

    def attempt(self):
        """The id of a renewal, written down before it is sent: should the answer be lost, the next try is the same one."""
        if "attempt" not in self.data:
            self.data["attempt"] = secrets.token_hex(10)
            write_file(self.file, json.dumps(self.data))
        return self.data["attempt"]

    def context(self):
        """TLS to the cluster. Its CA proves it, not its name or the date, which a board without a clock cannot know."""
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.minimum_version = ssl.TLSVersion.TLSv1_3
        c.check_hostname = False
        c.verify_mode = ssl.CERT_REQUIRED
        c.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME
        c.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        c.load_verify_locations(self.ca)
        if self.data:
            c.load_cert_chain(self.cert, self.key)
        return c


def openssl(*args, stdin=b""):
    done = subprocess.run(["openssl", *args], input=stdin, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError("openssl %s: %s" % (args[0], done.stderr.decode(errors="replace").strip()))
    return done.stdout


def find_ca(host, port, pin):
    """Fetches the CA that the cluster shows and compares it with the token's pin; nothing was told to it by then."""
    shown = openssl("s_client", "-connect", "%s:%d" % (host, port), "-tls1_3", "-showcerts").decode()
    for pem in re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", shown, re.S):
        public = openssl("x509", "-noout", "-pubkey", stdin=pem.encode()).decode()
        der = base64.b64decode("".join(public.split("\n")[1:-2]))
        if base64.b32encode(hashlib.sha256(der).digest()[:20]).decode().lower() == pin:
            return pem + "\n"
    raise RuntimeError("this is not the site that the token is for: no certificate shown has the token's pin; check the address")
