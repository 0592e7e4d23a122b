//go:build linux && !portable

#include "textflag.h"

// The kernel jumps here with argc at the top of the stack. The entry of the runtime
// reads no register, so start may use them all.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVQ	$0, SI
	MOVQ	0(SP), AX // argc
	CMPQ	AX, $2
	JLT	mask
	MOVQ	16(SP), AX // argv[1]
	MOVL	(AX), AX
	CMPL	AX, $0x006e7572 // "run"
	JNE	mask
	LEAQ	·startMask(SB), SI
	MOVQ	·endSignals(SB), AX
	ORQ	AX, ·noHandler(SB)
mask:
	MOVQ	$14, AX // rt_sigprocmask(SIG_BLOCK, &block or NULL, &blocked, 8)
	MOVQ	$0, DI
	LEAQ	·callerMask(SB), DX
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
	ORQ	AX, ·callerIgnored(SB)
other:
	DECQ	BX
	JNZ	next
	MOVQ	·callerIgnored(SB), AX
	ANDQ	·keepIgnored(SB), AX
	ORQ	AX, ·noHandler(SB)
	LEAQ	·setAction(SB), AX
	MOVQ	AX, _cgo_sigaction(SB)
	MOVQ	$302, AX // prlimit64(0, RLIMIT_NOFILE, NULL, &files)
	MOVQ	$0, DI
	MOVQ	$7, SI
	MOVQ	$0, DX
	LEAQ	·callerLimit(SB), R10
	SYSCALL
	// Each closed descriptor of 0, 1 and 2 is opened: open(2) returns the lowest free number.
descriptor:
	MOVQ	$72, AX // fcntl(BX, F_GETFD)
	MOVQ	BX, DI
	MOVQ	$1, SI
	SYSCALL
	CMPQ	AX, $-9 // EBADF
	JNE	open
	MOVQ	BX, CX
	MOVQ	$1, AX
	SHLQ	CX, AX
	ORQ	AX, ·closedFiles(SB)
	MOVQ	$2, AX // open("/dev/null", O_RDWR|O_CLOEXEC)
	LEAQ	·nullPath(SB), DI
	MOVQ	$0x80002, SI
	SYSCALL
	CMPQ	AX, $0
	JGE	open
	MOVQ	$2, AX // open("/", O_PATH|O_CLOEXEC)
	LEAQ	·rootPath(SB), DI
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
	LEAQ	·oneProcessor(SB), AX
	MOVQ	AX, (DI)
	MOVQ	SP, ·stack(SB)
	JMP	_rt0_amd64_linux(SB)

// The runtime calls this instead of the system call: int setAction(int sig, const struct sigaction
// *new, struct sigaction *old) of C, with the kernel's struct.
TEXT ·setAction(SB), NOSPLIT|NOFRAME, $0
	CMPQ	SI, $0
	JEQ	call
	LEAQ	-1(DI), CX
	MOVQ	$1, AX
	SHLQ	CX, AX
	TESTQ	AX, ·noHandler(SB)
	JNE	keep
	TESTQ	AX, ·faultSignals(SB)
	JEQ	call
	MOVQ	0(SI), AX
	CMPQ	AX, $1 // SIG_DFL, SIG_IGN
	JLS	call
	MOVQ	AX, ·runtimeHandler(SB)
	LEAQ	·faultHandler(SB), AX
	MOVQ	AX, ·scratch+0(SB)
	MOVQ	8(SI), AX
	MOVQ	AX, ·scratch+8(SB)
	MOVQ	16(SI), AX
	MOVQ	AX, ·scratch+16(SB)
	MOVQ	24(SI), AX
	MOVQ	AX, ·scratch+24(SB)
	LEAQ	·scratch(SB), SI
	JMP	call
keep:
	MOVQ	$0, SI
call:
	MOVQ	$13, AX // rt_sigaction(sig, new, old, 8)
	MOVQ	$8, R10
	SYSCALL
	NEGL	AX
	RET

// The kernel calls this with the signal's number in DI and the siginfo in SI. A fault of this process
// is the runtime's; a signal that somebody sent has its default action when this returns.
TEXT ·faultHandler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL	8(SI), AX // si_code
	CMPL	AX, $0
	JGT	ownFault
	MOVL	DI, BX
	MOVQ	$13, AX // rt_sigaction(BX, &initial, NULL, 8)
	LEAQ	·defaultAction(SB), SI
	MOVQ	$0, DX
	MOVQ	$8, R10
	SYSCALL
	MOVQ	$186, AX // gettid()
	SYSCALL
	MOVQ	AX, R12
	MOVQ	$39, AX // getpid()
	SYSCALL
	MOVQ	AX, DI
	MOVQ	R12, SI
	MOVL	BX, DX
	MOVQ	$234, AX // tgkill
	SYSCALL
	RET
ownFault:
	MOVQ	·runtimeHandler(SB), AX
	JMP	AX
