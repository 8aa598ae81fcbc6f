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
 *
 * A line of the output is "NAME VALUE"; the status is not 0 when a result is wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	fprintf(stderr, "kernels: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void wrong(const char *what)
{
	fprintf(stderr, "kernels: wrong result: %s\n", what);
	exit(2);
}

/* ---- memory bandwidth ---- */

static double *va, *vb, *vc;
static long elements;
static int threads;
static pthread_barrier_t line;
static double best[4] = {1e30, 1e30, 1e30, 1e30};
static int rounds;

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

			pthread_barrier_wait(&line);
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
			pthread_barrier_wait(&line);
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
	pthread_t t[64];

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
	pthread_barrier_init(&line, NULL, count);
	for (long i = 0; i < count; i++)
		if (pthread_create(&t[i], NULL, streamer, (void *)i))
			fail("thread");
	for (int i = 0; i < count; i++)
		pthread_join(t[i], NULL);
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
			for (long j = i * i; j <= limit; j += i)
				hole[j] = 1;
		}
	}
	printf("count %ld\nsieves %.3f\n", count, times / (now() - t));
}

/* ---- the operating system ---- */

static void each(const char *unit, double t, long n, double scale)
{
	printf("%s %.4f\n", unit, t / n * scale);
}

static void calls(long n)
{
	double t = now();

	for (long i = 0; i < n; i++)
		syscall(SYS_getppid);
	each("ns", now() - t, n, 1e9);
}

static void whole(int fd, char *b, size_t n, int out)
{
	while (n > 0) {
		ssize_t k = out ? write(fd, b, n) : read(fd, b, n);

		if (k <= 0)
			fail(out ? "write" : "read");
		b += k;
		n -= k;
	}
}

/* pairs gives two ends: [0] reads, [1] writes. */
static void pairs(const char *kind, int here[2], int there[2])
{
	if (!strcmp(kind, "pipe")) {
		int a[2], b[2];

		if (pipe(a) || pipe(b))
			fail("pipe");
		here[0] = a[0], there[1] = a[1], there[0] = b[0], here[1] = b[1];
	} else if (!strcmp(kind, "fifo")) {
		char name[2][64];
		int fd[2];

		for (int i = 0; i < 2; i++) {
			snprintf(name[i], sizeof name[i], "kernels.%d.%d", (int)getpid(), i);
			if (mkfifo(name[i], 0600) || (fd[i] = open(name[i], O_RDWR)) < 0)
				fail("fifo");
			unlink(name[i]);
		}
		here[0] = fd[0], there[1] = fd[0], there[0] = fd[1], here[1] = fd[1];
	} else if (!strcmp(kind, "unix")) {
		int s[2];

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
			fail("socketpair");
		here[0] = here[1] = s[0], there[0] = there[1] = s[1];
	} else if (!strcmp(kind, "tcp")) {
		struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t n = sizeof a;
		int l = socket(AF_INET, SOCK_STREAM, 0), s = socket(AF_INET, SOCK_STREAM, 0), c, one = 1;

		if (l < 0 || s < 0 || bind(l, (void *)&a, n) || listen(l, 1) || getsockname(l, (void *)&a, &n) || connect(s, (void *)&a, n) || (c = accept(l, NULL, NULL)) < 0)
			fail("tcp");
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		here[0] = here[1] = s, there[0] = there[1] = c;
	} else
		wrong("kind");
}

static void ipc(const char *kind, size_t size, long n)
{
	int here[2], there[2], status;
	char *b = calloc(1, size);
	double t;
	pid_t child;

	if (!b || !size)
		fail("ipc");
	pairs(kind, here, there);
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		for (long i = 0; i <= n; i++) {
			whole(there[0], b, size, 0);
			b[0]++;
			whole(there[1], b, size, 1);
		}
		_exit(0);
	}
	whole(here[1], b, size, 1);
	whole(here[0], b, size, 0);
	t = now();
	for (long i = 0; i < n; i++) {
		whole(here[1], b, size, 1);
		whole(here[0], b, size, 0);
	}
	t = now() - t;
	if (b[0] != (char)(n + 1))
		wrong("ipc");
	if (waitpid(child, &status, 0) != child || status)
		wrong("the other process");
	each("us", t, n, 1e6);
}

