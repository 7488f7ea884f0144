"""torch's own tests of backends, distributed_test.py as torch ships it, on one backend:

    python3 python/tests/distributed_suite.py polyrail 2 [TEST...]
    python3 python/tests/distributed_suite.py gloo 2

The arguments are the backend and the number of ranks; tests are names like test_broadcast, all by
default. It ends with a line for each test and a line of totals. It takes some ten minutes.
"""

import os
import sys
import tempfile
import types
import unittest

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    os.environ["BACKEND"], os.environ["WORLD_SIZE"] = sys.argv[1:3]
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

import polyrail.torch  # noqa: F401
from torch.testing._internal.common_distributed import DistTestCases

# What Gloo's tests ask for that polyrail has: torch knows backends by name only.
for feature in ("ddp", "subgroup"):
    DistTestCases.backend_feature[feature].add("polyrail")

from torch.testing._internal.distributed import distributed_test as suite


class TestDistBackendWithSpawn(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """Each test in processes of its own."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()


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
    names = sys.argv[3:] or unittest.defaultTestLoader.getTestCaseNames(TestDistBackendWithSpawn)
    tests = unittest.TestSuite(TestDistBackendWithSpawn(name) for name in names)
    unittest.TextTestRunner(resultclass=Lines, verbosity=0).run(tests)
    print(", ".join(f"{n} {what}" for what, n in Lines.totals.items()), flush=True)
