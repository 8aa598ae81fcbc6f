// A unikernel: one program that is its own kernel. It answers pings, UDP (what it gets) and HTTP (a greeting) at the IPv4 address
// that its command line tells, and ends when the machine's power button is pressed. Build it by
//
//	gcc -m32 -Os -ffreestanding -fno-pic -no-pie -fno-stack-protector -mno-sse -nostdlib -static -Wl,-T,link.ld,--build-id=none,-n -o greeter main.c
//
// The words of the command line are ip=ADDRESS, name=WORD, status=N (end at once with that status), stubborn (do not heed the power
// button), reset, and hang. It knows one machine: QEMU's microvm, with virtio's devices in memory and one processor in 32-bit mode.

#include "machine.h"

static volatile u8 *byte_at(u32 address) { return (volatile u8 *)address; }
static void fence(void) { __asm__ volatile("lock; addl $0, (%%esp)" ::: "memory", "cc"); }

static void copy(volatile u8 *to, const volatile u8 *from, u32 n) {
	for (u32 i = 0; i < n; i++)
		to[i] = from[i];
}

// Where microvm has its power button, and where it is switched off.
static void power_off(void) { *byte_at(0xfea00200) = 5 << 2 | 0x20; }
static int power_button(void) { return *reg(0xfea00000) & 2; }

// word finds NAME=VALUE, or NAME alone, in the command line; 0 where it is not there.
static const char *line = "";
static const char *word(const char *name) {
	for (const char *p = line; *p;) {
		const char *n = name, *q = p;
		for (; *n && *q == *n; n++, q++)
			;
		if (!*n && (*q == '=' || *q == ' ' || !*q))
			return *q == '=' ? q + 1 : q;
		for (; *p && *p != ' '; p++)
			;
		for (; *p == ' '; p++)
			;
	}
	return 0;
}

static u32 number(const char **p) {
	u32 n = 0;
	for (; **p >= '0' && **p <= '9'; (*p)++)
		n = n * 10 + (**p - '0');
	return n;
}

// The network card: virtio 1.2, two queues of 16, each buffer a frame with its header.
enum { QUEUE = 16, FRAME = 2048, HEADER = 12 };
static struct queue {
	struct {
		u64 at;
		u32 size;
		u16 flags, next;
	} desc[QUEUE] __attribute__((aligned(16)));
	struct {
		u16 flags, idx, ring[QUEUE];
	} avail __attribute__((aligned(2)));
	struct {
		u16 flags, idx;
		struct {
			u32 id, size;
		} ring[QUEUE];
	} used __attribute__((aligned(4)));
	u16 seen;
	u8 data[QUEUE][FRAME];
} queues[2];
static u32 card;
static u8 mac[6], ip[4];

static int find_card(void) {
	for (u32 at = 0xfeb00000; at < 0xfeb00000 + 24 * 512; at += 512)
		if (*reg(at) == 0x74726976 && *reg(at + 4) == 2 && *reg(at + 8) == 1) {
			card = at;
			return 1;
		}
	return 0;
}

static int start_card(void) {
	*reg(card + 0x70) = 0;
	*reg(card + 0x70) = 3; // acknowledged, driver
	*reg(card + 0x24) = 0;
	*reg(card + 0x20) = 1 << 5; // its address
	*reg(card + 0x24) = 1;
	*reg(card + 0x20) = 1; // version 1
	*reg(card + 0x70) = 11;
	if (!(*reg(card + 0x70) & 8))
		return 0;
	for (int q = 0; q < 2; q++) {
		struct queue *v = &queues[q];
		for (int i = 0; i < QUEUE; i++) {
			v->desc[i].at = (u32)v->data[i];
			v->desc[i].size = FRAME;
			v->desc[i].flags = q == 0 ? 2 : 0; // what arrives is written by the card
			v->avail.ring[i] = i;
		}
		*reg(card + 0x30) = q;
		*reg(card + 0x38) = QUEUE;
		*reg(card + 0x80) = (u32)v->desc;
		*reg(card + 0x84) = 0;
		*reg(card + 0x90) = (u32)&v->avail;
		*reg(card + 0x94) = 0;
		*reg(card + 0xa0) = (u32)&v->used;
		*reg(card + 0xa4) = 0;
		*reg(card + 0x44) = 1;
	}
	for (int i = 0; i < 6; i++)
		mac[i] = *byte_at(card + 0x100 + i);
	*reg(card + 0x70) = 15;
	queues[0].avail.idx = QUEUE;
	fence();
	*reg(card + 0x50) = 0;
	return 1;
}

static u8 *frame_to_send(void) { return queues[1].data[queues[1].avail.idx % QUEUE] + HEADER; }

static void send(u32 size) {
	struct queue *v = &queues[1];
	u16 i = v->avail.idx % QUEUE;
	while ((u16)(v->avail.idx - *(volatile u16 *)&v->used.idx) >= QUEUE - 1) // the next one must be free
		;
	for (int n = 0; n < HEADER; n++)
		v->data[i][n] = 0;
	v->desc[i].size = HEADER + (size < 60 ? 60 : size);
	v->avail.ring[i] = i;
	fence();
	v->avail.idx++;
	fence();
	*reg(card + 0x50) = 1;
}

static u16 get16(const u8 *p) { return p[0] << 8 | p[1]; }
static u32 get32(const u8 *p) { return (u32)get16(p) << 16 | get16(p + 2); }
static void put16(u8 *p, u16 v) { p[0] = v >> 8, p[1] = v; }
static void put32(u8 *p, u32 v) { put16(p, v >> 16), put16(p + 2, v); }

