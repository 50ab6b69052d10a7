/* Calls system calls by number and says what the kernel answered.
 *
 *   syscalls all FIRST LAST     every number of the range, natively:  "native N ERRNO|ok|died|hung"
 *   syscalls named              the calls of the threat list, by the three ABIs
 *   syscalls arguments N A B C D ...   each number with its four arguments, natively
 *
 * Every call is made in a child of its own, first with every argument -1, which the kernel refuses by content, and
 * then (unless "careful") with every argument 0. A call counts as refused by the filter only when both say so: a
 * kernel's own EPERM rarely survives both. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum abi { NATIVE, X32, INT80 };

static long call(enum abi abi, long number, long arg) {
    if (abi == INT80) {
        long result = number;
        __asm__ volatile("push %%rbp; mov %[arg], %%rbp; int $0x80; pop %%rbp"
                         : "+a"(result)
                         : "b"(arg), "c"(arg), "d"(arg), "S"(arg), "D"(arg), [arg] "r"(arg)
                         : "memory", "r8", "r9", "r10", "r11");
        return (int)result;
    }
    long result = syscall(abi == X32 ? number | 0x40000000 : number, arg, arg, arg, arg, arg, arg);
    return result == -1 ? -errno : result;
}

/* What came of one call in a child: an errno, 0, -1 for died, -2 for hung. */
static int judge(enum abi abi, long number, long arg) {
    int ends[2];
    if (pipe(ends) != 0) exit(3);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) { perror("fork"); exit(3); }
    if (child == 0) {
        close(ends[0]);
        /* Or landlock_restrict_self is refused by the kernel itself, and looks filtered. */
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        long result = call(abi, number, arg);
        int answer = result < 0 && result >= -4095 ? (int)-result : 0;
        write(ends[1], &answer, sizeof answer);
        _exit(0);
    }
    close(ends[1]);
    /* A second is far more than any call needs that does not wait for something. */
    int status, waited = 0, answer = -1;
    for (int i = 0; i < 200 && !waited; i++) {
        waited = waitpid(child, &status, WNOHANG | __WALL) == child;
        struct timespec pause = {0, i < 20 ? 200000 : 5000000};
        if (!waited) nanosleep(&pause, 0);
    }
    if (!waited) {
        kill(child, SIGKILL);
        waitpid(child, &status, __WALL);
        answer = -2;
    } else if (read(ends[0], &answer, sizeof answer) != sizeof answer) {
        answer = -1;
    }
    close(ends[0]);
    return answer;
}

/* The same with four arguments, natively. */
static int judge_arguments(long number, char **words) {
    unsigned long long a[4];
    for (int i = 0; i < 4; i++) a[i] = strtoull(words[i], 0, 0);
    int ends[2];
    if (pipe(ends) != 0) exit(3);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) { perror("fork"); exit(3); }
    if (child == 0) {
        long result = syscall(number, a[0], a[1], a[2], a[3], 0, 0);
        int answer = result == -1 ? errno : 0;
        write(ends[1], &answer, sizeof answer);
        _exit(0);
    }
    close(ends[1]);
    int answer = -1, status;
    if (read(ends[0], &answer, sizeof answer) != sizeof answer) answer = -1;
    waitpid(child, &status, __WALL);
    close(ends[0]);
    return answer;
}

static void say(const char *abi, long number, int answer) {
    if (answer == -1) printf("%s %ld died\n", abi, number);
    else if (answer == -2) printf("%s %ld hung\n", abi, number);
    else if (answer == 0) printf("%s %ld ok\n", abi, number);
    else printf("%s %ld %d\n", abi, number, answer);
}

/* A filter's answer does not depend on the arguments: where two sets differ, the kernel itself spoke. */
static int both(enum abi abi, long number, int careful) {
    int first = judge(abi, number, -1);
    if ((first != EPERM && first != ENOSYS) || careful) return first;
    int second = judge(abi, number, 0);
    return second == first ? first : second;
}

int main(int argc, char **argv) {
    signal(SIGCHLD, SIG_DFL);
    int careful = argc > 4 && !strcmp(argv[4], "careful");
    if (argc > 3 && !strcmp(argv[1], "all")) {
        for (long n = atol(argv[2]); n <= atol(argv[3]); n++) {
            /* Hangs up the terminal whatever its arguments, where it is allowed. */
            if (careful && n == SYS_vhangup) continue;
            say("native", n, both(NATIVE, n, careful));
        }
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "arguments")) {
        for (int i = 2; i + 4 < argc; i += 5) say("native", atol(argv[i]), judge_arguments(atol(argv[i]), argv + i + 1));
        return 0;
    }
    /* name, 64-bit number, 32-bit number */
    static const struct { const char *name; int wide, narrow; } calls[] = {
        {"getpid", 39, 20},          {"add_key", 248, 286},        {"request_key", 249, 287}, {"keyctl", 250, 288},
        {"bpf", 321, 357},           {"perf_event_open", 298, 336}, {"userfaultfd", 323, 374}, {"io_uring_setup", 425, 425},
        {"io_uring_enter", 426, 426}, {"kexec_load", 246, 283},     {"init_module", 175, 128}, {"finit_module", 313, 350},
        {"delete_module", 176, 129}, {"open_by_handle_at", 304, 342}, {"mount", 165, 21},      {"umount2", 166, 52},
        {"pivot_root", 155, 217},    {"setns", 308, 346},          {"swapon", 167, 87},       {"reboot", 169, 88},
        {"settimeofday", 164, 79},   {"ptrace", 101, 26},
    };
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        printf("name %s %d %d\n", calls[i].name, calls[i].wide, calls[i].narrow);
        say("native", calls[i].wide, judge(NATIVE, calls[i].wide, -1));
        say("x32", calls[i].wide, judge(X32, calls[i].wide, -1));
        say("int80", calls[i].narrow, judge(INT80, calls[i].narrow, -1));
    }
    return 0;
}
