// The program of the conformance suite as a system of its own, for machines that run nothing of ours: a unikernel, which is told what to do
// by its command line, or what boot.S loads from a disk, which reads it from the disc that the machine is given. Each command proves one thing.

#include "machine.h"

static int from_disk;
static const char *words[32];
static u32 count;

// Where boot.S puts the first blocks of the files that tell a machine what it is.
enum { USER_DATA = 0x9000, META_DATA = 0xa000 };

// divide cuts what was told into words: lines of a file, or what spaces part on a command line, where quotes hold a word together.
static void divide(char *p) {
	char gap = from_disk ? '\n' : ' ';
	while (*p && count < sizeof words / sizeof *words) {
		char until = gap;
		if (!from_disk && *p == '"')
			until = '"', p++;
		words[count++] = p;
		for (; *p && *p != until; p++)
			;
		if (!*p)
			return;
		*p++ = 0;
		if (until != gap && *p)
			p++;
	}
}

static int is(const char *a, const char *b) {
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

static u32 number(u32 i) {
	u32 n = 0;
	for (const char *p = i < count ? words[i] : ""; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (*p - '0');
	return n;
}

static void line(const char *s) {
	print(s);
	print("\n");
}

// power_button tells whether it was pressed: a PC says so in a register that firmware has placed, QEMU's microvm in one in memory.
static int power_button(void) {
	u16 v;
	if (!from_disk)
		return *reg(0xfea00000) & 2;
	__asm__ volatile("inw %1, %0" : "=a"(v) : "Nd"((u16)0x600));
	return v & 0x100;
}

static void wait(int heed) {
	start_clock();
	if (from_disk)
		__asm__ volatile("outw %0, %1" ::"a"((u16)0x100), "Nd"((u16)0x602)); // it is to be told of
	line("ready");
	while (!heed || !power_button())
		__asm__ volatile("hlt");
	line("terminated");
	end(3);
}

static u64 cycles(void) {
	u64 v;
	__asm__ volatile("rdtsc" : "=A"(v));
	return v;
}

// allocate uses so much memory, and ends where there is no more.
static void allocate(u32 mib) {
	for (u32 at = 2 << 20; at < (2 + mib) << 20; at += 4096) {
		*reg(at) = at;
		*reg(at + 4) = ~at;
		if (*reg(at) != at || *reg(at + 4) != ~at) {
			line("out of memory");
			end(2);
		}
	}
	line("allocated");
}

void run(const u32 *info) {
	from_disk = !info;
	if (from_disk || info[6])
		divide((char *)(from_disk ? USER_DATA : info[6]));
	const char *command = count ? words[0] : "";
	if (is(command, "exit")) {
		end(number(1));
	} else if (is(command, "sleep")) {
		wait(1);
	} else if (is(command, "stubborn")) {
		wait(0);
	} else if (is(command, "print") || is(command, "err")) {
		for (u32 i = 1; i < count; i++)
			line(words[i]);
	} else if (is(command, "long")) {
		for (u32 i = number(1); i; i--)
			print("x");
		print("\nend\n");
	} else if (is(command, "told")) {
		line((const char *)META_DATA);
	} else if (is(command, "spam")) {
		char text[] = "line 0000000 of noise";
		for (u32 i = 0; i < number(1); i++) {
			for (u32 n = i, k = 11; k >= 5; k--, n /= 10)
				text[k] = '0' + n % 10;
			line(text);
		}
	} else if (is(command, "spin")) { // a little longer than so many hundredths of a second
		for (u64 began = cycles(); cycles() - began < number(1) * 30000000ull;)
			;
	} else if (is(command, "alloc")) {
		allocate(number(1));
	} else if (is(command, "reset")) {
		__asm__ volatile("push $0\n push $0\n lidt (%esp)\n int3"); // nowhere to go
	} else {
		line("unknown command");
		end(90);
	}
	end(0);
}
