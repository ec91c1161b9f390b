"""Load from outside: wrk for HTTP, h2load for gRPC. Each run is bounded in time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from environments import NotMeasured
from running import Running
from workload import BODIES, Body


@dataclass(frozen=True)
class Measured:
    """One run: requests per second, and times in seconds."""

    rate: float
    p50: float
    p99: float
    failed: int


def load(
    target: Running, protocol: str, connections: int, seconds: float, path: str | None = None
) -> Measured:
    """Load with this many connections for this long, each with one request in flight at a time."""
    tool = "h2load" if protocol == "grpc" else "wrk"
    if shutil.which(tool) is None:
        raise NotMeasured(f"{tool} is not installed")
    body = BODIES[protocol]()
    path = path or target.system.paths[protocol]
    if protocol == "grpc":
        return _h2load(f"http://127.0.0.1:{target.grpc}{path}", body, connections, seconds)
    return _wrk(f"http://127.0.0.1:{target.http}{path}", body, connections, seconds)


def _wrk(url: str, body: Body, connections: int, seconds: float) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        content, script = Path(folder, "body"), Path(folder, "post.lua")
        content.write_bytes(body.content)
        headers = "\n".join(
            f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
            for name, value in body.headers.items()
        )
        script.write_text(
            f"""wrk.method = "POST"
            local file = io.open({json.dumps(str(content))}, "rb")
            wrk.body = file:read("*a")
            file:close()
            {headers}
            function done(summary, latency, requests)
              local e = summary.errors
              io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests,
                summary.duration, latency:percentile(50), latency:percentile(99),
                e.connect + e.read + e.write + e.status + e.timeout))
            end
            """
        )
        length = f"-d{max(1, round(seconds))}s"
        command = ["wrk", "-t1", f"-c{connections}", length, "--timeout", "10s"]
        told = _run([*command, "-s", str(script), url], seconds)
    match = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", told)
    if match is None:
        raise NotMeasured(f"wrk says {told[-200:]!r}")
    requests, microseconds, p50, p99, failed = map(int, match.groups())
    return Measured(requests / (microseconds / 1e6), p50 / 1e6, p99 / 1e6, failed)


def _h2load(url: str, body: Body, connections: int, seconds: float) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        content, log = Path(folder, "body"), Path(folder, "log")
        content.write_bytes(body.content)
        headers = [part for k, v in body.headers.items() for part in ("-H", f"{k}: {v}")]
        length = str(max(1, round(seconds)))
        command = ["h2load", "-t1", f"-c{connections}", "-m1", "-D", length, "-d", str(content)]
        told = _run([*command, *headers, f"--log-file={log}", url], seconds)
        times = sorted(
            int(line.split("\t")[2]) / 1e6 for line in log.read_text().splitlines() if line
        )
    rate = re.search(r"([\d.]+) req/s", told)
    failed = re.search(r"(\d+) failed", told)
    if rate is None or failed is None or not times:
        raise NotMeasured(f"h2load says {told[-200:]!r}")
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    return Measured(float(rate[1]), p50, p99, int(failed[1]))


def _run(command: list[str], seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 3 + 60)
    if done.returncode:
        raise NotMeasured(f"{command[0]} failed: {(done.stderr or done.stdout)[-200:]}")
    return done.stdout
