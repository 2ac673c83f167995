// Preloaded into a server, this moves its wall clock by the microseconds that
// the file CLOCK_SHIFT holds as an int64, from one reading to the next, or stops
// it at those since 1970 that the file holds as a second one, if that is not 0.
// The monotonic clock goes on as it is.
//
// It is built without the C library, which is found in the program that it is
// loaded into: that may be of another release than the compiler's.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t none[2];
static const volatile int64_t *shift = none;

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("CLOCK_SHIFT");
	int file = name ? open(name, O_RDONLY) : -1;
	if (file < 0)
		return;
	void *at = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (at != MAP_FAILED)
		shift = at;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
	int failed = syscall(SYS_clock_gettime, clock, now);
	if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t stopped = shift[1];
	int64_t us = stopped ? stopped : (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000 + shift[0];
	now->tv_sec = us / 1000000;
	now->tv_nsec = us % 1000000 * 1000 + (stopped ? 0 : now->tv_nsec % 1000);
	return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
	struct timespec precise;
	int failed = clock_gettime(CLOCK_REALTIME, &precise);
	(void)zone;
	if (!failed && now) {
		now->tv_sec = precise.tv_sec;
		now->tv_usec = precise.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *now) {
	struct timespec precise;
	clock_gettime(CLOCK_REALTIME, &precise);
	if (now)
		*now = precise.tv_sec;
	return precise.tv_sec;
}
