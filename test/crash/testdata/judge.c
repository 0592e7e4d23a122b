// The command that every golock of these tests runs, and the judge of what
// golock promises: it knows nothing of golock's files, only of its own.
//
//   judge TOKEN HOLD   HOLD: microseconds, or -1
//
// Records go to stdout, one write(2) each. It ends when HOLD is over or stdin
// ends.
//
// Its locks are those of fcntl(2) and not of flock(2): the kernel drops the
// first as soon as it begins to close the files of a process that dies, the
// second together with golock's, in an order that nobody promises.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *token;

static void tell(const char *line, int n) { if (write(1, line, n) != n) _exit(4); }

static void violation(const char *what, const char *which) {
	char b[200];
	tell(b, snprintf(b, sizeof b, "v %s %s %s\n", token, what, which));
}

int main(int argc, char **argv) {
	struct pollfd in = {.fd = 0, .events = POLLIN};
	if (argc != 3) return 2;
	token = argv[1];
	long hold = atol(argv[2]);
	const char *slots = getenv("GOLOCK_SLOTS"), *fence = getenv("GOLOCK_FENCE");
	if (!slots || strcmp(slots, "0") != 0) violation("slots", slots ? slots : "none");
	int fd = open("slot", O_RDWR | O_CREAT, 0600);
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fd < 0 || fcntl(fd, F_SETLK, &all) != 0) violation("is not alone", strerror(errno));
	char b[100];
	tell(b, snprintf(b, sizeof b, "b %s %d %s\n", token, (int)getpid(), fence ? fence : "0"));
	struct timespec wait = {.tv_sec = hold / 1000000, .tv_nsec = hold % 1000000 * 1000};
	ppoll(&in, 1, hold < 0 ? NULL : &wait, NULL);
	tell(b, snprintf(b, sizeof b, "e %s\n", token));
	_exit(0);
}