static void together(void)
{
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof all, &all))
		return;
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &one);
			break;
		}
	sched_setaffinity(0, sizeof one, &one);
}

static void forks(long n, char *self)
{
	double t = now();
	int status;

	for (long i = 0; i < n; i++) {
		pid_t p = self ? vfork() : fork();

		if (p < 0)
			fail("fork");
		if (!p) {
			if (self)
				execl(self, self, "nothing", NULL);
			_exit(self ? 1 : 0);
		}
		if (waitpid(p, &status, 0) != p || status)
			wrong("a process");
	}
	each("us", now() - t, n, 1e6);
}

static void *nothing(void *p)
{
	return p;
}

static void makes_threads(long n)
{
	double t = now();

	for (long i = 0; i < n; i++) {
		pthread_t p;
		void *out;

		if (pthread_create(&p, NULL, nothing, &t) || pthread_join(p, &out))
			fail("thread");
		if (out != &t)
			wrong("thread");
	}
	each("us", now() - t, n, 1e6);
}

static void files(long n, size_t size, const char *dir)
{
	char name[4096], *b = malloc(size + 1);
	double t;

	if (!b)
		fail("files");
	memset(b, 'x', size);
	t = now();
	for (long i = 0; i < n; i++) {
		int fd;

		snprintf(name, sizeof name, "%s/kernels.%d.%ld", dir, (int)getpid(), i);
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t ping, pong;
static long turns, total;

static void *locker(void *p)
{
	for (long i = 0; i < turns; i++) {
		pthread_mutex_lock(&lock);
		total++;
		pthread_mutex_unlock(&lock);
	}
	return p;
}

static void *answers(void *p)
{
	for (long i = 0; i < turns; i++) {
		sem_wait(&ping);
		total++;
		sem_post(&pong);
	}
	return p;
}

static void pair(long n, int sem)
{
	pthread_t p;
	double t;

	turns = n;
	sem_init(&ping, 0, 0);
	sem_init(&pong, 0, 0);
	if (pthread_create(&p, NULL, sem ? answers : locker, NULL))
		fail("thread");
	t = now();
	if (!sem)
		locker(NULL);
	else
		for (long i = 0; i < n; i++) {
			sem_post(&ping);
			sem_wait(&pong);
		}
	pthread_join(p, NULL);
	t = now() - t;
	if (total != (sem ? n : 2 * n))
		wrong("count");
	each("ns", t, n, 1e9);
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
			pause();
	else if (!strcmp(what, "stream") && n == 5)
		stream(v[0], v[1], v[2]);
	else if (!strcmp(what, "linpack") && n == 3)
		linpack(v[0]);
	else if (!strcmp(what, "primes") && n == 4)
		primes(v[0], v[1]);
	else if (!strcmp(what, "syscall") && n == 3)
		calls(v[0]);
	else if (!strcmp(what, "switch") && n == 3) {
		together();
		ipc("pipe", 1, v[0]);
	} else if (!strcmp(what, "ipc") && n == 5)
		ipc(a[2], v[1], v[2]);
	else if (!strcmp(what, "fork") && n == 3)
		forks(v[0], NULL);
	else if (!strcmp(what, "exec") && n == 3)
		forks(v[0], "/proc/self/exe");
	else if (!strcmp(what, "thread") && n == 3)
		makes_threads(v[0]);
	else if (!strcmp(what, "files") && n == 5)
		files(v[0], v[1], a[4]);
	else if (!strcmp(what, "malloc") && n == 3)
		mallocs(v[0]);
	else if (!strcmp(what, "mutex") && n == 3)
		pair(v[0], 0);
	else if (!strcmp(what, "sem") && n == 3)
		pair(v[0], 1);
	else if (!strcmp(what, "memory") && n == 3)
		touch(v[0]);
	else {
		fprintf(stderr, "kernels: see the head of kernels.c for what it does\n");
		return 64;
	}
	return fflush(stdout) ? 1 : 0;
}
