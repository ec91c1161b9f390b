"""HTTP/2 (RFC 9113), as much of it as gRPC needs: one side, the server's; no push, no priorities.

`reading` puts frames together from the bytes of a client, `connection` says what they mean and
keeps streams and clients in bounds, `sending` writes what the client has room for, `stream` is one
exchange, `heads` reads and writes the fields before and behind its bytes, `frames` packs. What the
bytes mean is up to whoever made the connection.
"""
