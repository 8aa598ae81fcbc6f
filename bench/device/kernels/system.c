/* What processes, threads and messages between them cost: the part of the kernels that WebAssembly has no calls for. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
#include <unistd.h>

#include "kernels.h"

static void calls(long n)
{
	double t = now();

	for (long i = 0; i < n; i++)
		syscall(SYS_getppid);
	each("ns", now() - t, n, 1e9);
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

static void on_one_processor(void)
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

/* system_main does what it is asked for, or gives 0. */
int system_main(const char *what, int n, char **a, long *v)
{
	if (!strcmp(what, "syscall") && n == 3)
		calls(v[0]);
	else if (!strcmp(what, "switch") && n == 3) {
		on_one_processor();
		ipc("pipe", 1, v[0]);
	} else if (!strcmp(what, "ipc") && n == 5)
		ipc(a[2], v[1], v[2]);
	else if (!strcmp(what, "fork") && n == 3)
		forks(v[0], NULL);
	else if (!strcmp(what, "exec") && n == 3)
		forks(v[0], "/proc/self/exe");
	else if (!strcmp(what, "thread") && n == 3)
		makes_threads(v[0]);
	else if (!strcmp(what, "mutex") && n == 3)
		pair(v[0], 0);
	else if (!strcmp(what, "sem") && n == 3)
		pair(v[0], 1);
	else if (!strcmp(what, "lavamd") && n == 4)
		lavamd(v[0], v[1]);
	else if (!strcmp(what, "everything") && n == 3)
		everything(a[2]);
	else if (!strcmp(what, "serve") && n == 2)
		serve();
	else if (!strcmp(what, "net") && n == 7)
		net(a[2], a[3], v[2], v[3], v[4]);
	else
		return 0;
	return 1;
}
