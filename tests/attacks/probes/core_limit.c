/* Tries to change the limit of core dumps to 0, by every way into the kernel, each in a child of its own, and says
 * "WAY ok" where the limit is another one afterwards and "WAY refused" where it is not. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIBRARY, SETRLIMIT, PRLIMIT, PRLIMIT_OLD, PARENT, INT80, WAYS };
static const char *names[WAYS] = {"library", "setrlimit", "prlimit64", "prlimit64-old", "of-the-parent", "int80"};

static void change(int way, struct rlimit *none, struct rlimit *old) {
    switch (way) {
    case LIBRARY: setrlimit(RLIMIT_CORE, none); break;
    case SETRLIMIT: syscall(SYS_setrlimit, RLIMIT_CORE, none); break;
    case PRLIMIT: syscall(SYS_prlimit64, 0, RLIMIT_CORE, none, NULL); break;
    case PRLIMIT_OLD: syscall(SYS_prlimit64, 0, RLIMIT_CORE, none, old); break;
    case PARENT: syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, none, NULL); break;
    case INT80: {
        /* setrlimit of 32-bit programs; both its numbers lie below 4 GiB, and are 0. */
        unsigned *narrow = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        long result = 75;
        __asm__ volatile("int $0x80" : "+a"(result) : "b"(RLIMIT_CORE), "c"(narrow) : "memory", "r8", "r9", "r10", "r11");
        break;
    }
    }
}

/* Whether the limit of the process, or of its parent, is not the one it began with. */
static int changed(int way, struct rlimit before) {
    struct rlimit now;
    prlimit(way == PARENT ? getppid() : 0, RLIMIT_CORE, NULL, &now);
    return now.rlim_cur != before.rlim_cur || now.rlim_max != before.rlim_max;
}

int main(void) {
    for (int way = 0; way < WAYS; way++) {
        /* A child and its child, so that "the parent" is not this process. */
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            pid_t inner = fork();
            if (inner == 0) {
                struct rlimit before, old, none = {0, 0};
                getrlimit(RLIMIT_CORE, &before);
                change(way, &none, &old);
                printf("%s %s\n", names[way], changed(way, before) ? "ok" : "refused");
                fflush(stdout);
                _exit(0);
            }
            waitpid(inner, NULL, 0);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return 0;
}
