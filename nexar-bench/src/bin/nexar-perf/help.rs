//! What `--help` says after the options.

pub(crate) const EXAMPLES: &str = "\
Examples:
  nexar-perf all-reduce -n 4                   8 B to 64 MiB, f32 sum
  nexar-perf all-reduce -n 2 --dtype bf16 --op max --max 1M
  nexar-perf gather -n 3 --root 2 --min 1M --max 1G --factor 4
  nexar-perf barrier -n 8 --json -             one JSON object per line
  nexar-perf barrier -n 4 --beside 256M        while another group moves 256 MiB
  nexar-perf send-recv -n 2                    latency and bandwidth of messages
  nexar-perf rpc -n 2 --max 1M --factor 8      remote calls, 8 B to 1 MiB
  nexar-run -n 2 -- nexar-perf all-gather      started by something else";

pub(crate) const DETAILS: &str = "\
Across hosts, start one nexar-perf per rank with NEXAR_RANK, NEXAR_WORLD_SIZE,
NEXAR_SEED (host:port of rank 0) and NEXAR_SECRET in the environment.

Columns of collectives, as in nccl-tests:
  size    bytes of the data of a rank; where it consists of blocks (all-gather,
          gather, scatter, reduce-scatter, all-to-all and their -v), of all
          blocks together; of both blocks of neighbor-all-to-all. A size that
          is no multiple of the element (and of the blocks) is rounded down.
  count   elements; those of one block where all blocks have the same length
  time    of one operation: back-to-back operations divided by their number,
          slowest rank, median of five loops
  algbw   size / time, in GB/s (1e9 bytes)
  busbw   comparable between numbers of ranks: algbw times
          2(n-1)/n  all-reduce, all-reduce-many, all-reduce-compressed
          (n-1)/n   all-gather, gather, scatter, reduce-scatter, all-to-all
                    and their -v
          1         reduce, broadcast, scan, exclusive-scan,
                    neighbor-all-to-all
  #wrong  elements that differ from the exact result, on all ranks together

In the collectives with -v, the block of rank r has about r + 1 of n(n+1)/2
shares of the data: that of the last rank is n times as long as that of the
first. In all-to-all-v, that is the length of what goes to rank r.

all-reduce-compressed is checked otherwise, since its result is not exact: all
ranks have the same bits, and result and residuals add up to the exact sum, up
to rounding. size is that of the data before compression. The operations that
are measured average, whatever --op says. Its JSON has a key more, compressor.

Columns of send-recv, between ranks 0 and 1 (others are idle):
  mean, p50, p99  half a round trip: rank 0 sends a message, and rank 1 one of
          the same size back when it has received it. The mean is of round
          trips back to back, median of five loops; p50 and p99 are of round
          trips timed one by one.
  stream  messages per second from rank 0 to rank 1, and size times that. Each
          rank makes its calls one after the other in two loops at the same
          time. Streams have as many messages as make up 16 MiB, at least 4 and
          at most 256, and end with an answer, which counts.

Columns of rpc, from rank 0 to rank 1 (others are idle). A call is a request of
that size, which the handler sends back as it is:
  mean, p50, p99  a round trip of one caller, measured as those of send-recv
  callers calls per second of 1, 16 and 64 callers, each a task that makes its
          calls one after the other; of 1, it is 1 / mean. Crowds make as many
          calls as make up 16 MiB, at least 64 and at most 1024, start anew,
          and so on.
  #wrong  replies that differ from their requests, in all calls

--json writes one object per size. Keys of collectives: collective, ranks,
transport, dtype, redop, bytes, count, time_us, p50_us, p99_us, algbw_gbps,
busbw_gbps (in GB/s, as in the table) and wrong (null if not checked). p50_us
and p99_us are of single operations, timed one by one, each on its slowest
rank. Keys of send-recv: operation, ranks, transport, dtype, bytes, count,
mean_us, p50_us, p99_us, messages_per_s, stream_gbps (in GB/s) and wrong. Keys
of rpc: operation, ranks, transport, bytes, mean_us, p50_us, p99_us,
calls_per_s_1, calls_per_s_16, calls_per_s_64 and wrong.

Exit status: 0; 1 if an element is wrong; 2 if the arguments do not make sense;
3 if an operation fails; 128 + signal if a signal killed a rank.";
