/*
 * allreduce adds up a vector over several processes.
 *
 *     go build -buildmode=c-shared -o libpolyrail.so ./cmd/libpolyrail
 *     cc -I cmd/libpolyrail -o allreduce examples/c/allreduce.c ./libpolyrail.so
 *
 *     ./allreduce 2 'name=a' 'bind=10.0.0.1:7946' 'rail=all=tcp:auto'
 *     ./allreduce 2 'name=b' 'bind=10.0.0.2:7946' 'rail=all=tcp:auto' 'join=10.0.0.1:7946'
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "polyrail.h"

static polyrail_error error;

/* Ends the program unless a call succeeded. */
static void must(int code, const char *what)
{
	if (code != POLYRAIL_OK) {
		fprintf(stderr, "%s: %s\n", what, error.text);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	char settings[4096] = "", address[64];
	polyrail_result result;
	polyrail_node node;
	polyrail_comm comm;
	float sum[3] = {1, 2, 3};
	int i;

	if (argc < 2 || atoi(argv[1]) < 1) {
		fprintf(stderr, "usage: allreduce PROCESSES KEY=VALUE...\n");
		return 2;
	}
	for (i = 2; i < argc; i++) {
		if (strlen(settings) + strlen(argv[i]) + 2 > sizeof settings) {
			fprintf(stderr, "too many settings\n");
			return 2;
		}
		strcat(strcat(settings, argv[i]), "\n");
	}
	must(polyrail_node_open(settings, NULL, &result, &error), "starting the node");
	node = result.handle;
	must(polyrail_node_address(node, address, sizeof address, &error), "asking for the address");
	printf("others can join at %s\n", address);
	fflush(stdout);

	must(polyrail_comm_form(node, "example", atoi(argv[1]), NULL, &result, &error),
	     "forming the communicator");
	comm = result.handle;
	must(polyrail_allreduce(comm, sum, sum, 3, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL, &error),
	     "adding up");
	printf("rank %d: %g %g %g\n", polyrail_comm_rank(comm), sum[0], sum[1], sum[2]);

	must(polyrail_comm_close(comm, NULL, &error), "closing the communicator");
	must(polyrail_node_close(node, NULL, &error), "closing the node");
	return 0;
}
