/*
 * Traffic between two machines, each side checking what the other sent:
 *
 *	kernels serve                            answers at a port that it prints, until its standard input ends
 *	kernels net stream HOST PORT SIZE MS     Mbit/s of one TCP stream, written SIZE bytes at a time
 *	kernels net rr HOST PORT SIZE MS         requests of SIZE bytes and answers of as many, per second, on one connection
 *	kernels net udp HOST PORT SIZE MS        Mbit/s of datagrams of SIZE bytes that arrive, and the share of those that do not
 *	kernels net connect HOST PORT 1 MS       connections made, used for a byte and closed, per second
 *
 * A connection begins with a letter, the kind, and three bytes, the size. SIZE is a multiple of 64 but for connect, at most 65472.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "kernels.h"

enum { PERIOD = 64, ROOM = 1 << 16 };

static void fill(unsigned char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		b[i] = 1 + i % PERIOD;
}

static void soon(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* ---- the side that answers ---- */

static void sink(int fd)
{
	static unsigned char b[ROOM];
	uint64_t total = 0;
	ssize_t n;

	while ((n = read(fd, b, sizeof b)) > 0) {
		/* The first and the last byte of what came tell that nothing is lost, or twice there. */
		if (b[0] != 1 + total % PERIOD || b[n - 1] != 1 + (total + n - 1) % PERIOD)
			_exit(3);
		total += n;
	}
	if (n < 0)
		_exit(4);
	whole(fd, (char *)&total, sizeof total, 1);
}

static void echo(int fd, size_t size)
{
	static char b[ROOM];

	for (;;) {
		size_t have = 0;

		while (have < size) {
			ssize_t n = read(fd, b + have, size - have);

			if (n <= 0)
				return;
			have += n;
		}
		b[0]++;
		whole(fd, b, size, 1);
	}
}

static void datagrams(int fd, size_t size)
{
	static unsigned char b[ROOM], good[ROOM];
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct timeval wait = {.tv_usec = 100000};
	socklen_t n = sizeof a;
	int u = socket(AF_INET, SOCK_DGRAM, 0), room = 4 << 20, ended = 0;
	uint64_t count = 0;

	setsockopt(u, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	if (u < 0 || bind(u, (void *)&a, n) || getsockname(u, (void *)&a, &n))
		_exit(5);
	fill(good, size);
	whole(fd, (char *)&a.sin_port, 2, 1);
	for (;;) {
		ssize_t k = recv(u, b, sizeof b, 0);

		if (k < 0 && ended)
			break; /* nothing came since the other side was done */
		if (k < 0) {
			char c;

			ended = recv(fd, &c, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN;
			continue;
		}
		if ((size_t)k != size || b[0] != good[0] || b[k - 1] != good[k - 1])
			_exit(6);
		count++;
	}
	whole(fd, (char *)&count, sizeof count, 1);
}

void serve(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct timeval wait = {.tv_sec = 1};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	signal(SIGCHLD, SIG_IGN);
	if (l < 0 || bind(l, (void *)&a, n) || listen(l, 128) || getsockname(l, (void *)&a, &n))
		fail("serve");
	printf("port %d\n", ntohs(a.sin_port));
	fflush(stdout);
	for (;;) {
		unsigned char head[4];
		struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
		size_t size;
		int fd;

		if (poll(p, 2, -1) > 0 && p[1].revents)
			exit(0);
		fd = accept(l, NULL, NULL);
		if (fd < 0)
			continue;
		soon(fd);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
		if (recv(fd, head, sizeof head, MSG_WAITALL) != sizeof head) {
			close(fd);
			continue;
		}
		size = head[1] | head[2] << 8 | head[3] << 16;
		if (head[0] == 'c') {
			send(fd, head, 1, MSG_NOSIGNAL); /* the other side tells when it does not come */
			close(fd);
			continue;
		}
		if (size > 0 && size <= ROOM && !fork()) {
			struct timeval never = {0};

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(l);
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never);
			if (head[0] == 's')
				sink(fd);
			else if (head[0] == 'r')
				echo(fd, size);
			else if (head[0] == 'u')
				datagrams(fd, size);
			_exit(0);
		}
		close(fd);
	}
}

/* ---- the side that asks ---- */

static int begin(const struct sockaddr_in *a, char kind, size_t size)
{
	unsigned char head[4] = {kind, size, size >> 8, size >> 16};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (void *)a, sizeof *a))
		fail("connect");
	soon(fd);
	whole(fd, (char *)head, sizeof head, 1);
	return fd;
}

