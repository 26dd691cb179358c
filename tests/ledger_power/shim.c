/* Preloaded library (LD_PRELOAD): logs the operations of a process on the files of one folder, in order, so that a test can
 * rebuild the disk that a power loss would leave. An entry is, with sizes in bytes: kind (1), time in nanoseconds (8),
 * offset (8), length of the path (4), length of the data (4), path, data. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static const char *folder;

static void begin(void) {
    pthread_mutex_lock(&order);
    if (!folder) {
        folder = getenv("POWER_FOLDER");
        const char *log = getenv("POWER_LOG");
        if (!folder || !log) abort();
        out = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (out < 0) abort();
    }
    /* The test holds this lock while it kills the process: an operation is on the disk and in the log, or in neither. */
    while (flock(out, LOCK_EX) != 0)
        if (errno != EINTR) abort();
}

static void end(char kind, const char *path, uint64_t offset, const void *data, uint32_t length) {
    if (strncmp(path, folder, strlen(folder)) == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t time = (uint64_t)now.tv_sec * 1000000000u + now.tv_nsec;
        uint32_t named = strlen(path), whole = 25 + named + length;
        char *entry = malloc(whole);
        entry[0] = kind;
        memcpy(entry + 1, &time, 8);
        memcpy(entry + 9, &offset, 8);
        memcpy(entry + 17, &named, 4);
        memcpy(entry + 21, &length, 4);
        memcpy(entry + 25, path, named);
        if (length) memcpy(entry + 25 + named, data, length);
        if (syscall(SYS_write, out, entry, whole) != whole) abort();
        free(entry);
    }
    flock(out, LOCK_UN);
    pthread_mutex_unlock(&order);
}

static const char *path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, 4095);
    path[length > 0 ? length : 0] = 0;
    return path;
}

static ssize_t placed(int file, const void *data, size_t length, off64_t offset) {
    char path[4096];
    begin();
    ssize_t done = syscall(SYS_pwrite64, file, data, length, offset);
    end('W', path_of(file, path), offset, data, done > 0 ? done : 0);
    return done;
}
ssize_t pwrite(int file, const void *data, size_t length, off_t offset) { return placed(file, data, length, offset); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t offset) { return placed(file, data, length, offset); }

ssize_t write(int file, const void *data, size_t length) {
    char path[4096];
    begin();
    off_t at = syscall(SYS_lseek, file, 0, SEEK_CUR);
    ssize_t done = syscall(SYS_write, file, data, length);
    end('W', path_of(file, path), at > 0 ? at : 0, data, done > 0 ? done : 0);
    return done;
}

static int cut(int file, off64_t length) {
    char path[4096];
    begin();
    int done = syscall(SYS_ftruncate, file, length);
    end('T', path_of(file, path), length, 0, 0);
    return done;
}
int ftruncate(int file, off_t length) { return cut(file, length); }
int ftruncate64(int file, off64_t length) { return cut(file, length); }

static int synced(int file) {
    char path[4096];
    begin();
    int done = syscall(SYS_fdatasync, file);
    end('S', path_of(file, path), 0, 0, 0);
    return done;
}
int fsync(int file) { return synced(file); }
int fdatasync(int file) { return synced(file); }

int unlink(const char *path) {
    begin();
    int done = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    end(done == 0 ? 'U' : '-', path, 0, 0, 0);
    return done;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    begin();
    int made = (flags & O_CREAT) && syscall(SYS_faccessat, at, path, F_OK) != 0;
    int file = syscall(SYS_openat, at, path, flags, mode);
    end(made && file >= 0 ? 'C' : '-', path, 0, 0, 0);
    return file;
}
int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        __builtin_va_list rest;
        __builtin_va_start(rest, flags);
        mode = __builtin_va_arg(rest, int);
        __builtin_va_end(rest);
    }
    return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        __builtin_va_list rest;
        __builtin_va_start(rest, flags);
        mode = __builtin_va_arg(rest, int);
        __builtin_va_end(rest);
    }
    return opened(AT_FDCWD, path, flags, mode);
}
