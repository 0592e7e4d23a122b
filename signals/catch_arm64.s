//go:build linux && !portable

#include "textflag.h"

// The kernel calls this on the signal stack with the signal's number in R0. It
// saves and restores all registers itself, and LR leads to its own restorer.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	SUB	$16, RSP
	MOVB	R0, (RSP)
	MOVW	·pipeEnd(SB), R0
	MOVD	RSP, R1
	MOVD	$1, R2
	MOVD	$64, R8 // write(pipeEnd, &number, 1)
	SVC
	ADD	$16, RSP
	RET

// The kernel calls this for faults, PIPE (13), XCPU (24) and XFSZ (25), with the siginfo in R1. A
// signal of another process goes to handler, a fault of this process to the handler of the Go
// runtime. PIPE, XCPU and XFSZ that this process itself has caused are dropped.
TEXT ·faultHandler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVW	8(R1), R3 // si_code
	CMPW	$0, R3
	BGT	kernel
	MOVW	16(R1), R3 // si_pid
	MOVW	·processID(SB), R4
	CMPW	R4, R3
	BEQ	kernel
	B	·handler(SB)
kernel:
	CMPW	$13, R0
	BEQ	drop
	CMPW	$24, R0
	BEQ	drop
	CMPW	$25, R0
	BEQ	drop
	MOVD	·runtimeHandler(SB), R3
	B	(R3)
drop:
	RET

TEXT ·faultHandlerPC(SB), NOSPLIT, $0-8
	MOVD	$·faultHandler(SB), R0
	MOVD	R0, ret+0(FP)
	RET

TEXT ·handlerPC(SB), NOSPLIT, $0-8
	MOVD	$·handler(SB), R0
	MOVD	R0, ret+0(FP)
	RET

TEXT ·restorerPC(SB), NOSPLIT, $0-8
	MOVD	ZR, ret+0(FP)
	RET
