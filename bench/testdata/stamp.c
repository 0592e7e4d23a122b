/*
 * stamp: the command that every lock tool runs in the benchmarks.
 *
 *   stamp run RECORDS TAG [FIFO|MS]  append one record {tag, start, end} to
 *                                  RECORDS, both times on CLOCK_MONOTONIC in
 *                                  nanoseconds; with FIFO the section lasts
 *                                  until the last writer of FIFO, which begins
 *                                  with a slash, has gone; with MS it sleeps
 *                                  for that many milliseconds
 *   stamp rss RECORDS CMD ARG...     run CMD, append {0, maxrss KiB, status}
 *
 * It is linked statically because its own start-up is inside every hand-off.
 * The second form exists because Linux counts the memory of the process that
 * calls vfork into ru_maxrss of the program started: behind a large parent
 * every small program looks as large as that parent.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int append(const char *file, int64_t a, int64_t b, int64_t c)
{
	int64_t record[3] = {a, b, c};
	int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, record, sizeof record) != sizeof record)
		return 111;
	return 0;
}

static int run(int argc, char **argv)
{
	int64_t start = now();
	if (argc > 4 && argv[4][0] != '/') {
		long ms = atol(argv[4]);
		struct timespec t = {ms / 1000, ms % 1000 * 1000000};
		nanosleep(&t, NULL);
	} else if (argc > 4) {
		char c;
		int fd = open(argv[4], O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return 111;
		while (read(fd, &c, 1) > 0)
			;
	}
	return append(argv[2], atoll(argv[3]), start, now());
}

static int rss(char **argv)
{
	struct rusage use;
	int status;
	pid_t pid = vfork();
	if (pid == 0) {
		execv(argv[3], argv + 3);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) != pid)
		return 111;
	return append(argv[2], 0, use.ru_maxrss, status);
}

int main(int argc, char **argv)
{
	if (argc >= 4 && !strcmp(argv[1], "run"))
		return run(argc, argv);
	if (argc >= 4 && !strcmp(argv[1], "rss"))
		return rss(argv);
	return 100;
}
