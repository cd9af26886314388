/*
 * A system call that waits for the answer of a seccomp listener, which never
 * comes: the listener is stopped.
 */

#include "hide.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>


int
main(int argc, char **argv)
{
    struct sock_fprog   program;
    struct sock_filter  filter[4] = {
        BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW)
    };

    background(argc);

    program.len = 4;
    program.filter = filter;

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
            SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);

    if (fork() == 0) {
        syscall(SYS_getppid);
        forever();
    }

    usleep(20000);
    ready();
    raise(SIGSTOP);
    forever();
}
