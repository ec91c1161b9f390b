"""The systems that are compared: how each one is installed, started, and called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KSERVE = "/v2/models/softmax/infer"


@dataclass(frozen=True, eq=False)
class System:
    """One server. Its script receives its ports, and serves until standard input ends."""

    name: str
    about: str
    script: str
    packages: tuple[str, ...] = ()  # empty: the project's own environment
    paths: Mapping[str, str] = field(default_factory=dict)  # by protocol


CLIENT = ("tritonclient", ("tritonclient[grpc,http]",))  # the client that KServe's users have

SYSTEMS = (
    System(
        "sojourn",
        "`sojourn.Server`, the SavedModel in a worker",
        "ours.py",
        (),
        {
            "kserve-binary": KSERVE,
            "kserve-json": KSERVE,
            "tfserving-json": "/v1/models/softmax:predict",
            "grpc": "/inference.GRPCInferenceService/ModelInfer",
        },
    ),
    System(
        "pytriton",
        "Triton with a Python callable, by numpy",
        "pytriton_server.py",
        ("nvidia-pytriton",),
        {
            "kserve-binary": KSERVE,
            "kserve-json": KSERVE,
            "grpc": "/inference.GRPCInferenceService/ModelInfer",
        },
    ),
    System(
        "MLServer",
        "a custom runtime, by numpy",
        "mlserver_server.py",
        ("mlserver", "setuptools<81"),
        {"kserve-json": KSERVE, "grpc": "/inference.GRPCInferenceService/ModelInfer"},
    ),
    System(
        "LitServe",
        "a LitAPI, by numpy",
        "litserve_server.py",
        ("litserve",),
        {"tfserving-json": "/v1/models/softmax:predict"},
    ),
    System(
        "BentoML",
        "a service, by numpy",
        "bentoml_server.py",
        ("bentoml",),
        {"tfserving-json": "/predict"},
    ),
    System(
        "Ray Serve",
        "a deployment, by numpy",
        "ray_server.py",
        ("ray[serve]",),
        {"tfserving-json": "/"},
    ),
)
