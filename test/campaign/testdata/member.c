// The command of every golock of the campaign. It knows nothing of golock but
// its variables, and tells the recorder of its life by a socket.
//
//   member SOCKET LIVES TOKEN LASTS CODE [D:LIFE | C:LIFE | T]...
//
//   SOCKET  the recorder's, SOCK_SEQPACKET; whoever loses it ends
//   LIVES   a file: each process that lives has locked a byte of its own
//   LASTS   microseconds to live, then it ends with CODE
//   D:LIFE  leaves a daemon behind that lives so long; C:LIFE a plain child
//   T       ignores TERM
//
// No clock says who lived together. A process locks its byte with fcntl(2) before
// anything else, and then looks whose bytes are locked: of two that live together at
// least one sees the other. It never unlocks. When it ends, by exit or by a signal, the
// kernel (do_exit) runs no instruction of it any more, then closes its descriptors one
// by one: a close drops the byte at once, but the lock or socket of an open file, which
// golock's is, only with the last reference, in __fput(), which is put off until all
// descriptors are closed; so it stays even where its descriptor has the lower number. A
// parent hears of the end later still. So the byte is free before anybody can be let in
// because of that end, and not before the last instruction. With -F the process is
// golock until execve(2), has golock's lock from there, and ends like any other.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { parts = 8 }; // bytes of a run; as in recorder_test.go

static const char *address, *lives;
static long token;
static char saw[4000];
static size_t sawn;
static int file, recorder;

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void look(long from, long to) {
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = to - from};
	if (from >= to) return;
	if (fcntl(file, F_GETLK, &l) != 0) _exit(5);
	if (l.l_type == F_UNLCK) return;
	if (sawn + 20 > sizeof saw) _exit(6);
	sawn += snprintf(saw + sawn, sizeof saw - sawn, "%s%ld", sawn ? "," : "", (long)l.l_start);
	look(from, l.l_start);
	look(l.l_start + 1, to);
}

static void begin(int part, long long at) {
	struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = token * parts + part, .l_len = 1};
	file = open(lives, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || fcntl(file, F_SETLK, &own) != 0) _exit(7);
	sawn = 0;
	look(0, 1L << 40);
	long long looked = now();
	recorder = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	strncpy(to.sun_path, address, sizeof to.sun_path - 1);
	while (connect(recorder, (struct sockaddr *)&to, sizeof to) != 0)
		if (errno != EINTR) _exit(8);
	const char *slots = getenv("GOLOCK_SLOTS"), *fence = getenv("GOLOCK_FENCE");
	char b[5000];
	int n = snprintf(b, sizeof b, "b %ld %d %d %lld %lld %s %s %s", token, part, (int)getpid(), at, looked,
		fence && *fence ? fence : "0", slots && *slots ? slots : "-", sawn ? saw : "-");
	if (send(recorder, b, n, MSG_NOSIGNAL) != n) _exit(9);
}

static void stay(long us) {
	struct pollfd in = {.fd = recorder, .events = POLLIN};
	long long end = now() + us * 1000LL;
	for (;;) {
		long long left = end - now();
		if (left < 0) left = 0;
		struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
		int n = ppoll(&in, 1, &wait, NULL);
		if (n == 0) return;
		if (n > 0) _exit(10); // the recorder lets go of it
	}
}

static void end(int code) {
	char b[100];
	int n = snprintf(b, sizeof b, "e %lld %d", now(), code);
	send(recorder, b, n, MSG_NOSIGNAL);
	_exit(code);
}

// descend makes a descendant and returns when the recorder has heard of it.
static void descend(int part, int daemon, long us) {
	int sync[2];
	char c;
	if (pipe2(sync, O_CLOEXEC) != 0) _exit(11);
	pid_t child = fork();
	if (child < 0) _exit(12);
	if (child == 0) {
		close(file);
		close(recorder);
		if (daemon) {
			setsid();
			child = fork();
			if (child != 0) _exit(child < 0);
		}
		begin(part, now());
		close(sync[0]);
		close(sync[1]);
		stay(us);
		end(0);
	}
	close(sync[1]);
	while (read(sync[0], &c, 1) < 0 && errno == EINTR) {}
	close(sync[0]);
}

int main(int argc, char **argv) {
	long long at = now();
	if (argc < 6) return 2;
	address = argv[1];
	lives = argv[2];
	token = atol(argv[3]);
	begin(0, at);
	for (int i = 6, part = 1; i < argc; i++) {
		if (argv[i][0] == 'T') signal(SIGTERM, SIG_IGN);
		else if (part < parts) descend(part++, argv[i][0] == 'D', atol(argv[i] + 2));
	}
	stay(atol(argv[4]));
	end(atoi(argv[5]));
}
