"""A web service with several models in one pool, shared by the threads of the server.

`python examples/pool_web_service.py` serves it with the standard library alone; the same handler
works in Flask (`flask_app`) and FastAPI (`fastapi_app`). Each process needs a pool of its own: with
`gunicorn --preload` make it after the fork, in `post_worker_init` or at the first request.
"""

from __future__ import annotations

import json
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np

import sojourn


def linear(factor: float) -> Any:
    """Return a small model that stands for your own: usually a path of a SavedModel or `.keras`."""

    def build() -> Any:
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        return {"x": x}, {"y": x * factor}

    return build


def make_pool() -> sojourn.Pool:
    pool = sojourn.Pool(memory="2GiB", idle_seconds=300)
    pool.register("double", linear(2.0))
    pool.register("triple", linear(3.0), copies=2)
    return pool


def predict(pool: sojourn.Pool, name: str, values: list[float]) -> tuple[int, dict[str, Any]]:
    """Handle a request: return a status and an answer. Any number of threads may call this."""
    try:
        with pool.lease(name, timeout=10) as session:
            result = session.run("y", {"x": np.array(values, np.float32)})
    except sojourn.ModelError as error:
        return 404, {"error": str(error)}  # no such model, or it cannot be loaded
    except sojourn.InputError as error:
        return 400, {"error": str(error)}
    except (sojourn.PoolTimeout, sojourn.BudgetExceeded) as error:
        return 503, {"error": str(error)}  # the client may try again later
    except sojourn.SessionBroken as error:
        return 500, {"error": str(error)}  # its worker died; the next lease has a new one
    return 200, {"y": result.tolist()}


def flask_app(pool: sojourn.Pool) -> Any:
    from flask import Flask, request

    app = Flask(__name__)

    @app.post("/predict/<name>")
    def handle(name: str) -> Any:
        status, answer = predict(pool, name, request.get_json()["x"])
        return answer, status

    return app


def fastapi_app(pool: sojourn.Pool) -> Any:
    from fastapi import Body, FastAPI, Response

    app = FastAPI()

    @app.post("/predict/{name}")
    def handle(name: str, response: Response, x: list[float] = Body(embed=True)) -> Any:  # noqa: B008
        response.status_code, answer = predict(pool, name, x)
        return answer

    return app


def server(pool: sojourn.Pool, port: int = 0) -> ThreadingHTTPServer:
    """Serve with the standard library: a thread for every connection, on the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = predict(pool, self.path.rpartition("/")[2], body["x"])
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Log nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def ask(address: str, values: list[float]) -> Any:
    request = urllib.request.Request(address, json.dumps({"x": values}).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main() -> None:
    with make_pool() as pool, server(pool) as service:
        thread = Thread(target=service.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{service.server_port}/predict"
        print("double", ask(f"{address}/double", [1, 2, 3])["y"])
        print("triple", ask(f"{address}/triple", [1, 2, 3])["y"])
        print(pool)
        service.shutdown()
        thread.join()


if __name__ == "__main__":
    main()
