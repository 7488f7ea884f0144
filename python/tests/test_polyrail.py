"""The package without numpy or torch: two processes on loopback, one of which is this one."""

import array
import ctypes
import importlib.util
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref
from datetime import timedelta

import polyrail
from polyrail import _abi, _work
from polyrail._buffer import view

# What the rails carried is looked at: shared memory would carry it all.
os.environ["POLYRAIL_SHM"] = "off"

LARGE = 1 << 20  # nobody polls for so much

RAILS = ["x=tcp:127.0.0.1", "y=tcp:127.0.0.2"]


ROOT = pathlib.Path(__file__).parents[2]
KEYS = "POLYRAIL_TEST_KEYS"  # a directory of keys, for both processes


def node(name, **settings):
    settings = {"bind": "127.0.0.1:0", "rails": RAILS, "probe": False, "log_level": "error", **settings}
    if keys := os.environ.get(KEYS):
        settings |= {"cluster": "lab", "tls_cert": f"{keys}/{name}.pem", "tls_key": f"{keys}/{name}-key.pem",
                     "tls_ca": f"{keys}/ca.pem", "gossip_key": f"{keys}/gossip.key"}
    return polyrail.Node(name, **settings)


def other(pipe, story):
    """Rank 1: forms the communicator and tells its part of a story."""
    try:
        with node("b", join=pipe.recv()) as n:
            comm = n.communicator("test", 2, timeout=30)
            pipe.send(globals()[story](n, comm, pipe))
            pipe.recv()  # the other rank has done its part
    except BaseException as e:
        pipe.send(e)
        raise


def calls(n, comm, pipe):
    """Every call, on both ranks. Returns what went wrong, or None."""
    me, they = comm.rank, 1 - comm.rank
    ints = lambda *v: array.array("i", v)

    x = ints(me, 2, 3)
    comm.all_reduce(x)
    assert x == ints(1, 4, 6), x
    out = ints(0, 0, 0)
    comm.all_reduce(x, "max", out=out, name="named")
    assert out == x
    comm.reduce(ints(me + 1), out := ints(0), "prod", root=1)
    assert out[0] == (2 if me == 1 else 0)
    x = ints(77 if me == 0 else 0)
    comm.broadcast(x, root=0)
    assert x[0] == 77
    all_ = ints(0, 0)
    comm.all_gather(all_, ints(me + 5))
    assert all_ == ints(5, 6)
    uneven = ints(0, 0, 0)
    comm.all_gather(uneven, ints(*[me] * (me + 1)), counts=[1, 2])
    assert uneven == ints(0, 1, 1)
    part = ints(0)
    comm.reduce_scatter(part, ints(10, 20))
    assert part[0] == 20 * (me + 1)
    comm.gather(ints(me), all_ if me == 0 else None)
    assert me == 1 or all_ == ints(0, 1)
    comm.scatter(part, ints(8, 9) if me == 0 else None)
    assert part[0] == 8 + me
    comm.all_to_all(all_, ints(10 * me, 10 * me + 1))
    assert all_ == ints(me, 10 + me)
    got = ints(0, 0) if me == 0 else ints(0, 0, 0, 0)
    comm.all_to_all(got, ints(me, me, me), send_counts=[1, 2], recv_counts=[me + 1, me + 1])
    assert list(got) == [0] * (me + 1) + [1] * (me + 1), got
    x = ints(me + 1)
    comm.scan(x)
    assert x[0] == (3 if me else 1)
    comm.scan(x, exclusive=True)
    assert x[0] == 1
    many = [bytearray([me]), bytearray([1, me])]
    comm.all_reduce_batch(many)
    assert many == [bytearray([1]), bytearray([2, 1])]
    half = bytearray(b"\x80\x3f") * 4  # 1.0 as bfloat16
    comm.all_reduce(half, dtype="bfloat16")
    assert half == bytearray(b"\x00\x40") * 4
    flags = memoryview(bytearray([1, me, 0])).cast("?")
    comm.all_reduce(flags)
    assert flags.cast("B") == b"\1\1\0", bytes(flags)  # bools
    comm.all_reduce_batch([flags])
    assert flags.cast("B") == b"\1\1\0", bytes(flags)
    comm.barrier()

    works = [comm.start_all_reduce(ints(*[i + me] * 5000)) for i in range(40)]
    for w in works:
        w.wait()
        assert w.done and w.seq
    mine, sums = ints(me, 1), ints(0, 0)
    call = comm.prepare_all_reduce(mine, out=sums)
    for i in range(3):
        mine[1] = i
        call.run()
        assert sums == ints(1, 2 * i), sums
    mine[1] = 7
    call.start().wait()
    assert sums == ints(1, 14), sums
    gather = comm.prepare_all_gather(uneven, ints(*[me + 3] * (me + 1)), counts=[1, 2], name="kept")
    for _ in range(3):
        uneven[:] = ints(0, 0, 0)
        gather.run() if me else comm.all_gather(uneven, ints(3), counts=[1, 2], name="kept")
        assert uneven == ints(3, 4, 4), uneven
    receive = comm.start_recv(buf := ints(0, 0, 0), tag=3)
    assert comm.start_send(ints(me, 4), they, 3).wait() is None
    receive.wait(10)
    assert receive.status == (they, 3, 2) and buf == ints(they, 4, 0), (receive.status, buf)
    if me == 0:
        comm.send(b"hello", 1, 9)
    else:
        assert comm.recv(b := bytearray(9)) == (0, 9, 5) and b[:5] == b"hello"

    twin, only, turned = comm.dup(), comm.sub([1]), comm.split(0, -me)
    assert (only is None) == (me == 0) and turned.rank == they and twin.nodes == ["a", "b"]
    for c in (twin, only, turned):
        if c is not None:
            c.barrier()
            c.close()
            c.close()
    rails = n.rails
    assert [r.name for r in rails] == ["x", "y"] and rails[0].up and rails[0].bytes_sent > 0
    comm.close()


