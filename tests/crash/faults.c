/* Preloaded into a process under test: makes the C library's file and clock calls fail as real machines do.
 *
 * FAULT_ONLY   applies only to processes whose command line holds this text
 * FAULT_PATH   applies only to files whose path holds this text
 * FAULT_SYNC   N: from the Nth fdatasync on, EIO
 * FAULT_WRITE  N: at most N bytes a write
 * FAULT_EINTR  N: every Nth write is interrupted
 * FAULT_CLOCK  N: every Nth reading of the machine's clock moves it by a year, to and fro
 * FAULT_ORPHAN 1: a process does not die with its parent, whatever it asks the kernel for
 * FAULT_KILL   rename, fsync, fdatasync, write or open (for writing): SIGKILL of the whole process group
 * FAULT_ALONE  1: of the process alone
 * FAULT_NTH    at which of those calls, from 1
 * FAULT_SIDE   before the call, after it, or half: after half of a write
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define YEAR (365L * 24 * 3600)

static int active;
static const char *in_path, *kill_call, *side;
static long sync_from, max_write, eintr_every, clock_every, kill_nth;
static long syncs, writes, clocks, kills;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void) {
    char line[8192] = {0};
    const char *only = getenv("FAULT_ONLY");
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t length = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    in_path = getenv("FAULT_PATH");
    kill_call = getenv("FAULT_KILL");
    side = getenv("FAULT_SIDE") ? getenv("FAULT_SIDE") : "before";
    sync_from = number("FAULT_SYNC");
    max_write = number("FAULT_WRITE");
    eintr_every = number("FAULT_EINTR");
    clock_every = number("FAULT_CLOCK");
    kill_nth = number("FAULT_NTH");
    active = !only || memmem(line, length, only, strlen(only)) != NULL;
}

static int meant(const char *path) { return active && (!in_path || strstr(path, in_path)); }

static int meant_fd(int fd) {
    char link[64], path[4096];
    if (!active) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return path[0] == '/' && meant(path);
}

/* Whether this is the call at which everything ends. */
static int is_last(const char *call) {
    return kill_call && !strcmp(call, kill_call) && __sync_add_and_fetch(&kills, 1) == kill_nth;
}

static void end(const char *when) {
    if (strcmp(when, side)) return;
    kill(number("FAULT_ALONE") ? getpid() : 0, SIGKILL);
    for (;;) pause();
}

int rename(const char *from, const char *to) {
    int last = meant(to) && is_last("rename");
    if (last) end("before");
    int result = REAL(rename)(from, to);
    if (last) end("after");
    return result;
}

int fsync(int fd) {
    int last = meant_fd(fd) && is_last("fsync");
    if (last) end("before");
    int result = REAL(fsync)(fd);
    if (last) end("after");
    return result;
}

int fdatasync(int fd) {
    if (!meant_fd(fd)) return REAL(fdatasync)(fd);
    int last = is_last("fdatasync");
    if (last) end("before");
    if (sync_from && __sync_add_and_fetch(&syncs, 1) >= sync_from) {
        errno = EIO;
        return -1;
    }
    int result = REAL(fdatasync)(fd);
    if (last) end("after");
    return result;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!(max_write || eintr_every || kill_call) || !meant_fd(fd)) return REAL(write)(fd, data, size);
    int last = is_last("write");
    if (last) end("before");
    if (eintr_every && __sync_add_and_fetch(&writes, 1) % eintr_every == 0) {
        errno = EINTR;
        return -1;
    }
    if (max_write && size > (size_t)max_write) size = max_write;
    ssize_t result = REAL(write)(fd, data, last && !strcmp(side, "half") ? size / 2 : size);
    if (last) end("half");
    if (last) end("after");
    return result;
}

static int open_with(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    int last = (flags & O_ACCMODE) != O_RDONLY && meant(path) && is_last("open");
    if (last) end("before");
    int result = real(path, flags, mode);
    if (last) end("after");
    return result;
}

static mode_t mode_of(int flags, va_list rest) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0; }

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return open_with(REAL(open), path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return open_with(REAL(open64), path, flags, mode);
}

int prctl(int option, ...) {
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long);
    unsigned long c = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long);
    va_end(rest);
    if (active && option == PR_SET_PDEATHSIG && number("FAULT_ORPHAN")) return 0;
    return REAL(prctl)(option, a, b, c, d);
}

/* Seconds by which the machine's clock is wrong now. */
static long jump(void) {
    if (!active || !clock_every) return 0;
    return (__sync_add_and_fetch(&clocks, 1) / clock_every % 3 - 1) * YEAR;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = REAL(gettimeofday)(now, zone);
    now->tv_sec += jump();
    return result;
}

time_t time(time_t *into) {
    time_t now = REAL(time)(NULL) + jump();
    if (into) *into = now;
    return now;
}
