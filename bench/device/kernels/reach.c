/* What programs ask of a system, one of each kind, for ever: the workload under which bench runtime looks which system calls reach the host. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels.h"

static void *nothing(void *arg)
{
	return arg;
}

static void files_of_all_kinds(const char *dir)
{
	char a[4096], b[4200], buf[64];
	struct stat st;
	int fd;

	snprintf(a, sizeof a, "%s/kernels.reach.%d", dir, (int)getpid());
	snprintf(b, sizeof b, "%s.other", a);
	if ((fd = open(a, O_CREAT | O_RDWR | O_TRUNC, 0600)) < 0)
		fail(a);
	whole(fd, "some bytes", 10, 1);
	if (lseek(fd, 0, SEEK_SET) || read(fd, buf, sizeof buf) != 10 || pwrite(fd, "more", 4, 10) != 4 || pread(fd, buf, 4, 10) != 4 || fsync(fd) || fdatasync(fd) || ftruncate(fd, 5) || fstat(fd, &st) || fchmod(fd, 0640))
		fail("the file");
	if (st.st_size != 5 || memcmp(buf, "more", 4))
		wrong("everything: what is in a file");
	close(fd);
	if (rename(a, b) || access(b, R_OK) || link(b, a) || unlink(b) || symlink(a, b) || readlink(b, buf, sizeof buf) < 0 || unlink(b) || unlink(a))
		fail("names");
	if (mkdir(a, 0700) || rmdir(a) || !getcwd(b, sizeof b))
		fail("directories");
}

static void processes(void)
{
	pthread_t t;
	int status;
	pid_t pid = fork();

	if (!pid) {
		execl("/proc/self/exe", "kernels", "nothing", (char *)NULL);
		_exit(1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		fail("a process");
	if (pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL))
		fail("a thread");
	sched_yield();
	if (kill(getpid(), 0))
		fail("kill");
}

static void talk(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	struct epoll_event e = {.events = EPOLLIN};
	int p[2], s[2], l, c, d, ep, one = 1;
	char buf[8];

	if (pipe(p) || write(p[1], "x", 1) != 1 || read(p[0], buf, 1) != 1)
		fail("a pipe");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) || send(s[0], "x", 1, 0) != 1 || recv(s[1], buf, 1, 0) != 1)
		fail("a pair of sockets");
	if ((l = socket(AF_INET, SOCK_STREAM, 0)) < 0 || setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 1) ||
		getsockname(l, (struct sockaddr *)&at, &n))
		fail("listen");
	if ((ep = epoll_create1(0)) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, l, &e))
		fail("epoll");
	if ((c = socket(AF_INET, SOCK_STREAM, 0)) < 0 || connect(c, (struct sockaddr *)&at, sizeof at) || epoll_wait(ep, &e, 1, 1000) != 1 || (d = accept(l, NULL, NULL)) < 0)
		fail("connect");
	if (send(c, "ping", 4, 0) != 4 || recv(d, buf, 4, MSG_WAITALL) != 4 || shutdown(c, SHUT_RDWR))
		fail("a connection");
	if ((one = eventfd(1, 0)) < 0)
		fail("eventfd");
	for (int *k = (int[]){p[0], p[1], s[0], s[1], l, c, d, ep, one, -1}; *k >= 0; k++)
		close(*k);
}

void everything(const char *dir)
{
	struct timespec t = {0, 1000000};
	struct utsname u;
	struct timeval v;
	char *m, r[16];

	for (int first = 1;; first = 0) {
		files_of_all_kinds(dir);
		processes();
		talk();
		m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (m == MAP_FAILED || (m[4096] = 1, mprotect(m, 4096, PROT_READ)) || madvise(m, 1 << 20, MADV_DONTNEED) || munmap(m, 1 << 20))
			fail("memory");
		if (getrandom(r, sizeof r, 0) != sizeof r || uname(&u) || gettimeofday(&v, NULL) || nanosleep(&t, NULL) || getuid() == (uid_t)-1 || getppid() < 0)
			fail("the rest");
		if (first && (puts("begun") < 0 || fflush(stdout)))
			fail("output");
	}
}
