//go:build linux && !portable

#include "textflag.h"

// func fork(p *plan) (pid uintptr)
//
// The child borrows the memory of this process, and this thread sleeps until the child has executed
// a program or has ended (vfork(2)). So the child must not touch the stack.
TEXT ·fork(SB), NOSPLIT, $0-16
	MOVQ	p+0(FP), AX
	MOVQ	0(AX), BX // the first step
	MOVQ	8(AX), R12 // the number of steps
	MOVQ	$56, AX // clone(CLONE_VM|CLONE_VFORK|SIGCHLD, the same stack)
	MOVQ	$0x4111, DI
	MOVQ	$0, SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	SYSCALL
	CMPQ	AX, $0
	JEQ	step
	MOVQ	AX, pid+8(FP)
	RET
step:
	MOVQ	0(BX), AX
	MOVQ	8(BX), DI
	MOVQ	16(BX), SI
	MOVQ	24(BX), DX
	MOVQ	32(BX), R10
	SYSCALL
	MOVQ	AX, 48(BX)
	CMPQ	AX, $0
	JLT	exit
	MOVQ	40(BX), CX
	CMPQ	CX, $-1
	JEQ	next
	CMPQ	AX, CX
	JNE	exit
next:
	ADDQ	$56, BX
	DECQ	R12
	JNZ	step
exit:
	MOVQ	$60, AX // exit(127)
	MOVQ	$127, DI
	SYSCALL
	JMP	exit
