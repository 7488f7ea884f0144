"""What an allreduce takes from Python: medians of two processes on this host's loopback.

    python3 python/tests/latency.py [SIZE...]

Beside the same from Go: node bench --local 2 --shm=off --sizes 8,1MiB
"""

import multiprocessing
import os
import statistics
import sys
import time


def rank(name, pipe, sizes):
    os.environ["POLYRAIL_SHM"] = os.environ.get("POLYRAIL_SHM", "off")
    import polyrail

    with polyrail.Node(name, bind="127.0.0.1:0", join=pipe.recv() if name == "b" else None, probe=False,
                       rails=["a=tcp:127.0.0.1", "b=tcp:127.0.0.2"], log_level="error") as node:  # fmt: skip
        if name == "a":
            pipe.send(node.address)
        with node.communicator("latency", 2, timeout=30) as comm:
            for size in sizes:
                buffer, times = bytearray(size), []
                end = time.perf_counter() + 3
                going = bytearray(1)
                while not going[0]:
                    for _ in range(200):
                        begun = time.perf_counter()
                        comm.all_reduce(buffer)
                        times.append(time.perf_counter() - begun)
                    going[0] = time.perf_counter() > end
                    comm.all_reduce(going, "max")  # both stop after the same operation
                if name == "a":
                    times.sort()
                    print(f"{size:>10} B  {len(times):>7} operations  p50 {statistics.median(times) * 1e6:9.1f} µs  "
                          f"mean {statistics.mean(times) * 1e6:9.1f} µs", flush=True)  # fmt: skip


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    sizes = [int(s) for s in sys.argv[1:]] or [8, 1 << 20]
    ranks = [spawn.Process(target=rank, args=a) for a in (("a", mine, sizes), ("b", theirs, sizes))]
    for r in ranks:
        r.start()
    for r in ranks:
        r.join()
