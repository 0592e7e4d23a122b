//go:build linux && !portable

#include "textflag.h"

// The kernel calls this on the signal stack with the signal's number in DI. It
// saves and restores all registers itself.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	SUBQ	$24, SP
	MOVB	DI, 8(SP)
	MOVL	·pipeEnd(SB), DI
	LEAQ	8(SP), SI
	MOVL	$1, DX
	MOVL	$1, AX // write(pipeEnd, &number, 1)
	SYSCALL
	ADDQ	$24, SP
	RET

// The same for faults, PIPE (13), XCPU (24) and XFSZ (25), with the siginfo in SI.
TEXT ·faultHandler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL	8(SI), AX // si_code
	CMPL	AX, $0
	JGT	kernel
	MOVL	16(SI), AX // si_pid
	CMPL	AX, ·ownPID(SB)
	JEQ	kernel
	JMP	·handler(SB)
kernel:
	CMPL	DI, $13
	JEQ	forget
	CMPL	DI, $24
	JEQ	forget
	CMPL	DI, $25
	JEQ	forget
	MOVQ	·runtimesOwn(SB), AX
	JMP	AX
forget:
	RET

TEXT ·faultHandlerPC(SB), NOSPLIT, $0-8
	LEAQ	·faultHandler(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// Where handler returns to.
TEXT ·restorer(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL	$15, AX // rt_sigreturn()
	SYSCALL
	INT	$3

TEXT ·handlerPC(SB), NOSPLIT, $0-8
	LEAQ	·handler(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

TEXT ·restorerPC(SB), NOSPLIT, $0-8
	LEAQ	·restorer(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
