"""The backend of torch.distributed: processes on this host, which meet through torch's store."""

import multiprocessing
import os
import tempfile
import traceback
import unittest
from datetime import timedelta

try:
    import torch
    import torch.distributed as dist
except ImportError:
    raise unittest.SkipTest("SKIPPED: no torch")

LIMIT = timedelta(seconds=60)


def rank_main(story, rank, size, file, pipe):
    try:
        os.environ.update(POLYRAIL_RAILS="x=tcp:127.0.0.1 y=tcp:127.0.0.2", POLYRAIL_LOG_LEVEL="error",
                          POLYRAIL_PROBE="off", MASTER_ADDR="127.0.0.1")
        torch.set_num_threads(1)
        import polyrail.torch  # registers the backend

        dist.init_process_group("polyrail", init_method="file://" + file, rank=rank, world_size=size,
                                timeout=LIMIT)
        pipe.send(globals()[story](rank, size, pipe))
        dist.destroy_process_group()
    except BaseException:
        pipe.send(RuntimeError(traceback.format_exc()))


def equal(got, want):
    want = torch.as_tensor(want, dtype=got.dtype)
    assert torch.equal(got.cpu(), want.expand_as(got)), (got, want)


def collectives(rank, n, pipe):
    total = n * (n + 1) // 2
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
                  torch.int32, torch.int64):
        x = torch.full((3, 4), rank + 1, dtype=dtype)
        dist.all_reduce(x)
        equal(x, total)
    x = torch.arange(12.0).reshape(3, 4).t()  # not contiguous
    want = x * n
    dist.all_reduce(x)
    assert torch.equal(x, want)
    x = torch.tensor([rank == 0, True, False])
    dist.all_reduce(x, dist.ReduceOp.MAX)
    equal(x, torch.tensor([True, True, False]))
    x = torch.full((4,), float(rank))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    equal(x, (n - 1) / 2)
    z = torch.full((2,), complex(rank, 1))
    dist.all_reduce(z)
    equal(z, complex(n * (n - 1) // 2, n))

    parts = [torch.full((2,), rank + 1.0), torch.full((3,), 1.0)]
    dist.all_reduce_coalesced(parts)
    equal(parts[0], total), equal(parts[1], n)
    x = torch.full((5,), rank, dtype=torch.int16)
    dist.broadcast(x, n - 1)
    equal(x, n - 1)
    x = torch.full((2, 2), rank + 1)
    dist.reduce(x, 0)
    equal(x, total if rank == 0 else rank + 1)
    out = [torch.zeros(2, 2, dtype=torch.bool) for _ in range(n)]
    dist.all_gather(out, torch.full((2, 2), rank % 2 == 1))
    for r in range(n):
        equal(out[r], r % 2 == 1)
    flat = torch.zeros(n * 3)
    dist.all_gather_into_tensor(flat, torch.full((3,), float(rank)))
    equal(flat.view(n, 3), torch.arange(n).view(n, 1))
    out = [torch.zeros(2) for _ in range(n)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank)), out, dst=1)
    if out:
        equal(torch.stack(out), torch.arange(n).view(n, 1))
    x = torch.zeros(2)
    dist.scatter(x, [torch.full((2,), float(r)) for r in range(n)] if rank == 0 else None, src=0)
    equal(x, rank)
    x = torch.zeros(2)
    dist.reduce_scatter(x, [torch.full((2,), float(r)) for r in range(n)])
    equal(x, rank * n)
    x = torch.zeros(2)
    dist.reduce_scatter_tensor(x, torch.arange(2.0 * n))
    equal(x, torch.tensor([2.0 * rank * n, (2 * rank + 1) * n]))
    x = torch.zeros(n, dtype=torch.int64)
    dist.all_to_all_single(x, torch.arange(n) + 10 * rank)
    equal(x, torch.arange(n) * 10 + rank)
    x = torch.zeros(n * (rank + 1))
    dist.all_to_all_single(x, torch.full((total,), float(rank)), [rank + 1] * n, list(range(1, n + 1)))
    equal(x.view(n, rank + 1), torch.arange(n).view(n, 1))
    out = [torch.zeros(r + 1, rank + 1) for r in range(n)]
    dist.all_to_all(out, [torch.full((rank + 1, r + 1), float(rank)) for r in range(n)])
    for r in range(n):
        equal(out[r], r)
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)]
    dist.barrier()

    tensors = [torch.full((10000,), float(i)) for i in range(100)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for i, w in enumerate(works):
        w.wait()
        assert w.is_completed()
        equal(tensors[i], i * n)


def messages(rank, n, pipe):
    if rank == 0:
        seen = set()
        for _ in range(n - 1):
            x = torch.zeros(3)
            source = dist.recv(x, tag=5)
            equal(x, source)
            seen.add(source)
        assert seen == set(range(1, n))
    else:
        dist.send(torch.full((3,), float(rank)), 0, tag=5)
    right, left = (rank + 1) % n, (rank - 1) % n
    x = torch.zeros(100000)
    ops = [dist.P2POp(dist.isend, torch.full((100000,), float(rank)), right),
           dist.P2POp(dist.irecv, x, left)]
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    equal(x, left)


def groups(rank, n, pipe):
    import polyrail.torch

    before = len(os.listdir("/proc/self/fd"))
    pair = dist.new_group([0, n - 1])
    rest = dist.new_group(list(range(1, n)))
    x = torch.ones(4)
    if rank in (0, n - 1):
        dist.all_reduce(x, group=pair)
        equal(x, 2)
    x = torch.ones(4)
    if rank >= 1:
        dist.all_reduce(x, group=rest)
        equal(x, n - 1)
    dist.barrier()
    assert len(polyrail.torch._worlds) == 1
    assert len(os.listdir("/proc/self/fd")) == before, "a group has made connections"


def ddp(rank, n, pipe):
    """The losses of DDP are those of one process that sees all the data."""
    torch.manual_seed(1)
    def model():
        torch.manual_seed(7)
        return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5))
    data, target = torch.randn(4 * n, 20), torch.randn(4 * n, 5)
    parallel, single = torch.nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.01), model()
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (parallel, single)]
    for _ in range(5):
        for m, o, x, y in ((parallel, optimizers[0], data[rank::n], target[rank::n]),
                           (single, optimizers[1], data, target)):
            o.zero_grad()
            torch.nn.functional.mse_loss(m(x), y).backward()
            o.step()
    for a, b in zip(parallel.parameters(), single.parameters()):
        assert torch.allclose(a, b, atol=1e-6), (a - b).abs().max()


