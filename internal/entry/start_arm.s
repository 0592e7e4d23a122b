#include "textflag.h"

// Here start only jumps to the entry of the runtime. It exists so that all machines are built with
// the same linker flags.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	JMP	_rt0_arm_linux(SB)
