"""The backend of torch.distributed: processes on this host, which meet through torch's store."""

import atexit
import multiprocessing
import os
import tempfile
import threading
import time
import traceback
import unittest
import weakref
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
        if story == "groups":  # memory connects when gossip has told of the host, at any time
            os.environ["POLYRAIL_SHM"] = "off"
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


def strided(rank, n, pipe):
    """Every call on tensors that are not contiguous, of the types that numpy does not have or torch has not."""
    for dtype in (torch.bfloat16, torch.float16, torch.int64):
        def every_second(value, rows=2):
            t = torch.full((3, 2 * rows), -1, dtype=dtype)[:, ::2]
            t.copy_(torch.as_tensor(value, dtype=dtype).expand(3, rows))
            assert not t.is_contiguous()
            return t

        total, by_rank = n * (n + 1) // 2, [every_second(r) for r in range(n)]
        for op, want in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.MAX, n), (dist.ReduceOp.MIN, 1)):
            dist.all_reduce(x := every_second(rank + 1), op)
            equal(x, want)
        dist.all_reduce(x := torch.full((1, 2), rank + 1, dtype=dtype).expand(3, 2))
        equal(x, total)
        dist.all_reduce_coalesced(many := [every_second(rank + 1), every_second(1, rows=5)])
        equal(many[0], total), equal(many[1], n)
        dist.broadcast(x := every_second(rank), 1)
        equal(x, 1)
        dist.broadcast(x := torch.tensor(rank, dtype=dtype).expand(2, 2), 1)
        equal(x, 1)
        dist.reduce(x := every_second(rank + 1), 1)
        equal(x, total if rank == 1 else rank + 1)
        dist.all_gather(out := [every_second(-1) for _ in range(n)], every_second(rank))
        assert all(torch.equal(a, b) for a, b in zip(out, by_rank))
        dist.all_gather(out := [torch.tensor(-1, dtype=dtype).expand(3, 2) for _ in range(n)], every_second(rank))
        assert all(torch.equal(a, b) for a, b in zip(out, by_rank))
        dist.gather(every_second(rank), out := [every_second(-1) for _ in range(n)] if rank == 0 else None)
        assert out is None or all(torch.equal(a, b) for a, b in zip(out, by_rank))
        dist.scatter(x := every_second(-1), by_rank if rank == 0 else None)
        equal(x, rank)
        dist.reduce_scatter(x := every_second(-1), by_rank)
        equal(x, rank * n)
        dist.all_to_all(out := [every_second(-1) for _ in range(n)], [every_second(10 * rank + r) for r in range(n)])
        for r in range(n):
            equal(out[r], 10 * r + rank)
        x, want = torch.zeros(2, n, dtype=dtype).t(), torch.arange(n).view(n, 1)
        dist.all_to_all_single(x, torch.full((2, n), rank, dtype=dtype).t())
        equal(x, want)
        dist.all_gather_into_tensor(x := torch.zeros(2, n, dtype=dtype).t(), torch.full((4,), rank, dtype=dtype)[::2])
        equal(x, want)
        if rank == 0:
            dist.recv(x := every_second(-1), src=1)
            equal(x, 7)
        elif rank == 1:
            dist.send(every_second(7), dst=0)


def parameters(rank, n, pipe):
    """Results go into parameters on whatever thread they come: another one has no no_grad."""
    made = lambda: torch.nn.Parameter(torch.full((200, 100), rank + 1.0).t())
    with torch.no_grad():
        dist.broadcast(x := made(), 1)
        equal(x, 2)
        dist.all_reduce_coalesced(many := [made(), made()])
        equal(many[0], 3), equal(many[1], 3)
        dist.all_gather(many, x)
        equal(many[1], 2)


def replaced(rank, n, pipe):
    """The memory of a tensor in flight is held, also where its data is replaced meanwhile."""
    import numpy

    memory = numpy.zeros(2, numpy.float32)
    alive, x = weakref.ref(memory), torch.from_numpy(memory)
    del memory
    work = dist.irecv(x, 0)
    x.data = torch.zeros(1)
    assert alive() is not None, "a receive in flight has lost its memory"
    dist.send(torch.ones(2), 0)
    work.wait()


