/* Records the calls that change files of one folder, and lets chosen calls fail.
 *
 * Loaded into a process with LD_PRELOAD, where Python, SQLite and every other library call these functions instead of
 * libc's. `watch` names the folder, `start_recording` the file that the calls are written to, `fail_calls` the calls
 * that fail. Calls on other files pass through. Not seen: memory-mapped writes, and stdio inside libc; `recording.py`
 * compares the replayed with the real files to notice them.
 *
 * A record: one byte of operation, inode (8), offset or size (8), length of the first text (4) and of the second (4),
 * the two texts. Numbers are little-endian.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, CREATE = 2, READ = 4, WRITE = 8, SYNC = 16, NAMES = 32 }; /* kinds of calls, for `fail_calls` */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held over a call and its record, so that both have one order */
static char root[4096];
static size_t root_length;
static int record_fd = -1;
static long calls, first_failure, failures;
static int failing_kinds, failure;

void watch(const char *folder) {
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
}

int start_recording(const char *file) {
    record_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return record_fd;
}

void stop_recording(void) {
    syscall(SYS_close, record_fd);
    record_fd = -1;
}

/* Let the calls of these kinds from number `first` on (from 1) fail, `count` of them, with an errno; 0 for none. */
void fail_calls(int kinds, long first, long count, int error) {
    calls = 0;
    failing_kinds = kinds;
    first_failure = first;
    failures = count;
    failure = error;
}

/* The number of calls of the chosen kinds since `fail_calls`. */
long count_calls(void) { return calls; }

static void record(char operation, uint64_t inode, uint64_t offset, const void *first, size_t first_length,
                   const void *second, size_t second_length) {
    char head[25];
    uint32_t lengths[2] = {(uint32_t)first_length, (uint32_t)second_length};
    struct iovec parts[3] = {{head, 25}, {(void *)first, first_length}, {(void *)second, second_length}};
    if (record_fd < 0)
        return;
    head[0] = operation;
    memcpy(head + 1, &inode, 8);
    memcpy(head + 9, &offset, 8);
    memcpy(head + 17, lengths, 8);
    syscall(SYS_writev, record_fd, parts, 3);
}

/* Note that something was acknowledged to the user. */
void acknowledge(const char *text) { record('A', 0, 0, text, strlen(text), "", 0); }

static int is_watched(const char *path) {
    return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int fd, char *path) {
    char link[64];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, 4095);
    path[length < 0 ? 0 : length] = 0;
    return root_length && is_watched(path);
}

/* Make a path absolute; return whether it is watched. */
static int resolve(int folder, const char *path, char *absolute) {
    char base[4096];
    if (!root_length)
        return 0;
    if (path[0] == '/')
        snprintf(absolute, 8192, "%s", path);
    else {
        if (folder == AT_FDCWD)
            base[0] = 0, syscall(SYS_getcwd, base, sizeof base);
        else
            path_of(folder, base);
        snprintf(absolute, 8192, "%s/%s", base, path);
    }
    return is_watched(absolute);
}

static int must_fail(int kind) {
    if (!(kind & failing_kinds))
        return 0;
    calls++;
    if (calls < first_failure || calls >= first_failure + failures)
        return 0;
    errno = failure;
    return 1;
}

static uint64_t inode_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_ino;
}

