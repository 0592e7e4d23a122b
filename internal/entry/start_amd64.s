//go:build linux && !portable

#include "textflag.h"

// The kernel jumps here with argc at the top of the stack; the runtime's own
// entry needs no register.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVQ	$0, SI
	MOVQ	0(SP), AX // argc
	CMPQ	AX, $2
	JLT	mask
	MOVQ	16(SP), AX // argv[1]
	MOVL	(AX), AX
	CMPL	AX, $0x006e7572 // "run"
	JNE	mask
	LEAQ	·block(SB), SI
mask:
	MOVQ	$14, AX // rt_sigprocmask(SIG_BLOCK, &block or NULL, &blocked, 8)
	MOVQ	$0, DI
	LEAQ	·blocked(SB), DX
	MOVQ	$8, R10
	SYSCALL
	MOVQ	$64, BX
next:
	MOVQ	$13, AX // rt_sigaction(BX, NULL, &scratch, 8)
	MOVQ	BX, DI
	MOVQ	$0, SI
	LEAQ	·scratch(SB), DX
	MOVQ	$8, R10
	SYSCALL
	MOVQ	·scratch(SB), AX
	CMPQ	AX, $1 // SIG_IGN
	JNE	other
	LEAQ	-1(BX), CX
	MOVQ	$1, AX
	SHLQ	CX, AX
	ORQ	AX, ·ignored(SB)
other:
	DECQ	BX
	JNZ	next
	MOVQ	$302, AX // prlimit64(0, RLIMIT_NOFILE, NULL, &files)
	MOVQ	$0, DI
	MOVQ	$7, SI
	MOVQ	$0, DX
	LEAQ	·files(SB), R10
	SYSCALL
	// What is closed of 0, 1 and 2 is opened: the first number that is free is the one that is missing.
descriptor:
	MOVQ	$72, AX // fcntl(BX, F_GETFD)
	MOVQ	BX, DI
	MOVQ	$1, SI
	SYSCALL
	CMPQ	AX, $-9 // EBADF
	JNE	open
	MOVQ	$2, AX // open("/dev/null", O_RDWR|O_CLOEXEC)
	LEAQ	·null(SB), DI
	MOVQ	$0x80002, SI
	SYSCALL
	CMPQ	AX, $0
	JGE	open
	MOVQ	$2, AX // open("/", O_PATH|O_CLOEXEC)
	LEAQ	·root(SB), DI
	MOVQ	$0x280000, SI
	SYSCALL
open:
	INCQ	BX
	CMPQ	BX, $3
	JLT	descriptor
	// One processor: argc, argv and its NULL move down by a word, and the gap is the first variable.
	MOVQ	0(SP), CX
	ADDQ	$2, CX
	MOVQ	SP, SI
	SUBQ	$8, SP
	MOVQ	SP, DI
	CLD
	REP;	MOVSQ
	LEAQ	·procs(SB), AX
	MOVQ	AX, (DI)
	MOVQ	SP, ·stack(SB)
	JMP	_rt0_amd64_linux(SB)
