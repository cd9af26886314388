/*
 * The filter of system calls for commands where no runtime filters: decided
 * by an interpreter of the kernel's instructions.
 */

/* link: src/agent/agent_filter.c */

#include <errno.h>
#include <stddef.h>
#include <linux/audit.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <netinet/in.h>

#include "agent_filter.h"
#include "test.h"


#if (defined __aarch64__)
#define ARCH  AUDIT_ARCH_AARCH64
#else
#define ARCH  AUDIT_ARCH_X86_64
#endif

#define ALLOW       SECCOMP_RET_ALLOW
#define KILL        SECCOMP_RET_KILL_PROCESS
#define NO(error)   (SECCOMP_RET_ERRNO | (error))
#define WRONG       0x12345678u
#define HIGH        0x100000000ULL


static struct sock_filter  code[AGENT_FILTER_MOST];
static size_t              size;


static uint32_t
run(const struct seccomp_data *data)
{
    size_t                     at;
    uint32_t                   a, value;
    const struct sock_filter  *i;

    a = 0;

    for (at = 0; at < size; at++) {
        i = &code[at];

        switch (i->code) {

        case BPF_LD|BPF_W|BPF_ABS:
            if (i->k % 4 || i->k > sizeof(*data) - 4) {
                return WRONG;
            }

            memcpy(&value, (const char *) data + i->k, 4);
            a = value;
            break;

        case BPF_ALU|BPF_AND|BPF_K:
            a &= i->k;
            break;

        case BPF_JMP|BPF_JEQ|BPF_K:
            at += a == i->k ? i->jt : i->jf;
            break;

        case BPF_JMP|BPF_JGE|BPF_K:
            at += a >= i->k ? i->jt : i->jf;
            break;

        case BPF_JMP|BPF_JSET|BPF_K:
            at += a & i->k ? i->jt : i->jf;
            break;

        case BPF_RET|BPF_K:
            return i->k;

        default:
            return WRONG;
        }
    }

    return WRONG;
}


static uint32_t
call(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct seccomp_data  data;

    memset(&data, 0, sizeof(data));
    data.nr = (int) number;
    data.arch = ARCH;
    data.args[0] = a;
    data.args[1] = b;
    data.args[2] = c;
    data.args[3] = d;

    return run(&data);
}


static void
families(int network)
{
    int       family;
    uint32_t  inet;

    for (family = 0; family < 64; family++) {

        if (family == AF_UNIX) {
            continue;
        }

        inet = network && (family == AF_INET || family == AF_INET6)
               ? ALLOW : NO(EAFNOSUPPORT);

        if (call(SYS_socket, family, SOCK_STREAM, 0, 0) != inet
            || call(SYS_socket, HIGH | family, SOCK_STREAM, 0, 0) != inet
            || call(SYS_socketpair, family, SOCK_STREAM, 0, 0)
               != NO(EAFNOSUPPORT))
        {
            break;
        }
    }

    is_number(family, 64, "families of sockets, network %d", network);

    is_number(call(SYS_socket, AF_UNIX, SOCK_SEQPACKET, 0, 0), ALLOW,
              "AF_UNIX of any type");
    is_number(call(SYS_socketpair, AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC, 0, 0),
              ALLOW, "a pair of them");
    is_number(call(SYS_socket, HIGH | AF_UNIX, SOCK_STREAM, 0, 0), ALLOW,
              "of a family the kernel looks at one half");
    is_number(call(SYS_socket, -1, SOCK_STREAM, 0, 0), NO(EAFNOSUPPORT),
              "family -1");
}


static void
network(void)
{
    int  i, families[] = { AF_INET, AF_INET6 };

    for (i = 0; i < 2; i++) {
        is_number(call(SYS_socket, families[i], SOCK_DGRAM|SOCK_NONBLOCK,
                       IPPROTO_UDP, 0), ALLOW, "UDP");
        is_number(call(SYS_socket, families[i], SOCK_STREAM|SOCK_CLOEXEC,
                       IPPROTO_TCP, 0), ALLOW, "TCP");
        is_number(call(SYS_socket, families[i], SOCK_STREAM, 262, 0),
                  NO(EPROTONOSUPPORT), "MPTCP");
        is_number(call(SYS_socket, families[i], SOCK_DGRAM, IPPROTO_ICMP, 0),
                  NO(EPROTONOSUPPORT), "ping");
        is_number(call(SYS_socket, families[i], SOCK_RAW, IPPROTO_TCP, 0),
                  NO(EPERM), "raw");
        is_number(call(SYS_socket, families[i], SOCK_PACKET, 0, 0),
                  NO(EPERM), "packet");
    }
}


