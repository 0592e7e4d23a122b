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

// The kernel calls this for faults, PIPE (13), XCPU (24) and XFSZ (25), with the siginfo in SI. A
// signal of another process goes to handler, a fault of this process to the handler of the Go
// runtime. PIPE, XCPU and XFSZ that this process itself has caused are dropped.
TEXT ·faultHandler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL	8(SI), AX // si_code
	CMPL	AX, $0
	JGT	kernel
	MOVL	16(SI), AX // si_pid
	CMPL	AX, ·processID(SB)
	JEQ	kernel
	JMP	·handler(SB)
kernel:
	CMPL	DI, $13
	JEQ	drop
	CMPL	DI, $24
	JEQ	drop
	CMPL	DI, $25
	JEQ	drop
	MOVQ	·runtimeHandler(SB), AX
	JMP	AX
drop:
	RET

TEXT ·faultHandlerPC(SB), NOSPLIT, $0-8
	LEAQ	·faultHandler(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// handler returns to this function (SA_RESTORER of sigaction(2)).
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