def kept(rank, n, pipe):
    """What an operation does not write stays as it was, though the tensor is copied on the way."""
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        x = torch.full((4, 2), 7.0).t()[0]
        dist.recv(x, 0)
        equal(x, torch.tensor([1.0, 1.0, 7.0, 7.0]))
    root = torch.ones(3, 3).t()
    dist.broadcast(x := root if rank == 0 else torch.zeros(3, 3), 0)
    equal(x, 1)
    assert rank != 0 or root._version == 0, "the root's tensor was written"
    dist.broadcast(x := torch.ones(1).expand(4) if rank == 0 else torch.zeros(4), 0)
    equal(x, 1)


def lazy(rank, n, pipe):
    """What is sent of a lazy conjugate or negative is its value, and what it takes is so, too."""
    conjugate = lambda z: torch.full((2,), z).conj()
    negative = lambda v: torch._neg_view(torch.full((2,), v))
    for lazily, mine, sent in ((conjugate, 1 + 2j, 1 - 2j), (negative, 3.0, -3.0)):
        x = lazily(mine)
        assert x.is_contiguous()
        dist.broadcast(x if rank == 0 else (x := torch.zeros(2, dtype=x.dtype)), 0)
        equal(x, sent)
        dist.broadcast(x := lazily(mine) if rank == 0 else torch.full((2,), mine), 1)
        equal(x, mine)
    dist.all_gather(many := [negative(1.0) for _ in range(n)], negative(3.0))
    equal(many[0], -3), equal(many[1], -3)
    dist.all_gather_into_tensor(x := torch.zeros(2 * n), negative(3.0))
    equal(x, -3)
    dist.all_reduce(x := negative(1.0))
    equal(x, -n)


def types(rank, n, pipe):
    """Types that differ, or that an operator has not, are refused before anything is done."""
    guard = torch.zeros(64)
    out, wide = guard[:4], torch.ones(4 * n, dtype=torch.float64)
    for call in (lambda: dist.all_gather_into_tensor(out, wide),
                 lambda: dist.all_gather([out] * n, wide),
                 lambda: dist.gather(wide, [out] * n),
                 lambda: dist.scatter(out, [wide] * n),
                 lambda: dist.reduce_scatter(out, [wide] * n),
                 lambda: dist.reduce_scatter_tensor(out, wide),
                 lambda: dist.all_to_all([out] * n, [wide] * n),
                 lambda: dist.all_to_all_single(out, wide)):
        try:
            call()
        except (ValueError, RuntimeError) as e:  # a RuntimeError is torch's, where it checks
            assert "float32" in str(e) and "float64" in str(e), e
        else:
            raise AssertionError("a call with two types was made")
        equal(guard, 0)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            try:
                dist.all_reduce(torch.ones(4, dtype=dtype), op)
            except ValueError as e:
                assert f"not defined on {dtype}, only on integers" in str(e), e
            else:
                raise AssertionError(f"{op} of {dtype}")
    dist.barrier()  # the group lives


def parts(rank, n, pipe):
    """Parts of a wrong number or size are refused before anything is done: two ranks could not tell."""
    guard, short = torch.zeros(6), torch.zeros(3, dtype=torch.int16)
    one, two, three = guard[:1], guard[1:3], guard[3:]
    calls = [lambda: dist.all_gather([two] * 3, two),
             lambda: dist.all_gather_coalesced([[one], [three]], [two]),
             lambda: dist.all_gather_coalesced([[two], [two, two]], [two]),
             lambda: dist.reduce_scatter(two, [two]),
             lambda: dist.all_to_all([two], [two]),
             lambda: dist.all_to_all_single(two, two, [1, 1], [2]),
             lambda: dist.all_to_all_single(short, short),  # an element would be cut in two
             lambda: dist.all_to_all_single(torch.zeros(1, 4), torch.ones(1, 4))]
    if rank == 0:
        calls += [lambda: dist.gather(two, [one, three]), lambda: dist.gather(two, [two]),
                  lambda: dist.scatter(two, [one, three]), lambda: dist.scatter(two, [two] * 3)]
    for i, call in enumerate(calls):
        try:
            call()
        except ValueError:
            equal(guard, 0)
        else:
            raise AssertionError(f"call {i} was made")
    dist.barrier()  # the group lives