def lost(rank, n, pipe):
    import polyrail
    import polyrail.torch

    dist.barrier()
    if rank == 1:
        pipe.send("ready")
        os.kill(os.getpid(), 9)
    for _ in range(2):  # the operation in flight, and one on the broken group
        for wait in (lambda: dist.all_reduce(torch.ones(100)),
                     lambda: dist.all_reduce(torch.ones(100), async_op=True).wait(),
                     lambda: dist.barrier()):
            try:
                wait()
            except polyrail.RankLost as e:
                assert e.rank == 1 and "rank 1" in str(e) and isinstance(e, RuntimeError), e
            else:
                raise AssertionError("no error though a rank is lost")
    assert polyrail.torch.failure().rank == 1
    model = torch.nn.Linear(2, 2)
    try:
        torch.nn.parallel.DistributedDataParallel(model)
    except polyrail.RankLost as e:
        assert e.rank == 1, e
    else:
        raise AssertionError("DDP was made on a broken group")


class Torch(unittest.TestCase):
    def run_ranks(self, story, n, dies=()):
        spawn = multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(n):
                mine, theirs = spawn.Pipe()
                p = spawn.Process(target=rank_main, args=(story, rank, n, folder + "/store", theirs))
                p.start()
                theirs.close()
                ranks.append((p, mine))
            for rank, (p, pipe) in enumerate(ranks):
                said = pipe.recv() if pipe.poll(90) else RuntimeError("it said nothing in 90 s")
                if isinstance(said, Exception):
                    for q, _ in ranks:
                        q.kill()
                    self.fail(f"rank {rank}: {said}")
            for rank, (p, _) in enumerate(ranks):
                p.join(30)
                self.assertEqual(p.exitcode, -9 if rank in dies else 0)

    def test_collectives(self):
        for n in (2, 3):
            self.run_ranks("collectives", n)

    def test_messages(self):
        self.run_ranks("messages", 3)

    def test_groups_need_no_new_connections(self):
        self.run_ranks("groups", 3)

    def test_ddp(self):
        self.run_ranks("ddp", 2)

    def test_a_lost_rank_is_named(self):
        self.run_ranks("lost", 3, dies=(1,))


if __name__ == "__main__":
    unittest.main(verbosity=2)
