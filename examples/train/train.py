#!/usr/bin/env python3
"""Trains AlexNet or VGG-11 with DistributedDataParallel on random images: one rank of a job.

    torchrun --nproc_per_node 2 train.py --model alexnet --batch 2 --steps 5

Without torchrun, set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. Rank 0 prints each step: its time,
how much of it was communication that computing did not hide, and what share each rail carried.
"""

import argparse
import json
import os
import signal
import sys
import time
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from models import MODELS
from torch.nn.parallel import DistributedDataParallel

Reduce = Callable[[torch.Tensor], torch.futures.Future]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=MODELS, default="alexnet")
    p.add_argument("--batch", type=int, default=2, help="images of a rank in a step (2)")
    p.add_argument("--steps", type=int, default=5, help="steps in all, those before a restart included (5)")
    p.add_argument("--seed", type=int, default=1, help="of weights, images and dropout (1)")
    p.add_argument("--rate", type=float, default=0.01, help="learning rate (0.01)")
    p.add_argument("--threads", type=int, help="threads of a rank for computing (torch's choice)")
    p.add_argument("--backend", choices=("polyrail", "gloo"), default="polyrail")
    p.add_argument("--nics", metavar="A,B", help="with gloo: a group for each interface, each bucket divided evenly")
    p.add_argument("--checkpoint", metavar="FILE", help="write the state here after each step, and begin with it")
    p.add_argument("--fail-at", type=int, metavar="STEP", help="the last rank kills itself then, once")
    p.add_argument("--json", action="store_true", help="print a line of JSON for each step")
    a = p.parse_args()
    if min(a.batch, a.steps, 1 if a.threads is None else a.threads) < 1:
        p.error("--batch, --steps and --threads are at least 1")
    if abs(a.seed) >= 1 << 31:  # what images makes of it has 64 bits
        p.error("--seed has 32 bits, one of them for the sign")
    if a.nics and a.backend != "gloo":
        p.error("--nics is for gloo; polyrail takes POLYRAIL_RAILS")
    return a


# --- Communication.


class Communication:
    """DDP's reduction of a bucket, timed: the mean over all ranks, as without a hook."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self.begin()

    def begin(self) -> None:
        """Begins a step."""
        self._started: list[float] = []
        self._ended: list[float] = []

    def hook(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """What DDP calls when the gradients of a bucket are there. It may be called on any thread."""
        self._started.append(time.perf_counter())
        buffer = bucket.buffer().div_(dist.get_world_size())

        def ended(future: torch.futures.Future) -> torch.Tensor:
            future.wait()  # raises the reduction's error
            self._ended.append(time.perf_counter())
            return buffer

        return self._reduce(buffer).then(ended)

    def seconds(self) -> tuple[float, float]:
        """For how long a bucket was in flight, and how much of it came after the last gradient."""
        if not self._started:
            return 0.0, 0.0
        changes = sorted([(t, 1) for t in self._started] + [(t, -1) for t in self._ended])
        flying, since, busy = 0, 0.0, 0.0
        for t, change in changes:
            if flying == 0:
                since = t
            flying += change
            if flying == 0:
                busy += t - since
        return busy, max(self._ended) - max(self._started)


def one_group(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Reduces a bucket as one operation of the default group."""
    return dist.all_reduce(buffer, async_op=True).get_future()


def group_for_each(nics: list[str]) -> Reduce:
    """A Gloo group for each interface. A bucket is divided evenly among them."""
    groups = []
    for nic in nics:
        os.environ["GLOO_SOCKET_IFNAME"] = nic
        groups.append(dist.new_group(backend="gloo"))

    def reduce(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        parts = buffer.tensor_split(len(groups))
        return torch.futures.collect_all(
            [dist.all_reduce(p, group=g, async_op=True).get_future() for p, g in zip(parts, groups) if p.numel()]
        )

    return reduce


class Shares:
    """What part of the bytes each rail has carried since the last call."""

    def __init__(self, backend: str) -> None:
        self._before: dict[str, int] = {}
        self._read = lambda: {}
        if backend == "polyrail":
            import polyrail.torch

            self._read = lambda: {r.name: r.bytes_sent for r in polyrail.torch.rails()}
        self.take()

    def take(self) -> dict[str, float]:
        now = self._read()
        sent = {name: n - self._before.get(name, 0) for name, n in now.items()}
        self._before = now
        total = sum(sent.values())
        return {name: n / total for name, n in sent.items()} if total else {}


# --- Checkpoints: rank 0 has the file. DDP gives its weights to the others.


def resume(path: Optional[str], model: torch.nn.Module) -> int:
    """Loads the model on rank 0, and returns the number of steps that are done, on every rank."""
    done = [0]
    if path and dist.get_rank() == 0 and os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        done = [state["done"]]
    dist.broadcast_object_list(done, src=0)
    return done[0]


def save(path: str, model: torch.nn.Module, done: int) -> None:
    """Replaces the file as a whole: a process that dies leaves the old one."""
    torch.save({"model": model.state_dict(), "done": done}, path + ".new")
    os.replace(path + ".new", path)


# --- The job.


def images(a: argparse.Namespace, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of a rank in a step: the same whoever asks for it, after a restart too."""
    _, width, classes = MODELS[a.model]
    torch.manual_seed((a.seed * 1_000_003 + step) * 4099 + dist.get_rank())  # of dropout as well
    return torch.randn(a.batch, 3, width, width), torch.randint(classes, (a.batch,))


def report(a: argparse.Namespace, line: dict) -> None:
    if a.json:
        print(json.dumps(line), flush=True)
        return
    rails = "  ".join(f"{name} {share:.0%}" for name, share in line["rails"].items())
    print(
        f"step {line['step']:>3}  {line['seconds']:7.3f} s  loss {line['loss']:.6f}  "
        f"communication {line['communication']:.3f} s, not hidden {line['exposed']:.3f} s  {rails}",
        flush=True,
    )


def train(a: argparse.Namespace) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(a.seed)
    model = MODELS[a.model][0]()
    first = resume(a.checkpoint, model)
    if rank == 0 and first:
        print(f"going on after step {first}", file=sys.stderr, flush=True)
    communication = Communication(group_for_each(a.nics.split(",")) if a.nics else one_group)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    parallel.register_comm_hook(None, communication.hook)
    optimizer = torch.optim.SGD(parallel.parameters(), a.rate)
    shares = Shares(a.backend)
    for step in range(first + 1, a.steps + 1):
        if a.fail_at == step and rank == size - 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        x, target = images(a, step)
        begun = time.perf_counter()
        communication.begin()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(x), target)
        loss.backward()
        optimizer.step()
        seconds = time.perf_counter() - begun
        busy, exposed = communication.seconds()
        used = shares.take()
        mean = loss.detach() / size
        dist.all_reduce(mean)
        if rank == 0:
            report(a, {"step": step, "seconds": seconds, "loss": mean.item(), "communication": busy,
                       "exposed": exposed, "rails": used})  # fmt: skip
            if a.checkpoint:
                save(a.checkpoint, model, step)


def main() -> None:
    a = arguments()
    if a.threads:
        torch.set_num_threads(a.threads)
    if a.backend == "polyrail":
        import polyrail.torch  # noqa: F401, registers the backend
    dist.init_process_group(a.backend)
    train(a)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
