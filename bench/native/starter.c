/*
 * starter: starts programs as cron does, and tells how long they took.
 *
 * It has the descriptors 0, 1 and 2 only, so that the table which its children
 * get has the least size (64), no terminal, and five variables. The harness,
 * a Go program, has many descriptors and threads; a start from there costs more.
 *
 * A request is {op, length, payload}: s starts the payload, words that each end
 * with a NUL; w waits for the process whose number it is; r reaps orphans, and
 * tells whether children are left. The answer is six numbers of 64 bits:
 * process or -errno, begin, end (ns, CLOCK_MONOTONIC), wait status, CPU time in
 * microseconds, largest resident size in KiB.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { maxWords = 1024, maxPayload = 1 << 16 };
struct answer { int64_t pid, begun, ended, status, cpu, rss; };

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void start(char *payload, uint32_t length, struct answer *a)
{
	char *argv[maxWords + 1];
	int n = 0;
	for (char *p = payload; p < payload + length && n < maxWords; p += strlen(p) + 1)
		argv[n++] = p;
	argv[n] = NULL;
	a->begun = now();
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		close(0);
		if (open("/dev/null", O_RDONLY) == 0 && dup2(2, 1) == 1)
			execv(argv[0], argv);
		_exit(127);
	}
	a->pid = pid < 0 ? -errno : pid;
}

static void await(const char *payload, struct answer *a)
{
	siginfo_t info;
	struct rusage use;
	int status;
	pid_t pid = atoi(payload);
	/* The clock is read before the process is reaped, which takes its time. */
	while (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	a->ended = now();
	if (wait4(pid, &status, 0, &use) != pid) {
		a->pid = -errno;
		return;
	}
	a->pid = pid;
	a->status = status;
	a->cpu = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000 +
		 use.ru_utime.tv_usec + use.ru_stime.tv_usec;
	a->rss = use.ru_maxrss;
}

int main(void)
{
	static char payload[maxPayload];
	struct {
		uint32_t op, length;
	} request;
	/* What the harness inherited would make the table larger. */
	if (close_range(3, ~0U, 0) < 0)
		return 1;
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans can be found and ended */
	while (fread(&request, sizeof request, 1, stdin) == 1) {
		struct answer a = {0};
		if (request.length > maxPayload ||
		    fread(payload, 1, request.length, stdin) != request.length)
			return 1;
		if (request.op == 's')
			start(payload, request.length, &a);
		else if (request.op == 'w')
			await(payload, &a);
		else
			while ((a.pid = waitpid(-1, NULL, WNOHANG)) > 0)
				;
		if (write(1, &a, sizeof a) != sizeof a)
			return 1;
	}
	return 0;
}