def limits(rank, n, pipe):
    """A group's own timeout ends its operations, on ranks that come late too, and those of no other group."""
    import polyrail

    hasty = dist.new_group(timeout=timedelta(seconds=0.3))
    dist.barrier(hasty)
    for late in range(n):
        if rank == late:
            try:
                dist.all_reduce(torch.ones(4), group=hasty)
            except polyrail.Timeout as e:
                assert "timed out after 300ms" in str(e) and e.rank == (0 if late else None), e
            else:
                raise AssertionError("a rank that waited alone was not told")
        x = torch.ones(4)
        dist.all_reduce(x)
        equal(x, n)


def leftovers(rank, n, pipe):
    """Ten thousand operations leave memory, descriptors and threads as they were."""
    def state():
        with open("/proc/self/statm") as f:
            pages = int(f.read().split()[1])
        return pages * 4096, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    small, strided = torch.ones(2), torch.ones(64, 64).t()
    for done in range(10001):
        if done == 2000:
            before = state()
        if done % 10 == 0:  # five kinds in turn, ten in flight
            works = []
        works.append((lambda: dist.all_reduce(small, dist.ReduceOp.MAX, async_op=True),
                      lambda: dist.broadcast(strided, 0, async_op=True),
                      lambda: dist.all_gather([torch.empty(2) for _ in range(n)], small, async_op=True),
                      lambda: dist.barrier(async_op=True),
                      lambda: dist.isend(small, 1) if rank == 0 else dist.irecv(small, 0))[done % 5]())
        if done % 10 == 9:
            for w in works:
                w.wait()
    works[-1].wait()
    del works
    after = state()
    assert after[0] < before[0] + (8 << 20), (before, after)
    assert after[1] == before[1], (before, after)
    assert after[2] <= before[2] + 2, (before, after)  # threads of Go's runtime


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


def tags(rank, n, pipe):
    """A tag that the library would take for another one is refused."""
    for tag in (1 << 32, 1 << 31, -1):
        for call in (dist.isend, dist.irecv):
            try:
                call(torch.ones(1), 0, tag=tag)
            except ValueError as e:
                assert f"tag is {tag}" in str(e), e
            else:
                raise AssertionError(f"{call} with tag {tag}")
    works = dist.isend(torch.ones(1), 0, tag=(1 << 31) - 1), dist.irecv(x := torch.zeros(1), 0, tag=(1 << 31) - 1)
    for w in works:
        w.wait()
    equal(x, 1)


def groups(rank, n, pipe):
    import polyrail.torch

    dist.barrier(dist.new_group())  # by then what connects late has done so
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
    assert len(polyrail._world.worlds) == 1
    assert len(os.listdir("/proc/self/fd")) == before, "a group has made connections"


def turned(rank, n, pipe):
    """Processes form a group again in another order, though DDP holds the one that they had."""
    store = dist.PrefixStore("turned", dist.distributed_c10d._get_default_store())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    dist.destroy_process_group()
    rank = n - 1 - rank
    dist.init_process_group("polyrail", store=store, rank=rank, world_size=n, timeout=LIMIT)
    dist.broadcast(x := torch.tensor([rank]), 0)
    equal(x, 0)
    del model


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
        pipe.send(time.time())
        os.kill(os.getpid(), 9)
    told = None
    for _ in range(2):  # the operation in flight, and one on the broken group
        for wait in (lambda: dist.all_reduce(torch.ones(100)),
                     lambda: dist.all_reduce(torch.ones(100), async_op=True).wait(),
                     lambda: dist.barrier()):
            try:
                wait()
            except polyrail.RankLost as e:
                told = told or time.time()
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
    return told


