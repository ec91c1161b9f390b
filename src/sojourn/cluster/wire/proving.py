"""How both ends of a connection prove that they know the agent's token, without saying it.

Each end sends a nonce; each answers with a MAC over both. What is said afterwards is neither
encrypted nor signed: the network between the nodes is trusted, as Ray's own traffic is.
"""

from __future__ import annotations

import hmac
import secrets

from sojourn.cluster.wire.frames import BrokenFrame

_NONCE_BYTES = 32
_MAC_BYTES = 32
_GREETING = b"sojourn-cluster-1"
# What each end says of one that does not know the greeting, or the token.
_OF_AGENT = "not a caller of sojourn", "the caller has another token"
_OF_CALLER = "there is no agent of sojourn at this address", "another agent is at this address"


class Handshake:
    """One end of it. A caller sends its `hello`; then either end takes what the other sends."""

    def __init__(self, token: bytes, *, is_agent: bool) -> None:
        self.hello = _GREETING + secrets.token_bytes(_NONCE_BYTES)
        self.is_proven = False
        self._token = token
        self._is_agent = is_agent
        self._no_peer, self._other_token = _OF_AGENT if is_agent else _OF_CALLER
        self._theirs = b""

    @property
    def needed_bytes(self) -> int:
        """How much of what the other end sends is to be taken next."""
        return _MAC_BYTES if self._theirs else len(self.hello)

    def take(self, data: bytes) -> bytes:
        """Take it; returns what to send. Raises BrokenFrame if this is no end of ours."""
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
        """The MAC that this role sends, over both hellos: first the caller's."""
        hellos = self._theirs + self.hello if self._is_agent else self.hello + self._theirs
        return hmac.digest(self._token, (b"agent" if of_agent else b"caller") + hellos, "sha256")
