//go:build linux && !portable

#include "textflag.h"

// The kernel jumps here with argc at the top of the stack. The entry of the runtime
// reads no register, so start may use them all.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD	$0, R1
	MOVD	0(RSP), R0 // argc
	CMP	$2, R0
	BLT	mask
	MOVD	16(RSP), R0 // argv[1]
	MOVWU	(R0), R0
	MOVD	$0x006e7572, R2 // "run"
	CMPW	R2, R0
	BNE	mask
	MOVD	$·startMask(SB), R1
	MOVD	·endSignals(SB), R0
	MOVD	·noHandler(SB), R2
	ORR	R0, R2, R2
	MOVD	R2, ·noHandler(SB)
mask:
	MOVD	$135, R8 // rt_sigprocmask(SIG_BLOCK, &block or NULL, &blocked, 8)
	MOVD	$0, R0
	MOVD	$·callerMask(SB), R2
	MOVD	$8, R3
	SVC
	MOVD	$64, R19
	MOVD	$0, R20
next:
	MOVD	$134, R8 // rt_sigaction(R19, NULL, &scratch, 8)
	MOVD	R19, R0
	MOVD	$0, R1
	MOVD	$·scratch(SB), R2
	MOVD	$8, R3
	SVC
	MOVD	·scratch(SB), R4
	CMP	$1, R4 // SIG_IGN
	BNE	other
	SUB	$1, R19, R5
	MOVD	$1, R6
	LSL	R5, R6, R6
	ORR	R6, R20, R20
other:
	SUB	$1, R19, R19
	CBNZ	R19, next
	MOVD	R20, ·callerIgnored(SB)
	MOVD	·keepIgnored(SB), R0
	AND	R0, R20, R0
	MOVD	·noHandler(SB), R2
	ORR	R0, R2, R2
	MOVD	R2, ·noHandler(SB)
	MOVD	$·setAction(SB), R0
	MOVD	R0, _cgo_sigaction(SB)
	MOVD	$261, R8 // prlimit64(0, RLIMIT_NOFILE, NULL, &files)
	MOVD	$0, R0
	MOVD	$7, R1
	MOVD	$0, R2
	MOVD	$·callerLimit(SB), R3
	SVC
	// Each closed descriptor of 0, 1 and 2 is opened: open(2) returns the lowest free number.
descriptor:
	MOVD	$25, R8 // fcntl(R19, F_GETFD)
	MOVD	R19, R0
	MOVD	$1, R1
	SVC
	CMN	$9, R0 // EBADF
	BNE	open
	MOVD	$1, R1
	LSL	R19, R1, R1
	MOVD	·closedFiles(SB), R2
	ORR	R1, R2, R2
	MOVD	R2, ·closedFiles(SB)
	MOVD	$56, R8 // openat(AT_FDCWD, "/dev/null", O_RDWR|O_CLOEXEC)
	MOVD	$-100, R0
	MOVD	$·nullPath(SB), R1
	MOVD	$0x80002, R2
	SVC
	TBZ	$63, R0, open
	MOVD	$56, R8 // openat(AT_FDCWD, "/", O_PATH|O_CLOEXEC)
	MOVD	$-100, R0
	MOVD	$·rootPath(SB), R1
	MOVD	$0x280000, R2
	SVC
open:
	ADD	$1, R19, R19
	CMP	$3, R19
	BLT	descriptor
	MOVD	RSP, R6
	MOVD	R6, ·stack(SB)
	B	_rt0_arm64_linux(SB)

// The runtime calls this instead of the system call: int setAction(int sig, const struct sigaction
// *new, struct sigaction *old) of C, with the kernel's struct.
TEXT ·setAction(SB), NOSPLIT|NOFRAME, $0
	CBZ	R1, call
	SUB	$1, R0, R4
	MOVD	$1, R3
	LSL	R4, R3, R3
	MOVD	·noHandler(SB), R4
	TST	R3, R4
	BNE	keep
	MOVD	·faultSignals(SB), R4
	TST	R3, R4
	BEQ	call
	MOVD	0(R1), R3
	CMP	$1, R3 // SIG_DFL, SIG_IGN
	BLS	call
	MOVD	R3, ·runtimeHandler(SB)
	MOVD	$·scratch(SB), R4
	MOVD	$·faultHandler(SB), R3
	MOVD	R3, 0(R4)
	MOVD	8(R1), R3
	MOVD	R3, 8(R4)
	MOVD	16(R1), R3
	MOVD	R3, 16(R4)
	MOVD	24(R1), R3
	MOVD	R3, 24(R4)
	MOVD	R4, R1
	B	call
keep:
	MOVD	$0, R1
call:
	MOVD	$134, R8 // rt_sigaction(sig, new, old, 8)
	MOVD	$8, R3
	SVC
	NEG	R0, R0
	RET

// The kernel calls this with the signal's number in R0 and the siginfo in R1. A fault of this process
// is the runtime's; a signal that somebody sent has its default action when this returns.
TEXT ·faultHandler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVW	8(R1), R3 // si_code
	CMPW	$0, R3
	BGT	ownFault
	MOVD	R0, R19
	MOVD	$134, R8 // rt_sigaction(R19, &initial, NULL, 8)
	MOVD	$·defaultAction(SB), R1
	MOVD	$0, R2
	MOVD	$8, R3
	SVC
	MOVD	$178, R8 // gettid()
	SVC
	MOVD	R0, R20
	MOVD	$172, R8 // getpid()
	SVC
	MOVD	R20, R1
	MOVD	R19, R2
	MOVD	$131, R8 // tgkill
	SVC
	RET
ownFault:
	MOVD	·runtimeHandler(SB), R3
	B	(R3)
