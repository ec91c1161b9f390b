"""Log records of a worker: sent to its client, and handled as if the client had logged them.

Records travel in the worker's standard error, in frames that cannot be mistaken for text. So they
keep their order relative to printed text and need no thread. The worker logs at the levels that
its client had when the worker was started.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from typing import Any

import msgspec

from sojourn import program

_BEGIN, _END = b"\0sojourn-log:", b"\0"  # JSON text contains no NUL bytes
_FRAME = re.compile(re.escape(_BEGIN) + b"([^\0]*)" + _END)
_PLAIN = (str, int, float, bool, type(None))
_formatter = logging.Formatter()


class LogSettings(msgspec.Struct, frozen=True):
    """How the client logs: the levels of its loggers, and whether logging is set up."""

    levels: dict[str, int]
    disabled: int
    has_handlers: bool

    @classmethod
    def here(cls) -> LogSettings:
        manager = logging.root.manager
        levels = {
            name: logger.level
            for name, logger in list(manager.loggerDict.items())
            if isinstance(logger, logging.Logger) and logger.level
        }
        return cls({**levels, "": logging.root.level}, manager.disable, bool(logging.root.handlers))

    def take_on(self) -> None:
        """Send log records to the client from now on. Called in the worker."""
        for logger in logging.root.manager.loggerDict.values():
            for handler in getattr(logger, "handlers", []):
                if type(handler) is logging.StreamHandler:  # TensorFlow adds one for lack of others
                    logger.removeHandler(handler)  # type: ignore[union-attr]
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        logging.disable(self.disabled)
        forwarder = _Forwarder(os.dup(2))
        logging.root.addHandler(forwarder)
        if not self.has_handlers:
            _let_basic_config_replace(forwarder)


def _let_basic_config_replace(forwarder: logging.Handler) -> None:
    # `basicConfig` does nothing if a handler exists. Here our forwarder is one, although the
    # client has none: so the forwarder makes way for the handlers of the call.
    basic_config = logging.basicConfig

    def replacing(**options: Any) -> None:
        logging.root.removeHandler(forwarder)
        basic_config(**options)

    logging.basicConfig = replacing


class _Forwarder(logging.Handler):
    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def emit(self, record: logging.LogRecord) -> None:
        try:
            frame = _BEGIN + _encoded(record) + _END
            program.flush()  # text printed before the record must precede it
            os.write(self._fd, frame)
        except Exception:
            self.handleError(record)


def _encoded(record: logging.LogRecord) -> bytes:
    facts = {name: value for name, value in vars(record).items() if isinstance(value, _PLAIN)}
    facts.update(msg=record.getMessage(), args=None)
    if record.exc_info and not record.exc_text:
        facts["exc_text"] = _formatter.formatException(record.exc_info)
    return msgspec.json.encode({name: _sendable(value) for name, value in facts.items()})


def _sendable(value: Any) -> Any:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


# -- in the client -----------------------------------------------------------------------------


def separate(data: bytes) -> tuple[bytes, list[logging.LogRecord], bytes]:
    """Split data into printed bytes, log records, and the beginning of an incomplete record."""
    records = [record for frame in _FRAME.findall(data) if (record := _decoded(frame)) is not None]
    printed = _FRAME.sub(b"", data)
    start = printed.rfind(_BEGIN[:1])
    is_begun = start >= 0 and _BEGIN.startswith(printed[start : start + len(_BEGIN)])
    if not is_begun:
        return printed, records, b""
    return printed[:start], records, printed[start:]


def readable(data: bytes) -> bytes:
    """Replace the records in the data by lines of text, for last words."""

    def line(frame: re.Match[bytes]) -> bytes:
        record = _decoded(frame[1])
        if record is None:
            return b""
        return f"{record.levelname}:{record.name}:{record.getMessage()}\n".encode()

    return _FRAME.sub(line, data)


def handle(records: list[logging.LogRecord]) -> None:
    """Pass the records to the handlers of this process. Their errors never reach the caller."""
    for record in records:
        try:
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        except Exception:
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


def _decoded(frame: bytes) -> logging.LogRecord | None:
    try:
        record = logging.makeLogRecord(msgspec.json.decode(frame, type=dict[str, Any]))
        return record if isinstance(record.levelno, int) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