def callbacks(rank, n, pipe):
    """A callback may wait for any other operation, and holds up none."""
    import polyrail

    x, y = torch.ones(1 << 16), torch.ones(1 << 16)  # nobody polls for so much
    many = [torch.ones(1 << 16) for _ in range(20)]
    hasty = dist.new_group(timeout=timedelta(seconds=0.3))
    if rank == 1:  # each operation begins here when rank 0 has its callback
        for tensors in ([x, y], many):
            dist.recv(torch.zeros(1), 0)
            works = [dist.all_reduce(t, async_op=True) for t in tensors]
            for w in works:
                w.wait()
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(x)
        dist.barrier()
        return
    tell = lambda: dist.send(torch.ones(1), 1)

    def another(future):
        return dist.all_reduce(y, async_op=True).get_future().wait()

    future = dist.all_reduce(x, async_op=True).get_future().then(another)
    tell()
    equal(future.wait()[0], n)

    works = [dist.all_reduce(t, async_op=True) for t in many]  # they may end together
    futures = [w.get_future().then(lambda _: works[-1].wait()) for w in works[:-1]]
    tell()
    torch.futures.wait_all(futures)
    equal(torch.stack(many), n)

    late = threading.Event()
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda _: late.wait())
    tell()
    try:
        dist.all_reduce(torch.ones(1 << 16), group=hasty)
    except polyrail.Timeout:
        late.set()
    future.wait()
    dist.barrier()


def forked(rank, n, pipe):
    """A fork ends as a program does, at once, also where its parent was about to tell of a call."""
    from polyrail._completions import completions

    with completions()._lock:
        child = os.fork()
        if child == 0:
            atexit._run_exitfuncs()
            os._exit(7)
    limit = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > limit:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError("the fork does not end")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 7


def small(rank, n, pipe):
    """What ends at once needs no other thread."""
    x = torch.ones(8)
    for _ in range(100):
        for work in (dist.all_reduce(x, async_op=True), dist.barrier(async_op=True)):
            assert work.is_completed()
            work.wait()
            work.wait(timeout=timedelta(0))  # none
    equal(x, 1)


def futures(rank, n, pipe):
    """The value of a future is a list of outputs, also where a call has one tensor: as Gloo's and NCCL's."""
    x, total = torch.arange(2.0 * n), torch.arange(2.0 * n) * n
    for make, want in (
        (lambda o: dist.all_to_all_single(o, x, async_op=True), x.view(n, 2)[rank].repeat(n)),
        (lambda o: dist.all_to_all_single(o, x, [2] * n, [2] * n, async_op=True), x.view(n, 2)[rank].repeat(n)),
        (lambda o: dist.all_gather_into_tensor(o, x[:2] + rank, async_op=True),
         torch.cat([x[:2] + r for r in range(n)])),
    ):
        value = make(torch.zeros(2 * n)).get_future().wait()
        equal(value[0], want)
    value = dist.reduce_scatter_tensor(torch.zeros(2), x, async_op=True).get_future().wait()
    equal(value[0], total.view(n, 2)[rank])


def retried(rank, n, pipe):
    """A group that could not be formed leaves no node behind."""
    import polyrail.torch
    from polyrail import _world

    dist.destroy_process_group()
    folder, rails = os.path.dirname(pipe.recv()), os.environ["POLYRAIL_RAILS"]
    os.environ["POLYRAIL_BIND"] = "127.0.0.2:0"
    for name, good in (("bad", rank == 0), ("good", True)):
        os.environ["POLYRAIL_RAILS"] = rails if good else "x=tcp:no-such-device"
        try:
            dist.init_process_group("polyrail", init_method=f"file://{folder}/{name}", rank=rank, world_size=n,
                                    timeout=timedelta(seconds=3 if name == "bad" else 30))
            assert name == "good"
        except (polyrail.RailFailed, polyrail.Timeout):
            assert name == "bad"
            assert not _world.worlds, _world.worlds
    assert len(polyrail.torch.rails()) == 2, polyrail.torch.rails()
    (world,) = _world.worlds.values()
    assert world.node.address.startswith("127.0.0.2:"), world.node.address


