//go:build linux && !portable

#include "textflag.h"

// func fork(p *plan) (pid uintptr)
//
// The child borrows the memory of this process, and this thread sleeps until the child has executed
// a program or has ended (vfork(2)). So the child must not touch the stack.
TEXT ·fork(SB), NOSPLIT, $0-16
	MOVD	p+0(FP), R0
	MOVD	0(R0), R19 // the first step
	MOVD	8(R0), R20 // the number of steps
	MOVD	$220, R8 // clone(CLONE_VM|CLONE_VFORK|SIGCHLD, the same stack)
	MOVD	$0x4111, R0
	MOVD	$0, R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$0, R4
	SVC
	CBZ	R0, step
	MOVD	R0, pid+8(FP)
	RET
step:
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	SVC
	MOVD	R0, 48(R19)
	TBNZ	$63, R0, exit
	MOVD	40(R19), R4
	CMN	$1, R4
	BEQ	next
	CMP	R0, R4
	BNE	exit
next:
	ADD	$56, R19, R19
	SUB	$1, R20, R20
	CBNZ	R20, step
exit:
	MOVD	$93, R8 // exit(127)
	MOVD	$127, R0
	SVC
	B	exit
