"""Install chromium for the tests of the server's page, where possible: on Debian, as root.

Elsewhere this prints what to do, and those tests are skipped with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")
HOW = "install chromium (on Debian: apt-get install chromium fonts-dejavu-core)"


def browser() -> str | None:
    """Return the browser's path, if one is installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def main() -> None:
    if browser() is not None:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"The tests of the server's page are skipped without a browser: {HOW}")
        return
    print("Installing chromium for the tests of the server's page ...", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES]
    for command in (["apt-get", "update", "-qq"], install):
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL).returncode:
            print(
                f"That failed; the tests of the server's page are skipped: {HOW}", file=sys.stderr
            )
            return


if __name__ == "__main__":
    main()
