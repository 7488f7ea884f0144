//go:build cgo

/*
 * The places where callers leave their calls. A place belongs to whoever has taken it out of a set.
 * A caller takes an idle one, posts it, and sleeps until its call has ended. Then it is idle again.
 */
#include "handoff.h"

#ifdef __linux__

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	PLACES = 64,           /* more callers than that enter Go */
	LARGE = 1 << 20,       /* bytes: shorter operations over loopback took longer this way */
	PATIENT_NS = 1000000,  /* who has less patience does not mean to sleep */
};

static handoff_call places[PLACES];
static uint64_t idle, posted; /* sets: a bit for each place */
static int bell = -1;
static unsigned char bytes_of[HANDOFF_TYPES];

static void put(uint64_t *set, const handoff_call *c)
{
	__atomic_fetch_or(set, 1ull << (c - places), __ATOMIC_ACQ_REL);
}

/* Reports whether the place was in the set. */
static int take(uint64_t *set, const handoff_call *c)
{
	uint64_t bit = 1ull << (c - places);
	return (__atomic_fetch_and(set, ~bit, __ATOMIC_ACQ_REL) & bit) != 0;
}

static handoff_call *take_any(uint64_t *set)
{
	uint64_t all;
	while ((all = __atomic_load_n(set, __ATOMIC_ACQUIRE)) != 0) {
		handoff_call *c = &places[__builtin_ctzll(all)];
		if (take(set, c))
			return c;
	}
	return NULL;
}

/* Whether the caller is going to sleep, and for long. Handles of communicators are odd where some
 * ranks exchange data over rails. Small exchanges are polled for on the caller's thread. */
static int sleeps(polyrail_comm comm, const polyrail_operation *o, const polyrail_async *async)
{
	if (!(comm & 1) || !o || o->size != sizeof *o || (uint32_t)o->dtype >= HANDOFF_TYPES ||
	    (async && async->patience_ns < PATIENT_NS))
		return 0;
	uint64_t count = o->dst_count > o->src_count ? o->dst_count : o->src_count;
	return bytes_of[o->dtype] && count >= LARGE / bytes_of[o->dtype];
}

static int ring(void)
{
	uint64_t one = 1;
	return write(bell, &one, sizeof one) == sizeof one;
}

int handoff_run(polyrail_comm comm, const polyrail_operation *operation, polyrail_async *async,
                polyrail_result *result, polyrail_error *error, int *code)
{
	handoff_call *c;
	int cancel, made = 0;
	if (!sleeps(comm, operation, async) || !(c = take_any(&idle)))
		return 0;
	c->comm = comm;
	c->operation = operation;
	c->async = async;
	c->result = result;
	c->error = error;
	/* write and sem_wait are where pthread_cancel ends a thread, and what the call points to. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	put(&posted, c);
	if (ring() || !take(&posted, c)) { /* it cannot ring if the process has closed the descriptor */
		while (sem_wait(&c->ended) != 0)
			; /* a signal */
		*code = c->code;
		made = 1;
	}
	put(&idle, c);
	pthread_setcancelstate(cancel, NULL);
	return made;
}

int handoff_open(const unsigned char size_of[HANDOFF_TYPES])
{
	int i;
	if ((bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		return -1;
	memcpy(bytes_of, size_of, sizeof bytes_of);
	for (i = 0; i < PLACES; i++) {
		sem_init(&places[i].ended, 0, 0);
		put(&idle, &places[i]);
	}
	return bell;
}

handoff_call *handoff_next(void) { return take_any(&posted); }

void handoff_end(handoff_call *call, int code)
{
	call->code = code;
	sem_post(&call->ended);
}

#else /* without an eventfd all callers enter Go */

int handoff_run(polyrail_comm comm, const polyrail_operation *operation, polyrail_async *async,
                polyrail_result *result, polyrail_error *error, int *code)
{
	(void)comm, (void)operation, (void)async, (void)result, (void)error, (void)code;
	return 0;
}

int handoff_open(const unsigned char size_of[HANDOFF_TYPES])
{
	(void)size_of;
	return -1;
}

handoff_call *handoff_next(void) { return NULL; }

void handoff_end(handoff_call *call, int code) { (void)call, (void)code; }

#endif
