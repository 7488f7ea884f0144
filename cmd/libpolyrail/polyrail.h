/*
 * polyrail.h: collective operations over all of a host's networks, from C.
 *
 * docs/c.md has a walk through it, and how to build libpolyrail.so. In short:
 *
 *     polyrail_result r;
 *     polyrail_error e;
 *     polyrail_node_open("name=a\nbind=10.0.0.1:7946\nrail=all=tcp:auto\n", NULL, &r, &e);
 *     polyrail_node node = r.handle;
 *     polyrail_comm_form(node, "train", 4, NULL, &r, &e);          // waits for four nodes
 *     polyrail_comm comm = r.handle;
 *     polyrail_allreduce(comm, sum, sum, 1000, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL, &e);
 *
 * Every function may be called on any thread. All ranks of a communicator make the same collective
 * calls in the same order: two threads that share a communicator must order their calls.
 *
 * Functions return POLYRAIL_OK, POLYRAIL_PENDING or the code of an error, and fill in *error then.
 * Pointers to an async, a result or an error may be NULL.
 *
 * Memory that a call reads or writes belongs to the library until the call has ended, also after
 * polyrail_cancel. It is not touched after that. No other pointer is kept after a function returns.
 *
 * A process that was forked after the library was loaded gets POLYRAIL_FORKED from every call.
 */
#ifndef POLYRAIL_H
#define POLYRAIL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything in this file. It changes when a program must be compiled again. */
#define POLYRAIL_ABI 1
uint32_t polyrail_abi(void);

/* Handles. 0 is none; a number is never used twice, so a stale one is an error. */
typedef uint64_t polyrail_node;
typedef uint64_t polyrail_comm;
typedef uint64_t polyrail_work;   /* a call in flight */
typedef uint64_t polyrail_queue;  /* the ends of calls */
typedef uint64_t polyrail_events; /* what happens to a node */

/* Codes. An error that is of several kinds has the first one that fits. */
enum {
	POLYRAIL_OK = 0,
	POLYRAIL_PENDING = 1,   /* the call goes on: async->work is its handle */
	POLYRAIL_FORKED = 2,    /* the process was forked after the library was loaded */
	POLYRAIL_CANCELED = 3,  /* it was canceled here */
	POLYRAIL_RANK_LOST = 4, /* rank, node: whose process or host is gone */
	POLYRAIL_MISMATCH = 5,  /* rank, node: who called another operation */
	POLYRAIL_MINORITY = 6,  /* too few members are left to go on */
	POLYRAIL_TIMEOUT = 7,
	POLYRAIL_RAIL = 8,      /* rail, node: a rail failed or cannot be used */
	POLYRAIL_CLOSED = 9,    /* the communicator or node was closed */
	POLYRAIL_ABORTED = 10,  /* rank, node: who ended the operation */
	POLYRAIL_BROKEN = 11,   /* an earlier operation broke the communicator */
	POLYRAIL_VIEW = 12,     /* a communicator could not be formed; node: who stood in the way */
	POLYRAIL_CONFIG = 13,   /* the settings have faults */
	POLYRAIL_ARGUMENT = 14, /* an argument cannot be, such as a handle that was released */
	POLYRAIL_LIMIT = 15,    /* a limit of the runtime was reached */
	POLYRAIL_INTERNAL = 16, /* a part of polyrail failed */
	POLYRAIL_OTHER = 17
};

/* What a code means, in words: "rank lost". Never NULL. */
const char *polyrail_code_text(int code);

/* An error. Texts end with a 0 byte, and are cut where they are too long. */
typedef struct {
	int32_t code;
	int32_t rank; /* -1: none is known */
	uint64_t seq; /* number of the operation in its communicator; 0: none */
	char node[136];
	char rail[136];
	char text[1024];
} polyrail_error;

/* How a call is made. NULL blocks until it has ended. With an async it returns after patience_ns at
 * the latest. If the call has not ended by then it returns POLYRAIL_PENDING, and work is its handle:
 * wait for it with polyrail_wait. Otherwise work is 0, and what it returns is the outcome.
 *
 * A queue tells of the end of a call that returned POLYRAIL_PENDING, and of no other. Without
 * patience that is each one that could be made. */
typedef struct {
	polyrail_queue queue; /* 0: none */
	uint64_t tag;         /* for the queue */
	/* 0: none; any other has small operations polled for, wait-spin (0.4 ms) at most. */
	int64_t patience_ns;
	polyrail_work work;   /* out */
} polyrail_async;

