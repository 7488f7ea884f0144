/* check makes every call of polyrail.h, as one of two ranks, and says "done" if all was right. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rank.h"

enum { BIG = 1 << 18 };

static polyrail_node node;

static void wait_readable(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};
	CHECK(poll(&p, 1, 60000) == 1);
}

static int readable(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};
	return poll(&p, 1, 0) == 1;
}

static void collectives(void)
{
	int32_t a[4] = {rank, 1, 2, 3}, b[8] = {0}, c[4] = {0};
	int64_t two[2] = {1, 2}, three[2] = {rank ? 2 : 1, rank ? 2 : 1}, v[8] = {10, 20, 30, 40, 50, 60, 70, 80};
	int64_t w[8] = {0}, counts[2] = {1, 3};
	polyrail_operation o = {0};
	polyrail_result r;
	polyrail_buffer list[2] = {{a, 4}, {c, 2}};

	OK(polyrail_allreduce(comm, c, a, 4, POLYRAIL_INT32, POLYRAIL_SUM, NULL, &error));
	CHECK(c[0] == 1 && c[1] == 2 && c[3] == 6);
	OK(polyrail_reduce(comm, rank == 1 ? c : NULL, a, 4, POLYRAIL_INT32, POLYRAIL_MAX, 1, NULL, &error));
	CHECK(rank == 0 || (c[0] == 1 && c[3] == 3));
	OK(polyrail_allgather(comm, b, a, 4, POLYRAIL_INT32, NULL, &error));
	CHECK(b[0] == 0 && b[4] == 1 && b[7] == 3);
	OK(polyrail_reducescatter(comm, c, b, 4, POLYRAIL_INT32, POLYRAIL_SUM, NULL, &error));
	CHECK(c[0] == 2 * rank && c[2] == 4);
	OK(polyrail_gather(comm, rank == 0 ? b : NULL, a, 4, POLYRAIL_INT32, 0, NULL, &error));
	CHECK(rank == 1 || b[4] == 1);
	OK(polyrail_scatter(comm, c, rank == 0 ? b : NULL, 4, POLYRAIL_INT32, 0, NULL, &error));
	CHECK(c[0] == rank);
	OK(polyrail_alltoall(comm, b, (int32_t[2]){10 * rank, 10 * rank + 1}, 1, POLYRAIL_INT32, NULL, &error));
	CHECK(b[0] == rank && b[1] == 10 + rank);
	OK(polyrail_alltoallv(comm, w, three, v, two, POLYRAIL_INT64, NULL, &error));
	CHECK(w[0] == (rank ? 20 : 10) && w[rank ? 2 : 1] == (rank ? 20 : 10));
	OK(polyrail_scan(comm, c, a, 4, POLYRAIL_INT32, POLYRAIL_SUM, NULL, &error));
	CHECK(c[1] == 1 + rank);
	c[1] = -1;
	OK(polyrail_exscan(comm, c, a, 4, POLYRAIL_INT32, POLYRAIL_SUM, NULL, &error));
	CHECK(c[1] == (rank ? 1 : -1));
	a[2] = rank ? 0 : 77;
	OK(polyrail_broadcast(comm, a, 4, POLYRAIL_INT32, 0, NULL, &error));
	CHECK(a[0] == 0 && a[2] == 77);
	a[0] = c[0] = rank;
	OK(polyrail_batch(comm, list, 2, POLYRAIL_INT32, POLYRAIL_SUM, NULL, &r, &error));
	CHECK(a[0] == 1 && c[0] == 1 && r.seq > 0);
	OK(polyrail_barrier(comm, NULL, &error));

	o.size = sizeof o;
	o.kind = POLYRAIL_ALLGATHER;
	o.dtype = POLYRAIL_INT64;
	o.dst = w;
	o.dst_count = 4;
	o.src = v;
	o.src_count = (uint64_t)counts[rank];
	o.counts = counts;
	o.name = "uneven";
	OK(polyrail_run(comm, &o, NULL, &r, &error));
	CHECK(w[0] == 10 && w[1] == 10 && w[3] == 30);
	o.size = 3;
	CHECK(polyrail_run(comm, &o, NULL, &r, &error) == POLYRAIL_ARGUMENT && strstr(error.text, "size"));
}

static void messages(void)
{
	polyrail_async async = {0};
	polyrail_result r;
	float got[4] = {0}, sent[2] = {5, 6};

	CHECK(polyrail_recv(comm, got, 4, POLYRAIL_FLOAT32, POLYRAIL_ANY, POLYRAIL_ANY, &async, NULL, &error) ==
	      POLYRAIL_PENDING);
	CHECK(polyrail_wait(async.work, 0, &r, &error) == POLYRAIL_PENDING);
	OK(polyrail_barrier(comm, NULL, &error));
	OK(polyrail_send(comm, sent, 2, POLYRAIL_FLOAT32, 1 - rank, 7, NULL, &error));
	OK(polyrail_wait(async.work, -1, &r, &error));
	CHECK(r.source == 1 - rank && r.tag == 7 && r.count == 2 && got[1] == 6);
	CHECK(polyrail_wait(async.work, 0, &r, &error) == POLYRAIL_ARGUMENT);

	CHECK(polyrail_recv(comm, got, 4, POLYRAIL_FLOAT32, 1 - rank, 9, &async, NULL, &error) == POLYRAIL_PENDING);
	OK(polyrail_cancel(async.work, &error));
	CHECK(polyrail_wait(async.work, -1, &r, &error) == POLYRAIL_CANCELED);
	CHECK(polyrail_recv(comm, got, 4, POLYRAIL_FLOAT32, 1 - rank, 9, &async, NULL, &error) == POLYRAIL_PENDING);
	OK(polyrail_expire(async.work, 2000000000, &error));
	CHECK(polyrail_wait(async.work, -1, &r, &error) == POLYRAIL_TIMEOUT && strstr(error.text, "after 2s"));
	OK(polyrail_comm_status(comm, &error));
}

/* More operations in flight than the runtime takes: starting them never blocks. */
static void in_flight(void)
{
	enum { N = 40 };
	polyrail_queue queue;
	polyrail_completion ended[8];
	static float data[N][BIG / N];
	int i, n, left = N, fd;
	uint64_t seen = 0;

	OK(polyrail_queue_open(&queue, &error));
	CHECK((fd = polyrail_queue_fd(queue)) >= 0 && !readable(fd));
	for (i = 0; i < N; i++) {
		polyrail_async async = {queue, (uint64_t)i, 0, 0};
		data[i][7] = (float)i;
		CHECK(polyrail_allreduce(comm, data[i], data[i], BIG / N, POLYRAIL_FLOAT32, POLYRAIL_SUM, &async,
		                         &error) == POLYRAIL_PENDING && async.work);
	}
	while (left > 0) {
		wait_readable(fd);
		OK(polyrail_queue_take(queue, ended, 8, &n, &error));
		for (i = 0; i < n; i++, left--) {
			CHECK(ended[i].code == POLYRAIL_OK && data[ended[i].tag][7] == 2 * (float)ended[i].tag);
			OK(polyrail_wait(ended[i].work, 0, NULL, &error));
			seen |= 1ull << ended[i].tag;
		}
	}
	CHECK(seen == (1ull << N) - 1 && !readable(fd));
	CHECK(polyrail_events_close(queue, &error) == POLYRAIL_ARGUMENT && polyrail_events_fd(queue) == -1);
	OK(polyrail_queue_close(queue, &error));
	CHECK(polyrail_queue_fd(queue) == -1);
}

