"""The process of `sojourn serve --cluster`, from its start to its end."""

from __future__ import annotations

import contextlib
import logging
import signal

from sojourn.cluster.connecting import connect
from sojourn.cluster.orders import Settings
from sojourn.cluster.serving.fronts import Fronts
from sojourn.errors import SojournError
from sojourn.service import notices
from sojourn.service.config_changes import changes, unchanged
from sojourn.service.daemon import Daemon, Serving
from sojourn.values import arguments

_log = logging.getLogger("sojourn.service")
_SIGNALS = {"drain": signal.SIGTERM, "reload": signal.SIGHUP}


class ClusterDaemon(Daemon):
    """A daemon with the same command and signals, whose servers run elsewhere: one on each node."""

    def _make_server(self, stack: contextlib.ExitStack) -> Serving:
        given = self._config.settings
        memory = None if given.memory is None else arguments.memory("memory", given.memory)
        stack.enter_context(
            connect(given.cluster, memory=memory, logging_level=logging.ERROR, log_to_driver=False)
        )
        self._catch_signals()  # Ray replaces our handlers when it connects
        wish = self._wishes.put
        self._fronts = Fronts(
            self._config, self._tokens, Settings(memory), lambda what: wish(_SIGNALS[what])
        )
        stack.callback(self._fronts.close)
        self._give_up = self._fronts.give_up
        return self._fronts

    def _reload_now(self) -> None:
        try:
            config, entries, known = self._read_again()
        except (SojournError, ValueError, OSError) as error:
            lines = unchanged(error)
            for line in lines:
                _log.error("%s", line)
            self._fronts.tell_reloaded(lines)
            notices.tell_systemd("READY=1")
            return
        lines = str(changes(self._config, config, self._entries, entries)).splitlines()
        self._config, self._entries, self._tokens = config, entries, known
        for line in lines:
            _log.info("reload: %s", line)
        self._fronts.reload(config, known, lines)
        notices.tell_systemd("READY=1")
