/* Open MPI as a peer of nexar-compare.
 *
 *     mpirun -np RANKS openmpi OPERATION:BYTES ...
 *
 * prints a JSON object per measurement: microseconds of one operation, back to back, on the slowest rank. Sizes
 * are of all blocks together, data are f32, reductions are sums in place.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOPS 5
#define LOOP_BUDGET 0.25
#define BATCH_TIME 0.02
#define MAX_BATCH 2048
#define MAX_ITERATIONS 10000
#define STREAM_MESSAGES 16

enum { TAG_DATA, TAG_ANSWER };

/* What is measured, with buffers for it. */
struct work {
    const struct operation *operation;
    int rank, ranks;
    int count; /* elements of all blocks together */
    float *data, *other;
};

struct operation {
    const char *name;
    void (*run)(struct work *);
    double parts; /* one run consists of so many operations */
    int only_rank_0_is_timed;
};

/* Memory that has been written: zeroed memory that nobody has touched is one page, and always in the cache. */
static float *buffer(int count)
{
    float *memory = malloc((count + 1) * sizeof *memory);
    if (memory == NULL) {
        fprintf(stderr, "openmpi: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < count; i++)
        memory[i] = 1;
    return memory;
}

static void all_reduce(struct work *w)
{
    MPI_Allreduce(MPI_IN_PLACE, w->data, w->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(struct work *w)
{
    (void)w;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void broadcast(struct work *w)
{
    MPI_Bcast(w->data, w->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_gather(struct work *w)
{
    int block = w->count / w->ranks;
    MPI_Allgather(w->other, block, MPI_FLOAT, w->data, block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(struct work *w)
{
    int block = w->count / w->ranks;
    MPI_Reduce_scatter_block(w->data, w->other, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(struct work *w)
{
    int block = w->count / w->ranks;
    MPI_Alltoall(w->data, block, MPI_FLOAT, w->other, block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void round_trip(struct work *w)
{
    if (w->rank == 0) {
        MPI_Send(w->data, w->count, MPI_FLOAT, 1, TAG_DATA, MPI_COMM_WORLD);
        MPI_Recv(w->other, w->count, MPI_FLOAT, 1, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (w->rank == 1) {
        MPI_Recv(w->other, w->count, MPI_FLOAT, 0, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(w->data, w->count, MPI_FLOAT, 0, TAG_DATA, MPI_COMM_WORLD);
    }
}

/* Messages one way, two at a time, and an answer when all have arrived. */
static void stream(struct work *w)
{
    float *lanes[2] = {w->data, w->other};
    MPI_Request requests[2];
    if (w->rank > 1)
        return;
    for (int i = 0; i < STREAM_MESSAGES; i++) {
        MPI_Request *request = &requests[i % 2];
        if (i >= 2)
            MPI_Wait(request, MPI_STATUS_IGNORE);
        if (w->rank == 0)
            MPI_Isend(lanes[i % 2], w->count, MPI_FLOAT, 1, TAG_DATA, MPI_COMM_WORLD, request);
        else
            MPI_Irecv(lanes[i % 2], w->count, MPI_FLOAT, 0, TAG_DATA, MPI_COMM_WORLD, request);
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (w->rank == 0)
        MPI_Recv(NULL, 0, MPI_FLOAT, 1, TAG_ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_FLOAT, 0, TAG_ANSWER, MPI_COMM_WORLD);
}

static const struct operation operations[] = {
    {"all-reduce", all_reduce, 1, 0},         {"barrier", barrier, 1, 0},
    {"broadcast", broadcast, 1, 0},           {"all-gather", all_gather, 1, 0},
    {"reduce-scatter", reduce_scatter, 1, 0}, {"all-to-all", all_to_all, 1, 0},
    {"half-round-trip", round_trip, 2, 1},    {"stream", stream, STREAM_MESSAGES, 1},
};

static double batch(struct work *w, long times)
{
    double start = MPI_Wtime();
    for (long i = 0; i < times; i++)
        w->operation->run(w);
    return MPI_Wtime() - start;
}

/* Back-to-back operations in a loop of the measurement: the same number on every rank. */
static long iterations(struct work *w)
{
    double time;
    long size = 1, fit;
    batch(w, 1);
    for (;; size *= 2) {
        MPI_Barrier(MPI_COMM_WORLD);
        time = batch(w, size);
        MPI_Bcast(&time, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (time >= BATCH_TIME || size >= MAX_BATCH)
            break;
    }
    fit = (long)(LOOP_BUDGET / LOOPS / (time / size + 1e-9));
    return fit < 1 ? 1 : fit > MAX_ITERATIONS ? MAX_ITERATIONS : fit;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct work *w, long bytes)
{
    double times[LOOPS], slowest[LOOPS];
    long times_each = iterations(w);
    for (int i = 0; i < LOOPS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        times[i] = batch(w, times_each) / times_each;
        if (w->operation->only_rank_0_is_timed && w->rank != 0)
            times[i] = 0;
    }
    MPI_Reduce(times, slowest, LOOPS, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (w->rank != 0)
        return;
    qsort(slowest, LOOPS, sizeof *slowest, ascending);
    printf("{\"operation\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"us\":%.3f}\n", w->operation->name,
           w->ranks, bytes, slowest[LOOPS / 2] * 1e6 / w->operation->parts);
    fflush(stdout);
}

static void item(const char *text, int rank, int ranks)
{
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    long bytes = colon != NULL ? atol(colon + 1) : 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const char *name = operations[i].name;
        if (strlen(name) != length || strncmp(name, text, length) != 0)
            continue;
        struct work w = {&operations[i], rank, ranks, (int)(bytes / sizeof(float)), NULL, NULL};
        w.data = buffer(w.count);
        w.other = buffer(w.count);
        measure(&w, bytes);
        free(w.data);
        free(w.other);
        return;
    }
    if (rank == 0)
        fprintf(stderr, "openmpi: cannot measure %s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++)
        item(argv[i], rank, ranks);
    return MPI_Finalize();
}