/* What a call leaves behind. Each sets the fields that it has, and the others to 0. */
typedef struct {
	uint64_t handle;      /* the node or communicator that was made; 0: this rank is no member */
	uint64_t seq;         /* number of a collective in its communicator */
	uint64_t first, last; /* of polyrail_comm_shrink */
	uint64_t count;       /* elements of the message that was received */
	int32_t source, tag;  /* of the message that was received */
} polyrail_result;

/* --- Nodes ----------------------------------------------------------------------------------- */

/* Starts a node. Settings are lines KEY=VALUE; the keys are the flags of the command line ("node
 * run --help"), and log-level (warn) and config. A key that takes several values stands on several
 * lines. What is not set comes from the environment (POLYRAIL_RANK_TIMEOUT) and from the file that
 * config names. result->handle is the node. */
int polyrail_node_open(const char *settings, polyrail_async *async, polyrail_result *result,
                       polyrail_error *error);

/* Leaves the cluster and releases the handle. Communicators that are open break. */
int polyrail_node_close(polyrail_node node, polyrail_async *async, polyrail_error *error);

/* Where other nodes can join: ADDR:PORT. size is that of text, 64 will do. */
int polyrail_node_address(polyrail_node node, char *text, size_t size, polyrail_error *error);

/* A rail of this node, and what it has carried. */
typedef struct {
	char name[136];
	char address[64]; /* where peers reach it */
	int32_t up;
	int32_t reserved;
	uint64_t bytes_sent, bytes_received; /* payload */
	uint64_t resent_bytes;               /* of those, sent again after a connection was lost */
	uint64_t reconnects, link_downs, silences;
} polyrail_rail;

/* Fills in up to max rails, and sets *count to how many there are (32 at most). */
int polyrail_node_rails(polyrail_node node, polyrail_rail *rails, int max, int *count,
                        polyrail_error *error);

/* --- Communicators --------------------------------------------------------------------------- */

/* Waits until size nodes have asked for the name. Ranks ascend by the nodes' names.
 * result->handle is the communicator. Canceling it withdraws the request. */
int polyrail_comm_form(polyrail_node node, const char *name, int size, polyrail_async *async,
                       polyrail_result *result, polyrail_error *error);

/* Communicators of this one's members, without new connections: of those listed, of those with the
 * same color (negative: none) in the order of their keys, and of all. All members call it. */
int polyrail_comm_sub(polyrail_comm comm, const int *ranks, int count, polyrail_async *async,
                      polyrail_result *result, polyrail_error *error);
int polyrail_comm_split(polyrail_comm comm, int color, int key, polyrail_async *async,
                        polyrail_result *result, polyrail_error *error);
int polyrail_comm_dup(polyrail_comm comm, polyrail_async *async, polyrail_result *result,
                      polyrail_error *error);

/* A communicator of those members that live and call it too. The old one is to be closed.
 * Operations up to result->first - 1 were finished by all of them, those after result->last by
 * none, and those between by some. */
int polyrail_comm_shrink(polyrail_comm comm, polyrail_async *async, polyrail_result *result,
                         polyrail_error *error);

/* Waits for what is in flight, tells the other ranks, and releases the handle. */
int polyrail_comm_close(polyrail_comm comm, polyrail_async *async, polyrail_error *error);

/* Breaks the communicator on all ranks: everything in flight ends with an error. */
int polyrail_comm_abort(polyrail_comm comm, polyrail_error *error);

/* The error that broke or closed the communicator, or POLYRAIL_OK. */
int polyrail_comm_status(polyrail_comm comm, polyrail_error *error);

int polyrail_comm_rank(polyrail_comm comm); /* -1: no such communicator */
int polyrail_comm_size(polyrail_comm comm); /* -1: no such communicator */

/* The name of the node that is a rank. size is that of text, 136 will do. */
int polyrail_comm_node(polyrail_comm comm, int rank, char *text, size_t size, polyrail_error *error);

/* --- Collectives ----------------------------------------------------------------------------- */

