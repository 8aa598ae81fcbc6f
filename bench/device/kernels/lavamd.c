/*
 * Particles in boxes that act on those of their own box and of the 26 around it, as in LavaMD of Rodinia:
 *
 *	kernels lavamd BOXES THREADS             millions of pairs per second, BOXES to a side, and how far the forces are from adding up to 0
 *
 * Charges differ, so the force that a particle has times its charge is what another one has with the sign turned: all of them together are 0.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { EACH = 100 }; /* particles of a box */

struct particle {
	double v, x, y, z, q;
};
struct force {
	double v, x, y, z;
};

static struct particle *at;
static struct force *on;
static long side, workers, pairs_of[64];

static void act(const struct particle *a, const struct particle *b, struct force *f)
{
	for (int i = 0; i < EACH; i++)
		for (int j = 0; j < EACH; j++) {
			/* The square of the distance is from the norms and the product, as there. */
			double r2 = a[i].v + b[j].v - (a[i].x * b[j].x + a[i].y * b[j].y + a[i].z * b[j].z);
			double v = exp(-0.5 * r2), s = 2 * v * b[j].q;

			f[i].v += b[j].q * v;
			f[i].x += s * (a[i].x - b[j].x);
			f[i].y += s * (a[i].y - b[j].y);
			f[i].z += s * (a[i].z - b[j].z);
		}
}

static void *worker(void *arg)
{
	long me = (long)arg, all = side * side * side;

	for (long k = all * me / workers; k < all * (me + 1) / workers; k++) {
		long x = k % side, y = k / side % side, z = k / side / side;

		for (long n = 0; n < 27; n++) {
			long i = x + n % 3 - 1, j = y + n / 3 % 3 - 1, l = z + n / 9 - 1;

			if (i < 0 || j < 0 || l < 0 || i >= side || j >= side || l >= side)
				continue;
			act(at + k * EACH, at + ((l * side + j) * side + i) * EACH, on + k * EACH);
			pairs_of[me] += (long)EACH * EACH;
		}
	}
	return NULL;
}

void lavamd(long boxes, long threads)
{
	pthread_t t[64];
	double took, sum[3] = {0}, size = 0;
	long all = boxes * boxes * boxes * EACH, pairs = 0, want = 3 * boxes - 2;

	if (boxes < 1 || boxes > 100 || threads < 1 || threads > 64)
		wrong("arguments");
	side = boxes;
	workers = threads;
	at = calloc(all, sizeof *at);
	on = calloc(all, sizeof *on);
	if (!at || !on)
		fail("lavamd");
	srand(1);
	for (long i = 0; i < all; i++) {
		struct particle *p = at + i;

		p->x = (rand() % 10 + 1) / 10.0;
		p->y = (rand() % 10 + 1) / 10.0;
		p->z = (rand() % 10 + 1) / 10.0;
		p->q = (rand() % 10 + 1) / 10.0;
		p->v = (p->x * p->x + p->y * p->y + p->z * p->z) / 2;
	}
	took = now();
	for (long i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, worker, (void *)i))
			fail("thread");
	for (long i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	took = now() - took;
	for (long i = 0; i < threads; i++)
		pairs += pairs_of[i];
	for (long i = 0; i < all; i++) {
		if (!(on[i].v > 0))
			wrong("lavamd: a particle without potential");
		sum[0] += at[i].q * on[i].x;
		sum[1] += at[i].q * on[i].y;
		sum[2] += at[i].q * on[i].z;
		size += at[i].q * (fabs(on[i].x) + fabs(on[i].y) + fabs(on[i].z));
	}
	for (int i = 0; i < 3; i++)
		if (!(fabs(sum[i]) <= 1e-9 * size))
			wrong("lavamd: the forces do not add up to 0");
	/* Of n boxes in a row 3n-2 pairs are neighbours or the same. */
	if (pairs != want * want * want * EACH * EACH)
		wrong("lavamd: pairs");
	printf("mpairs %.3f\nrest %.3g\n", pairs / took / 1e6, (fabs(sum[0]) + fabs(sum[1]) + fabs(sum[2])) / size);
}