def many(n, comm, pipe):
    """Ten thousand operations and some before, of every way to make one."""
    for count in (1000, 10000):
        b, large = bytearray(8), bytearray(1 << 20)
        call = comm.prepare_all_reduce(b)
        for i in range(count // 5):
            comm.all_reduce(b)
            (call if i % 2 else comm.prepare_all_reduce(b)).run()
            comm.start_all_reduce(b).wait()
            if comm.rank == i % 2:
                comm.send(b, 1 - comm.rank)
            else:
                comm.recv(b)
            comm.barrier()
        for _ in range(count // 100):
            comm.all_reduce(large)
        yield state()


def state():
    """This process's resident bytes, descriptors and threads."""
    with open("/proc/self/statm") as f:
        pages = int(f.read().split()[1])
    return pages * 4096, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def many_there(n, comm, pipe):
    return list(many(n, comm, pipe))


def quiet(n, comm, pipe):
    """Does nothing until it is told to."""
    pipe.send("ready")
    return pipe.recv()


class Pair(unittest.TestCase):
    def start(self, story):
        pipe, end = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=other, args=(end, story))
        process.start()
        self.node = node("a")
        self.addCleanup(self.node.close)
        pipe.send(self.node.address)
        self.comm = self.node.communicator("test", 2, timeout=30)
        self.pipe, self.process = pipe, process

    def finish(self):
        said = self.pipe.recv()
        if isinstance(said, BaseException):
            raise said
        self.pipe.send("end")
        self.process.join()
        return said

    def test_every_call(self):
        self.start("calls")
        calls(self.node, self.comm, self.pipe)
        self.finish()

    @unittest.skipUnless(shutil.which("go"), "SKIPPED: there is no go to make keys with")
    def test_every_call_under_keys(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        keys = f"{folder}/keys"
        for args in (["init", "--cluster", "lab", "--dir", keys], ["node", "--dir", keys, "a", "b"]):
            subprocess.run(["go", "run", "./cmd/node", "keys", *args], cwd=ROOT, check=True, capture_output=True)
        with unittest.mock.patch.dict(os.environ, {KEYS: keys}):
            self.test_every_call()
        with self.assertRaisesRegex(polyrail.Error, "no seed reached"):  # who has none is turned away
            stranger = node("c", join=self.node.address)
            self.addCleanup(stranger.close)
            stranger.communicator("test", 2, timeout=3)

    def test_a_lost_rank_is_an_error_that_names_it(self):
        self.start("quiet")
        self.pipe.recv()
        events = self.node.events(timeout=30)
        work = self.comm.start_all_reduce(bytearray(1 << 20))
        self.process.kill()
        began = time.monotonic()
        with self.assertRaises(polyrail.RankLost) as caught:
            work.wait()
        self.assertLess(time.monotonic() - began, 5)
        e = caught.exception
        self.assertEqual((e.rank, e.node), (1, "b"))
        self.assertIsNotNone(e.seq)
        self.assertIsInstance(self.comm.error, polyrail.RankLost)
        with self.assertRaises(polyrail.RankLost):
            self.comm.barrier()
        lost = next(v for v in events if v.kind == "rank lost")
        self.assertEqual((lost.rank, lost.node), (1, "b"))
        self.process.join()

    def reduce_while(self, does, size):
        """Reduces what only this rank has. Another thread does something once the call waits, if threads run."""
        waits, wait = threading.Event(), _abi.lib.wait

        def told(*args):
            waits.set()
            return wait(*args)

        def run():
            waits.wait()
            does()

        other = threading.Thread(target=run)
        other.start()
        try:
            with unittest.mock.patch.object(_abi.lib, "wait", told):
                self.comm.all_reduce(bytearray(size))
        finally:
            other.join()

    def test_other_threads_run_and_ctrl_c_ends_the_call(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        self.addCleanup(signal.signal, signal.SIGINT, before)
        for size in (8, LARGE):
            with self.subTest(size=size):
                self.start("quiet")
                self.pipe.recv()
                with self.assertRaises(KeyboardInterrupt):
                    self.reduce_while(lambda: os.kill(os.getpid(), signal.SIGINT), size)
                self.assertIsInstance(self.comm.error, polyrail.Error)
                self.pipe.send("go")
                self.finish()

    def test_a_call_that_waits_is_ended_by_what_happens_meanwhile(self):
        self.start("quiet")
        self.pipe.recv()
        with self.assertRaises(polyrail.Canceled) as caught:
            self.reduce_while(self.comm.abort, LARGE)
        self.assertIsNotNone(caught.exception.seq)
        self.pipe.send("go")
        self.finish()
        self.start("quiet")
        self.pipe.recv()
        with self.assertRaises(polyrail.RankLost) as caught:
            self.reduce_while(self.process.kill, LARGE)
        self.assertEqual((caught.exception.rank, caught.exception.node), (1, "b"))
        self.assertIsNotNone(caught.exception.seq)
        self.process.join()

    def test_a_prepared_call_is_made_by_one_thread_at_a_time(self):
        self.start("quiet")
        self.pipe.recv()
        buffer, waits = array.array("i", [1]), threading.Event()
        call, wait = self.comm.prepare_all_reduce(buffer), _abi.lib.wait

        def told(*args):
            waits.set()
            return wait(*args)

        def run():
            with self.assertRaises(polyrail.Error):
                call.run()

        with unittest.mock.patch.object(_abi.lib, "wait", told):
            other = threading.Thread(target=run)
            other.start()
            waits.wait()
            for way in (call.run, call.start):
                with self.assertRaisesRegex(RuntimeError, "another thread"):
                    way()
            with self.assertRaises(BufferError):
                buffer.append(2)
            self.comm.abort()
            other.join()
        with self.assertRaises(polyrail.Error):
            call.run()  # it can be made again; what it says is that the communicator is broken
        call = way = None
        buffer.append(2)
        self.pipe.send("go")
        self.finish()

    def test_a_wait_that_times_out_ends_nothing(self):
        self.start("quiet")
        self.pipe.recv()
        work = self.comm.start_recv(bytearray(8))
        with self.assertRaises(polyrail.Timeout):
            work.wait(0.01)
        self.assertFalse(work.done)
        work.cancel()
        with self.assertRaises(polyrail.Canceled):
            work.wait()
        self.assertIsNone(self.comm.error)
        self.pipe.send("go")
        self.finish()

    def test_memory_in_flight_is_held_though_the_communicator_is_dropped(self):
        self.start("quiet")
        self.pipe.recv()
        buffer, handle = bytearray(8), self.comm._handle
        self.comm.start_recv(buffer, 1)
        self.comm = None
        with self.assertRaises(BufferError):
            buffer.append(1)  # it would move
        _work.flying.abort(handle)
        buffer.append(1)
        self.pipe.send("go")
        self.finish()

    def test_an_exception_leaves_nothing_in_flight(self):
        self.start("quiet")
        self.pipe.recv()
        buffers = bytearray(8), bytearray(LARGE)
        with self.assertRaises(KeyError), self.comm as comm:
            comm.start_recv(buffers[0], 1)
            comm.start_all_reduce(buffers[1])
            raise KeyError
        for b in buffers:
            b.append(1)  # the library does not use it any more
        self.pipe.send("go")
        self.finish()

    def test_ten_thousand_operations_leave_nothing_behind(self):
        self.start("many_there")
        here = list(many(self.node, self.comm, self.pipe))
        there = self.finish()
        for before, after in (here, there):
            self.assertLess(after[0], before[0] + (8 << 20))
            self.assertEqual(after[1], before[1])
            self.assertLessEqual(after[2], before[2] + 2)  # Go's runtime may have started some

    def test_a_fork_is_told_so(self):
        with node("alone") as n:
            child = os.fork()
            if child == 0:
                try:
                    n.communicator("x", 1)
                except polyrail.ForkedError:
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            n.communicator("x", 1, timeout=30).close()


class Zero:
    """A whole number that is no int."""

    def __index__(self):
        return 0


class Alone(unittest.TestCase):
    def test_a_setting_that_is_a_time_has_a_unit(self):
        with self.assertRaisesRegex(polyrail.ConfigError, 'operation-timeout.*"1" has no unit.*"1s"'):
            node("x", operation_timeout=1)
        with self.assertRaisesRegex(polyrail.ConfigError, "rank timeout 1.5ms"):  # too short, and understood
            node("x", rank_timeout=timedelta(milliseconds=1.5))

    def test_wrong_arguments_are_named(self):
        with self.assertRaisesRegex(polyrail.ConfigError, "nonsense"):
            node("x", nonsense=1)
        with node("x") as n:
            with self.assertRaisesRegex(polyrail.Timeout, "1 of 2 nodes have asked"):
                n.communicator("two", 2, timeout=0.3)
            comm = n.communicator("one", 1)
            for no_operator in ("median", "", None):
                with self.assertRaises(ValueError):
                    comm.all_reduce(bytearray(1), no_operator)
            with self.assertRaises(TypeError):
                comm.all_reduce(bytearray(1), dtype="int7")
            with self.assertRaises(TypeError):
                comm.all_reduce(array.array("h", [1]))
            with self.assertRaises((BufferError, TypeError)):
                comm.all_reduce(b"read only")
            for call in (comm.all_reduce, comm.start_all_reduce, comm.broadcast, comm.scan, comm.reduce, comm.scatter):
                with self.assertRaisesRegex(TypeError, "a buffer is needed, not None"):
                    call(None)  # and the communicator lives
            for call in (comm.reduce, comm.start_gather, comm.prepare_scatter):
                with self.assertRaisesRegex(TypeError, "a buffer is needed, not None: this rank is the root"):
                    call(bytearray(1))  # the same
            with self.assertRaisesRegex(TypeError, "bools and numbers"):
                comm.all_reduce_batch([bytearray(1), memoryview(bytearray(1)).cast("?")])
            comm.all_reduce(bytearray(b"right"))

    def test_what_was_closed_says_so(self):
        with node("x") as n:
            x, comm = bytearray(1), n.communicator("one", 1)
            prepared = comm.prepare_all_reduce(x)
            comm.close()
            for call in (comm.barrier, comm.dup, comm.shrink, prepared.run, prepared.start, lambda: comm.all_reduce(x),
                         lambda: comm.start_broadcast(x), lambda: comm.recv(x), lambda: comm.nodes):  # fmt: skip
                with self.assertRaisesRegex(polyrail.Closed, "^the communicator is closed$"):
                    call()
            self.assertIsInstance(comm.error, polyrail.Closed)
            comm.abort()
            comm.close()
        for call in (lambda: n.communicator("one", 1), n.events, lambda: n.rails, lambda: n.address):
            with self.assertRaisesRegex(polyrail.Closed, "^the node is closed$"):
                call()
        n.close()

    def test_what_an_interrupted_call_has_made_is_not_left_behind(self):
        lib, minute = _abi.lib, 60 * 10**9
        wait = lib.wait

        def too_late(work, _):
            return _abi.OK if work else -1

        def wait_and_interrupt(work, _, *rest):
            wait(work, minute, *rest)
            raise KeyboardInterrupt

        for what, patience, replaced in (
            ("when it has ended", minute, {}),
            ("and ends before it is canceled", 0, {"cancel": too_late}),
            ("when its end was waited for", 0, {"wait": wait_and_interrupt}),
        ):
            with self.subTest(what):
                self.interrupt(patience, replaced)

    def interrupt(self, patience, replaced):
        made = []

        def interrupted(name):
            function = getattr(_abi.lib, name)

            def call(*args):
                args[-3]._obj.patience_ns = patience
                made.append(args[-2]._obj)
                if function(*args) == _abi.PENDING and "wait" in replaced:
                    return _abi.PENDING
                raise KeyboardInterrupt

            return unittest.mock.patch.multiple(_abi.lib, **{name: call}, **replaced)

        with node("x") as n, n.communicator("one", 1) as comm:
            for name, make in {
                "comm_dup": comm.dup,
                "comm_split": lambda: comm.split(0),
                "comm_form": lambda: n.communicator("two", 1),
            }.items():
                with interrupted(name), self.assertRaises(KeyboardInterrupt):
                    make()
                self.assertEqual(_abi.lib.comm_size(made[-1].handle), -1, name)
            comm.barrier()
            n.communicator("two", 1, timeout=30).close()
        with interrupted("node_open"), self.assertRaises(KeyboardInterrupt):
            node("y")
        self.assertTrue(all(r.handle for r in made))
        self.assertNotEqual(_abi.lib.node_close(made[-1].handle, None, None), _abi.OK)

    def test_events_end_with_their_node_and_leave_no_descriptor(self):
        with node("x") as n:
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                n.events()  # nobody iterates
            self.assertLess(len(os.listdir("/proc/self/fd")), before + 10)
            seen = []
            watcher = threading.Thread(target=lambda: seen.extend(e.kind for e in n.events()), daemon=True)
            events = n.events()
            watcher.start()
            with n.communicator("one", 1):
                pass
        self.assertIn("communicator formed", [e.kind for e in events])
        watcher.join(30)
        self.assertFalse(watcher.is_alive(), seen)

    def test_buffers_are_used_where_they_are(self):
        x = array.array("d", [1, 2, 3])
        for b, writable in ((x, True), (memoryview(x), True), (memoryview(x).toreadonly(), False)):
            self.assertEqual(view(b, writable)[:2], x.buffer_info())
        address, count, *_ = view(memoryview(x)[1:], True)
        self.assertEqual((address, count), (x.buffer_info()[0] + 8, 2))
        self.assertEqual(view(bytearray(), True)[1:3], (0, _abi.DTYPES["uint8"]))
        with self.assertRaises((BufferError, TypeError)):
            view(memoryview(x)[::2], True)
        y = array.array("d", [1])
        held = view(y, True)
        with self.assertRaises(BufferError):
            y.append(2)  # it would move
        del held
        y.append(2)

    def test_elements_are_of_the_type_that_a_buffer_says(self):
        for format, dtype in {"b": "int8", "B": "uint8", "?": "uint8", "i": "int32", "I": "uint32", "q": "int64",
                              "l": "int64", "Q": "uint64", "f": "float32", "d": "float64"}.items():  # fmt: skip
            b = memoryview(bytearray(24)).cast(format)
            self.assertEqual(view(b, True)[1:3], (len(b), _abi.DTYPES[dtype]), format)
        self.assertEqual(view((ctypes.c_float * 3)(), True)[1:3], (3, _abi.DTYPES["float32"]))  # "<f"
        for b in ((ctypes.c_short * 3)(), memoryview(bytearray(8)).cast("P"), ctypes.c_longdouble()):
            with self.assertRaisesRegex(TypeError, "name one with dtype="):
                view(b, True)
            self.assertEqual(view(b, True, "uint8")[1], memoryview(b).nbytes)
        with self.assertRaises(TypeError):
            view([1.0], True)

    def test_numbers_that_cannot_be_are_named(self):
        x = bytearray(8)
        with node("x") as n, n.communicator("one", 1) as comm:
            for name, call in {
                "root": lambda v: comm.broadcast(x, root=v),
                "to": lambda v: comm.send(x, v),
                "source": lambda v: comm.start_recv(x, v),
                "tag": lambda v: comm.start_send(x, 0, v),
                "color": lambda v: comm.split(v),
                "key": lambda v: comm.split(0, v),
                "ranks": lambda v: comm.sub([v]),
                "counts": lambda v: comm.all_gather(x, x, counts=[v]),
                "send_counts": lambda v: comm.all_to_all(x, x, send_counts=[v], recv_counts=[8]),
                "recv_counts": lambda v: comm.prepare_all_to_all(x, x, send_counts=[8], recv_counts=[v]),
                "size": lambda v: n.communicator("two", v),
            }.items():
                for wrong in ("0", 0.0, None):
                    with self.assertRaisesRegex(TypeError, f"^{name} must be a whole number, not {wrong!r}"):
                        call(wrong)
                with self.assertRaisesRegex(ValueError, f"^{name} is "):
                    call(1 << 63)
            for call in (lambda v: comm.all_reduce(x, name=v), lambda v: n.communicator(v, 1)):
                with self.assertRaisesRegex(TypeError, "^name must be a string, not 7"):
                    call(7)
                with self.assertRaisesRegex(ValueError, "^name holds a 0 byte"):
                    call("one\0two")
            with self.assertRaisesRegex(ValueError, "^cluster holds a 0 byte"):
                node("y", cluster="one\0two")
            comm.broadcast(x, root=Zero())  # as numpy's numbers are
            with self.assertRaisesRegex(ValueError, "counts has 2 numbers for 1 ranks"):
                comm.all_gather(x, x, counts=[4, 4])
            for root in (1, -1):  # which breaks a communicator, as on the ranks that have another one
                with comm.dup() as twin, self.assertRaisesRegex(polyrail.Error, f"root {root} of 1 ranks"):
                    twin.broadcast(x, root=root)

    def test_calls_are_made_in_c_where_there_are_headers(self):
        headers = pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
        made = importlib.util.find_spec("polyrail._quick") is not None
        self.assertEqual(made, headers and "POLYRAIL_TEST_SLOW" not in os.environ)

    def test_the_end_of_the_program_ends_what_is_in_flight(self):
        program = '''
import atexit
atexit.register(lambda: print("canceled" if work._error else "in flight"))  # called last
import polyrail
node = polyrail.Node("x", bind="127.0.0.1:0", rails="x=tcp:127.0.0.1", probe=False, log_level="error")
work = node.communicator("one", 1).start_recv(bytearray(8))
'''
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "canceled\n", ""))

    def test_the_end_waits_for_a_callback_whose_thread_leads_no_more(self):
        from polyrail._completions import Completions

        with node("a") as n, n.communicator("solo", 1) as comm:
            done, begun, ended = Completions(), threading.Event(), []

            def then(error, result):
                begun.set()
                time.sleep(0.3)  # another thread leads after 2 ms
                ended.append(error)

            address, count, dtype, keep = view(bytearray(8), True)
            done.start(_abi.lib.recv, (comm._handle, address, count, dtype, 0, 0), then, 30)
            comm.send(bytes(8), 0)
            self.assertTrue(begun.wait(10))
            time.sleep(0.05)
            done.close()
            self.assertEqual(ended, [None])

    def test_a_call_that_an_exception_interrupts_is_not_waited_for(self):
        from polyrail._completions import Completions

        done = Completions()

        def call(*args):
            raise KeyboardInterrupt  # as where Ctrl-C comes while the call is in C

        self.assertRaises(KeyboardInterrupt, done.start, call, (), lambda error, result: None, 30)
        self.assertEqual(done._waiting, {})
        done.close()

    def test_a_call_on_its_way_into_the_library_has_not_ended(self):
        with node("x") as n, n.communicator("one", 1) as comm:
            on_its_way, go, recv, works = threading.Event(), threading.Event(), _abi.lib.recv, []

            def slow(*args):
                on_its_way.set()
                go.wait()
                return recv(*args)

            buffer = bytearray(2)
            with unittest.mock.patch.object(_abi.lib, "recv", slow):
                other = threading.Thread(target=lambda: works.append(comm.start_recv(buffer, 0, 5)))
                other.start()
                on_its_way.wait()
                for _ in range(2):
                    comm.start_all_reduce(bytearray(1)).wait()  # looks at it
                go.set()
                other.join()
            self.assertFalse(works[0].done)
            with self.assertRaises(BufferError):
                buffer.append(1)
            comm.send(b"hi", 0, 5)
            works[0].wait()
            self.assertEqual(buffer, b"hi")

    def test_whether_a_call_has_ended_is_said_while_another_thread_waits(self):
        with node("x") as n, n.communicator("one", 1) as comm:
            work = comm.start_recv(bytearray(1))
            with work._lock:  # as a thread in work.wait
                looker = threading.Thread(target=lambda: work.done, daemon=True)
                looker.start()
                looker.join(30)
                self.assertFalse(looker.is_alive())
            comm.send(bytearray(1), 0)
            work.wait()
            self.assertTrue(work.done)

    def test_calls_that_nobody_waits_for_are_let_go(self):
        with node("x") as n, n.communicator("one", 1) as comm:
            first = comm.start_recv(bytearray(1), 0, 1)  # the others end before it
            for _ in range(100):
                comm.start_recv(bytearray(1), 0, 2)
            last = comm.start_recv(bytearray(1), 0, 2)
            for _ in range(101):
                comm.send(b"x", 0, 2)
            last.wait()
            for _ in range(3):
                comm.start_all_reduce(bytearray(1)).wait()
            self.assertEqual(_work.flying.of(comm._handle), [first])
            comm.send(b"x", 0, 1)
            first.wait()

    def test_threads_with_communicators_of_their_own_need_no_order(self):
        with node("x") as n, n.communicator("one", 1) as comm, comm.dup() as twin:
            wrong = []

            def reduce(comm, first):
                for i in range(first, first + 1000):
                    source, out = array.array("q", [i] * (1 + i % 3)), array.array("q", [0] * (1 + i % 3))
                    comm.all_reduce(source, "max", out=out, name=None if i % 2 else f"{i}")
                    if out != source:
                        wrong.append((source, out))

            threads = [threading.Thread(target=reduce, args=a) for a in ((comm, 0), (twin, 10**6))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])

    def test_tensors_whose_memory_is_not_their_value_are_refused(self):
        try:
            import torch
        except ImportError:
            self.skipTest("SKIPPED: no torch")
        x = torch.ones(2)
        self.assertEqual(view(x, True)[:2], (x.data_ptr(), 2))
        for lazy in (torch._neg_view(x), torch.ones(2, dtype=torch.complex64).conj()):
            with self.assertRaisesRegex(BufferError, "resolve_"):
                view(lazy, True, "float32")

    def test_memory_of_a_tensor_is_held_though_its_data_is_replaced(self):
        try:
            import numpy
            import torch
        except ImportError:
            self.skipTest("SKIPPED: no torch")
        with node("x") as n, n.communicator("one", 1) as comm:
            memory = numpy.zeros(2, numpy.float32)
            alive, x = weakref.ref(memory), torch.from_numpy(memory)
            del memory
            work = comm.start_recv(x, 0)
            x.data = torch.zeros(1)
            self.assertIsNotNone(alive(), "a receive in flight has lost its memory")
            comm.send(numpy.ones(2, numpy.float32), 0)
            work.wait()
            self.assertIsNone(alive())

    def test_numpy_arrays_are_buffers(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("SKIPPED: no numpy")
        with node("x") as n, n.communicator("one", 1) as comm:
            x = numpy.arange(6, dtype=numpy.float16)
            comm.all_reduce(x)
            comm.all_reduce_batch(numpy.ones((2, 3)))  # a buffer of buffers
            self.assertEqual(x[5], 5)
            with self.assertRaises((BufferError, ValueError)):
                comm.all_reduce(x[::2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
