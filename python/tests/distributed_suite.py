"""torch's own tests of backends, distributed_test.py as torch ships it, on one backend:

    python3 python/tests/distributed_suite.py polyrail 2 [TEST...]
    python3 python/tests/distributed_suite.py gloo 2

The arguments are the backend and the number of ranks; tests are names like test_broadcast, all by
default. torch chooses tests by the backend's name. polyrail gets those of Gloo; polyrail/mpi gets those of
MPI, the only ones with all_to_all on a CPU. A line for each test is followed by a line of totals. All tests
of one backend take some six minutes.
"""

import dataclasses
import os
import sys
import tempfile
import types
import unittest

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    BACKEND, _, CHOICE = sys.argv[1].partition("/")
    CHOICE = CHOICE or "gloo"
    os.environ["BACKEND"], os.environ["WORLD_SIZE"] = CHOICE, sys.argv[2]  # read as the suite is imported
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")  # seconds, of a test
    folder = tempfile.mkdtemp(prefix="polyrail-suite-")
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, name))
    os.environ.update(TEMP_DIR=folder, INIT_METHOD="file://" + os.path.join(folder, "init"))
    os.environ.setdefault("POLYRAIL_RAILS", "x=tcp:127.0.0.1 y=tcp:127.0.0.2")
    os.environ.setdefault("POLYRAIL_PROBE", "off")
    os.environ.setdefault("POLYRAIL_LOG_LEVEL", "error")

try:
    import expecttest  # noqa: F401
except ImportError:  # not in Debian; these tests use none of it
    stand_in = types.ModuleType("expecttest")
    stand_in.ACCEPT = False
    stand_in.TestCase = unittest.TestCase
    sys.modules["expecttest"] = stand_in

# torch 1.13's sharding, which its tests of DDP import, has a default that Python 3.11 takes for mutable:
# an instance of a dataclass without a hash.
dataclass = dataclasses.dataclass
dataclasses.dataclass = lambda cls=None, **kw: dataclass(
    cls, **{"unsafe_hash": cls is not None and "__hash__" not in vars(cls), **kw}
)
import torch.distributed._shard.sharded_tensor.metadata  # noqa: E402, F401

dataclasses.dataclass = dataclass

import polyrail.torch  # noqa: E402, F401
import torch  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402


class Name(str):
    """A backend that the tests take for another one, too: some look at its name in their bodies."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other) or other == CHOICE

    def __ne__(self, other):
        return not self == other


if __name__ == "__main__":
    suite.BACKEND = Name(BACKEND)


class TestDistBackendWithFork(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """Each test in processes of its own. Forked ones need not import torch again."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Lines(unittest.TextTestResult):
    """A line for each test."""

    totals = {"passed": 0, "failed": 0, "skipped": 0}

    def line(self, what, test, why=""):
        self.totals[what] += 1
        print(f"{what:8} {test.id().rsplit('.', 1)[-1]}  {why}", flush=True)

    def addSuccess(self, test):
        self.line("passed", test)

    def addSkip(self, test, reason):
        self.line("skipped", test, reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line("failed", test, str(err[1]).strip().splitlines()[0] if str(err[1]).strip() else "")

    addError = addFailure


if __name__ == "__main__":
    names = sys.argv[3:] or unittest.defaultTestLoader.getTestCaseNames(TestDistBackendWithFork)
    tests = unittest.TestSuite(TestDistBackendWithFork(name) for name in names)
    unittest.TextTestRunner(resultclass=Lines, verbosity=0).run(tests)
    print(", ".join(f"{n} {what}" for what, n in Lines.totals.items()), flush=True)