static void *sums(void *p)
{
	polyrail_comm own = *(polyrail_comm *)p;
	int64_t x = 1;
	int i;
	for (i = 0; i < 50; i++)
		if (polyrail_allreduce(own, &x, &x, 1, POLYRAIL_INT64, POLYRAIL_MAX, NULL, NULL) != POLYRAIL_OK)
			return "an operation failed";
	return NULL;
}

/* Communicators made of another, each used on a thread of its own. */
static void groups(void)
{
	polyrail_comm all[3];
	pthread_t threads[3];
	polyrail_result r;
	char name[136];
	void *bad;
	int i;

	OK(polyrail_comm_dup(comm, NULL, &r, &error));
	all[0] = r.handle;
	OK(polyrail_comm_split(comm, 0, -rank, NULL, &r, &error));
	all[1] = r.handle;
	CHECK(polyrail_comm_rank(all[1]) == 1 - rank && polyrail_comm_size(all[1]) == 2);
	OK(polyrail_comm_sub(comm, (int[2]){0, 1}, 2, NULL, &r, &error));
	all[2] = r.handle;
	OK(polyrail_comm_node(all[1], 0, name, sizeof name, &error));
	CHECK(!strcmp(name, "b") && polyrail_comm_node(all[1], 0, name, 1, &error) == POLYRAIL_ARGUMENT);
	OK(polyrail_comm_sub(comm, (int[1]){0}, 1, NULL, &r, &error));
	CHECK((r.handle != 0) == (rank == 0));
	if (r.handle)
		OK(polyrail_comm_close(r.handle, NULL, &error));
	for (i = 0; i < 3; i++)
		CHECK(!pthread_create(&threads[i], NULL, sums, &all[i]));
	for (i = 0; i < 3; i++)
		CHECK(!pthread_join(threads[i], &bad) && !bad);
	for (i = 0; i < 3; i++)
		OK(polyrail_comm_close(all[i], NULL, &error));
	CHECK(polyrail_comm_close(all[0], NULL, &error) == POLYRAIL_ARGUMENT && polyrail_comm_rank(all[0]) == -1);
}

