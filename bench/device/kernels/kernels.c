/*
 * What bench runtime measures where no tool of Debian's does, each with a check of its own result. One static program, so
 * that it is the same in every kind of isolation:
 *
 *	kernels stream ELEMENTS THREADS TIMES   copy, scale, add, triad in MB/s (10^6), best of TIMES, as STREAM counts bytes
 *	kernels linpack N                       LU with partial pivoting in MFLOPS, and its residual
 *	kernels primes LIMIT TIMES              how many there are, and sieves per second
 *	kernels syscall TIMES                   ns for one getppid
 *	kernels switch TIMES                    us for a byte to another process and back by pipes, on one processor
 *	kernels ipc KIND SIZE TIMES             us for a message and its answer: pipe, fifo, unix, tcp
 *	kernels fork|thread|exec TIMES          us for one that is made and ends
 *	kernels files TIMES SIZE DIR            us to make, write and delete one
 *	kernels malloc TIMES                    ns for one
 *	kernels mutex|sem TIMES                 ns for a pair of operations between two threads
 *	kernels memory MIB                      touches so much, and says so if it lives
 *	kernels sleep                           does nothing for ever
 *	kernels append TIMES SIZE DIR           us to append so much to a file
 *	kernels mixed TIMES DIR                 MB/s (10^6) of a file server's work: files are made, read, appended to and deleted
 *	kernels index KIND MS                   see index.c
 *	kernels everything DIR                  for ever, in reach.c: what programs ask of a system, of all kinds
 *	kernels lavamd ...                      see lavamd.c
 *	kernels serve|net ...                   see net.c
 *
 * A line of the output is "NAME VALUE"; the status is not 0 when a result is wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifndef __wasi__
#include <pthread.h>
#endif

#include "kernels.h"

double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

void fail(const char *what)
{
	fprintf(stderr, "kernels: %s: %s\n", what, strerror(errno));
	exit(1);
}

void wrong(const char *what)
{
	fprintf(stderr, "kernels: wrong result: %s\n", what);
	exit(2);
}

/* ---- memory bandwidth ---- */

static double *va, *vb, *vc;
static long elements;
static int threads;
static double best[4] = {1e30, 1e30, 1e30, 1e30};
static int rounds;

#ifdef __wasi__
/* A module has one thread. */
static void together(void) {}
#else
static pthread_barrier_t line;

static void together(void)
{
	pthread_barrier_wait(&line);
}
#endif

static void *streamer(void *arg)
{
	long me = (long)arg, from = elements * me / threads, to = elements * (me + 1) / threads, i;

	for (i = from; i < to; i++) {
		va[i] = 1;
		vb[i] = 2;
		vc[i] = 0;
	}
	for (int r = 0; r < rounds; r++)
		for (int k = 0; k < 4; k++) {
			double t;

			together();
			t = now();
			switch (k) {
			case 0:
				for (i = from; i < to; i++)
					vc[i] = va[i];
				break;
			case 1:
				for (i = from; i < to; i++)
					vb[i] = 3 * vc[i];
				break;
			case 2:
				for (i = from; i < to; i++)
					vc[i] = va[i] + vb[i];
				break;
			case 3:
				for (i = from; i < to; i++)
					va[i] = vb[i] + 3 * vc[i];
			}
			together();
			t = now() - t;
			if (me == 0 && t < best[k])
				best[k] = t;
		}
	return NULL;
}

static void stream(long n, int count, int times)
{
	static const char *name[] = {"copy", "scale", "add", "triad"};
	static const int arrays[] = {2, 2, 3, 3}; /* that one element of work reads or writes */
	double a = 1, b = 2, c = 0;

	if (n < 1 || count < 1 || count > 64 || times < 1)
		wrong("arguments");
	elements = n;
	threads = count;
	rounds = times;
	va = malloc(n * sizeof *va);
	vb = malloc(n * sizeof *vb);
	vc = malloc(n * sizeof *vc);
	if (!va || !vb || !vc)
		fail("malloc");
#ifdef __wasi__
	if (count != 1)
		wrong("there is one thread");
	streamer(NULL);
#else
	pthread_t t[64];

	pthread_barrier_init(&line, NULL, count);
	for (long i = 0; i < count; i++)
		if (pthread_create(&t[i], NULL, streamer, (void *)i))
			fail("thread");
	for (int i = 0; i < count; i++)
		pthread_join(t[i], NULL);
#endif
	for (int r = 0; r < times; r++) {
		c = a;
		b = 3 * c;
		c = a + b;
		a = b + 3 * c;
	}
	for (long i = 0; i < n; i++)
		if (fabs(va[i] / a - 1) > 1e-12 || fabs(vb[i] / b - 1) > 1e-12 || fabs(vc[i] / c - 1) > 1e-12)
			wrong("stream");
	for (int k = 0; k < 4; k++)
		printf("%s %.3f\n", name[k], arrays[k] * 8.0 * n / best[k] / 1e6);
}

/* ---- processor ---- */

static double noise(unsigned long long *s)
{
	*s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
	return (double)(*s >> 11) / (1ULL << 53) - 0.5;
}

