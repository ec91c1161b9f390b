"""The part of HTTP/2 (RFC 9113) that gRPC needs: the server side, without push or priorities.

`reading` assembles frames from a client's bytes, `connection` interprets them and limits streams
and clients, `sending` writes what the client's flow control allows, `stream` is one exchange,
`heads` reads and writes heads and trailers, `frames` packs frames. The owner of the connection
interprets the bytes of the streams.
"""
