"""examples/train, as a user runs it: a comparison on this host, and a restart from a checkpoint."""

import contextlib
import os
import pathlib
import select
import signal
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
                          ["--steps", "0"], ["--batch", "0"], ["--threads", "-1"]):  # fmt: skip
                p = run(sys.executable, "compare.py", "--model", "tiny", "--ways", "all", "--csv", folder + "/r.csv",
                        "--out", folder + "/r.svg", *wrong, fails=True)  # fmt: skip
                self.assertEqual((p.returncode, p.stdout), (2, ""), p.stderr)
                self.assertIn(wrong[1] if "/" in wrong[1] else wrong[0], p.stderr)

    def test_ranks_end_with_the_compare_that_started_them(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(folder + "/ranks")
            ranks = os.open(folder + "/ranks", os.O_RDONLY | os.O_NONBLOCK)  # ends when no rank has it open
            self.addCleanup(os.close, ranks)
            asleep = f"sh -c 'exec 3>{folder}/ranks; echo $$ >&3; exec sleep 1000' {{node}}"
            p = subprocess.Popen([sys.executable, "compare.py", "--model", "tiny", "--ways", "all", "--on", asleep,
                                  "--csv", folder + "/r.csv", "--out", folder + "/r.svg"],
                                 env=ENVIRONMENT, cwd=EXAMPLE, stdout=subprocess.DEVNULL)  # fmt: skip
            said = b""
            try:
                while said.count(b"\n") < 2:
                    self.assertTrue(select.select([ranks], [], [], 60)[0], "the ranks do not start")
                    said += os.read(ranks, 100)
                p.kill()
                self.assertTrue(select.select([ranks], [], [], 60)[0], "the ranks are left behind")
                self.assertEqual(os.read(ranks, 100), b"")
            finally:
                p.kill()
                p.wait()
                for rank in said.split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(rank), signal.SIGKILL)

    def test_train_refuses_what_torch_would(self):
        for wrong in (["--threads", "-1"], ["--seed", str(1 << 31)]):
            p = run(sys.executable, "train.py", "--model", "tiny", *wrong, fails=True)
            self.assertEqual((p.returncode, p.stdout), (2, ""), p.stderr)
            self.assertRegex(p.stderr, f"error: .*{wrong[0]} ")

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