/* Element types. A LOC is a value and an index, equally wide. */
enum {
	POLYRAIL_INT8 = 1,
	POLYRAIL_UINT8 = 2,
	POLYRAIL_INT32 = 3,
	POLYRAIL_UINT32 = 4,
	POLYRAIL_INT64 = 5,
	POLYRAIL_UINT64 = 6,
	POLYRAIL_FLOAT16 = 7,
	POLYRAIL_BFLOAT16 = 8,
	POLYRAIL_FLOAT32 = 9,
	POLYRAIL_FLOAT64 = 10,
	POLYRAIL_INT32LOC = 11,
	POLYRAIL_INT64LOC = 12,
	POLYRAIL_FLOAT32LOC = 13,
	POLYRAIL_FLOAT64LOC = 14
};

/* Operators. Bitwise ones are defined on integers, the last two on LOC types alone. */
enum {
	POLYRAIL_SUM = 1,
	POLYRAIL_PROD = 2,
	POLYRAIL_MIN = 3,
	POLYRAIL_MAX = 4,
	POLYRAIL_AVG = 5,
	POLYRAIL_BITAND = 6,
	POLYRAIL_BITOR = 7,
	POLYRAIL_BITXOR = 8,
	POLYRAIL_MINLOC = 10,
	POLYRAIL_MAXLOC = 11
};

/* Kinds of operation. */
enum {
	POLYRAIL_ALLREDUCE = 1,
	POLYRAIL_REDUCE = 5,
	POLYRAIL_REDUCESCATTER = 6,
	POLYRAIL_ALLGATHER = 7,
	POLYRAIL_GATHER = 8,
	POLYRAIL_SCATTER = 9,
	POLYRAIL_BROADCAST = 10,
	POLYRAIL_ALLTOALL = 11,
	POLYRAIL_SCAN = 12,
	POLYRAIL_EXSCAN = 13,
	POLYRAIL_ALLTOALLV = 14
};

/* Algorithms. Not every kind has each: docs/collectives.md. */
enum {
	POLYRAIL_AUTO = 0, /* chosen by size */
	POLYRAIL_RING = 1,
	POLYRAIL_RECURSIVE_DOUBLING = 2,
	POLYRAIL_BCUBE = 3,
	POLYRAIL_TREE = 4,
	POLYRAIL_CHAIN = 5,
	POLYRAIL_DIRECT = 6,
	POLYRAIL_BRUCK = 7,
	POLYRAIL_HIERARCHICAL = 8, /* by host, every rank at work */
	POLYRAIL_LEADERS = 9       /* by host, one rank each */
};

/* A collective call. Lengths are in elements; memory is aligned for the type. dst and src are the
 * same memory, the part of one that is the other's, or apart; docs/collectives.md has what each kind
 * takes. What a kind does not use is ignored, and may be 0. */
typedef struct {
	uint32_t size; /* sizeof(polyrail_operation) */
	int32_t kind, dtype, op, root;
	int32_t algorithm;
	void *dst;
	const void *src;
	uint64_t dst_count, src_count;
	/* Elements by rank, as many as there are ranks. counts, the same on all ranks, is of reduce-scatter,
	 * allgather, gather and scatter with unequal parts; the others are of alltoallv. Else NULL. */
	const int64_t *counts, *send_counts, *recv_counts;
	const char *name; /* compared between ranks; NULL: none */
} polyrail_operation;

int polyrail_run(polyrail_comm comm, const polyrail_operation *operation, polyrail_async *async,
                 polyrail_result *result, polyrail_error *error);

/* A buffer of a batch; its length is in elements. */
typedef struct {
	void *data;
	uint64_t count;
} polyrail_buffer;

/* An allreduce of many buffers, in place, as one operation. */
int polyrail_batch(polyrail_comm comm, const polyrail_buffer *buffers, int count, int dtype, int op,
                   polyrail_async *async, polyrail_result *result, polyrail_error *error);

/* Returns when all ranks have called it. */
int polyrail_barrier(polyrail_comm comm, polyrail_async *async, polyrail_error *error);

/* --- Messages between two ranks -------------------------------------------------------------- */

#define POLYRAIL_ANY (-1) /* any source, any tag */

/* Messages are no collective calls. A tag is from 0 to 2^31 - 1. */
int polyrail_send(polyrail_comm comm, const void *data, uint64_t count, int dtype, int to, int tag,
                  polyrail_async *async, polyrail_error *error);
int polyrail_recv(polyrail_comm comm, void *data, uint64_t count, int dtype, int from, int tag,
                  polyrail_async *async, polyrail_result *result, polyrail_error *error);

/* --- Calls in flight ------------------------------------------------------------------------- */

