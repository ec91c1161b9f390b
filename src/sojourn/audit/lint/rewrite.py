"""Carries out one plan on the concrete syntax tree. Imported only by `fix`, on demand."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from sojourn.audit.lint.plan import ClosingPlan, Form


def carry_out(source: bytes, plan: ClosingPlan) -> bytes | None:
    """The file with the plan carried out, or None if the statement's layout leaves no room for it
    (for example, if it is on one line with its `if`)."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    rewriter = _Rewriter(plan)
    module = wrapper.visit(rewriter)
    if not rewriter.done:
        return None
    needed = {Form.AT_EXIT: "atexit", Form.WITH_OWNER: "weakref"}.get(plan.form)
    if needed is not None:
        module = _with_import(module, needed)
    return module.bytes


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, plan: ClosingPlan) -> None:
        super().__init__()
        self.plan = plan
        self.done = False

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.BaseSuite:
        body = self._rewritten(original_node.body, updated_node.body)
        return updated_node if body is None else updated_node.with_changes(body=body)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body = self._rewritten(original_node.body, updated_node.body)
        return updated_node if body is None else updated_node.with_changes(body=body)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        if self.plan.form is not Form.ENTER or self._line(original_node) != self.plan.line:
            return updated_node
        items = list(updated_node.items)
        item = items[self.plan.position]
        call = item.item
        if not (isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute)):
            return updated_node
        items[self.plan.position] = item.with_changes(item=call.func.value)
        self.done = True
        return updated_node.with_changes(items=items)

    def _line(self, node: cst.CSTNode) -> int:
        position = self.get_metadata(PositionProvider, node)
        assert isinstance(position, cst.metadata.CodeRange)
        return position.start.line

    def _rewritten(
        self,
        original: Sequence[cst.BaseStatement],
        updated: Sequence[cst.BaseStatement],
    ) -> list[cst.BaseStatement] | None:
        if self.done or self.plan.form is Form.ENTER:
            return None
        for index, statement in enumerate(original):
            if not isinstance(statement, cst.SimpleStatementLine):
                continue
            if self._line(statement) == self.plan.line:
                last = index
                while last + 1 < len(original):
                    if self._line(original[last + 1]) > self.plan.last_line:
                        break
                    last += 1
                line = updated[index]
                assert isinstance(line, cst.SimpleStatementLine)
                new = self._replace(line, list(updated[index + 1 : last + 1]))
                if new is None:
                    return None
                self.done = True
                return [*updated[:index], *new, *updated[last + 1 :]]
        return None

    def _replace(
        self, line: cst.SimpleStatementLine, tail: list[cst.BaseStatement]
    ) -> list[cst.BaseStatement] | None:
        position = self.plan.position
        before, small, after = line.body[:position], line.body[position], line.body[position + 1 :]
        shared = bool(before or after)
        leading = line.leading_lines
        result: list[cst.BaseStatement] = []
        if before:
            result.append(_line_of(before, leading))
            leading = ()
        if after:
            tail = [_line_of(after, (), line.trailing_whitespace), *tail]
        comment = cst.TrailingWhitespace() if shared and after else line.trailing_whitespace
        new = self._formed(small, tail, leading, comment)
        return None if new is None else [*result, *new]

    def _formed(
        self,
        small: cst.BaseSmallStatement,
        tail: list[cst.BaseStatement],
        leading: Sequence[cst.EmptyLine],
        comment: cst.TrailingWhitespace,
    ) -> list[cst.BaseStatement] | None:
        form, name = self.plan.form, self.plan.name
        opening = cst.SimpleStatementLine([_alone(small)], leading, comment)
        if form is Form.INLINE:
            replaced = _Named(name)
            inner = small.visit(replaced)
            if replaced.call is None or not isinstance(inner, cst.BaseSmallStatement):
                return None
            body: list[cst.BaseStatement] = [
                cst.SimpleStatementLine([_alone(inner)], (), comment),
            ]
            return [_with(replaced.call, name, body, leading, cst.TrailingWhitespace()), *tail]
        call = _value(small)
        if call is None:
            return None
        if form is Form.WITH:
            if self.plan.renames_interactive:
                func = call.func
                if not isinstance(func, cst.Attribute):
                    return None
                call = call.with_changes(func=func.with_changes(attr=cst.Name("Session")))
            return [_with(call, name, _opened_up(tail), leading, comment)]
        if form is Form.FINALLY:
            closing = cst.parse_statement(f"{name}.close()")
            block = cst.Try(
                body=cst.IndentedBlock(_opened_up(tail)),
                finalbody=cst.Finally(cst.IndentedBlock([closing])),
            )
            return [opening, block]
        if form is Form.WITH_OWNER:
            owner = name.partition(".")[0]
            return [
                opening,
                cst.parse_statement(f"weakref.finalize({owner}, {name}.close)"),
                *tail,
            ]
        if name:
            return [opening, cst.parse_statement(f"atexit.register({name}.close)"), *tail]
        bound = cst.Attribute(call, cst.Name("close"))
        register = cst.Call(
            cst.Attribute(cst.Name("atexit"), cst.Name("register")), [cst.Arg(bound)]
        )
        return [cst.SimpleStatementLine([cst.Expr(register)], leading, comment), *tail]


