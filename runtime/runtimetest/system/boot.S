# The first sector of a disk with the suite's system: it reads the system from the sectors behind it, and the first blocks of user-data and
# meta-data from the disc beside it, and goes over to protected mode.
	.code16
	.globl _start
_start:
	xor %ax, %ax
	mov %ax, %ds
	mov %ax, %es
	mov %ax, %ss
	mov $0x7c00, %sp
	mov $system, %si
	mov $0x80, %dl
	call load
	mov $user, %si
	mov $0x81, %dl
	call load
	mov $meta, %si
	call load
	cli
	lgdt table
	mov %cr0, %eax
	or $1, %al
	mov %eax, %cr0
	ljmp $8, $protected
load:
	mov $0x42, %ah
	int $0x13
	jc failed
	ret
failed:
	hlt
	jmp failed
	.code32
protected:
	mov $16, %ax
	mov %ax, %ds
	mov %ax, %es
	mov %ax, %ss
	cld
	mov $0x10000, %esi
	mov $0x100000, %edi
	mov $127 * 512 / 4, %ecx
	rep movsl
	xor %ebx, %ebx
	mov $0x100000, %eax
	jmp *%eax
	.align 8
segments:
	.quad 0
	.quad 0x00cf9a000000ffff
	.quad 0x00cf92000000ffff
table:
	.word . - segments - 1
	.long segments
	.align 4
system:
	.byte 16, 0
	.word 127, 0, 0x1000
	.quad 1
user:
	.byte 16, 0
	.word 4, 0x9000, 0
	.quad 27 * 4
meta:
	.byte 16, 0
	.word 4, 0xa000, 0
	.quad 25 * 4
	.org 510
	.word 0xaa55
