"""What may be true of each session at one point of a program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# A session may have several of these conditions at once where paths meet.
OPEN = 1
CLOSED = 2
TAKEN = 4  # owned by other code now
LENT = 8  # passed to code that cannot be seen, and not used by its owner since


@dataclass(eq=False)
class Site:
    """A call that opens a session."""

    call: ast.Call
    kind: str  # "tensorflow.Session", or "make_session()" for a factory of the file
    names: set[str] = field(default_factory=set)
    ever: int = 0  # every condition it was in on any path
    attributes: set[str] = field(default_factory=set)  # self.X, or a class attribute
    globals: set[str] = field(default_factory=set)
    # The attribute and the object of `model.sess = tf.Session()`.
    elsewhere: set[tuple[str, str]] = field(default_factory=set)
    holders: set[str] = field(default_factory=set)  # attributes whose objects received it
    is_lent: bool = False
    is_stored: bool = False  # put into a list, a dict or a tuple that cannot be followed
    is_given_away: bool = False  # handed over to other code in another way


Values = frozenset[Site | None]  # None: something that is not a session opened here
UNKNOWN: Values = frozenset({None})
NOTHING: Values = frozenset()


def sites_in(values: Values) -> list[Site]:
    """The sessions among some values."""
    return [value for value in values if value is not None]


class PathState:
    """Names and sessions at one point. `alive` is False where control never arrives."""

    __slots__ = ("alive", "bits", "carriers", "names")

    def __init__(self) -> None:
        self.names: dict[str, Values] = {}
        self.bits: dict[Site, int] = {}
        # Objects made from a lent session: ending or handing over one also does so to the session.
        self.carriers: dict[str, frozenset[Site]] = {}
        self.alive = True

    def copy(self) -> PathState:
        other = PathState()
        other.names, other.bits = dict(self.names), dict(self.bits)
        other.carriers, other.alive = dict(self.carriers), self.alive
        return other

    def dead(self) -> PathState:
        """The state after a jump: control never arrives here."""
        other = self.copy()
        other.alive = False
        return other

    def join(self, other: PathState) -> PathState:
        """The state that covers both paths."""
        if not self.alive:
            return other.copy()
        if not other.alive:
            return self.copy()
        merged = self.copy()
        for name in self.names.keys() | other.names.keys():
            mine, theirs = self.names.get(name, UNKNOWN), other.names.get(name, UNKNOWN)
            merged.names[name] = mine | theirs
        for site, bits in other.bits.items():
            merged.bits[site] = merged.bits.get(site, 0) | bits
        for name, carried in other.carriers.items():
            merged.carriers[name] = merged.carriers.get(name, frozenset()) | carried
        return merged

    def is_only(self, values: Values, bits: int) -> bool:
        """Whether all of these values are sessions that are surely in that condition."""
        sites = sites_in(values)
        return bool(sites) and None not in values and all(self.bits[s] == bits for s in sites)

    def set(self, sites: Iterable[Site], bits: int) -> None:
        """Set the condition of a session; if it may be one of several, add it to each."""
        sites = list(sites)
        for site in sites:
            site.ever |= bits
            self.bits[site] = bits if len(sites) == 1 else self.bits.get(site, 0) | bits

    def holders(self, site: Site) -> list[str]:
        """The names that may hold this session."""
        return [name for name, values in self.names.items() if site in values]


def joined(states: Iterable[PathState], empty: PathState) -> PathState:
    """The join of all states; a dead copy of `empty` if there are none."""
    result = empty.dead()
    for state in states:
        result = result.join(state)
    return result


@dataclass
class Exit:
    """A way out of a scope, with the state there."""

    state: PathState
    statement: ast.stmt | None  # None: the end of the scope


@dataclass
class Jumps:
    """The jumps out of a block; the statement that catches a kind of jump empties its list."""

    returns: list[Exit] = field(default_factory=list)
    breaks: list[PathState] = field(default_factory=list)
    continues: list[PathState] = field(default_factory=list)

    def through(self, action: Callable[[PathState], PathState]) -> None:
        """Apply a `finally` or the end of a `with` to every way out."""
        self.returns = [Exit(action(e.state), e.statement) for e in self.returns]
        self.breaks = [action(s) for s in self.breaks]
        self.continues = [action(s) for s in self.continues]

    def absorb(self, other: Jumps) -> None:
        self.returns += other.returns
        self.breaks += other.breaks
        self.continues += other.continues
