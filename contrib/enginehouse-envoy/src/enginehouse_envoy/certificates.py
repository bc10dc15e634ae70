"""The certificates of both listeners."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from enginehouse import ConfigError

SELF_SIGNED = "self-signed"
_DAYS = 3650


class Certificate(NamedTuple):
    """A certificate chain and its key, as PEM."""

    chain: bytes
    key: bytes

    def context(self) -> ssl.SSLContext:
        """For a TLS server. Raises ``ConfigError`` if the key does not fit."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with TemporaryDirectory() as folder:
            chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
            key.touch(0o600)
            chain.write_bytes(self.chain)
            key.write_bytes(self.key)
            try:
                context.load_cert_chain(chain, key)
            except ssl.SSLError as error:
                raise ConfigError(f"--tls: {error.reason}", remedy="give a certificate and its key, as PEM") from None
        return context


def certificate(option: str) -> Certificate:
    """The certificate of ``--tls``: ``self-signed``, or ``CERT,KEY``. Raises ``ConfigError``."""
    if option == SELF_SIGNED:
        return self_signed()
    chain, comma, key = option.partition(",")
    if not comma:
        raise ConfigError(f"--tls {option}: names no key", remedy="write --tls self-signed, or --tls CERT,KEY")
    try:
        return Certificate(Path(chain).read_bytes(), Path(key).read_bytes())
    except OSError as error:
        raise ConfigError(f"--tls: cannot read {error.filename}: {error.strerror}") from None


def self_signed() -> Certificate:
    """A new certificate that nobody has to trust: Envoy then encrypts, and does not check who answers."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "enginehouse")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName("enginehouse")]), False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return Certificate(made.public_bytes(serialization.Encoding.PEM), private)