#define REAL(name, type, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real)                                                                                                         \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
/* The call itself, and `then` after it if it succeeded. `lock` keeps calls and records in the same order. */
#define CALL(watched, kind, type, call, then)                                                                          \
    type result;                                                                                                       \
    if (!(watched))                                                                                                    \
        return call;                                                                                                   \
    pthread_mutex_lock(&lock);                                                                                         \
    if (must_fail(kind))                                                                                               \
        result = -1;                                                                                                   \
    else {                                                                                                             \
        result = call;                                                                                                 \
        if (result >= 0) {                                                                                             \
            int saved_errno = errno;                                                                                   \
            then;                                                                                                      \
            errno = saved_errno;                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    pthread_mutex_unlock(&lock);                                                                                       \
    return result

static void record_open(int fd, const char *path, int flags, int existed, long size_before) {
    if (!existed)
        record('C', inode_of(fd), 0, path, strlen(path), "", 0);
    else if (flags & O_TRUNC && size_before)
        record('T', inode_of(fd), 0, "", 0, "", 0);
}

static int open_at(int folder, const char *path, int flags, mode_t mode) {
    char absolute[8192];
    struct stat before;
    int existed, watched = resolve(folder, path, absolute);
    REAL("openat", int, int, const char *, int, ...);
    existed = !(flags & O_CREAT) || (watched && !stat(absolute, &before));
    if (!existed)
        before.st_size = 0;
    else if (watched && stat(absolute, &before))
        before.st_size = 0;
    CALL(watched, existed ? OPEN : CREATE, int, real(folder, path, flags, mode),
         record_open(result, absolute, flags, existed, before.st_size));
}

#define MODE                                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }
int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE return open_at(folder, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE return open_at(folder, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset, int has_offset) {
    char path[4096];
    REAL("write", ssize_t, int, const void *, size_t);
    static ssize_t (*real_at)(int, const void *, size_t, off_t);
    if (!real_at)
        real_at = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    CALL(path_of(fd, path), WRITE, ssize_t, has_offset ? real_at(fd, data, size, offset) : real(fd, data, size),
         record('W', inode_of(fd), (uint64_t)(has_offset ? offset : lseek(fd, 0, SEEK_CUR) - result), data,
                (size_t)result, "", 0));
}

ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[4096];
    ssize_t total = 0, written;
    REAL("writev", ssize_t, int, const struct iovec *, int);
    if (!path_of(fd, path))
        return real(fd, parts, count);
    for (int part = 0; part < count; part++) {
        written = parts[part].iov_len ? write(fd, parts[part].iov_base, parts[part].iov_len) : 0;
        if (written < 0)
            return total ? total : -1;
        total += written;
        if ((size_t)written < parts[part].iov_len)
            break;
    }
    return total;
}

static ssize_t read_at(int fd, void *data, size_t size, off_t offset, int has_offset) {
    char path[4096];
    REAL("read", ssize_t, int, void *, size_t);
    static ssize_t (*real_at)(int, void *, size_t, off_t);
    if (!real_at)
        real_at = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    CALL(failing_kinds & READ && path_of(fd, path), READ, ssize_t,
         has_offset ? real_at(fd, data, size, offset) : real(fd, data, size), (void)0);
}

ssize_t read(int fd, void *data, size_t size) { return read_at(fd, data, size, 0, 0); }
ssize_t pread(int fd, void *data, size_t size, off_t offset) { return read_at(fd, data, size, offset, 1); }
ssize_t pread64(int fd, void *data, size_t size, off_t offset) { return read_at(fd, data, size, offset, 1); }

static int truncate_open(int fd, off_t size) {
    char path[4096];
    REAL("ftruncate", int, int, off_t);
    CALL(path_of(fd, path), WRITE, int, real(fd, size), record('T', inode_of(fd), (uint64_t)size, "", 0, "", 0));
}

int ftruncate(int fd, off_t size) { return truncate_open(fd, size); }
int ftruncate64(int fd, off_t size) { return truncate_open(fd, size); }

static int truncate_named(const char *path, off_t size) {
    int fd = open(path, O_WRONLY), result;
    if (fd < 0)
        return -1;
    result = ftruncate(fd, size);
    close(fd);
    return result;
}

int truncate(const char *path, off_t size) { return truncate_named(path, size); }
int truncate64(const char *path, off_t size) { return truncate_named(path, size); }

/* Copies inside the kernel are refused: callers fall back to `read` and `write`. */
static ssize_t refuse_copy(int fd, ssize_t (*copy)(void *), void *arguments) {
    char path[4096];
    if (!path_of(fd, path))
        return copy(arguments);
    errno = EINVAL;
    return -1;
}

struct sending { int out, in; off_t *offset; size_t size; };
static ssize_t send_for_real(void *given) {
    struct sending *sending = given;
    REAL("sendfile", ssize_t, int, int, off_t *, size_t);
    return real(sending->out, sending->in, sending->offset, sending->size);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    struct sending sending = {out, in, offset, size};
    return refuse_copy(out, send_for_real, &sending);
}
ssize_t sendfile64(int out, int in, off_t *offset, size_t size) { return sendfile(out, in, offset, size); }

struct copying { int in; off_t *in_offset; int out; off_t *out_offset; size_t size; unsigned flags; };
static ssize_t copy_for_real(void *given) {
    struct copying *copying = given;
    REAL("copy_file_range", ssize_t, int, off_t *, int, off_t *, size_t, unsigned);
    return real(copying->in, copying->in_offset, copying->out, copying->out_offset, copying->size, copying->flags);
}
ssize_t copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t size, unsigned flags) {
    struct copying copying = {in, in_offset, out, out_offset, size, flags};
    return refuse_copy(out, copy_for_real, &copying);
}

int fsync(int fd) {
    char path[4096];
    REAL("fsync", int, int);
    CALL(path_of(fd, path), SYNC, int, real(fd), record('S', inode_of(fd), 0, "", 0, "", 0));
}

int fdatasync(int fd) {
    char path[4096];
    REAL("fdatasync", int, int);
    CALL(path_of(fd, path), SYNC, int, real(fd), record('S', inode_of(fd), 0, "", 0, "", 0));
}

static int rename_at(int from_folder, const char *from, int to_folder, const char *to) {
    char absolute_from[8192], absolute_to[8192];
    int watched = resolve(from_folder, from, absolute_from) | resolve(to_folder, to, absolute_to);
    REAL("renameat", int, int, const char *, int, const char *);
    CALL(watched, NAMES, int, real(from_folder, from, to_folder, to),
         record('R', 0, 0, absolute_from, strlen(absolute_from), absolute_to, strlen(absolute_to)));
}

int rename(const char *from, const char *to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return rename_at(from_folder, from, to_folder, to);
}

static int link_at(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char absolute_from[8192], absolute_to[8192];
    int watched = resolve(from_folder, from, absolute_from) | resolve(to_folder, to, absolute_to);
    REAL("linkat", int, int, const char *, int, const char *, int);
    CALL(watched, NAMES, int, real(from_folder, from, to_folder, to, flags),
         record('L', 0, 0, absolute_from, strlen(absolute_from), absolute_to, strlen(absolute_to)));
}

int link(const char *from, const char *to) { return link_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return link_at(from_folder, from, to_folder, to, flags);
}

static void record_symlink(const char *target, const char *path) {
    struct stat status;
    if (!lstat(path, &status))
        record('Y', status.st_ino, 0, path, strlen(path), target, strlen(target));
}

static int symlink_at(const char *target, int folder, const char *path) {
    char absolute[8192];
    REAL("symlinkat", int, const char *, int, const char *);
    CALL(resolve(folder, path, absolute), NAMES, int, real(target, folder, path), record_symlink(target, absolute));
}

int symlink(const char *target, const char *path) { return symlink_at(target, AT_FDCWD, path); }
int symlinkat(const char *target, int folder, const char *path) { return symlink_at(target, folder, path); }

static int unlink_at(int folder, const char *path, int flags) {
    char absolute[8192];
    REAL("unlinkat", int, int, const char *, int);
    CALL(resolve(folder, path, absolute), NAMES, int, real(folder, path, flags),
         record('U', 0, 0, absolute, strlen(absolute), "", 0));
}

int unlink(const char *path) { return unlink_at(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlink_at(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int folder, const char *path, int flags) { return unlink_at(folder, path, flags); }

static void record_folder(const char *path) {
    struct stat status;
    if (!stat(path, &status))
        record('M', status.st_ino, 0, path, strlen(path), "", 0);
}

static int make_folder(int folder, const char *path, mode_t mode) {
    char absolute[8192];
    REAL("mkdirat", int, int, const char *, mode_t);
    CALL(resolve(folder, path, absolute), NAMES, int, real(folder, path, mode), record_folder(absolute));
}

int mkdir(const char *path, mode_t mode) { return make_folder(AT_FDCWD, path, mode); }
int mkdirat(int folder, const char *path, mode_t mode) { return make_folder(folder, path, mode); }
