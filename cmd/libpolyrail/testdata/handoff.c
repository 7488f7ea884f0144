/* handoff tests handoff.c with a thread in place of the goroutine, and says "done" if all was right. */
#define _GNU_SOURCE
#include "../handoff.c"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "handoff.c:%d: %s\n", __LINE__, #x); exit(1); } } while (0)

static polyrail_operation large = {.size = sizeof large, .dtype = POLYRAIL_FLOAT32, .dst_count = 1 << 18};

static int stopped;

/* The next call that was handed over; NULL once stopped. */
static handoff_call *next(void)
{
	struct pollfd p = {bell, POLLIN, 0};
	handoff_call *c;
	uint64_t count;
	while (!(c = handoff_next())) {
		if (__atomic_load_n(&stopped, __ATOMIC_ACQUIRE))
			return NULL;
		CHECK(poll(&p, 1, 60000) == 1 && read(bell, &count, sizeof count) == sizeof count);
	}
	return c;
}

/* A thread that makes calls. Each gets the number of its communicator as its code. */
typedef struct {
	pthread_t thread;
	polyrail_comm comm;
	int calls, made;
} caller;

static void *make_calls(void *p)
{
	caller *c = p;
	int code;
	while (c->made < c->calls) {
		if (handoff_run(c->comm, &large, NULL, NULL, NULL, &code)) {
			CHECK(code == (int)c->comm);
			c->made++;
		} else {
			sched_yield();
		}
	}
	return NULL;
}

static void start(caller *c, polyrail_comm comm, int calls)
{
	*c = (caller){.comm = comm, .calls = calls};
	CHECK(!pthread_create(&c->thread, NULL, make_calls, c));
}

static void join(caller *c) { CHECK(!pthread_join(c->thread, NULL) && c->made == c->calls); }

/* Only who is going to sleep for long is made to do it here. */
static void choice(void)
{
	polyrail_async none = {.patience_ns = 999999}, some = {.patience_ns = 1000000};
	polyrail_operation o = large;
	CHECK(sleeps(3, &o, NULL) && sleeps(3, &o, &some));
	CHECK(!sleeps(3, &o, &none) && !sleeps(2, &o, NULL) && !sleeps(3, NULL, NULL));
	o.dst_count--;
	CHECK(!sleeps(3, &o, NULL));
	o.src_count = 1 << 18;
	CHECK(sleeps(3, &o, NULL));
	o = large;
	for (o.dtype = -1; o.dtype <= HANDOFF_TYPES; o.dtype++)
		CHECK(sleeps(3, &o, NULL) == (o.dtype == POLYRAIL_FLOAT32));
	o = large;
	o.size = 8;
	CHECK(!sleeps(3, &o, NULL));
}

/* As many calls as there are places wait at once; one more has to be made elsewhere. */
static void full(void)
{
	static caller all[PLACES];
	handoff_call *taken[PLACES];
	int i, code;
	for (i = 0; i < PLACES; i++)
		start(&all[i], 2 * i + 1, 1);
	for (i = 0; i < PLACES; i++)
		taken[i] = next();
	CHECK(!handoff_run(1, &large, NULL, NULL, NULL, &code) && !handoff_next());
	for (i = 0; i < PLACES; i++)
		handoff_end(taken[i], (int)taken[i]->comm);
	for (i = 0; i < PLACES; i++)
		join(&all[i]);
}

static void *serve(void *p)
{
	handoff_call *c;
	while ((c = next()) != NULL)
		handoff_end(c, (int)c->comm);
	return p;
}

/* More threads than places: each gets its own outcomes. */
static void crowd(void)
{
	static caller all[PLACES + 20];
	enum { N = sizeof all / sizeof *all };
	pthread_t server;
	int i;
	CHECK(!pthread_create(&server, NULL, serve, NULL));
	for (i = 0; i < N; i++)
		start(&all[i], 2 * i + 1, 500);
	for (i = 0; i < N; i++)
		join(&all[i]);
	__atomic_store_n(&stopped, 1, __ATOMIC_RELEASE);
	CHECK(ring() && !pthread_join(server, NULL));
	stopped = 0;
}

static void ignore(int signal) { (void)signal; }

/* A signal interrupts no call. */
static void signals(void)
{
	struct sigaction a = {.sa_handler = ignore};
	caller one;
	int i;
	CHECK(!sigaction(SIGUSR1, &a, NULL));
	start(&one, 7, 1);
	handoff_call *c = next();
	for (i = 0; i < 100; i++)
		CHECK(!pthread_kill(one.thread, SIGUSR1));
	handoff_end(c, 7);
	join(&one);
}

/* A thread that is canceled lives until its call has ended, which uses its memory. */
static void cancellation(void)
{
	caller one;
	start(&one, 7, 1);
	handoff_call *c = next();
	CHECK(!pthread_cancel(one.thread));
	CHECK(pthread_tryjoin_np(one.thread, NULL) == EBUSY);
	handoff_end(c, 7);
	join(&one);
}

/* Where nobody can be told of a call it has to be made elsewhere. */
static void closed(void)
{
	int code;
	CHECK(!close(bell));
	CHECK(!handoff_run(3, &large, NULL, NULL, NULL, &code));
}

int main(void)
{
	unsigned char size_of[HANDOFF_TYPES] = {[POLYRAIL_FLOAT32] = 4};
	CHECK(handoff_open(size_of) == bell);
	choice();
	full();
	crowd();
	signals();
	cancellation();
	closed();
	CHECK(idle == ~0ull && !posted);
	puts("done");
	return 0;
}
