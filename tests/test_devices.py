"""Which device a session goes to, what it holds there, and where its ops ran.

No GPU is at hand: the driver's side is a stand-in at NVML's own interface, and placement on more
than one device is tried with two CPU devices.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn.functions.options import Options
from sojourn.kinds import Load
from sojourn.probes import gpu
from sojourn.probes.gpu import Gpu
from sojourn.session import devices, opening
from sojourn.session.devices import choose, everything
from sojourn.session.listing import Lister
from stand_in_nvml import GIB, Device, StandIn

A = Gpu("GPU-aaaa", "A100", 40 * GIB, 10 * GIB)
B = Gpu("GPU-bbbb", "A100", 40 * GIB, 30 * GIB)
UNKNOWN = Gpu("GPU-cccc", "T4")


# -- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found", "visible", "label", "uuid"),
    [
        ("cpu", (A, B), None, "cpu", None),
        ("auto", (), None, "cpu", None),
        ("auto", (A, B), None, "gpu:1", B.uuid),  # the one with more room
        ("auto", (A, B), "0", "gpu:0", A.uuid),
        ("auto", (A, B), "-1", "cpu", None),
        ("auto", (A, B), "", "cpu", None),
        ("auto", (UNKNOWN,), None, "gpu:0", UNKNOWN.uuid),
        ("gpu", (A, B), None, "gpu:1", B.uuid),
        ("GPU:0", (A, B), None, "gpu:0", A.uuid),
        ("gpu:0", (A, B), "1,0", "gpu:0", B.uuid),  # numbers count what is visible
        ("gpu:1", (A, B), "GPU-bb,GPU-aa", "gpu:1", A.uuid),
        ("gpu:GPU-aaaa", (A, B), None, "gpu:0", A.uuid),
        ("gpu:bb", (A, B), None, "gpu:1", B.uuid),
    ],
)
def test_the_device_that_fits_is_chosen(wanted, found, visible, label, uuid):
    choice = choose(wanted, found, visible)
    assert choice.label == label
    assert choice.environment["CUDA_VISIBLE_DEVICES"] == (uuid or "-1")
    assert not choice.warning


@pytest.mark.parametrize(
    ("wanted", "found", "visible", "told"),
    [
        ("gpu", (), None, "no 'gpu' here: no GPU was found, only the CPU"),
        ("gpu:2", (A, B), None, r"no 'gpu:2' here: found gpu:0 A100 \(GPU-aaaa, 10 GiB free\)"),
        ("gpu:ffff", (A, B), None, "no 'gpu:ffff' here: found gpu:0"),
        ("gpu:GPU-", (A, B), None, "more than one matches"),
        ("gpu", (A,), "-1", "CUDA_VISIBLE_DEVICES='-1' hides them"),
    ],
)
def test_a_gpu_that_is_not_there_is_an_error_that_says_what_was_found(wanted, found, visible, told):
    with pytest.raises(sojourn.DeviceError, match=told):
        choose(wanted, found, visible)


def test_auto_falls_back_to_the_cpu_with_the_numbers_when_no_gpu_has_room():
    choice = choose("auto", (A, B), None, needed_bytes=35 * GIB)
    assert choice.label == "cpu"
    assert "no GPU has 35 GiB free" in choice.warning
    assert "gpu:1 A100 (GPU-bbbb, 30 GiB free)" in choice.warning


# -- the driver's account --------------------------------------------------------------------------


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn(Device("GPU-aaaa", free=10 * GIB), Device("GPU-bbbb"))
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(opening, "_warned", set())
    gpu.forget()
    yield stand_in
    gpu.forget()


def test_devices_are_found_with_their_bytes(nvml):
    assert [(g.uuid, g.name, g.free_bytes) for g in gpu.found()] == [
        ("GPU-aaaa", "NVIDIA A100", 10 * GIB),
        ("GPU-bbbb", "NVIDIA A100", 30 * GIB),
    ]
    gpu.found()
    assert nvml.initialised == 1


def test_a_lost_device_hides_no_other(nvml):
    nvml.devices[0].is_lost = True
    nvml.devices[1].processes[7] = GIB
    assert [g.uuid for g in gpu.found()] == ["GPU-bbbb"]
    assert gpu.held_by({7}) == {"GPU-bbbb": GIB}


def test_bytes_are_counted_by_process_and_uuid(nvml):
    nvml.devices[0].processes.update({7: GIB, 8: 2 * GIB, 9: None})
    nvml.devices[1].processes[7] = 5
    assert gpu.held_by({7}) == {"GPU-aaaa": GIB, "GPU-bbbb": 5}
    assert gpu.held_by({7, 8, 9}) == {"GPU-aaaa": 3 * GIB, "GPU-bbbb": 5}
    assert gpu.held_by({9}) == {}  # the driver does not say how much: no claim


def test_bytes_are_waited_for_but_not_for_ever(nvml):
    device = nvml.devices[0]
    device.processes[7] = GIB
    assert gpu.wait_until_back({7}, seconds=0) == {"GPU-aaaa": GIB}
    answer = nvml.nvmlDeviceGetComputeRunningProcesses

    def later(handle: Device) -> Any:
        if nvml.readings > 6:
            device.processes.clear()
        return answer(handle)

    nvml.nvmlDeviceGetComputeRunningProcesses = later
    assert gpu.wait_until_back({7}, seconds=60) == {}


def test_without_a_driver_there_is_no_gpu_and_no_warning():
    gpu.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gpu.found() == ()
        assert gpu.held_by({os.getpid()}) == {}


# -- sessions --------------------------------------------------------------------------------------


def test_an_explicit_gpu_is_an_error_where_there_is_none(zygote):
    with pytest.raises(sojourn.DeviceError, match="no GPU was found"):
        sojourn.open(models.softmax_regression, device="gpu")


def test_a_gpu_that_tensorflow_cannot_use_is_an_error_if_asked_for(zygote, nvml):
    with pytest.raises(sojourn.DeviceError, match="TensorFlow cannot use 'gpu:1': it sees CPU:0"):
        sojourn.open(models.softmax_regression, device="gpu:1")


def test_auto_goes_to_the_cpu_with_one_warning_if_tensorflow_cannot_use_the_gpu(zygote, nvml):
    with pytest.warns(RuntimeWarning, match="TensorFlow does not use it"):
        session = sojourn.open(models.softmax_regression)
    with session:
        assert session.placement == {"CPU:0": 0}
        assert "on cpu" in repr(session)
        assert {s.worker_pid: s.device for s in Lister().list()}[session.pid] == "cpu"
    with sojourn.open(models.softmax_regression):
        pass  # no second warning, which would be an error here


def test_auto_warns_once_when_the_gpus_are_full(zygote, nvml):
    for device in nvml.devices:
        device.free = 1000
    with pytest.warns(RuntimeWarning, match="no GPU has 512 MiB free"):
        session = sojourn.open(models.softmax_regression)
    session.close()
    with sojourn.open(models.softmax_regression) as session:
        assert "on cpu" in repr(session)


@pytest.fixture
def on_gpu(zygote: None, nvml: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """As if the worker's TensorFlow could use the devices of the stand-in."""
    monkeypatch.setattr(opening, "_tell_if_on_cpu", lambda stay: None)
    return nvml