/* A process that was forked is told so, and the parent goes on. */
static void forks(void)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int code = polyrail_barrier(comm, NULL, &error);
		_exit(code == POLYRAIL_FORKED && error.rank == -1 && strstr(error.text, "fork") &&
		      polyrail_comm_rank(comm) == -1 ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	OK(polyrail_barrier(comm, NULL, &error));
}

/* A canceled collective breaks the communicator on both ranks; what is left of it goes on. */
static void breaks(void)
{
	polyrail_async async = {0};
	polyrail_result r;
	polyrail_events events;
	polyrail_event happened[4];
	static double x[BIG];
	int code, n, broken = 0;

	OK(polyrail_events_open(node, &events, &error));
	code = polyrail_barrier(comm, NULL, &error);
	if (rank == 0) {
		CHECK(code == POLYRAIL_OK);
		CHECK(polyrail_allreduce(comm, x, x, BIG, POLYRAIL_FLOAT64, POLYRAIL_SUM, &async, &error) ==
		      POLYRAIL_PENDING);
		OK(polyrail_cancel(async.work, &error));
		code = polyrail_wait(async.work, -1, NULL, &error);
		CHECK(code == POLYRAIL_CANCELED && error.seq > 0);
	}
	while (!broken) {
		wait_readable(polyrail_events_fd(events));
		OK(polyrail_events_take(events, happened, 4, &n, &error));
		while (n-- > 0)
			broken |= happened[n].kind == POLYRAIL_EVENT_BROKEN && happened[n].text[0];
	}
	if (rank == 1) { /* only now: together they could end before the cancel */
		if (code == POLYRAIL_OK) /* the abort may overtake what ends the barrier here */
			code = polyrail_allreduce(comm, x, x, BIG, POLYRAIL_FLOAT64, POLYRAIL_SUM, NULL, &error);
		CHECK(code == POLYRAIL_ABORTED && error.rank == 0 && !strcmp(error.node, "a"));
	}
	CHECK(polyrail_comm_status(comm, &error) != POLYRAIL_OK);
	OK(polyrail_events_close(events, &error));
	OK(polyrail_comm_shrink(comm, NULL, &r, &error));
	polyrail_comm_close(comm, NULL, NULL);
	comm = r.handle;
	CHECK(polyrail_comm_size(comm) == 2);
	OK(polyrail_barrier(comm, NULL, &error));
}

