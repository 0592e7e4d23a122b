#include "textflag.h"

// The runtime's own entry: so that all machines are built with the same flags.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	JMP	_rt0_386_linux(SB)
