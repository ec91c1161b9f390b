"""A front on every node, each a Ray actor that is owned by the command and ends with it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import msgspec
import ray

from sojourn.cluster.actors import NAMESPACE, RayNodes
from sojourn.cluster.connecting import joined
from sojourn.cluster.orders import Settings
from sojourn.cluster.serving.front import Front
from sojourn.errors import SojournError
from sojourn.service.config import Config
from sojourn.service.log_lines import logging_to
from sojourn.service.tokens import Tokens

_FRONT = "front-"
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_TELL_SECONDS = 120.0
_OUTS_SECONDS = 1.0  # fronts that are starting have nothing to report
_log = logging.getLogger("sojourn.service")


class FrontActor:
    """The front on the node where Ray placed it. Ray restarts it if it dies; then it serves
    nothing until the command sends configuration and tokens, because Ray would only know the
    original ones."""

    def __init__(self, node_id: str, settings: Settings) -> None:
        self._node_id, self._settings = node_id, settings
        self._lock = threading.Lock()
        self._front: Front | None = None
        self._addresses: dict[str, str] = {}

    def serve(self, config: Config, known: Tokens) -> dict[str, str]:
        """Start listening, unless already done; return the addresses."""
        with self._lock:
            if self._front is None:
                with ExitStack() as undo:
                    self._everywhere = joined(self._settings)
                    undo.callback(self._everywhere.close)
                    front = Front(self._everywhere, config, known, self._tell)
                    undo.callback(front.close, 0.0)
                    undo.enter_context(logging_to(config.settings, front.lines))
                    self._addresses = front.start(self._outs())
                    self._undo = undo.pop_all()
                self._front = front
            return self._addresses

    def take_wish(self) -> str:
        """Return what this front or a client requests from the command."""
        return "start" if self._front is None else self._front.take_wish()

    def tell(self, what: str, *given: Any) -> None:
        """Call the front's method of this name, if the front has started."""
        if self._front is not None:
            getattr(self._front, what)(*given)

    def outs(self) -> list[tuple[str, int]]:
        return [] if self._front is None else self._front.outs()

    def close(self, grace_seconds: float) -> None:
        if self._front is not None:
            try:
                self._front.close(grace_seconds)
            finally:
                self._undo.close()

    def _others(self) -> list[Any]:
        found = []
        for node_id in list(self._everywhere._links):
            if node_id != self._node_id:
                try:
                    found.append(ray.get_actor(_FRONT + node_id, NAMESPACE))
                except ValueError:
                    pass  # this node has no front yet, or no longer
        return found

    def _tell(self, what: str, name: str, version: int | None) -> None:
        asked = [other.tell.remote(what, name, version) for other in self._others()]
        for answer in asked:
            try:
                ray.get(answer, timeout=_TELL_SECONDS)
            except ray.exceptions.RayError as error:
                _log.warning("%s of %r on another front: %s", what, name, error)

    def _outs(self) -> list[tuple[str, int]]:
        asked = [other.outs.remote() for other in self._others()]
        found: set[tuple[str, int]] = set()
        if asked:
            for answer in ray.wait(asked, num_returns=len(asked), timeout=_OUTS_SECONDS)[0]:
                with suppress(ray.exceptions.RayError):  # that front is being restarted
                    found.update(ray.get(answer))
        return sorted(found)