static void linpack(int n)
{
	double *m = malloc(sizeof(double) * n * n), *x = malloc(sizeof(double) * n), *b = malloc(sizeof(double) * n);
	double t, worst = 0, norm = 0, big = 0, size = 0;
	unsigned long long s = 1;

	if (n < 2 || !m || !x || !b)
		fail("linpack");
	for (long i = 0; i < (long)n * n; i++)
		m[i] = noise(&s);
	for (int i = 0; i < n; i++) {
		x[i] = b[i] = 0;
		for (int j = 0; j < n; j++)
			b[i] += m[(long)i * n + j];
		x[i] = b[i];
	}
	t = now();
	for (int k = 0; k < n; k++) {
		int p = k;

		for (int i = k + 1; i < n; i++)
			if (fabs(m[(long)i * n + k]) > fabs(m[(long)p * n + k]))
				p = i;
		if (p != k) {
			double h = x[p];

			x[p] = x[k];
			x[k] = h;
			for (int j = 0; j < n; j++) {
				h = m[(long)p * n + j];
				m[(long)p * n + j] = m[(long)k * n + j];
				m[(long)k * n + j] = h;
			}
		}
		for (int i = k + 1; i < n; i++) {
			double f = m[(long)i * n + k] / m[(long)k * n + k];

			for (int j = k; j < n; j++)
				m[(long)i * n + j] -= f * m[(long)k * n + j];
			x[i] -= f * x[k];
		}
	}
	for (int k = n - 1; k >= 0; k--) {
		for (int j = k + 1; j < n; j++)
			x[k] -= m[(long)k * n + j] * x[j];
		x[k] /= m[(long)k * n + k];
	}
	t = now() - t;
	/* The residual of the matrix as it was, scaled as LINPACK does. */
	s = 1;
	for (int i = 0; i < n; i++) {
		double r = -b[i], row = 0;

		for (int j = 0; j < n; j++) {
			double v = noise(&s);

			r += v * x[j];
			row += fabs(v);
		}
		worst = fmax(worst, fabs(r));
		norm = fmax(norm, row);
		big = fmax(big, fabs(x[i]));
		size = fmax(size, fabs(b[i]));
	}
	worst /= (norm * big + size) * n * 2.220446049250313e-16;
	if (!(worst < 16))
		wrong("linpack: residual");
	printf("mflops %.3f\nresidual %.3f\n", (2.0 / 3 * n * n * n + 2.0 * n * n) / t / 1e6, worst);
}

static void primes(long limit, int times)
{
	char *hole = malloc(limit + 1);
	long count = 0;
	double t = now();

	if (limit < 2 || times < 1 || !hole)
		fail("primes");
	for (int r = 0; r < times; r++) {
		memset(hole, 0, limit + 1);
		count = 0;
		for (long i = 2; i <= limit; i++) {
			if (hole[i])
				continue;
			count++;
			for (long long j = (long long)i * i; j <= limit; j += i)
				hole[j] = 1;
		}
	}
	printf("count %ld\nsieves %.3f\n", count, times / (now() - t));
}

/* ---- the operating system ---- */

void each(const char *unit, double t, long n, double scale)
{
	printf("%s %.4f\n", unit, t / n * scale);
}

void whole(int fd, char *b, size_t n, int out)
{
	while (n > 0) {
		ssize_t k = out ? write(fd, b, n) : read(fd, b, n);

		if (k <= 0)
			fail(out ? "write" : "read");
		b += k;
		n -= k;
	}
}

static void files(long n, size_t size, const char *dir)
{
	char name[4096], *b = malloc(size + 1);
	unsigned long long mine = (unsigned long long)(now() * 1e9); /* a module has no number of its process */
	double t;

	if (!b)
		fail("files");
	memset(b, 'x', size);
	t = now();
	for (long i = 0; i < n; i++) {
		int fd;

		snprintf(name, sizeof name, "%s/kernels.%llx.%ld", dir, mine, i);
		fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0)
			fail(name);
		if (size)
			whole(fd, b, size, 1);
		close(fd);
		if (unlink(name))
			fail(name);
	}
	each("us", now() - t, n, 1e6);
}

static void appends(long n, size_t size, const char *dir)
{
	char name[4096], *b = malloc(size + 1);
	double t;
	int fd;

	if (!b || !size)
		fail("append");
	memset(b, 'x', size);
	snprintf(name, sizeof name, "%s/kernels.append.%llx", dir, (unsigned long long)(now() * 1e9));
	if ((fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600)) < 0)
		fail(name);
	close(fd);
	t = now();
	for (long i = 0; i < n; i++) {
		fd = open(name, O_WRONLY | O_APPEND);
		if (fd < 0)
			fail(name);
		whole(fd, b, size, 1);
		close(fd);
	}
	t = now() - t;
	fd = open(name, O_RDONLY);
	if (fd < 0 || lseek(fd, 0, SEEK_END) != (off_t)n * (off_t)size)
		wrong("append: the size of the file");
	close(fd);
	if (unlink(name))
		fail(name);
	each("us", t, n, 1e6);
}

