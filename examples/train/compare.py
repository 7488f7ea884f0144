#!/usr/bin/env python3
"""Trains the same model over one rail, over all rails and with Gloo, one after another.

    compare.py --model alexnet --batch 2 --ranks 2                        # on this host
    compare.py --ranks 2 --on 'ssh host{node}' --master 10.0.0.1 --nics eth0,eth1
    compare.py --draw results.csv --out training.svg

Ranks run on this host, or where --on leads to; there this folder has the same path. It prints a table,
adds to a CSV file, and draws the speed of every way as an SVG picture.
"""

import argparse
import contextlib
import csv
import ctypes
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import threading
from typing import Optional

import chart

WAYS = {
    "one": "polyrail, one rail",
    "all": "polyrail, all rails",
    "cut": "polyrail, all rails, one cut",
    "gloo": "Gloo, one NIC",
    "gloo-contexts": "Gloo, a context per NIC",
    "gloo-split": "Gloo, a group per NIC",
}
COLUMNS = ["model", "batch", "ranks", "network", "way", "steps", "step_s", "images_per_s",
           "communication_s", "exposed_s", "rails", "losses"]  # fmt: skip
libc = ctypes.CDLL(None)
SETTLING = 1  # steps that are not timed: in the first DDP learns the order of its buckets


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ways", default="one,all,gloo,gloo-contexts,gloo-split", help="of " + ", ".join(WAYS))
    p.add_argument("--model", default="alexnet", help="alexnet, vgg11 or tiny (alexnet)")
    p.add_argument("--batch", type=int, default=2, help="images of a rank in a step (2)")
    p.add_argument("--steps", type=int, default=5, help="timed steps; one more comes before them (5)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=1, help="threads of a rank for computing (1)")
    p.add_argument("--ranks", type=int, default=2, help="one on each node (2)")
    p.add_argument("--on", metavar="COMMAND", help="runs what follows it on node {node}, from 1 on")
    p.add_argument("--master", metavar="ADDRESS", default="127.0.0.1", help="of the first node (127.0.0.1)")
    p.add_argument("--port", type=int, default=29500, help="of the first node (29500)")
    p.add_argument("--nics", default="lo", help="interfaces of a node, the fastest first (lo)")
    p.add_argument("--network", default="this host", help="what the table and the picture call it")
    p.add_argument("--limit", type=float, default=600, help="seconds for one way (600)")
    p.add_argument("--cut", metavar="COMMAND", help="of the way cut: takes a rail away after the second step")
    p.add_argument("--restore", metavar="COMMAND", help="of the way cut: brings it back two steps later")
    p.add_argument("--csv", metavar="FILE", default="training.csv", help="results are added to it (training.csv)")
    p.add_argument("--out", metavar="FILE", default="training.svg", help="picture of all that is in FILE")
    p.add_argument("--draw", metavar="FILE", help="only draw this file of results")
    a = p.parse_args()
    unknown = set(a.ways.split(",")) - set(WAYS)
    if unknown:
        p.error(f"--ways: {', '.join(sorted(unknown))}: not one of {', '.join(WAYS)}")
    if min(a.ranks, a.batch, a.steps, a.threads) < 1:
        p.error("--ranks, --batch, --steps and --threads are at least 1")
    if "cut" in a.ways.split(",") and not (a.cut and a.restore and a.steps >= 5):
        p.error("the way cut needs --cut, --restore and at least 5 steps")
    try:
        for path in (a.out,) if a.draw else (a.csv, a.out):
            open(path, "a").close()
    except OSError as e:  # not after all the training
        p.error(str(e))
    return a


def way_of(a: argparse.Namespace, way: str) -> tuple[dict[str, str], list[str]]:
    """The environment and the arguments of train.py for a way."""
    nics = a.nics.split(",")
    if way in ("gloo", "gloo-split"):
        more = ["--nics", a.nics] if way == "gloo-split" else []
        return {"GLOO_SOCKET_IFNAME": nics[0]}, ["--backend", "gloo"] + more
    if way == "gloo-contexts":  # torch deals whole buckets to the contexts in turn
        return {"GLOO_SOCKET_IFNAME": a.nics if len(nics) > 1 else ",".join(nics * 2)}, ["--backend", "gloo"]
    used = nics[:1] if way == "one" else nics
    return {"POLYRAIL_RAILS": " ".join(f"{nic}=tcp:{nic}" for nic in used)}, []


def start(a: argparse.Namespace, way: str, rank: int) -> subprocess.Popen:
    environment, arguments = way_of(a, way)
    environment |= {"MASTER_ADDR": a.master, "MASTER_PORT": str(a.port), "RANK": str(rank), "WORLD_SIZE": str(a.ranks)}
    environment |= {k: v for k, v in os.environ.items() if k in ("PYTHONPATH", "POLYRAIL_LIBRARY")}
    command = ["env", *(f"{k}={v}" for k, v in environment.items()), sys.executable,
               str(pathlib.Path(__file__).with_name("train.py").resolve()), "--json", "--model", a.model,
               "--batch", str(a.batch), "--steps", str(a.steps + SETTLING), "--seed", str(a.seed),
               "--threads", str(a.threads), *arguments]  # fmt: skip
    if a.on:
        prefix = shlex.split(a.on.format(node=rank + 1))
        command = prefix + ([shlex.join(command)] if prefix[0] == "ssh" else command)
    # Rank 0 alone prints. A session of its own, so that all of it ends with stop.
    out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
    return subprocess.Popen(command, stdout=out, text=True, start_new_session=True, preexec_fn=die_with_parent)


def die_with_parent() -> None:
    """Has the kernel kill this process when the one that started it ends, also if that is killed."""
    if sys.platform == "linux":
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def stop(ranks: list[subprocess.Popen]) -> None:
    for p in ranks:
        with contextlib.suppress(ProcessLookupError):  # it ends just now
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
        p.wait()


def run(a: argparse.Namespace, way: str) -> Optional[list[dict]]:
    """The steps of one way; None if it failed."""
    ranks = [start(a, way, rank) for rank in range(a.ranks)]
    steps: list[dict] = []
    limit = threading.Timer(a.limit, stop, [ranks])  # a rank that hangs prints nothing
    limit.start()
    try:
        for line in ranks[0].stdout:
            steps.append(json.loads(line))
            if way == "cut" and len(steps) in (2, 4):
                subprocess.run(a.cut if len(steps) == 2 else a.restore, shell=True, check=True)
        return steps if all(p.wait() == 0 for p in ranks) else None
    finally:
        limit.cancel()
        stop(ranks)


def summary(a: argparse.Namespace, way: str, steps: list[dict]) -> dict:
    timed = steps[SETTLING:]

    def median(key: str) -> float:
        return statistics.median(s[key] for s in timed)

    names = timed[0]["rails"]
    rails = {n: statistics.mean(s["rails"].get(n, 0) for s in timed) for n in names}
    return {
        "model": a.model, "batch": a.batch, "ranks": a.ranks, "network": a.network, "way": WAYS[way],
        "steps": len(timed), "step_s": f"{median('seconds'):.3f}",
        "images_per_s": f"{a.batch * a.ranks / median('seconds'):.3f}",
        "communication_s": f"{median('communication'):.3f}", "exposed_s": f"{median('exposed'):.3f}",
        "rails": " ".join(f"{n} {share:.0%}" for n, share in rails.items()),
        "losses": " ".join(float(s["loss"]).hex() for s in steps),
    }  # fmt: skip


def table(rows: list[dict]) -> None:
    """Prints the results, and how far the losses of the ways are apart."""
    print(f"{'':30}  step s  images/s  communication s  not hidden s  rails")
    for r in rows:
        print(f"{r['way']:30}  {r['step_s']:>6}  {r['images_per_s']:>8}  {r['communication_s']:>15}  "
              f"{r['exposed_s']:>12}  {r['rails']}")  # fmt: skip
    losses = [[float.fromhex(x) for x in r["losses"].split()] for r in rows]
    if not losses:
        return
    apart = max(max(step) - min(step) for step in zip(*losses))
    same = "equal to the bit" if apart == 0 else f"at most {apart:.1e} apart"
    print(f"losses after {len(losses[0])} steps: {losses[0][-1]:.6f}; those of all ways are {same} in every step")


def main() -> int:
    a = arguments()
    if a.draw:
        chart.draw(a.draw, a.out)
        return 0
    rows, failed = [], []
    print(f"{a.model}, {a.batch} images a rank, {a.ranks} ranks, {a.network}; {a.steps} steps, medians", flush=True)
    for way in a.ways.split(","):
        steps = run(a, way)
        if not steps:
            failed.append(WAYS[way])
            continue
        rows.append(summary(a, way, steps))
        with open(a.csv, "a", newline="") as f:
            w = csv.DictWriter(f, COLUMNS)
            if f.tell() == 0:
                w.writeheader()
            w.writerow(rows[-1])
    table(rows)
    if rows:
        chart.draw(a.csv, a.out)
    for name in failed:
        print(f"{name}: failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