class Torch(unittest.TestCase):
    def run_ranks(self, story, n, dies=()):
        spawn = multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory() as folder:
            ranks, answers = [], []
            for rank in range(n):
                mine, theirs = spawn.Pipe()
                p = spawn.Process(target=rank_main, args=(story, rank, n, folder + "/store", theirs))
                p.start()
                theirs.close()
                if story == "retried":
                    mine.send(folder + "/store")
                ranks.append((p, mine))
            for rank, (p, pipe) in enumerate(ranks):
                said = pipe.recv() if pipe.poll(90) else RuntimeError("it said nothing in 90 s")
                if isinstance(said, Exception):
                    for q, _ in ranks:
                        q.kill()
                    self.fail(f"rank {rank}: {said}")
                answers.append(said)
            for rank, (p, _) in enumerate(ranks):
                p.join(30)
                self.assertEqual(p.exitcode, -9 if rank in dies else 0)
            return answers

    def test_collectives(self):
        for n in (2, 3):
            self.run_ranks("collectives", n)

    def test_a_group_that_is_not_formed_leaves_nothing(self):
        self.run_ranks("retried", 2)

    def test_futures_hold_lists(self):
        self.run_ranks("futures", 2)

    def test_the_first_error_is_that_of_the_first_operation(self):
        import polyrail
        from polyrail.torch import ProcessGroup

        group = ProcessGroup.__new__(ProcessGroup)
        torch.distributed.ProcessGroup.__init__(group, 0, 1)
        group.failure = None
        for seq in (7, 5, None, 6):
            group._failed(polyrail.RankLost("lost", seq=seq))
        self.assertEqual(group.failure.seq, 5)

    def test_gossip_listens_on_the_way_to_the_master(self):
        from unittest import mock

        from polyrail import _world

        store = dist.PrefixStore("a", dist.PrefixStore("b", dist.TCPStore("127.0.0.1", 0, 1, True)))
        with mock.patch.dict(os.environ, MASTER_ADDR="192.0.2.1"):
            self.assertEqual(_world._master(store), "127.0.0.1")  # as init_method="tcp://..." says
            self.assertEqual(_world._master(dist.PrefixStore("a", dist.HashStore())), "192.0.2.1")
        self.assertEqual(_world._local_address("127.0.0.1"), "127.0.0.1")
        self.assertEqual(_world._local_address("localhost"), "127.0.0.1")
        self.assertEqual(_world._local_address("no such host"), "127.0.0.1")
        with mock.patch("socket.getaddrinfo", lambda *_, **__: [(2, 2, 17, "", ("127.0.1.1", 9))]):
            self.assertEqual(_world._local_address("myself"), "0.0.0.0")  # as in Debian's /etc/hosts
        if os.path.exists("/proc/net/if_inet6"):
            self.assertEqual(_world._local_address("::1"), "::1")

    def test_a_small_operation_ends_where_it_is_called(self):
        self.run_ranks("small", 1)

    def test_a_fork_ends(self):
        self.run_ranks("forked", 1)

    def test_messages(self):
        self.run_ranks("messages", 3)

    def test_tags_that_cannot_be_are_refused(self):
        self.run_ranks("tags", 1)

    def test_groups_need_no_new_connections(self):
        self.run_ranks("groups", 3)

    def test_ranks_may_change_from_one_group_to_the_next(self):
        self.run_ranks("turned", 2)

    def test_ddp(self):
        self.run_ranks("ddp", 2)

    def test_strided(self):
        self.run_ranks("strided", 3)

    def test_callbacks_may_wait_for_other_operations(self):
        self.run_ranks("callbacks", 2)

    def test_results_go_into_parameters(self):
        self.run_ranks("parameters", 2)

    def test_memory_in_flight_is_held_though_data_is_replaced(self):
        try:
            import numpy  # noqa: F401, whose arrays tell when their memory is freed
        except ImportError:
            self.skipTest("SKIPPED: no numpy")
        self.run_ranks("replaced", 1)

    def test_what_is_not_written_stays(self):
        self.run_ranks("kept", 2)

    def test_lazy_tensors_are_their_values(self):
        self.run_ranks("lazy", 2)

    def test_types_that_differ_are_refused(self):
        self.run_ranks("types", 1)

    def test_parts_that_do_not_fit_are_refused(self):
        self.run_ranks("parts", 2)

    def test_a_group_has_its_own_timeout(self):
        self.run_ranks("limits", 2)

    def test_operations_leave_nothing_behind(self):
        self.run_ranks("leftovers", 2)

    def test_a_lost_rank_is_named(self):
        told = self.run_ranks("lost", 3, dies=(1,))
        late = max(told) - told[1]
        print(f"a killed rank is an exception of the others after {late * 1000:.0f} ms")
        self.assertLess(late, 1.5)  # before the rank timeout, which is 2 s


if __name__ == "__main__":
    unittest.main(verbosity=2)
