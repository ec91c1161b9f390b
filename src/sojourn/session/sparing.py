"""The number of spare workers that are kept ready for plain sessions: `warm_up(spares=1)`."""

from __future__ import annotations

from sojourn.process.spares import standing
from sojourn.session.devices import without_gpu
from sojourn.session.ending import open_stays
from sojourn.session.states import State
from sojourn.values import arguments


def keep_spares(count: int, *, wait: bool) -> None:
    """Keep so many spare workers from now on. When this returns, surplus ones have ended; with
    `wait`, missing ones are ready."""
    arguments.whole("spares", count, 0)
    maker = standing.keep(count, without_gpu(), _is_quiet)
    if maker is not None and (wait or count == 0):
        maker.join()


def _is_quiet() -> bool:
    return not any(stay.lifecycle.state is State.OPENING for stay in list(open_stays))
