"""How both ends of a connection prove that they know the agent's token, without saying it.

Each end sends a nonce; each answers with a MAC over both. What is said afterwards is neither
encrypted nor signed: the network between the nodes is trusted, as Ray's own traffic is.
"""

from __future__ import annotations

import hmac
import secrets

NONCE_BYTES = 32
MAC_BYTES = 32
_GREETING = b"sojourn-cluster-1"
HELLO_BYTES = len(_GREETING) + NONCE_BYTES


def hello() -> bytes:
    return _GREETING + secrets.token_bytes(NONCE_BYTES)


def is_hello(data: bytes) -> bool:
    return len(data) == HELLO_BYTES and data.startswith(_GREETING)


def proof(token: bytes, role: bytes, caller: bytes, agent: bytes) -> bytes:
    """The MAC that this role sends, over both hellos."""
    return hmac.digest(token, role + caller + agent, "sha256")


def is_proof(given: bytes, token: bytes, role: bytes, caller: bytes, agent: bytes) -> bool:
    return hmac.compare_digest(given, proof(token, role, caller, agent))