class _Named(cst.CSTTransformer):
    """Replaces the call that opens the session by a name, and stores the call."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.call: cst.Call | None = None

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = updated_node.func
        last = func.attr.value if isinstance(func, cst.Attribute) else getattr(func, "value", "")
        if self.call is None and (last == "Session" or self._is_alias(func)):
            self.call = updated_node
            return cst.Name(self.name)
        return updated_node

    def _is_alias(self, func: cst.BaseExpression) -> bool:
        return isinstance(func, cst.Name) and func.value.endswith("Session")


def _with(
    call: cst.BaseExpression,
    name: str,
    body: list[cst.BaseStatement],
    leading: Sequence[cst.EmptyLine],
    comment: cst.TrailingWhitespace,
) -> cst.With:
    asname = cst.AsName(cst.Name(name)) if name else None
    block = cst.IndentedBlock(body, header=comment)
    return cst.With(items=[cst.WithItem(call, asname)], body=block, leading_lines=leading)


def _opened_up(tail: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """The statements as a block: never empty, and without empty lines at its top."""
    if not tail:
        return [cst.SimpleStatementLine([cst.Pass()])]
    first = tail[0]
    lines = list(getattr(first, "leading_lines", ()))
    while lines and lines[0].comment is None:
        lines.pop(0)
    return [first.with_changes(leading_lines=lines), *tail[1:]]


def _alone(small: cst.BaseSmallStatement) -> cst.BaseSmallStatement:
    return small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)


def _line_of(
    parts: Sequence[cst.BaseSmallStatement],
    leading: Sequence[cst.EmptyLine],
    trailing: cst.TrailingWhitespace | None = None,
) -> cst.SimpleStatementLine:
    parts = [*parts[:-1], _alone(parts[-1])]
    return cst.SimpleStatementLine(parts, leading, trailing or cst.TrailingWhitespace())


def _value(small: cst.BaseSmallStatement) -> cst.Call | None:
    value = getattr(small, "value", None)
    return value if isinstance(value, cst.Call) else None


def _with_import(module: cst.Module, name: str) -> cst.Module:
    """Add `import name` after the docstring and `from __future__`, unless it is imported."""
    place = 0
    for index, statement in enumerate(module.body):
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        first = statement.body[0]
        if isinstance(first, cst.Import) and any(a.evaluated_name == name for a in first.names):
            return module
        is_text = isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString)
        is_future = (
            isinstance(first, cst.ImportFrom) and getattr(first.module, "value", "") == "__future__"
        )
        if is_text or is_future:
            place = index + 1
        elif not isinstance(first, cst.Import | cst.ImportFrom):
            break
    line = cst.parse_statement(f"import {name}")
    body = list(module.body)
    if place == 0 and body:
        # The comments at the top of a file belong to the module's header, not to its first line.
        return module.with_changes(body=[line, *body])
    if place < len(body):
        follower = body[place]
        leading = getattr(follower, "leading_lines", ())
        assert isinstance(line, cst.SimpleStatementLine)
        body[place] = follower.with_changes(leading_lines=())
        line = line.with_changes(leading_lines=leading)
    return module.with_changes(body=[*body[:place], line, *body[place:]])
