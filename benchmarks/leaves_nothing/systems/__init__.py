"""The systems that are scored, in the order of the table."""

ADDRESSES = (
    "systems.ours:Isolated",
    "systems.ours:Inline",
    "systems.in_process:RawTensorFlow",
    "systems.in_process:KerasClearSession",
    "systems.in_process:OnnxRuntime",
    "systems.processes:Spawn",
    "systems.processes:Loky",
    "systems.servers:GrpcSession",
    "systems.servers:RayActor",
)
BASELINE = "systems.in_process:RawTensorFlow"
