"""A click command whose last arguments are a program and everything that belongs to it."""

from __future__ import annotations

import click


class ProgramCommand(click.Command):
    """Options stop at the program, or after `-m module`, as they do for `python` itself."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._split(ctx, list(args)))

    def _split(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        at = 0
        while at < len(args):
            token = args[at]
            if token == "--" or not token.startswith("-"):
                break
            if token == "-m":
                return [*args[: at + 2], "--", *args[at + 2 :]]
            at += 2 if token in takes_value else 1
        else:
            return args
        if args[at] == "--":
            return args
        return [*args[:at], "--", *args[at:]]