/* Waits for the end of a call, for so long at most; negative: until it has ended. Unless it returns
 * POLYRAIL_PENDING the handle is released. A timeout ends nothing. */
int polyrail_wait(polyrail_work work, int64_t timeout_ns, polyrail_result *result,
                  polyrail_error *error);

/* Ends a call, unless it has ended. A collective one breaks its communicator. The memory is the
 * library's until polyrail_wait says that the call has ended, which is soon. */
int polyrail_cancel(polyrail_work work, polyrail_error *error);

/* Does the same for a caller who has waited for so long. The call ends with POLYRAIL_TIMEOUT, and the
 * other ranks of a collective one get that, too. */
int polyrail_expire(polyrail_work work, int64_t after_ns, polyrail_error *error);

/* Releases the handle of a call that nobody is going to wait for. The call goes on. */
int polyrail_forget(polyrail_work work, polyrail_error *error);

/* A queue collects the ends of calls: its descriptor, an eventfd, is readable while it holds any.
 * Do not read the descriptor; polyrail_queue_take makes it unreadable. */
typedef struct {
	polyrail_work work; /* polyrail_wait has its result, at once, and releases it */
	uint64_t tag;
	int32_t code;
	int32_t reserved;
} polyrail_completion;

int polyrail_queue_open(polyrail_queue *queue, polyrail_error *error);
int polyrail_queue_fd(polyrail_queue queue); /* -1: no such queue */
/* Takes up to max completions, oldest first, and sets *count to how many there were. */
int polyrail_queue_take(polyrail_queue queue, polyrail_completion *completions, int max, int *count,
                        polyrail_error *error);
int polyrail_queue_close(polyrail_queue queue, polyrail_error *error);

/* --- Events ---------------------------------------------------------------------------------- */

enum {
	POLYRAIL_EVENT_RAIL_UP = 1,   /* node, rail */
	POLYRAIL_EVENT_RAIL_DOWN = 2, /* node, rail, text */
	POLYRAIL_EVENT_RANK_LOST = 3, /* communicator, rank, node, text */
	POLYRAIL_EVENT_FORMED = 4,    /* communicator, rank: this node's */
	POLYRAIL_EVENT_BROKEN = 5,    /* communicator, rank: this node's, text */
	POLYRAIL_EVENT_TABLE = 6,     /* communicator, rank: this node's, version */
	POLYRAIL_EVENT_RAIL_MOVED = 7, /* node, rail: what it carried goes over other rails */
	POLYRAIL_EVENT_TREE_UP = 8,   /* communicator, rank: this node's, rail, node */
	POLYRAIL_EVENT_TREE_DOWN = 9  /* the same, and text */
};

typedef struct {
	int64_t time_ns; /* since 1970 */
	int32_t kind;
	int32_t rank;
	uint32_t version;
	uint32_t reserved;
	uint64_t missed; /* events that were lost before this one, since nobody took them */
	char node[136];
	char rail[136];
	char communicator[136];
	char text[1024];
} polyrail_event;

/* Collects what happens to a node from now on. The descriptor is as a queue's. When the node is closed
 * it becomes readable, and what follows the last event is POLYRAIL_CLOSED. */
int polyrail_events_open(polyrail_node node, polyrail_events *events, polyrail_error *error);
int polyrail_events_fd(polyrail_events events); /* -1: no such subscription */
int polyrail_events_take(polyrail_events events, polyrail_event *list, int max, int *count,
                         polyrail_error *error);
int polyrail_events_close(polyrail_events events, polyrail_error *error);

/* --- Collectives by name: polyrail_run with a filled-in operation ------------------------------ */

static inline int polyrail_run_(polyrail_comm comm, int kind, void *dst, uint64_t dst_count,
                                const void *src, uint64_t src_count, int dtype, int op, int root,
                                polyrail_async *async, polyrail_error *error)
{
	polyrail_operation o;
	memset(&o, 0, sizeof o);
	o.size = sizeof o;
	o.kind = kind;
	o.dtype = dtype;
	o.op = op;
	o.root = root;
	o.dst = dst;
	o.src = src;
	o.dst_count = dst_count;
	o.src_count = src_count;
	return polyrail_run(comm, &o, async, NULL, error);
}

/* dst and src have count elements, and may be the same. */
static inline int polyrail_allreduce(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                     int dtype, int op, polyrail_async *async, polyrail_error *error)
{
	return polyrail_run_(comm, POLYRAIL_ALLREDUCE, dst, count, src, count, dtype, op, 0, async, error);
}

