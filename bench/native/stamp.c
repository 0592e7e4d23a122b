/*
 * stamp: the command that every tool runs under its lock.
 *
 *   stamp RECORDS TAG [FIFO|MS]
 *
 * It appends a record {tag, start, end} to RECORDS, times in ns on
 * CLOCK_MONOTONIC. With FIFO, a path, it ends when the last writer of that has
 * gone; with MS it sleeps for so long. It is linked statically, because its own
 * start is part of every hand-off.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv)
{
	int64_t start = now();
	if (argc < 3)
		return 100;
	if (argc > 3 && argv[3][0] != '/') {
		long ms = atol(argv[3]);
		struct timespec t = {ms / 1000, ms % 1000 * 1000000};
		nanosleep(&t, NULL);
	} else if (argc > 3) {
		char c;
		int fd = open(argv[3], O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return 111;
		while (read(fd, &c, 1) > 0)
			;
	}
	int64_t record[3] = {atoll(argv[2]), start, now()};
	int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, record, sizeof record) != sizeof record)
		return 111;
	return 0;
}
