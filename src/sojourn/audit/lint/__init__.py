"""The audit's findings that show in the source code. Runs without TensorFlow.

names     what a dotted name means: aliases of TensorFlow, compat.v1, session classes
module    one parsed file: parents, scopes, calls, what each name is bound to
definitions, program
          the files together: what a name of one file means in another, which function calls which
uses      what a use of a session does to it: borrow, keep, lend, take, close
containers
          the same for sessions in a list or dict
state     what may be true of each session at one point of the program
expressions, flow
          sessions along every path through one function or module
kept      sessions that outlive a function: on self, in a global, in a class
steps, ops
          what runs a step, what it fetches, what adds an op
repeats, conditions
          code that runs repeatedly: loops, the functions that they call, branches in them
serving   functions that code outside the program calls repeatedly
loops, built
          sessions and ops that are created repeatedly; graphs that are only built up
defaults  code that runs on whatever session is the default
check     all rules for one file of a program, without the suppressed lines
settings  the linter's section of pyproject.toml
files     many files: walking, settings, notes on files that cannot be read
formats   text, JSON, GitHub, SARIF
plan      how a session can be closed safely, if it can
fix, rewrite
          carry out such a plan (needs libcst, the `lint` extra)
"""

from sojourn.audit.lint.check import check_source
from sojourn.audit.lint.files import Note, Outcome, check_paths
from sojourn.audit.lint.problem import Problem
from sojourn.audit.lint.settings import Settings

__all__ = ["Note", "Outcome", "Problem", "Settings", "check_paths", "check_source"]