/* dst is the root's alone; the others may give NULL. */
static inline int polyrail_reduce(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                  int dtype, int op, int root, polyrail_async *async,
                                  polyrail_error *error)
{
	return polyrail_run_(comm, POLYRAIL_REDUCE, dst, count, src, count, dtype, op, root, async, error);
}

static inline int polyrail_broadcast(polyrail_comm comm, void *data, uint64_t count, int dtype,
                                     int root, polyrail_async *async, polyrail_error *error)
{
	return polyrail_run_(comm, POLYRAIL_BROADCAST, data, count, data, count, dtype, 0, root, async, error);
}

/* dst has count elements, src has count for each rank. */
static inline int polyrail_reducescatter(polyrail_comm comm, void *dst, const void *src,
                                         uint64_t count, int dtype, int op, polyrail_async *async,
                                         polyrail_error *error)
{
	uint64_t ranks = (uint64_t)polyrail_comm_size(comm);
	return polyrail_run_(comm, POLYRAIL_REDUCESCATTER, dst, count, src, count * ranks, dtype, op, 0, async,
	                     error);
}

/* src has count elements, dst has count for each rank. */
static inline int polyrail_allgather(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                     int dtype, polyrail_async *async, polyrail_error *error)
{
	uint64_t ranks = (uint64_t)polyrail_comm_size(comm);
	return polyrail_run_(comm, POLYRAIL_ALLGATHER, dst, count * ranks, src, count, dtype, 0, 0, async, error);
}

/* As allgather, on the root alone; the others may give NULL for dst. */
static inline int polyrail_gather(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                  int dtype, int root, polyrail_async *async, polyrail_error *error)
{
	uint64_t ranks = (uint64_t)polyrail_comm_size(comm);
	return polyrail_run_(comm, POLYRAIL_GATHER, dst, count * ranks, src, count, dtype, 0, root, async, error);
}

/* dst has count elements; the root's src has count for each rank, the others may give NULL. */
static inline int polyrail_scatter(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                   int dtype, int root, polyrail_async *async, polyrail_error *error)
{
	uint64_t ranks = (uint64_t)polyrail_comm_size(comm);
	return polyrail_run_(comm, POLYRAIL_SCATTER, dst, count, src, count * ranks, dtype, 0, root, async, error);
}

/* dst and src have count elements for each rank. */
static inline int polyrail_alltoall(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                    int dtype, polyrail_async *async, polyrail_error *error)
{
	uint64_t ranks = (uint64_t)polyrail_comm_size(comm);
	return polyrail_run_(comm, POLYRAIL_ALLTOALL, dst, count * ranks, src, count * ranks, dtype, 0, 0, async,
	                     error);
}

/* send_counts[j] elements of src go to rank j; recv_counts[j] of rank j's come into dst. In both they
 * follow each other by rank. */
static inline int polyrail_alltoallv(polyrail_comm comm, void *dst, const int64_t *recv_counts,
                                     const void *src, const int64_t *send_counts, int dtype,
                                     polyrail_async *async, polyrail_error *error)
{
	polyrail_operation o;
	int ranks = polyrail_comm_size(comm), i;
	memset(&o, 0, sizeof o);
	for (i = 0; i < ranks; i++) {
		o.dst_count += (uint64_t)recv_counts[i];
		o.src_count += (uint64_t)send_counts[i];
	}
	o.size = sizeof o;
	o.kind = POLYRAIL_ALLTOALLV;
	o.dtype = dtype;
	o.dst = dst;
	o.src = src;
	o.send_counts = send_counts;
	o.recv_counts = recv_counts;
	return polyrail_run(comm, &o, async, NULL, error);
}

/* The combination of ranks 0 ... r, and of ranks 0 ... r-1, on rank r. */
static inline int polyrail_scan(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                int dtype, int op, polyrail_async *async, polyrail_error *error)
{
	return polyrail_run_(comm, POLYRAIL_SCAN, dst, count, src, count, dtype, op, 0, async, error);
}

static inline int polyrail_exscan(polyrail_comm comm, void *dst, const void *src, uint64_t count,
                                  int dtype, int op, polyrail_async *async, polyrail_error *error)
{
	return polyrail_run_(comm, POLYRAIL_EXSCAN, dst, count, src, count, dtype, op, 0, async, error);
}

#ifdef __cplusplus
}
#endif

#endif /* POLYRAIL_H */
