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

TEXT ·handlerPC(SB), NOSPLIT, $0-8
	MOVD	$·handler(SB), R0
	MOVD	R0, ret+0(FP)
	RET

TEXT ·restorerPC(SB), NOSPLIT, $0-8
	MOVD	ZR, ret+0(FP)
	RET
