"""How many spare workers plain sessions have ready: what `warm_up(spares=1)` asks for."""

from __future__ import annotations

from sojourn.process.spares import standing
from sojourn.session.devices import without_gpu
from sojourn.session.ending import open_stays
from sojourn.session.states import State
from sojourn.values import arguments


def keep_spares(count: int, *, wait: bool) -> None:
    """Have so many from now on. Those that are too many have ended when this returns; with `wait`,
    those that were missing are ready."""
    arguments.whole("spares", count, 0)
    maker = standing.keep(count, without_gpu(), _is_quiet)
    if maker is not None and (wait or count == 0):
        maker.join()


def _is_quiet() -> bool:
    return not any(stay.lifecycle.state is State.OPENING for stay in list(open_stays))
