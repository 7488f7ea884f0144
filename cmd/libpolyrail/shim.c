//go:build cgo

/*
 * The functions of polyrail.h. Each turns a forked process away and calls its twin in Go. That is
 * decided here since a fork has none of the Go runtime's threads: to enter it would hang. Go has its
 * own floating-point environment.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "_cgo_export.h"

/*
 * Go wants the floating-point environment that a program begins with, and does not see to it. A
 * caller's may round in another way, or flush subnormal numbers to zero. The bits of a sum would
 * follow from the thread that adds.
 */
#ifdef __SSE__ /* where fenv.h takes 0.2 µs for each call */
#include <xmmintrin.h>
typedef unsigned environment;
static environment enter(void)
{
	environment outside = _mm_getcsr();
	_mm_setcsr(0x1f80);
	return outside;
}
static void leave(environment *outside) { _mm_setcsr(*outside); }
#else
#include <fenv.h>
typedef fenv_t environment;
static environment enter(void)
{
	environment outside;
	fegetenv(&outside);
	fesetenv(FE_DFL_ENV);
	return outside;
}
static void leave(environment *outside) { fesetenv(outside); }
#endif

static environment loader;
static pid_t owner;
static int is_fork; /* noted when it is made: to ask for the process id is a system call each time */

static void after_fork(void) { is_fork = 1; }

/* A thread begins with the environment of the one that makes it. Go's constructor makes its first
 * thread: after this one and before the next. */
__attribute__((constructor(101))) static void loading(void) { loader = enter(); }

__attribute__((constructor)) static void loaded(void)
{
	leave(&loader);
	owner = getpid();
	pthread_atfork(NULL, NULL, after_fork);
}

static int forked(polyrail_error *error)
{
	if (!is_fork)
		return 0;
	if (error) {
		memset(error, 0, sizeof *error);
		error->code = POLYRAIL_FORKED;
		error->rank = -1;
		snprintf(error->text, sizeof error->text,
		         "process %ld is a fork of %ld, which loaded libpolyrail: polyrail does not work in a fork; "
		         "start processes afresh (spawn, exec), or load the library after the fork",
		         (long)getpid(), (long)owner);
	}
	return 1;
}

/* What a function begins with that calls Go. */
#define ENTER(error, code_of_a_fork) \
	if (forked(error)) \
		return code_of_a_fork; \
	__attribute__((cleanup(leave))) environment outside = enter()

uint32_t polyrail_abi(void) { return POLYRAIL_ABI; }

const char *polyrail_code_text(int code)
{
	static const char *const texts[] = {
		"ok", "pending", "forked process", "canceled", "rank lost", "mismatch", "not a majority", "timed out",
		"rail failed", "closed", "aborted by another rank", "communicator is broken",
		"communicator could not be formed", "invalid configuration", "invalid argument", "limit reached",
		"internal failure", "failed",
	};
	if (code < 0 || code >= (int)(sizeof texts / sizeof *texts))
		return "unknown code";
	return texts[code];
}

int polyrail_node_open(const char *settings, polyrail_async *async, polyrail_result *result,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_node_open((char *)settings, async, result, error);
}

int polyrail_node_close(polyrail_node node, polyrail_async *async, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_node_close(node, async, error);
}

int polyrail_node_address(polyrail_node node, char *text, size_t size, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_node_address(node, text, size, error);
}

int polyrail_node_rails(polyrail_node node, polyrail_rail *rails, int max, int *count,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_node_rails(node, rails, max, count, error);
}

int polyrail_comm_form(polyrail_node node, const char *name, int size, polyrail_async *async,
        polyrail_result *result, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_form(node, (char *)name, size, async, result, error);
}

int polyrail_comm_sub(polyrail_comm comm, const int *ranks, int count, polyrail_async *async,
        polyrail_result *result, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_sub(comm, (int *)ranks, count, async, result, error);
}

int polyrail_comm_split(polyrail_comm comm, int color, int key, polyrail_async *async,
        polyrail_result *result, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_split(comm, color, key, async, result, error);
}

int polyrail_comm_dup(polyrail_comm comm, polyrail_async *async, polyrail_result *result,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_dup(comm, async, result, error);
}

int polyrail_comm_shrink(polyrail_comm comm, polyrail_async *async, polyrail_result *result,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_shrink(comm, async, result, error);
}

int polyrail_comm_close(polyrail_comm comm, polyrail_async *async, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_close(comm, async, error);
}

int polyrail_comm_abort(polyrail_comm comm, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_abort(comm, error);
}

int polyrail_comm_status(polyrail_comm comm, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_status(comm, error);
}

int polyrail_comm_rank(polyrail_comm comm)
{
	ENTER(NULL, -1);
	return go_polyrail_comm_rank(comm);
}

int polyrail_comm_size(polyrail_comm comm)
{
	ENTER(NULL, -1);
	return go_polyrail_comm_size(comm);
}

int polyrail_comm_node(polyrail_comm comm, int rank, char *text, size_t size,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_comm_node(comm, rank, text, size, error);
}

int polyrail_run(polyrail_comm comm, const polyrail_operation *operation, polyrail_async *async,
        polyrail_result *result, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_run(comm, (polyrail_operation *)operation, async, result, error);
}

int polyrail_batch(polyrail_comm comm, const polyrail_buffer *buffers, int count, int dtype,
        int op, polyrail_async *async, polyrail_result *result, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_batch(comm, (polyrail_buffer *)buffers, count, dtype, op, async, result,
		error);
}

int polyrail_barrier(polyrail_comm comm, polyrail_async *async, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_barrier(comm, async, error);
}

int polyrail_send(polyrail_comm comm, const void *data, uint64_t count, int dtype, int to,
        int tag, polyrail_async *async, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_send(comm, (void *)data, count, dtype, to, tag, async, error);
}

int polyrail_recv(polyrail_comm comm, void *data, uint64_t count, int dtype, int from, int tag,
        polyrail_async *async, polyrail_result *result, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_recv(comm, data, count, dtype, from, tag, async, result, error);
}

int polyrail_wait(polyrail_work work, int64_t timeout_ns, polyrail_result *result,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_wait(work, timeout_ns, result, error);
}

int polyrail_cancel(polyrail_work work, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_cancel(work, error);
}

int polyrail_expire(polyrail_work work, int64_t after_ns, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_expire(work, after_ns, error);
}

int polyrail_forget(polyrail_work work, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_forget(work, error);
}

int polyrail_queue_open(polyrail_queue *queue, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_queue_open(queue, error);
}

int polyrail_queue_fd(polyrail_queue queue)
{
	ENTER(NULL, -1);
	return go_polyrail_queue_fd(queue);
}

int polyrail_queue_take(polyrail_queue queue, polyrail_completion *completions, int max,
        int *count, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_queue_take(queue, completions, max, count, error);
}

int polyrail_queue_close(polyrail_queue queue, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_queue_close(queue, error);
}

int polyrail_events_open(polyrail_node node, polyrail_events *events, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_events_open(node, events, error);
}

int polyrail_events_fd(polyrail_events events)
{
	ENTER(NULL, -1);
	return go_polyrail_events_fd(events);
}

int polyrail_events_take(polyrail_events events, polyrail_event *list, int max, int *count,
        polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_events_take(events, list, max, count, error);
}

int polyrail_events_close(polyrail_events events, polyrail_error *error)
{
	ENTER(error, POLYRAIL_FORKED);
	return go_polyrail_events_close(events, error);
}