static void wrong_calls(void)
{
	int8_t x[1] = {0};
	polyrail_buffer list[2] = {{x, 1}, {NULL, 1}};
	polyrail_operation o = {.size = sizeof o, .op = POLYRAIL_SUM, .dst = x, .src = x, .dst_count = 1, .src_count = 1};
	polyrail_async async = {.work = 12345};
	polyrail_result r = {.handle = 12345};
	int i;

	CHECK(polyrail_node_open("name=x\nnonsense=1\n", NULL, &r, &error) == POLYRAIL_CONFIG);
	CHECK(strstr(error.text, "nonsense") && r.handle == 0);
	CHECK(polyrail_node_open("name=x\n", NULL, &r, &error) == POLYRAIL_CONFIG); /* no rails */
	CHECK(!setenv("POLYRAIL_RANK_TIMEOUT", "soon", 1)); /* the environment as it is now counts */
	CHECK(polyrail_node_open("name=x\n", NULL, &r, &error) == POLYRAIL_CONFIG);
	CHECK(strstr(error.text, "POLYRAIL_RANK_TIMEOUT") && !unsetenv("POLYRAIL_RANK_TIMEOUT"));
	CHECK(polyrail_barrier((polyrail_comm)node, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(strstr(error.text, "a node, not a communicator"));
	CHECK(polyrail_barrier(12345, NULL, NULL) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_barrier(0, NULL, &error) == POLYRAIL_ARGUMENT && strstr(error.text, "closed or never made"));
	CHECK(polyrail_allgather(12345, x, x, 1, POLYRAIL_INT8, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(strstr(error.text, "no such handle"));
	/* None of these reaches the other rank. */
	CHECK(polyrail_send(comm, NULL, 5, POLYRAIL_INT8, 0, 0, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_allreduce(comm, NULL, NULL, 5, POLYRAIL_INT8, POLYRAIL_SUM, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(strstr(error.text, "a buffer of 5 elements is NULL"));
	/* A root needs what others don't. */
	CHECK(polyrail_reduce(comm, NULL, x, 1, POLYRAIL_INT8, POLYRAIL_SUM, rank, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_gather(comm, NULL, x, 1, POLYRAIL_INT8, rank, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_scatter(comm, x, NULL, 1, POLYRAIL_INT8, rank, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_allreduce(comm, x, x, 1, POLYRAIL_INT8, 0, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_batch(comm, list, 1, POLYRAIL_INT8, 0, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	/* What an earlier call left in the place of a handle does not stay there. */
	CHECK(polyrail_recv(comm, NULL, 5, POLYRAIL_INT8, 0, 0, &async, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(async.work == 0 && r.handle == 0);
	for (i = -256; i <= 256; i += 512) { /* 8 bits of these are right */
		CHECK(polyrail_send(comm, x, 1, POLYRAIL_INT8 + i, 0, 0, NULL, &error) == POLYRAIL_ARGUMENT);
		o.kind = POLYRAIL_ALLREDUCE + i, o.dtype = POLYRAIL_INT8, o.algorithm = 0;
		CHECK(polyrail_run(comm, &o, NULL, &r, &error) == POLYRAIL_ARGUMENT);
		o.kind = POLYRAIL_ALLREDUCE, o.dtype = POLYRAIL_INT8 + i;
		CHECK(polyrail_run(comm, &o, NULL, &r, &error) == POLYRAIL_ARGUMENT);
		o.dtype = POLYRAIL_INT8, o.algorithm = 1 + i;
		CHECK(polyrail_run(comm, &o, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	}
	CHECK(polyrail_send(comm, x, 1, 99, 0, 0, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_send(comm, x, 1, POLYRAIL_INT8, 2, 0, NULL, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_recv(comm, x, 1, POLYRAIL_INT8, 0, -2, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_batch(comm, list, -1, POLYRAIL_INT8, POLYRAIL_SUM, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_batch(comm, NULL, 1, POLYRAIL_INT8, POLYRAIL_SUM, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_batch(comm, list, 2, POLYRAIL_INT8, POLYRAIL_SUM, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_comm_sub(comm, NULL, 2, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(polyrail_comm_sub(comm, &rank, -1, NULL, &r, &error) == POLYRAIL_ARGUMENT);
	CHECK(!strcmp(polyrail_code_text(POLYRAIL_RANK_LOST), "rank lost") && polyrail_code_text(-1));
	CHECK(polyrail_abi() == POLYRAIL_ABI);
}

int main(int argc, char **argv)
{
	polyrail_rail rails[4];
	polyrail_event happened[4];
	polyrail_events events;
	int n, code;

	node = open_rank(argc, argv, "rail=x=tcp:127.0.0.1\nrail=y=tcp:127.0.0.2\n", "check");
	CHECK(rank == (argv[1][0] == 'b') && polyrail_comm_size(comm) == 2);

	wrong_calls();
	collectives();
	messages();
	in_flight();
	groups();
	forks();
	breaks();

	OK(polyrail_node_rails(node, rails, 4, &n, &error));
	CHECK(n == 2 && !strcmp(rails[0].name, "x") && rails[1].up && rails[1].bytes_sent > 0);
	OK(polyrail_events_open(node, &events, &error));
	OK(polyrail_comm_close(comm, NULL, &error));
	OK(polyrail_node_close(node, NULL, &error));
	do {
		wait_readable(polyrail_events_fd(events));
		code = polyrail_events_take(events, happened, 4, &n, &error);
	} while (code == POLYRAIL_OK);
	CHECK(code == POLYRAIL_CLOSED && n == 0 && readable(polyrail_events_fd(events)));
	OK(polyrail_events_close(events, &error));
	puts("done");
	return 0;
}
