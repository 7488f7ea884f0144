/*
 * Large calls are made by a goroutine while their callers sleep in C: a thread that sleeps in Go is
 * woken by way of another one. docs/decisions/053 has the figures.
 */
#ifndef POLYRAIL_HANDOFF_H
#define POLYRAIL_HANDOFF_H

#include <semaphore.h>

#include "polyrail.h"

#pragma GCC visibility push(hidden) /* no program can have them by accident */

/* A call of polyrail_run. All that it points to is its caller's, who stays until the end. */
typedef struct {
	polyrail_comm comm;
	const polyrail_operation *operation;
	polyrail_async *async;
	polyrail_result *result;
	polyrail_error *error;
	int code;
	sem_t ended;
} handoff_call;

/* For callers. Has a call made that is better made by a goroutine. Returns 0, and has done nothing,
 * where the caller is to enter Go. */
int handoff_run(polyrail_comm comm, const polyrail_operation *operation, polyrail_async *async,
                polyrail_result *result, polyrail_error *error, int *code);

/* For the goroutine. Begins to take calls, and returns an eventfd that is readable while any wait,
 * or -1. size_of has the bytes of an element by its type. */
enum { HANDOFF_TYPES = 32 };
int handoff_open(const unsigned char size_of[HANDOFF_TYPES]);
handoff_call *handoff_next(void); /* NULL: none waits */
void handoff_end(handoff_call *call, int code);

#pragma GCC visibility pop

#endif
