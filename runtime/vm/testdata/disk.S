# A system on a disk, for tests: the first time it counts in its second sector and resets the machine; the second time it prints the
# files of the disc with what it is told, and waits for the power button.
	.code16
	.globl _start
_start:
	xor %ax, %ax
	mov %ax, %ds
	mov %ax, %es
	mov %ax, %ss
	mov $0x7c00, %sp
	cld
	mov $0x42, %ah
	mov $counter, %si
	mov $0x80, %dl
	int $0x13
	jc failed
	movb 0x8000, %al
	incb 0x8000
	test %al, %al
	jnz told
	mov $first, %si
	call print
	mov $0x4300, %ax
	mov $counter, %si
	mov $0x80, %dl
	int $0x13
	jc failed
	mov $6, %al
	mov $0xcf9, %dx
	out %al, %dx
	hlt
told:
	mov $second, %si
	call print
next:
	mov $0x42, %ah
	mov $file, %si
	mov $0x81, %dl
	int $0x13
	jc failed
	mov $0x8000, %si
	call print
	mov $end, %si
	call print
	addl $4, file + 8
	decb left
	jnz next
	mov $0x602, %dx
	mov $0x100, %ax
	out %ax, %dx		# the button is to be told of
	sti
button:
	hlt			# until the timer ticks: who only looks keeps a slow emulator from hearing of the button
	mov $0x600, %dx
	in %dx, %ax
	test $0x100, %ax
	jz button
	mov $off, %si
	call print
	mov $0x604, %dx
	mov $0x2000, %ax
	out %ax, %dx
	hlt
failed:
	mov $bad, %si
	call print
	hlt
print:
	mov $0x3fd, %dx
1:	in %dx, %al
	test $0x20, %al
	jz 1b
	lodsb
	test %al, %al
	jz 2f
	mov $0x3f8, %dx
	out %al, %dx
	jmp print
2:	ret
first:	.asciz "first\n"
second:	.asciz "second\n"
end:	.asciz "|\n"
off:	.asciz "power button\n"
bad:	.asciz "failed\n"
left:	.byte 3
	.align 4
counter:
	.byte 16, 0
	.word 1, 0x8000, 0
	.quad 1
file:
	.byte 16, 0
	.word 4, 0x8000, 0
	.quad 25 * 4
	.org 510
	.word 0xaa55
	.org 1024
