/* large makes large calls, whose callers sleep, as one of two ranks, and says "done" if all was right. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rank.h"

enum { COUNT = 1 << 18, COMMS = 8, ROUNDS = 5 };

static polyrail_comm dup_comm(void)
{
	polyrail_result r;
	OK(polyrail_comm_dup(comm, NULL, &r, &error));
	return r.handle;
}

static void close_comm(polyrail_comm c) { OK(polyrail_comm_close(c, NULL, &error)); }

/* An allreduce on a thread of its own. */
typedef struct {
	pthread_t thread;
	polyrail_comm comm;
	int tid, code;
	polyrail_error error;
	float *data;
} reduction;

static void *reduce(void *p)
{
	reduction *r = p;
	__atomic_store_n(&r->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	r->code = polyrail_allreduce(r->comm, r->data, r->data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL,
	                             &r->error);
	return NULL;
}

static void start(reduction *r, polyrail_comm c)
{
	*r = (reduction){.comm = c, .data = calloc(COUNT, sizeof(float))};
	r->data[COUNT - 1] = 1;
	CHECK(!pthread_create(&r->thread, NULL, reduce, r));
}

static void join(reduction *r)
{
	CHECK(!pthread_join(r->thread, NULL));
	CHECK(r->code != POLYRAIL_OK || r->data[COUNT - 1] == 2);
	free(r->data);
}

/* Whether a thread sleeps until another one wakes it. */
static int asleep(int tid)
{
	char name[64];
	int number = -1;
	snprintf(name, sizeof name, "/proc/self/task/%d/syscall", tid);
	FILE *f = fopen(name, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%d", &number) != 1)
		number = -1;
	fclose(f);
	return number == SYS_futex;
}

/* Returns when the caller sleeps. As a rule the call has been started then. On a busy machine it
 * may still wait for a processor of Go's. */
static void wait_asleep(reduction *r)
{
	int tid;
	do {
		sched_yield();
		tid = __atomic_load_n(&r->tid, __ATOMIC_ACQUIRE);
	} while (!tid || !asleep(tid));
}

static void sums(void)
{
	static float src[COUNT], dst[COUNT];
	polyrail_operation o = {.size = sizeof o, .kind = POLYRAIL_ALLREDUCE, .dtype = POLYRAIL_FLOAT32,
		.op = POLYRAIL_SUM, .dst = dst, .src = src, .dst_count = COUNT, .src_count = COUNT, .name = "sums"};
	polyrail_async patient = {.patience_ns = INT64_MAX};
	polyrail_result r = {0};
	uint64_t seq = 0;
	int i;
	for (i = 0; i < 20; i++) {
		src[7] = (float)i;
		OK(polyrail_run(comm, &o, i % 2 ? NULL : &patient, &r, &error));
		CHECK(dst[7] == (float)(2 * i) && r.seq > seq && !patient.work);
		seq = r.seq;
	}
}

static void *many(void *p)
{
	reduction r;
	int i;
	for (i = 0; i < ROUNDS; i++) {
		start(&r, *(polyrail_comm *)p);
		join(&r);
		CHECK(r.code == POLYRAIL_OK);
	}
	return NULL;
}

static void threads(void)
{
	polyrail_comm comms[COMMS];
	pthread_t all[COMMS];
	int i;
	for (i = 0; i < COMMS; i++)
		comms[i] = dup_comm();
	for (i = 0; i < COMMS; i++)
		CHECK(!pthread_create(&all[i], NULL, many, &comms[i]));
	for (i = 0; i < COMMS; i++)
		CHECK(!pthread_join(all[i], NULL));
	for (i = 0; i < COMMS; i++)
		close_comm(comms[i]);
}

static void ignore(int signal) { (void)signal; }

/* A signal interrupts no call, and a thread that is canceled lives until the end of its call. */
static void interrupted(void)
{
	struct sigaction a = {.sa_handler = ignore};
	reduction r;
	CHECK(!sigaction(SIGUSR1, &a, NULL));
	if (rank == 0) {
		start(&r, comm);
		wait_asleep(&r);
		CHECK(!pthread_kill(r.thread, SIGUSR1) && !pthread_cancel(r.thread));
		OK(polyrail_send(comm, "go", 2, POLYRAIL_INT8, 1, 0, NULL, &error));
	} else {
		char go[2];
		OK(polyrail_recv(comm, go, 2, POLYRAIL_INT8, 0, 0, NULL, NULL, &error));
		start(&r, comm);
	}
	join(&r);
	CHECK(r.code == POLYRAIL_OK);
}

/* A call that outlasts its caller's patience has a handle: rank 0 waits by it, and a queue tells. */
static void outlasted(void)
{
	static float data[COUNT];
	polyrail_async async = {.patience_ns = 1000000, .tag = 5};
	polyrail_completion c;
	polyrail_result r;
	char go[1];
	int n;
	if (rank == 1) {
		OK(polyrail_recv(comm, go, 1, POLYRAIL_INT8, 0, 0, NULL, NULL, &error));
		OK(polyrail_allreduce(comm, data, data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_MAX, NULL, &error));
		CHECK(data[9] == 3);
		return;
	}
	data[9] = 3;
	OK(polyrail_queue_open(&async.queue, &error));
	CHECK(polyrail_allreduce(comm, data, data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_MAX, &async, &error) ==
	      POLYRAIL_PENDING && async.work);
	CHECK(polyrail_wait(async.work, 1000000, NULL, &error) == POLYRAIL_PENDING);
	OK(polyrail_send(comm, go, 1, POLYRAIL_INT8, 1, 0, NULL, &error));
	OK(polyrail_wait(async.work, -1, &r, &error));
	CHECK(r.seq && data[9] == 3);
	OK(polyrail_queue_take(async.queue, &c, 1, &n, &error));
	CHECK(n == 1 && c.tag == 5 && c.work == async.work && c.code == POLYRAIL_OK);
	OK(polyrail_queue_close(async.queue, &error));
}

/* A communicator's first call has number 1 if it was started, and its error names it then. */
static int numbered(const polyrail_error *e)
{
	return e->seq == (strstr(e->text, "allreduce") ? 1 : 0);
}

/* What ends a call of rank 0 while it sleeps: another thread, by the communicator or by the call's
 * handle, and rank 1, which breaks the communicator or closes it. */
static void ended(void)
{
	static float data[COUNT];
	polyrail_async async = {.patience_ns = 1000000};
	polyrail_comm c[4];
	reduction r;
	int i;
	for (i = 0; i < 4; i++)
		c[i] = dup_comm();
	if (rank == 0) {
		start(&r, c[0]);
		wait_asleep(&r);
		OK(polyrail_comm_abort(c[0], &error));
		join(&r);
		error = r.error;
		CHECK(r.code == POLYRAIL_CANCELED && numbered(&r.error));

		CHECK(polyrail_allreduce(c[1], data, data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_SUM, &async, &error) ==
		      POLYRAIL_PENDING);
		OK(polyrail_cancel(async.work, &error));
		CHECK(polyrail_wait(async.work, -1, NULL, &error) == POLYRAIL_CANCELED && error.seq == 1);
	}
	for (i = 2; i < 4; i++) {
		if (rank == 0) {
			start(&r, c[i]);
			wait_asleep(&r);
		}
		OK(polyrail_barrier(comm, NULL, &error));
		if (rank == 0) {
			join(&r);
			error = r.error;
			CHECK(r.code == (i == 2 ? POLYRAIL_ABORTED : POLYRAIL_CLOSED) && numbered(&r.error));
			CHECK(strstr(r.error.text, "rank 1 (node \"b\")") && (i == 3 || r.error.rank == 1));
		} else if (i == 2) {
			OK(polyrail_comm_abort(c[i], &error));
		} else {
			polyrail_comm_close(c[i], NULL, &error);
		}
	}
	for (i = 0; i < 4; i++)
		polyrail_comm_close(c[i], NULL, NULL);
	CHECK(polyrail_allreduce(c[0], data, data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL, &error) ==
	      POLYRAIL_ARGUMENT);
}

/* Wrong arguments are the same errors for large calls and for small ones. */
static void wrong(void)
{
	static float data[COUNT];
	polyrail_error small;
	polyrail_comm c = dup_comm(), d = dup_comm();
	polyrail_async async = {.patience_ns = 1000000000, .queue = 2};
	CHECK(polyrail_allreduce(c, data, data, COUNT, POLYRAIL_FLOAT32, 99, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_allreduce(c, data, data, 1, POLYRAIL_FLOAT32, 99, NULL, &small) == POLYRAIL_ARGUMENT);
	CHECK(!strcmp(error.text, small.text) && error.rank == -1);
	CHECK(polyrail_allreduce(c, data, data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_SUM, &async, NULL) ==
	      POLYRAIL_ARGUMENT);
	OK(polyrail_barrier(comm, NULL, &error)); /* both ranks have made them, before one breaks them */
	/* A rank whose call comes second may find the communicator broken by the other one. */
	CHECK(polyrail_broadcast(c, data, COUNT, POLYRAIL_FLOAT32, 7, NULL, &error) != POLYRAIL_OK);
	CHECK(polyrail_broadcast(d, data, 1, POLYRAIL_FLOAT32, 7, NULL, &small) != POLYRAIL_OK);
	CHECK(strstr(error.text, "root 7 of 2 ranks") && strstr(small.text, "root 7 of 2 ranks"));
	polyrail_comm_close(c, NULL, NULL);
	polyrail_comm_close(d, NULL, NULL);
}

static void forks(void)
{
	static float data[COUNT];
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(polyrail_allreduce(comm, data, data, COUNT, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL, &error) !=
		      POLYRAIL_FORKED);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	alarm(120); /* a call that does not sleep here would be waited for without end */
	polyrail_node node = open_rank(argc, argv, "rail=x=tcp:127.0.0.1\n", "large");

	sums();
	threads();
	interrupted();
	outlasted();
	ended();
	wrong();
	forks();

	close_comm(comm);
	OK(polyrail_node_close(node, NULL, &error));
	puts("done");
	return 0;
}