class Fronts:
    """All fronts, for as long as the command runs. Nodes that join later get one too."""

    def __init__(
        self, config: Config, known: Tokens, settings: Settings, wish: Callable[[str], None]
    ) -> None:
        self._config, self._known, self._settings = config, known, settings
        self._nodes = RayNodes(settings)
        self._tell_wish = wish
        self._lock = threading.Lock()
        self._fronts: dict[str, tuple[Mapping[str, Any], Any]] = {}  # by node
        self._found: dict[str, dict[str, str]] = {}  # addresses of the fronts that answer
        self._starting: dict[str, tuple[Any, Config, Tokens]] = {}  # by node: its settings
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sojourn-fronts", daemon=True)
        self.addresses: dict[str, str] = {}

    @property
    def where(self) -> str:
        """The addresses, for people."""
        lines = []
        for node, addresses in self.facts["fronts"].items():
            lines.append(f"{' and '.join(addresses.values())} on {node}")
        return "; ".join(lines)

    @property
    def facts(self) -> dict[str, Any]:
        """The addresses, for programs."""
        with self._lock:
            fronts = {
                f"{node['NodeName']}/{node_id[:6]}": self._found[node_id]
                for node_id, (node, _) in self._fronts.items()
                if node_id in self._found
            }
        return {**self.addresses, "fronts": fronts}

    def start(self) -> None:
        """Return when every node has a front. Raises if one cannot be started."""
        self._add_new()
        while self._starting and not self._is_over.is_set():
            waiting = {answer: node_id for node_id, (answer, _, _) in self._starting.items()}
            done, _ = ray.wait(list(waiting), timeout=_LOOK_SECONDS)
            for answer in done:
                self._take_started(waiting[answer], _answer(answer))
        self.addresses.update(self._nearest())
        self._thread.start()

    def give_up(self) -> None:
        """Give up the start."""
        self._is_over.set()

    def close(self, grace_seconds: float | None = None) -> None:
        """Answer the requests under way on all nodes, and end. May be called twice."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        grace = self._config.settings.grace_seconds if grace_seconds is None else grace_seconds
        closing = [front.close.remote(grace) for _, (_, front) in self._all()]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=grace + _ANSWER_SECONDS)
        for _, (_, front) in self._all():
            ray.kill(front, no_restart=True)
        with self._lock:
            self._fronts.clear()

    def reload(self, config: Config, known: Tokens, lines: list[str]) -> None:
        """Apply another configuration on all fronts."""
        self._config, self._known = config, known
        for _, (node, front) in self._all():
            self._ask(front.tell.remote("reload", self._config_of(node), known, lines))

    def tell_reloaded(self, lines: list[str]) -> None:
        for _, (_, front) in self._all():
            self._ask(front.tell.remote("tell_reloaded", lines))

    # -- nodes -------------------------------------------------------------------------------------

    def _all(self) -> list[tuple[str, tuple[Mapping[str, Any], Any]]]:
        with self._lock:
            return list(self._fronts.items())

    def _nearest(self) -> dict[str, str]:
        """Return the addresses of the front on this machine, if one exists."""
        here = socket.gethostname()
        found = [self._found.get(i, {}) for i, (n, _) in self._all() if _machine(n) == here]
        return found[0] if found else {}

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            try:
                self._add_new()
                for node_id, (_, front) in self._all():
                    self._look_at(node_id, front)
            except Exception as error:  # Ray's head may be unavailable for a moment
                _log.warning("the fronts cannot be looked at: %s", error)

    def _look_at(self, node_id: str, front: Any) -> None:
        if node_id in self._starting:
            answer = self._starting[node_id][0]
            if not ray.wait([answer], timeout=0)[0]:
                return
            try:
                found = _answer(answer)
            except Exception as error:
                _log.warning("a front cannot be started: %s", error)
                del self._starting[node_id]
                return
            _log.info("a front has started: serving at %s", " and ".join(found.values()))
            self._take_started(node_id, found)
        wish = self._ask(front.take_wish.remote())
        if wish == "start":  # Ray has restarted it
            self._begin(node_id)
        elif wish:
            self._tell_wish(wish)

    def _add_new(self) -> None:
        alive = self._nodes.alive()
        with self._lock:
            for node_id in [node for node in self._fronts if node not in alive]:
                del self._fronts[node_id]
                self._found.pop(node_id, None)
                self._starting.pop(node_id, None)
            for node_id, node in alive.items():
                if node_id not in self._fronts:
                    self._fronts[node_id] = node, self._new(node)
                    self._begin(node_id)

    def _begin(self, node_id: str) -> None:
        """Start a front with the current configuration and tokens."""
        node, front = self._fronts[node_id]
        config, known = self._config, self._known  # read first: newer ones are sent later
        asked = front.serve.remote(self._config_of(node), known)
        self._starting[node_id] = asked, config, known

    def _take_started(self, node_id: str, found: dict[str, str]) -> None:
        _, config, known = self._starting.pop(node_id)
        self._found[node_id] = found
        if (config, known) != (self._config, self._known):  # it missed a reload during its start
            node, front = self._fronts[node_id]
            self._ask(front.tell.remote("reload", self._config_of(node), self._known, []))

    def _new(self, node: Mapping[str, Any]) -> Any:
        node_id = node["NodeID"]
        remote = ray.remote(FrontActor).options(
            name=_FRONT + node_id,
            namespace=NAMESPACE,
            num_cpus=0,
            label_selector={"ray.io/node-id": node_id},
            max_restarts=-1,
            max_concurrency=16,
        )
        return remote.remote(node_id, self._settings)

    def _config_of(self, node: Mapping[str, Any]) -> Config:
        """Return the settings of this node's front. Of several fronts on one machine, the first has
        the addresses and files of the configuration; the others pick free ports."""
        for node_id, (other, _) in self._fronts.items():
            if node_id == node["NodeID"]:
                break
            if _machine(other) == _machine(node):
                return _beside(self._config)
        return self._config

    def _ask(self, answer: Any) -> Any:
        """Return a front's answer; None if it does not answer: Ray restarts it."""
        try:
            return ray.get(answer, timeout=_ANSWER_SECONDS)
        except Exception as error:
            _log.debug("a front does not answer: %s", error)
            return None


def _machine(node: Mapping[str, Any]) -> str:
    name: str = node["NodeManagerHostname"]
    return name


def _answer(answer: Any) -> Any:
    try:
        return ray.get(answer)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        raise cause or SojournError(f"a front could not be started: {error}") from None


def _beside(config: Config) -> Config:
    settings = config.settings
    admin = settings.admin if settings.admin in ("on", "off") else _any_port(settings.admin)
    beside = msgspec.structs.replace(
        settings,
        http=_any_port(settings.http),
        grpc=_any_port(settings.grpc),
        admin=admin,
        history=None,
    )
    return Config(beside, config.models, config.folders, config.defaults, config.file)


def _any_port(address: str) -> str:
    if not address or address.startswith("unix:"):
        return ""
    return f"{address.rpartition(':')[0]}:0"
