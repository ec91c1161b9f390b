"""Files that can be read in two ways at once, and then show each reader another model."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator

from sojourn.kinds.marks import HDF5, ZIP
from sojourn.probes.model_files.summary import Finding

ARCHIVE, GRAPH, IN_HDF5 = "archive", "graph", "HDF5"


def second_forms(path: str, form: str) -> Iterator[Finding]:
    """What else a file could be taken for that is loaded in this form."""
    with open(path, "rb") as file:
        start = file.read(len(HDF5))
    others = []
    if start == HDF5 and form != IN_HDF5:
        others.append("begins as HDF5")
    elif form == ARCHIVE and not start.startswith(b"PK"):
        others.append("has something before it")
    elif form != ARCHIVE and start.startswith(ZIP):
        others.append("begins as an archive")
    if form != ARCHIVE and zipfile.is_zipfile(path):
        others.append("ends as an archive")
    for other in others:
        detail = f"loaded as {form}, but {other}"
        yield Finding("danger", "two files in one", os.path.basename(path), "", detail)
