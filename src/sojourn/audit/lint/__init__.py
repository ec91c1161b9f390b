"""The audit's findings, where they can be seen in the source. Needs no TensorFlow to run.

names     what a dotted name means: aliases of TensorFlow, compat.v1, session classes
module    one parsed file: parents, scopes, calls, what each name is bound to
definitions, program
          the files together: what a name of one file means in another, which function calls which
uses      what a use does to a session: borrow, keep, lend, take, close
containers
          the same for sessions in a list or dict
state     what may be true of each session at one point of a program
expressions, flow
          sessions along every path through one function or module
kept      sessions that outlive a function: on self, in a global, in a class
steps, ops
          what runs a step, what it fetches, what adds an op
repeats, conditions
          what is done again and again: loops, the functions that they call, branches in them
serving   functions that code out of sight calls again and again
loops, built
          sessions and ops made again and again; graphs that are only built up
defaults  code that runs on whatever session is the default
check     one file of a program: all rules, suppressed lines left out
settings  the section of pyproject.toml
files     many files: walking, settings, notes for what cannot be read
formats   text, JSON, GitHub, SARIF
plan      how a session can be closed safely, if it can
fix, rewrite
          carries that out (needs libcst, the `lint` extra)
"""

from sojourn.audit.lint.check import check_source
from sojourn.audit.lint.files import Note, Outcome, check_paths
from sojourn.audit.lint.problem import Problem
from sojourn.audit.lint.settings import Settings

__all__ = ["Note", "Outcome", "Problem", "Settings", "check_paths", "check_source"]
