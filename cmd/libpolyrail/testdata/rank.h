/* What the programs that are one of two ranks begin with. */
#ifndef RANK_H
#define RANK_H

#include <stdio.h>
#include <stdlib.h>

#include "polyrail.h"

static polyrail_error error;
static polyrail_comm comm;
static int rank;

#define CHECK(x) do { if (!(x)) { \
	fprintf(stderr, "%s:%d: rank %d: %s: %s (%d)\n", __FILE__, __LINE__, rank, #x, error.text, error.code); \
	exit(1); } } while (0)
#define OK(call) CHECK((call) == POLYRAIL_OK)

/* Opens a node with lines of settings that name its rails, and forms comm. The arguments are the node's
 * name and, of the second rank, where it joins. */
static polyrail_node open_rank(int argc, char **argv, const char *rails, const char *communicator)
{
	char settings[1024], address[64];
	polyrail_result r;
	polyrail_node node;

	snprintf(settings, sizeof settings, "name=%s\nbind=127.0.0.1:0\n%sprobe=off\nrank-timeout=1m\n%s%s\n", argv[1], rails,
	         argc > 2 ? "join=" : "", argc > 2 ? argv[2] : "");
	OK(polyrail_node_open(settings, NULL, &r, &error));
	node = r.handle;
	OK(polyrail_node_address(node, address, sizeof address, &error));
	printf("others can join at %s\n", address);
	fflush(stdout);
	OK(polyrail_comm_form(node, communicator, 2, NULL, &r, &error));
	comm = r.handle;
	rank = polyrail_comm_rank(comm);
	return node;
}

#endif
