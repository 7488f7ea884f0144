/*
 * latency prints how long allreduces of some size take from C.
 *
 *     ./latency 2 8 'name=a' 'bind=127.0.0.1:7946' 'rail=all=tcp:127.0.0.1'
 *     ./latency 2 8 'name=b' 'bind=127.0.0.1:0' 'rail=all=tcp:127.0.0.1' 'join=127.0.0.1:7946'
 *
 * The arguments are how many processes there are, the bytes of float32 that each reduces, in place, and
 * settings. It is built as allreduce.c is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "polyrail.h"

enum { WARM_UP = 100, ROUNDS = 2000 };

static polyrail_error error;
static double took[ROUNDS];

/* Ends the program unless a call succeeded. */
static void must(int code, const char *what)
{
	if (code != POLYRAIL_OK) {
		fprintf(stderr, "%s: %s\n", what, error.text);
		exit(1);
	}
}

static double microseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	char settings[4096] = "", address[64];
	polyrail_result result;
	polyrail_node node;
	polyrail_comm comm;
	size_t elements;
	float *values;
	double sum = 0;
	int i;

	if (argc < 3 || (elements = strtoul(argv[2], NULL, 10) / sizeof *values) == 0) {
		fprintf(stderr, "usage: latency PROCESSES BYTES KEY=VALUE...\n");
		return 2;
	}
	for (i = 3; i < argc; i++) {
		if (strlen(settings) + strlen(argv[i]) + 2 > sizeof settings) {
			fprintf(stderr, "too many settings\n");
			return 2;
		}
		strcat(strcat(settings, argv[i]), "\n");
	}
	if ((values = calloc(elements, sizeof *values)) == NULL) {
		fprintf(stderr, "%s bytes: out of memory\n", argv[2]);
		return 1;
	}
	must(polyrail_node_open(settings, NULL, &result, &error), "starting the node");
	node = result.handle;
	must(polyrail_node_address(node, address, sizeof address, &error), "asking for the address");
	printf("others can join at %s\n", address);
	fflush(stdout);
	must(polyrail_comm_form(node, "latency", atoi(argv[1]), NULL, &result, &error),
	     "forming the communicator");
	comm = result.handle;

	for (i = -WARM_UP; i < ROUNDS; i++) {
		double began = microseconds();

		must(polyrail_allreduce(comm, values, values, elements, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL,
					&error), "reducing");
		if (i >= 0)
			sum += took[i] = microseconds() - began;
	}
	qsort(took, ROUNDS, sizeof *took, compare);
	printf("rank %d: %zu bytes, p50 %.1f us, mean %.1f us\n", polyrail_comm_rank(comm),
	       elements * sizeof *values, took[ROUNDS / 2], sum / ROUNDS);

	must(polyrail_comm_close(comm, NULL, &error), "closing the communicator");
	must(polyrail_node_close(node, NULL, &error), "closing the node");
	free(values);
	return 0;
}
