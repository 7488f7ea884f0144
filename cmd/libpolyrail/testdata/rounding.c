/* rounding adds up, as one of two ranks, in a program that rounds up from its beginning: before the
 * library is loaded. Sums are to the nearest nevertheless. It says "done" if all was right. */
#include <fenv.h>

#include "rank.h"

static void round_up(void) { fesetround(FE_UPWARD); }

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = round_up;

/* The sum of 1 and something too small, in as many elements. */
static void add(int count)
{
	polyrail_async async = {0};
	float *x = malloc(2 * count * sizeof *x), *y = x + count;
	int i, code;

	for (i = 0; i < count; i++)
		x[i] = y[i] = rank ? 1 : 0x1p-26f;
	OK(polyrail_allreduce(comm, x, x, count, POLYRAIL_FLOAT32, POLYRAIL_SUM, NULL, &error));
	code = polyrail_allreduce(comm, y, y, count, POLYRAIL_FLOAT32, POLYRAIL_SUM, &async, &error);
	OK(code == POLYRAIL_PENDING ? polyrail_wait(async.work, -1, NULL, &error) : code);
	for (i = 0; i < count; i++)
		CHECK(x[i] == 1 && y[i] == 1);
	free(x);
}

int main(int argc, char **argv)
{
	polyrail_node node = open_rank(argc, argv, "rail=r0=tcp:127.0.0.1\n", "train");
	int i;

	for (i = 0; i < 5; i++) {
		add(1);       /* on the caller's thread */
		add(1000000); /* on threads that the library has made */
	}
	CHECK(fegetround() == FE_UPWARD);
	OK(polyrail_comm_close(comm, NULL, &error));
	OK(polyrail_node_close(node, NULL, &error));
	printf("done\n");
	return 0;
}
