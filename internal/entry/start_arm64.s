//go:build linux && !portable

#include "textflag.h"

// The kernel jumps here with argc at the top of the stack; the runtime's own
// entry needs no register.
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
	MOVD	$·block(SB), R1
mask:
	MOVD	$135, R8 // rt_sigprocmask(SIG_BLOCK, &block or NULL, &blocked, 8)
	MOVD	$0, R0
	MOVD	$·blocked(SB), R2
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
	MOVD	R20, ·ignored(SB)
	MOVD	$261, R8 // prlimit64(0, RLIMIT_NOFILE, NULL, &files)
	MOVD	$0, R0
	MOVD	$7, R1
	MOVD	$0, R2
	MOVD	$·files(SB), R3
	SVC
	// What is closed of 0, 1 and 2 is opened: the first number that is free is the one that is missing.
descriptor:
	MOVD	$25, R8 // fcntl(R19, F_GETFD)
	MOVD	R19, R0
	MOVD	$1, R1
	SVC
	CMN	$9, R0 // EBADF
	BNE	open
	MOVD	$56, R8 // openat(AT_FDCWD, "/dev/null", O_RDWR|O_CLOEXEC)
	MOVD	$-100, R0
	MOVD	$·null(SB), R1
	MOVD	$0x80002, R2
	SVC
	TBZ	$63, R0, open
	MOVD	$56, R8 // openat(AT_FDCWD, "/", O_PATH|O_CLOEXEC)
	MOVD	$-100, R0
	MOVD	$·root(SB), R1
	MOVD	$0x280000, R2
	SVC
open:
	ADD	$1, R19, R19
	CMP	$3, R19
	BLT	descriptor
	MOVD	RSP, R6
	MOVD	R6, ·stack(SB)
	B	_rt0_arm64_linux(SB)
