"""Builds libpolyrail.so from the Go sources of the repository that holds this directory.

POLYRAIL_LIBRARY names a library that is built already, to be packed in its place.
"""

import os
import pathlib
import shutil
import subprocess

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent.parent


class BuildWithLibrary(build_py):
    """Puts the library beside the package's modules."""

    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib, "polyrail", "libpolyrail.so").resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        ready = os.environ.get("POLYRAIL_LIBRARY")
        if ready:
            shutil.copyfile(ready, target)
            return
        if not (ROOT / "cmd" / "libpolyrail" / "polyrail.h").exists():
            raise SystemExit(
                f"{ROOT} does not hold polyrail's Go sources: install from a checkout "
                "(pip install ./python), or set POLYRAIL_LIBRARY to a library that is built"
            )
        if shutil.which("go") is None:
            raise SystemExit("there is no go command, which builds the library: https://go.dev/dl")
        command = ["go", "build", "-buildmode=c-shared", "-ldflags=-s -w"]
        subprocess.run(
            command + ["-o", str(target), "./cmd/libpolyrail"],
            cwd=ROOT,
            env={**os.environ, "CGO_ENABLED": "1"},
            check=True,
        )
        target.with_suffix(".h").unlink(missing_ok=True)  # cgo's; polyrail.h is the interface


# What the package also does without it, where there are no headers of Python.
QUICK = Extension(
    "polyrail._quick",
    ["polyrail/_quick.c"],
    include_dirs=[str(ROOT / "cmd" / "libpolyrail")],
    extra_compile_args=["-O2"],
    optional=True,
)

setup(cmdclass={"build_py": BuildWithLibrary}, ext_modules=[QUICK])