def test_the_receipt_tells_the_bytes_of_the_device(on_gpu):
    with sojourn.open(models.softmax_regression) as session:
        device = on_gpu.devices[1]
        device.processes.update({session.pid: GIB, 1: 7 * GIB})
        held = session.footprint()
        assert held.device_bytes == {"GPU-bbbb": GIB}
        assert held.held_bytes == held.host_bytes + GIB
        answer = on_gpu.nvmlDeviceGetComputeRunningProcesses
        readings = on_gpu.readings

        def later(handle: Device) -> Any:
            if on_gpu.readings > readings + 8:  # the driver takes its time
                device.processes.pop(session.pid, None)
            return answer(handle)

        on_gpu.nvmlDeviceGetComputeRunningProcesses = later
    receipt = session.receipt
    assert receipt.clean
    assert receipt.held_on_device == receipt.returned_on_device == {"GPU-bbbb": GIB}
    assert "1.0 GiB of 1.0 GiB on GPU-bbbb" in str(receipt)


def test_the_receipt_says_what_the_driver_does_not_give_back(on_gpu, monkeypatch):
    monkeypatch.setattr(gpu, "wait_until_back", lambda pids: gpu.held_by(pids))
    with sojourn.open(models.softmax_regression) as session:
        on_gpu.devices[1].processes[session.pid] = GIB
    assert not session.receipt.clean
    assert session.receipt.residue.device_bytes == {"GPU-bbbb": GIB}
    assert session.receipt.returned_on_device == {"GPU-bbbb": 0}
    assert "left behind: 1.0 GiB on GPU-bbbb" in str(session.receipt)


def test_a_worker_sees_only_its_device(zygote, on_gpu):
    def build() -> Any:
        import os

        import numpy as np

        return lambda: np.array(os.environ.get("CUDA_VISIBLE_DEVICES"), object)

    with sojourn.open(build, device="cpu") as session:
        assert session() == b"-1"
    with sojourn.open(build) as session:
        assert session() == b"GPU-bbbb"


# -- functions -------------------------------------------------------------------------------------


def seen() -> tuple[str | None, str | None]:
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")


@pytest.fixture
def worker_sees_gpus(nvml, monkeypatch):
    """As if the worker's TensorFlow could use the devices of the stand-in."""
    monkeypatch.setattr(Options, "engine_arguments", lambda options: Load(kind="calling"))


@pytest.mark.usefixtures("zygote", "worker_sees_gpus")
@pytest.mark.parametrize("device", ["gpu", "gpu:0", "GPU:1", "gpu:GPU-aaaa", "gpu:bb"])
def test_a_function_and_a_session_mean_the_same_gpu_by_the_same_name(device):
    expected = choose(device, gpu.found())
    assert sojourn.isolated(seen, device=device)() == (expected.gpu.uuid, "PCI_BUS_ID")