enum { SHELF = 64, MEAN = 128 << 10, MORE = 16 << 10 };

/*
 * What Filebench's file server does, which is not in Debian: each time a file of 64 is deleted and made anew with 64 to 192 KiB, another one is appended
 * to, and a third one is read whole and looked at. What is read must be what was written.
 */
static void mixed(long times, const char *dir)
{
	static char b[4 * MEAN];
	static long sizes[SHELF];
	char name[SHELF][4096];
	unsigned long long mine = (unsigned long long)(now() * 1e9), s = 1;
	double t = now(), moved = 0;

	for (int i = 0; i < SHELF; i++)
		snprintf(name[i], sizeof name[i], "%s/kernels.mixed.%llx.%d", dir, mine, i);
	for (long k = 0; k < times; k++) {
		int made = k % SHELF, longer, read_, fd;
		struct stat st;

		noise(&s);
		if (sizes[made] && unlink(name[made]))
			fail(name[made]);
		sizes[made] = MEAN / 2 + (s >> 33) % MEAN;
		memset(b, 'a' + made % 26, sizes[made]);
		if ((fd = open(name[made], O_CREAT | O_EXCL | O_WRONLY, 0600)) < 0)
			fail(name[made]);
		whole(fd, b, sizes[made], 1);
		close(fd);
		moved += sizes[made];
		noise(&s);
		longer = (s >> 33) % (k < SHELF ? k + 1 : SHELF);
		if (sizes[longer] + MORE <= (long)sizeof b) {
			if ((fd = open(name[longer], O_WRONLY | O_APPEND)) < 0)
				fail(name[longer]);
			memset(b, 'a' + longer % 26, MORE);
			whole(fd, b, MORE, 1);
			close(fd);
			sizes[longer] += MORE;
			moved += MORE;
		}
		noise(&s);
		read_ = (s >> 33) % (k < SHELF ? k + 1 : SHELF);
		if ((fd = open(name[read_], O_RDONLY)) < 0 || fstat(fd, &st))
			fail(name[read_]);
		if (st.st_size != sizes[read_])
			wrong("mixed: the size of a file");
		whole(fd, b, sizes[read_], 0);
		close(fd);
		if (b[0] != 'a' + read_ % 26 || b[sizes[read_] / 2] != b[0] || b[sizes[read_] - 1] != b[0])
			wrong("mixed: what is in a file");
		moved += sizes[read_];
	}
	t = now() - t;
	for (int i = 0; i < SHELF; i++)
		if (sizes[i] && unlink(name[i]))
			fail(name[i]);
	printf("mbytes %.6g\n", moved / t / 1e6);
}

static void mallocs(long n)
{
	static void *kept[1024];
	unsigned long long s = 1;
	double t = now();

	for (long i = 0; i < n; i++) {
		int at = i % 1024;

		free(kept[at]);
		noise(&s);
		kept[at] = malloc(16 + (s >> 40) % 4096);
		if (!kept[at])
			fail("malloc");
		*(volatile char *)kept[at] = 1;
	}
	each("ns", now() - t, n, 1e9);
}

static void touch(long mib)
{
	for (long i = 0; i < mib; i++) {
		char *p = malloc(1 << 20);

		if (!p)
			fail("malloc");
		for (int k = 0; k < 1 << 20; k += 1024)
			((volatile char *)p)[k] = 1;
	}
	printf("mib %ld\n", mib);
}

#ifdef __wasi__
int system_main(const char *what, int n, char **a, long *v)
{
	(void)what, (void)n, (void)a, (void)v;
	return 0;
}
#endif

int main(int n, char **a)
{
	const char *what = n > 1 ? a[1] : "";
	long v[5] = {0};

	for (int i = 2; i < n && i < 7; i++)
		v[i - 2] = atol(a[i]);
	setvbuf(stdout, NULL, _IOFBF, 4096);
	if (!strcmp(what, "nothing") && n == 2)
		return 0;
	else if (!strcmp(what, "sleep") && n == 2)
		for (;;)
			sleep(1000);
	else if (!strcmp(what, "stream") && n == 5)
		stream(v[0], v[1], v[2]);
	else if (!strcmp(what, "linpack") && n == 3)
		linpack(v[0]);
	else if (!strcmp(what, "primes") && n == 4)
		primes(v[0], v[1]);
	else if (!strcmp(what, "files") && n == 5)
		files(v[0], v[1], a[4]);
	else if (!strcmp(what, "append") && n == 5)
		appends(v[0], v[1], a[4]);
	else if (!strcmp(what, "mixed") && n == 4)
		mixed(v[0], a[3]);
	else if (!strcmp(what, "index") && n == 4 && indices(a[2], v[1]))
		;
	else if (!strcmp(what, "malloc") && n == 3)
		mallocs(v[0]);
	else if (!strcmp(what, "memory") && n == 3)
		touch(v[0]);
	else if (!system_main(what, n, a, v)) {
		fprintf(stderr, "kernels: see the head of kernels.c for what it does\n");
		return 64;
	}
	return fflush(stdout) ? 1 : 0;
}
