/* A clock that runs 60 times as fast, for cron alone: a minute of its crontab passes in a second. */
#define _GNU_SOURCE
#include <time.h>

#define SPEED 60

static struct timespec start;

__attribute__((constructor)) static void begin(void)
{
	clock_gettime(CLOCK_REALTIME, &start);
}

time_t time(time_t *out)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	long long ns = (now.tv_sec - start.tv_sec) * 1000000000LL + now.tv_nsec - start.tv_nsec;
	time_t t = start.tv_sec + (time_t)(ns * SPEED / 1000000000LL);
	if (out)
		*out = t;
	return t;
}

unsigned sleep(unsigned seconds)
{
	struct timespec d = { seconds / SPEED, (seconds % SPEED) * (1000000000L / SPEED) };
	nanosleep(&d, NULL);
	return 0;
}
