"""Mutual authentication: both ends prove that they know the agent's token without sending it.

Each end sends a nonce; each answers with a MAC over both. Later traffic is neither encrypted nor
signed: the network between the nodes is trusted, as it is for Ray's own traffic.
"""

from __future__ import annotations

import hmac
import secrets

from sojourn.cluster.wire.frames import BrokenFrame

_NONCE_BYTES = 32
_MAC_BYTES = 32
_GREETING = b"sojourn-cluster-1"
# The errors at each end for a peer that does not send the greeting, or has another token.
_OF_AGENT = "not a caller of sojourn", "the caller has another token"
_OF_CALLER = "there is no agent of sojourn at this address", "another agent is at this address"


class Handshake:
    """One end of the handshake. A caller sends its `hello`; then each end takes what the other
    sends."""

    def __init__(self, token: bytes, *, is_agent: bool) -> None:
        self.hello = _GREETING + secrets.token_bytes(_NONCE_BYTES)
        self.is_proven = False
        self._token = token
        self._is_agent = is_agent
        self._no_peer, self._other_token = _OF_AGENT if is_agent else _OF_CALLER
        self._theirs = b""

    @property
    def needed_bytes(self) -> int:
        """The number of bytes that `take` expects next."""
        return _MAC_BYTES if self._theirs else len(self.hello)

    def take(self, data: bytes) -> bytes:
        """Process bytes from the peer; return the bytes to send. Raises BrokenFrame if the peer
        fails the handshake."""
        if not self._theirs:
            if not data.startswith(_GREETING):
                raise BrokenFrame(self._no_peer)
            self._theirs = data
            return self.hello if self._is_agent else self._proof(False)
        if not hmac.compare_digest(data, self._proof(not self._is_agent)):
            raise BrokenFrame(self._other_token)
        self.is_proven = True
        return self._proof(True) if self._is_agent else b""

    def _proof(self, of_agent: bool) -> bytes:
        """Return the MAC that this role sends, over both hellos, the caller's first."""
        hellos = self._theirs + self.hello if self._is_agent else self.hello + self._theirs
        return hmac.digest(self._token, (b"agent" if of_agent else b"caller") + hellos, "sha256")
