"""Gloo, as torch.distributed offers it, as a peer of nexar-compare.

    python3 gloo.py RANKS OPERATION:BYTES ...

prints a JSON object per measurement: microseconds of one operation, back to back, on the slowest rank. Sizes are
of all blocks together, data are f32, reductions are sums in place. One process per rank, each with one thread.
"""

import datetime
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import torch  # noqa: E402  (after the settings above)
import torch.distributed as dist  # noqa: E402

LOOPS = 5
LOOP_BUDGET = 0.25
BATCH_TIME = 0.02
MAX_BATCH = 2048
MAX_ITERATIONS = 10_000
STREAM_MESSAGES = 16
TIMEOUT = datetime.timedelta(seconds=60)


class Work:
    """The operations on buffers of one size."""

    def __init__(self, count):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        # Not zeros: zeroed memory that nobody has touched is one page, and always in the cache.
        self.data = torch.ones(count)
        self.other = torch.ones(count)
        self.block = torch.ones(count // self.ranks)
        self.empty = torch.zeros(1)

    def all_reduce(self):
        dist.all_reduce(self.data)

    def barrier(self):
        dist.barrier()

    def broadcast(self):
        dist.broadcast(self.data, 0)

    def all_gather(self):
        dist.all_gather_into_tensor(self.data, self.block)

    def reduce_scatter(self):
        dist.reduce_scatter_tensor(self.block, self.data)

    def all_to_all(self):
        dist.all_to_all_single(self.other, self.data)

    def round_trip(self):
        if self.rank == 0:
            dist.send(self.data, 1)
            dist.recv(self.other, 1)
        elif self.rank == 1:
            dist.recv(self.other, 0)
            dist.send(self.data, 0)

    def stream(self):
        """Messages one way, two at a time, and an answer when all have arrived."""
        if self.rank > 1:
            return
        move = dist.isend if self.rank == 0 else dist.irecv
        lanes, requests = (self.data, self.other), [None, None]
        for message in range(STREAM_MESSAGES):
            lane = message % 2
            if requests[lane] is not None:
                requests[lane].wait()
            requests[lane] = move(lanes[lane], 1 - self.rank, tag=lane)
        for request in requests:
            request.wait()
        answer = dist.recv if self.rank == 0 else dist.send
        answer(self.empty, 1 - self.rank, tag=2)


# What runs, of how many operations one run consists, and whether only the time of rank 0 counts.
OPERATIONS = {
    "all-reduce": (Work.all_reduce, 1, False),
    "barrier": (Work.barrier, 1, False),
    "broadcast": (Work.broadcast, 1, False),
    "all-gather": (Work.all_gather, 1, False),
    "reduce-scatter": (Work.reduce_scatter, 1, False),
    "all-to-all": (Work.all_to_all, 1, False),
    "half-round-trip": (Work.round_trip, 2, True),
    "stream": (Work.stream, STREAM_MESSAGES, True),
}


def batch(run, work, times):
    start = time.perf_counter()
    for _ in range(times):
        run(work)
    return time.perf_counter() - start


def iterations(run, work):
    """Back-to-back operations in a loop of the measurement: the same number on every rank."""
    batch(run, work, 1)
    size = 1
    while True:
        dist.barrier()
        elapsed = torch.tensor([batch(run, work, size)], dtype=torch.float64)
        dist.broadcast(elapsed, 0)
        elapsed = elapsed.item()
        if elapsed >= BATCH_TIME or size >= MAX_BATCH:
            fit = int(LOOP_BUDGET / LOOPS / (elapsed / size + 1e-9))
            return min(max(fit, 1), MAX_ITERATIONS)
        size *= 2


def measure(name, size):
    run, parts, only_rank_0_is_timed = OPERATIONS[name]
    work = Work(size // 4)
    times_each = iterations(run, work)
    times = []
    for _ in range(LOOPS):
        dist.barrier()
        times.append(batch(run, work, times_each) / times_each)
    if only_rank_0_is_timed and work.rank != 0:
        times = [0.0] * LOOPS
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if work.rank == 0:
        microseconds = slowest.median().item() * 1e6 / parts
        result = {"operation": name, "ranks": work.ranks, "bytes": size, "us": microseconds}
        print(json.dumps(result), flush=True)


def rank_main(rank, ranks, store, items):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=TIMEOUT
    )
    for name, size in items:
        measure(name, size)
    dist.barrier()
    dist.destroy_process_group()


def main():
    ranks = int(sys.argv[1])
    items = []
    for text in sys.argv[2:]:
        name, _, size = text.partition(":")
        if name not in OPERATIONS:
            sys.exit(f"gloo: cannot measure {text}")
        items.append((name, int(size or 0)))
    # Daemons end with this process; importing torch once saves seconds per rank.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        processes = [
            context.Process(target=rank_main, args=(rank, ranks, store, items), daemon=True)
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    sys.exit(any(process.exitcode != 0 for process in processes))


if __name__ == "__main__":
    main()