@pytest.mark.usefixtures("zygote", "worker_sees_gpus")
def test_numbers_count_what_this_process_sees_for_functions_too(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert sojourn.isolated(seen, device="gpu:0")()[0] == "GPU-bbbb"
    with pytest.raises(sojourn.DeviceError, match=r"no 'gpu:1' here: found gpu:0 .*GPU-bbbb"):
        sojourn.isolated(seen, device="gpu:1")()


@pytest.mark.usefixtures("zygote")
def test_a_function_sees_what_this_process_sees_unless_told_otherwise(nvml, monkeypatch):
    assert sojourn.isolated(seen)() == (None, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert sojourn.isolated(seen)() == ("1,0", None)
    assert sojourn.isolated(seen, device="cpu")()[0] == "-1"


def test_what_a_function_may_use_is_given_by_number():
    assert everything((A, B)).label == "gpu:0,1"
    assert everything((A, B), "1").label == "gpu:0"
    assert everything((A, B), "1,0", only="1").label == "gpu:1"
    assert everything((A, B), "-1").label == "cpu"
    assert everything(()).label == "cpu"
    assert everything((A, B)).on_gpu
    assert not everything(()).on_gpu


@pytest.mark.usefixtures("zygote")
def test_the_receipt_of_a_function_tells_the_bytes_of_devices(nvml, monkeypatch):
    @sojourn.isolated
    def allocate() -> Iterator[int]:
        yield os.getpid()

    stream = allocate()
    nvml.devices[0].processes[next(stream)] = GIB
    answer = nvml.nvmlDeviceGetComputeRunningProcesses
    readings = nvml.readings

    def later(handle: Device) -> Any:
        if nvml.readings > readings + 8:  # the driver takes its time
            nvml.devices[0].processes.clear()
        return answer(handle)

    nvml.nvmlDeviceGetComputeRunningProcesses = later
    assert list(stream) == []
    assert allocate.receipt.clean
    assert allocate.receipt.held_on_device == {"GPU-aaaa": GIB}
    assert allocate.receipt.returned_on_device == {"GPU-aaaa": GIB}
    monkeypatch.setattr(gpu, "wait_until_back", lambda pids: gpu.held_by(pids))
    stream = allocate()
    nvml.devices[0].processes[next(stream)] = GIB
    nvml.nvmlDeviceGetComputeRunningProcesses = answer
    stream.close()
    assert allocate.receipt.residue.device_bytes == {"GPU-aaaa": GIB}


def test_a_graph_that_asks_for_a_gpu_runs_without_one(zygote):
    def build() -> Any:
        import tensorflow as tf

        with tf.device("/GPU:0"):
            x = tf.compat.v1.placeholder(tf.float32, [], name="x")
            return {"x": x}, {"y": x * 2}

    with sojourn.open(build) as session:
        assert session(x=3) == 6
        assert list(session.placement) == ["CPU:0"]
        assert session.placement["CPU:0"] > 0


def test_placement_counts_the_ops_of_each_device(zygote):
    def build() -> Any:
        import tensorflow as tf

        from sojourn.engines import tensorflow as engine

        usual = engine.session_config

        def two_devices(gpu_bytes: int | None = None) -> Any:
            config = usual(gpu_bytes)
            config.device_count["CPU"] = 2
            return config

        engine.session_config = two_devices
        x = tf.compat.v1.placeholder(tf.float32, [4, 4], name="x")
        with tf.device("/CPU:1"):
            y = tf.matmul(x, x)
        return {"x": x}, {"y": y, "z": x + 1}

    with sojourn.open(build) as session:
        assert session.placement == {"CPU:0": 0, "CPU:1": 0}
        session.run("z", {"x": np.ones((4, 4))})
        assert session.placement["CPU:1"] == 0
        first = session.run("y", {"x": np.ones((4, 4))})
        placement = session.placement
        assert placement["CPU:0"] > 0
        assert placement["CPU:1"] > 0
        np.testing.assert_array_equal(session.run("y", {"x": np.ones((4, 4))}), first)
        assert session.placement == placement  # only the first run is looked at


def test_the_limit_of_memory_reaches_the_gpus_session():
    # What TensorFlow is told, seen in a worker: there is no device to try it on.
    def build() -> Any:
        import numpy as np

        from sojourn.engines.tensorflow import session_config
        from sojourn.kinds import Load

        options = session_config(Load(kind="builder", gpu_bytes=3 * 2**30)).gpu_options
        limit = options.experimental.virtual_devices[0].memory_limit_mb[0]
        return lambda: np.array([limit, options.allow_growth])

    with sojourn.open(build) as session:
        assert session().tolist() == [3072, 1]


def test_the_choice_is_pure():
    assert not {"os", "subprocess", "pynvml"} & set(vars(devices))


def test_the_example_tells_where_ops_ran(zygote, capsys):
    example = Path(__file__).parent.parent / "examples" / "device_placement.py"
    runpy.run_path(str(example), run_name="__main__")
    shown = capsys.readouterr().out
    assert "42.0" in shown
    assert "{'CPU:0': True}" in shown
    assert "there is no 'gpu:99' here" in shown