static void stream_to(const struct sockaddr_in *a, size_t size, long ms)
{
	static unsigned char b[ROOM];
	uint64_t sent = 0, came;
	int fd = begin(a, 's', size), off = 0;
	double began, until;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off); /* small writes are sent together, as netperf's are */
	fill(b, size);
	began = now();
	until = began + ms / 1e3;
	do
		for (int i = 0; i < 16; i++) {
			whole(fd, (char *)b, size, 1);
			sent += size;
		}
	while (now() < until);
	shutdown(fd, SHUT_WR);
	whole(fd, (char *)&came, sizeof came, 0);
	if (came != sent)
		wrong("the stream");
	printf("mbits %.3f\n", sent * 8 / (now() - began) / 1e6);
}

static void ask(const struct sockaddr_in *a, size_t size, long ms)
{
	static char b[ROOM];
	int fd = begin(a, 'r', size);
	long n = 0;
	double began = now(), until = began + ms / 1e3;

	do {
		whole(fd, b, size, 1);
		whole(fd, b, size, 0);
		n++;
	} while (now() < until);
	if (b[0] != (char)n)
		wrong("the answers");
	printf("rate %.3f\n", n / (now() - began));
}

static void send_datagrams(const struct sockaddr_in *a, size_t size, long ms)
{
	static unsigned char b[ROOM];
	struct sockaddr_in to = *a;
	uint64_t sent = 0, came;
	int fd = begin(a, 'u', size), u = socket(AF_INET, SOCK_DGRAM, 0);
	double took, began, until;

	fill(b, size);
	whole(fd, (char *)&to.sin_port, 2, 0);
	if (u < 0 || connect(u, (void *)&to, sizeof to))
		fail("udp");
	began = now();
	until = began + ms / 1e3;
	do
		for (int i = 0; i < 16; i++) {
			if (send(u, b, size, 0) == (ssize_t)size)
				sent++;
			else if (errno != ENOBUFS && errno != EAGAIN)
				fail("send");
		}
	while (now() < until);
	took = now() - began;
	shutdown(fd, SHUT_WR);
	whole(fd, (char *)&came, sizeof came, 0);
	if (came > sent || came == 0)
		wrong("the datagrams");
	printf("mbits %.3f\nlost %.5f\n", came * size * 8 / took / 1e6, 1 - (double)came / sent);
}

static void connections(const struct sockaddr_in *a, long ms)
{
	long n = 0;
	double began = now(), until = began + ms / 1e3;

	do {
		char c = 0;
		int fd = begin(a, 'c', 1);

		whole(fd, &c, 1, 0);
		if (c != 'c')
			wrong("a connection");
		close(fd);
		n++;
	} while (now() < until);
	printf("rate %.3f\n", n / (now() - began));
}

void net(const char *kind, const char *host, int port, long size, long ms)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1 || port < 1 || port > 65535 || size < 1 || size > ROOM - PERIOD || ms < 1 || (strcmp(kind, "connect") && size % PERIOD))
		wrong("arguments");
	if (!strcmp(kind, "stream"))
		stream_to(&a, size, ms);
	else if (!strcmp(kind, "rr"))
		ask(&a, size, ms);
	else if (!strcmp(kind, "udp"))
		send_datagrams(&a, size, ms);
	else if (!strcmp(kind, "connect"))
		connections(&a, ms);
	else
		wrong("kind");
}
