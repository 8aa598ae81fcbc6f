// What a system needs of an emulated PC: a way in, the serial port, a clock, and a way out. QEMU's microvm enters it as PVH has it.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The entry as PVH has it: protected mode, flat segments, EBX is the address of what is told of the machine.
__asm__(".section .note.Xen,\"a\",@note\n"
	".long 4, 4, 18\n .asciz \"Xen\"\n .long start\n"
	".text\n .global start\n"
	"start: mov $stack_top, %esp\n push %ebx\n call run\n"
	"halt: hlt\n jmp halt\n"
	"tick: push %eax\n mov $0xfee000b0, %eax\n movl $0, (%eax)\n pop %eax\n iret\n" // acknowledged to the interrupt controller
	"load_idt: mov 4(%esp), %eax\n lidt (%eax)\n ret\n"
	".bss\n .align 16\n .skip 16384\n stack_top:\n .text\n");

static void outb(u16 port, u8 v) { __asm__ volatile("outb %0, %1" ::"a"(v), "Nd"(port)); }
static u8 inb(u16 port) {
	u8 v;
	__asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
	return v;
}
static volatile u32 *reg(u32 address) { return (volatile u32 *)address; }

static void print(const char *s) {
	for (; *s; s++) {
		while (!(inb(0x3f8 + 5) & 0x20)) // until the serial port takes more
			;
		outb(0x3f8, *s);
	}
}

// The end of the machine.
static void end(u8 status) {
	outb(0x501, status);
	for (;;)
		__asm__ volatile("hlt");
}

// The time: a tick every two milliseconds, so that the processor may rest between two looks.
static struct {
	u16 low, segment, kind, high;
} __attribute__((packed)) idt[256];
extern char tick[];
extern void load_idt(void *);
static void start_clock(void) {
	struct {
		u16 size;
		u32 at;
	} __attribute__((packed)) table = {sizeof idt, (u32)idt};
	u16 cs;
	__asm__("mov %%cs, %0" : "=r"(cs));
	for (int i = 0; i < 256; i++) {
		idt[i].low = (u32)tick;
		idt[i].high = (u32)tick >> 16;
		idt[i].segment = cs;
		idt[i].kind = 0x8e00;
	}
	load_idt(&table);
	outb(0x21, 0xff); // no interrupts of the old controllers
	outb(0xa1, 0xff);
	*reg(0xfee000f0) = 0x1ff;		// the processor's own one on
	*reg(0xfee003e0) = 3;			// divided by 16
	*reg(0xfee00320) = 0x40 | 0x20000;	// again and again
	*reg(0xfee00380) = 125000;
	__asm__ volatile("sti");
}
