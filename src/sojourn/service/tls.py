"""TLS: a certificate and its key and, for mutual TLS, the authority that signs clients'
certificates."""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS files. They are read when a listener opens, and again by `reload`."""

    certificate: str
    key: str
    client_ca: str | None = None  # clients must have a certificate signed by it

    def check(self) -> None:
        """Raise ValueError or OSError if the server could not start with these files."""
        self.context()

    def context(self, protocol: str = "http/1.1") -> ssl.SSLContext:
        """Return a context for a listener of this protocol: TLS 1.2 or later."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        self.reload(context)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(_existing(self.client_ca))
            except ssl.SSLError as error:
                raise ValueError(
                    f"{self.client_ca} must have certificates in PEM: {error.reason or error}"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def reload(self, context: ssl.SSLContext) -> None:
        """Read certificate and key again; new connections use the new ones."""
        mode = os.stat(self.key).st_mode
        if mode & stat.S_IRWXO:
            raise PermissionError(
                f"{self.key}: everybody may read this key (mode {mode & 0o777:o}); "
                f"chmod 600 {self.key}"
            )
        try:
            context.load_cert_chain(_existing(self.certificate), self.key, password=_no_password)
        except ssl.SSLError as error:
            raise ValueError(
                f"{self.certificate} and {self.key} must be a certificate and its key in PEM: "
                f"{error.reason or error}"
            ) from None


def _existing(path: str) -> str:
    os.stat(path)  # OpenSSL's own error does not name the file
    return path


def _no_password() -> str:
    raise ValueError("the key must not be encrypted: a server has nobody to ask for a password")
