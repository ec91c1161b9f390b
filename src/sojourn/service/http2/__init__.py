"""HTTP/2 (RFC 9113), as much of it as gRPC needs: one side, the server's; no push, no priorities.

`connection` reads frames and keeps streams and clients in bounds, `sending` writes what the client
has room for, `stream` is one exchange, `heads` reads and writes what stands before and behind the
bytes. What the bytes mean is up to whoever made the connection.
"""
