"""What an allreduce takes from Python: medians over processes of this host.

    python3 python/tests/latency.py [--ranks N] [--through polyrail|prepared|torch|gloo] [--shm on] [SIZE...]

By default through polyrail's own calls and over loopback. prepared: through one that is prepared.
torch and gloo: torch's all_reduce, by the backend polyrail and by Gloo. Beside the same from Go:
node bench --local N [--shm=off] --sizes 8,1MiB
"""

import argparse
import array
import contextlib
import functools
import multiprocessing
import os
import socket
import statistics
import time
from datetime import timedelta

RAILS = ["a=tcp:127.0.0.1", "b=tcp:127.0.0.2"]


@contextlib.contextmanager
def by_polyrail(prepared, rank, ranks, port):
    """Makes buffers of so many bytes, of float32, and a call that reduces them, not in place: as Go's bench."""
    import polyrail

    seed = f"127.0.0.1:{port}"
    with polyrail.Node(f"n{rank}", bind="127.0.0.1:0" if rank else seed, join=seed if rank else None, probe=False,
                       rails=RAILS, log_level="error") as node:  # fmt: skip
        with node.communicator("latency", ranks, timeout=30) as comm:

            def call(source, sum_):
                if prepared:
                    return comm.prepare_all_reduce(source, out=sum_).run
                return functools.partial(comm.all_reduce, source, out=sum_)

            yield lambda size: array.array("f", bytes(size)), call


@contextlib.contextmanager
def by_torch(backend, rank, ranks, port):
    """The same of torch."""
    import torch
    import torch.distributed as dist

    if backend == "polyrail":
        import polyrail.torch  # noqa: F401, registers the backend
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
                            timeout=timedelta(seconds=60))  # fmt: skip
    yield lambda size: torch.zeros(size // 4), lambda _, sum_: functools.partial(dist.all_reduce, sum_)  # in place
    dist.destroy_process_group()


WAYS = {
    "polyrail": lambda *args: by_polyrail(False, *args),
    "prepared": lambda *args: by_polyrail(True, *args),
    "torch": lambda *args: by_torch("polyrail", *args),
    "gloo": lambda *args: by_torch("gloo", *args),
}


def run(rank, ranks, port, arguments):
    os.environ.update(POLYRAIL_SHM=arguments.shm, POLYRAIL_RAILS=" ".join(RAILS))
    with WAYS[arguments.through](rank, ranks, port) as (buffer_of, call):
        for size in arguments.sizes:
            source, sum_, times = buffer_of(size), buffer_of(size), []
            mine, ended = buffer_of(4), buffer_of(4)
            all_reduce, agree = call(source, sum_), call(mine, ended)
            end = time.perf_counter() + arguments.seconds
            while not ended[0]:
                for _ in range(max(5, min(200, (64 << 20) // size))):
                    begun = time.perf_counter()
                    all_reduce()
                    times.append(time.perf_counter() - begun)
                mine[0] = ended[0] = int(rank == 0 and time.perf_counter() > end)
                agree()  # all stop after the same operation
            if rank == 0:
                p50, mean = statistics.median(times) * 1e6, statistics.mean(times) * 1e6
                print(f"{size:>10} B  {len(times):>7} operations  p50 {p50:9.1f} µs  mean {mean:9.1f} µs", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--through", choices=WAYS, default="polyrail")
    p.add_argument("--shm", choices=("on", "off"), default="off", help="whether ranks share memory (off)")
    p.add_argument("--seconds", type=float, default=3, help="for which a size is measured (3)")
    p.add_argument("sizes", metavar="SIZE", type=int, nargs="*", default=[8, 1 << 20], help="in bytes: multiples of 4")
    arguments = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=run, args=(r, arguments.ranks, port, arguments)) for r in range(arguments.ranks)]
    for r in ranks:
        r.start()
    for r in ranks:
        r.join()


if __name__ == "__main__":
    main()
