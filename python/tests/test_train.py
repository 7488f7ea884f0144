"""examples/train, as a user runs it: a comparison on this host, and a restart from a checkpoint."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    raise unittest.SkipTest("SKIPPED: no torch")

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train"
ENVIRONMENT = dict(os.environ, POLYRAIL_RAILS="x=tcp:127.0.0.1 y=tcp:127.0.0.2", POLYRAIL_LOG_LEVEL="error",
                   OMP_NUM_THREADS="1")  # fmt: skip
# torch 1.13's torchrun fails on Python 3.11 without redirection: an empty flag is none of its enumeration.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--redirects", "2", "--tee", "2",
            "--nproc_per_node", "2"]  # fmt: skip


def run(*command, fails=False):
    p = subprocess.run(command, env=ENVIRONMENT, cwd=EXAMPLE, capture_output=True, text=True, timeout=120)
    if (p.returncode != 0) != fails:
        raise AssertionError(f"{command} returned {p.returncode}:\n{p.stdout}\n{p.stderr}")
    return p


def losses(output):
    """By step."""
    lines = [line.split() for line in output.splitlines() if line.startswith("step ")]
    return {int(words[1]): words[words.index("loss") + 1] for words in lines}


class Train(unittest.TestCase):
    def test_compare_finds_the_same_losses(self):
        with tempfile.TemporaryDirectory() as folder:
            p = run(sys.executable, "compare.py", "--model", "tiny", "--steps", "2", "--ways", "all,gloo-split",
                    "--csv", folder + "/r.csv", "--out", folder + "/r.svg")  # fmt: skip
            self.assertIn("equal to the bit", p.stdout)
            self.assertIn("polyrail, all rails</text>", pathlib.Path(folder, "r.svg").read_text())
            self.assertEqual(len(pathlib.Path(folder, "r.csv").read_text().splitlines()), 3)

    def test_compare_ends_a_way_at_its_limit(self):
        second_hangs = """sh -c '[ $0 = 1 ] && exec "$@"; exec sleep 1000' {node}"""
        with tempfile.TemporaryDirectory() as folder:
            p = run(sys.executable, "compare.py", "--model", "tiny", "--ways", "all", "--limit", "1", "--on", second_hangs,
                    "--csv", folder + "/r.csv", "--out", folder + "/r.svg", fails=True)  # fmt: skip
            self.assertIn("polyrail, all rails: failed\n", p.stderr)

    def test_compare_refuses_what_it_can_not_do_before_it_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            for wrong in (["--csv", folder + "/missing/r.csv"], ["--out", folder + "/missing/r.svg"], ["--ranks", "0"],
                          ["--steps", "0"], ["--batch", "0"]):  # fmt: skip
                p = run(sys.executable, "compare.py", "--model", "tiny", "--ways", "all", "--csv", folder + "/r.csv",
                        "--out", folder + "/r.svg", *wrong, fails=True)  # fmt: skip
                self.assertEqual((p.returncode, p.stdout), (2, ""), p.stderr)
                self.assertIn(wrong[1] if "/" in wrong[1] else wrong[0], p.stderr)

    def test_torchrun_restarts_from_the_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            job = ["train.py", "--model", "tiny", "--steps", "5"]
            undisturbed = losses(run(*TORCHRUN, *job).stdout)
            self.assertEqual(list(undisturbed), [1, 2, 3, 4, 5])
            p = run(*TORCHRUN, "--max_restarts", "1", *job, "--checkpoint", folder + "/c", "--fail-at", "3")
            self.assertIn('rank 1 (node "rank-000001") lost', p.stderr)
            self.assertIn("going on after step 2", p.stderr)
            self.assertEqual(losses(p.stdout), undisturbed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