static u32 add(u32 sum, const u8 *p, u32 n) {
	for (u32 i = 0; i < n; i++)
		sum += i & 1 ? p[i] : p[i] << 8;
	return sum;
}
static u16 fold(u32 sum) {
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// send_ip finishes a frame that holds an IP packet to whoever sent the one at f, with n bytes after its header.
static void send_ip(const u8 *f, u8 protocol, u32 n, u8 *sum) {
	u8 *o = frame_to_send(), *p = o + 14;
	copy(o, f + 6, 6);
	copy(o + 6, mac, 6);
	put16(o + 12, 0x0800);
	p[0] = 0x45, p[1] = 0;
	put16(p + 2, 20 + n);
	put32(p + 4, 0x4000); // one piece
	p[8] = 64, p[9] = protocol;
	put16(p + 10, 0);
	copy(p + 12, ip, 4);
	copy(p + 16, f + 14 + 12, 4);
	put16(p + 10, fold(add(0, p, 20)));
	put16(sum, 0);
	u32 s = add(0, p + 20, n);
	if (protocol != 1)
		s = add(s + protocol + n, p + 12, 8);
	put16(sum, fold(s));
	send(34 + n);
}

static u32 text(u8 *to, const char *s) {
	u32 n = 0;
	for (; s[n] && s[n] != ' '; n++)
		to[n] = s[n];
	return n;
}

// tcp keeps nothing of a connection: what is to be said next stands in what was said last. A request and its answer are a segment each.
static void tcp(const u8 *f, const u8 *t, u32 n) {
	u8 flags = t[13], *o = frame_to_send() + 34;
	u32 begin = (t[12] >> 4) * 4, seq = get32(t + 4), ack = get32(t + 8), body = 0;
	enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };
	if (begin < 20 || begin > n || flags & RST)
		return;
	copy(o, t + 2, 2);
	copy(o + 2, t, 2);
	u8 answer = ACK;
	if (flags & SYN) {
		answer |= SYN, ack = 1, seq++;
	} else if (n > begin) {
		const char *name = word("name");
		const char *head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhello from ";
		for (; head[body]; body++)
			o[20 + body] = head[body];
		body += text(o + 20 + body, name ? name : "nobody");
		o[20 + body++] = '\n';
		answer |= PSH | FIN, seq += n - begin + (flags & FIN);
	} else if (flags & FIN) {
		seq++;
	} else {
		return;
	}
	put32(o + 4, ack);
	put32(o + 8, seq);
	o[12] = 5 << 4, o[13] = answer;
	put16(o + 14, 8192);
	put16(o + 18, 0);
	send_ip(f, 6, 20 + body, o + 16);
}

static void receive(const u8 *f, u32 size) {
	const u8 *p = f + 14;
	if (size < 42)
		return;
	if (get16(f + 12) == 0x0806 && get16(p + 6) == 1 && get32(p + 24) == get32(ip)) { // who has our address
		u8 *o = frame_to_send();
		copy(o, f + 6, 6);
		copy(o + 6, mac, 6);
		copy(o + 12, f + 12, 8);
		put16(o + 20, 2);
		copy(o + 22, mac, 6);
		copy(o + 28, ip, 4);
		copy(o + 32, f + 22, 10);
		send(42);
		return;
	}
	u32 n = get16(p + 2);
	if (get16(f + 12) != 0x0800 || p[0] != 0x45 || n < 28 || n > size - 14 || get16(p + 6) & 0x3fff || get32(p + 16) != get32(ip))
		return;
	const u8 *t = p + 20;
	u8 *o = frame_to_send() + 34;
	n -= 20;
	if (p[9] == 1 && t[0] == 8) {
		copy(o, t, n);
		o[0] = 0;
		send_ip(f, 1, n, o + 2);
	} else if (p[9] == 17) {
		copy(o, t + 2, 2);
		copy(o + 2, t, 2);
		copy(o + 4, t + 4, n - 4);
		put16(o + 4, n);
		send_ip(f, 17, n, o + 6);
	} else if (p[9] == 6 && n >= 20) {
		tcp(f, t, n);
	}
}

static void poll(void) {
	struct queue *v = &queues[0];
	while (v->seen != *(volatile u16 *)&v->used.idx) {
		fence();
		u32 id = v->used.ring[v->seen % QUEUE].id % QUEUE, size = v->used.ring[v->seen % QUEUE].size;
		if (size > HEADER && size <= FRAME)
			receive(v->data[id] + HEADER, size - HEADER);
		v->avail.ring[v->avail.idx % QUEUE] = id;
		fence();
		v->avail.idx++;
		v->seen++;
		fence();
		*reg(card + 0x50) = 0;
	}
}

void run(const u32 *info) {
	const char *p;
	if (info[6])
		line = (const char *)info[6];
	print("hello: ");
	print(line);
	print("\n");
	if ((p = word("status")))
		end(number(&p));
	if (word("reset"))
		__asm__ volatile("push $0\n push $0\n lidt (%esp)\n int3"); // nowhere to go
	if (word("hang"))
		__asm__ volatile("cli\n hlt");
	if ((p = word("ip")))
		for (int i = 0; i < 4; i++, p++)
			ip[i] = number(&p);
	start_clock();
	if (find_card() && start_card())
		print("ready\n");
	else
		print("no network\n");
	for (;;) {
		if (card)
			poll();
		if (power_button() && !word("stubborn")) {
			print("power button\n");
			power_off();
		}
		__asm__ volatile("hlt");
	}
}