static void
others(void)
{
    long                 n;
    struct seccomp_data  data;

    is_number(call(SYS_read, 0, 0, 0, 0), ALLOW, "read");
    is_number(call(SYS_execve, 0, 0, 0, 0), ALLOW, "execve");
    is_number(call(SYS_openat, 0, 0, 0, 0), ALLOW, "openat");
    is_number(call(SYS_seccomp, 0, 0, 0, 0), ALLOW, "seccomp");
    is_number(call(SYS_io_uring_setup, 8, 0, 0, 0), NO(EPERM), "io_uring");
    is_number(call(SYS_io_uring_enter, 0, 0, 0, 0), NO(EPERM), "its second");
    is_number(call(SYS_io_uring_register, 0, 0, 0, 0), NO(EPERM),
              "its third");
    is_number(call(SYS_mount, 0, 0, 0, 0), NO(EPERM), "mount");
    is_number(call(SYS_unshare, 0, 0, 0, 0), NO(EPERM), "unshare");
    is_number(call(SYS_keyctl, 0, 0, 0, 0), NO(EPERM), "keyctl");
    is_number(call(SYS_bpf, 0, 0, 0, 0), NO(EPERM), "bpf");
    is_number(call(SYS_userfaultfd, 0, 0, 0, 0), NO(EPERM), "userfaultfd");
    is_number(call(SYS_io_setup, 0, 0, 0, 0), NO(ENOSYS), "io_setup");
    is_number(call(SYS_sync, 0, 0, 0, 0), NO(0), "sync says yes");
    is_number(call(-1, 0, 0, 0, 0), NO(ENOSYS), "-1");

    for (n = 600; n < 5000; n++) {
        if (call(n, 0, 0, 0, 0) != NO(ENOSYS)) {
            break;
        }
    }

    is_number(n, 5000, "what no kernel has");

    is_number(call(SYS_clone3, 0, 0, 0, 0), NO(ENOSYS), "clone3");
    is_number(call(SYS_clone, 0x11, 0, 0, 0), ALLOW, "clone");
    is_number(call(SYS_clone, 0x10000011, 0, 0, 0), NO(ENOSYS),
              "with a user namespace");
    is_number(call(SYS_clone, HIGH | 0x40000011, 0, 0, 0), NO(ENOSYS),
              "with a network namespace");

    is_number(call(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE), ALLOW, "mmap");
    is_number(call(SYS_mmap, 0, 4096, 0, MAP_HUGETLB), NO(EPERM), "huge");
    is_number(call(SYS_memfd_create, 0, MFD_CLOEXEC, 0, 0), ALLOW, "memfd");
    is_number(call(SYS_memfd_create, 0, MFD_HUGETLB, 0, 0), NO(EPERM),
              "huge memfd");
    is_number(call(SYS_shmget, 0, 0, SHM_HUGETLB, 0), NO(EPERM),
              "huge segment");

    is_number(call(SYS_prlimit64, 0, RLIMIT_NOFILE, 1, 0), ALLOW, "limit");
    is_number(call(SYS_prlimit64, 0, RLIMIT_CORE, 0, 1), ALLOW, "asked");
    is_number(call(SYS_prlimit64, 0, RLIMIT_CORE, 1, 0), NO(0), "core");
    is_number(call(SYS_prlimit64, 0, RLIMIT_CORE, HIGH, 0), NO(0),
              "core, at an address with a lower half of 0");
    is_number(call(SYS_prlimit64, 0, 16, 0, 0), NO(ENOSYS), "no limit");
    is_number(call(SYS_personality, 0xffffffff, 0, 0, 0), ALLOW, "asked");
    is_number(call(SYS_personality, 0x400000, 0, 0, 0), NO(ENOSYS),
              "READ_IMPLIES_EXEC");

    is_number(call(SYS_setsockopt, 3, SOL_SOCKET, SO_REUSEADDR, 0), ALLOW,
              "an option");
    is_number(call(SYS_setsockopt, 3, SOL_SOCKET, SO_ATTACH_FILTER, 0),
              NO(ENOPROTOOPT), "a program");
    is_number(call(SYS_setsockopt, 3, IPPROTO_TCP, 31, 0), NO(ENOPROTOOPT),
              "TCP_ULP");
    is_number(call(SYS_setsockopt, 3, IPPROTO_TCP, 1, 0), ALLOW, "TCP");
    is_number(call(SYS_setsockopt, 3, SOL_SOCKET, 128, 0), NO(ENOSYS),
              "unknown");
    is_number(call(SYS_setsockopt, 3, 270, 1, 0), NO(ENOSYS), "level");
    is_number(call(SYS_setsockopt, 3, IPPROTO_UDP, 103, 0), ALLOW, "UDP");

    memset(&data, 0, sizeof(data));
    data.nr = SYS_getpid;
    data.arch = AUDIT_ARCH_I386;
    is_number(run(&data), KILL, "int 0x80");

#if (defined __x86_64__)
    is_number(call(0x40000000 + SYS_getpid, 0, 0, 0, 0), KILL, "x32");
    is_number(call(SYS_setrlimit, RLIMIT_CORE, 0, 0, 0), NO(0), "setrlimit");
    is_number(call(SYS_setrlimit, RLIMIT_CPU, 0, 0, 0), ALLOW, "of others");
    is_number(call(SYS_open, 0, 0, 0, 0), ALLOW, "open");
#endif
}


int
main(void)
{
    int  i;

    for (i = 0; i < 2; i++) {
        size = agent_filter_build(code, AGENT_FILTER_MOST, i);
        ok(size > 0 && size < AGENT_FILTER_MOST, "it has room: %d", (int) size);

        families(i);
        others();

        if (i) {
            network();
        }
    }

    ok(agent_filter_build(code, size - 1, 1) == 0, "no room");
    ok(agent_filter_build(code, size, 1) == size, "just enough");

    return test_done();
}
