/*
 * sandbox-egress: started by sandbox-runner, with the channel to it as
 * descriptor 3, and ended by the end of that channel.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "egress.h"
#include "file.h"


static int egress_main_options(egress_t *egress, int argc, char **argv);
static int egress_main_number(const char *text, uint64_t min, uint64_t max,
    uint64_t *value);


static egress_t  egress_main;


int
main(int argc, char **argv)
{
    int        type;
    egress_t  *egress;
    socklen_t  size;

    egress = &egress_main;

    if (egress_main_options(egress, argc, argv) == -1) {
        fprintf(stderr, "usage: sandbox-egress --root DIR --uid N --gid N "
                "[--resolver ADDRESS[:PORT][,...]]\n"
                "                      [--allow-address CIDR]... "
                "[--allow-port N]...\n"
                "sandbox-runner starts it; its options --egress-* end up "
                "here.\n");
        return 2;
    }

    type = 0;
    size = sizeof(type);

    if (getsockopt(EGRESS_FD_CHANNEL, SOL_SOCKET, SO_TYPE, &type, &size) == -1
        || type != SOCK_SEQPACKET)
    {
        fprintf(stderr, "sandbox-egress: descriptor 3 is not the runner\n");
        return 2;
    }

    signal(SIGPIPE, SIG_IGN);

    if (runner_loop_init(&egress->loop) == -1
        || egress_lookup_init(egress) == -1
        || egress_confine(egress) == -1
        || egress_control_start(egress, EGRESS_FD_CHANNEL) == -1)
    {
        return 1;
    }

    while (!egress->loop.done) {
        runner_loop_turn(&egress->loop);
    }

    return 0;
}


static int
egress_main_options(egress_t *egress, int argc, char **argv)
{
    int       option;
    uint64_t  n;

    static const struct option  options[] = {
        { "root",          required_argument, NULL, 'r' },
        { "uid",           required_argument, NULL, 'u' },
        { "gid",           required_argument, NULL, 'g' },
        { "resolver",      required_argument, NULL, 'd' },
        { "allow-address", required_argument, NULL, 'a' },
        { "allow-port",    required_argument, NULL, 'p' },
        { NULL,            0,                 NULL, 0 }
    };

    egress->ports[egress->nports++] = 443;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {

        switch (option) {

        case 'r':
            egress->root = optarg;
            break;

        case 'u':
        case 'g':
            if (egress_main_number(optarg, 1, UINT32_MAX - 1, &n) == -1) {
                return -1;
            }

            if (option == 'u') {
                egress->uid = n;

            } else {
                egress->gid = n;
            }

            break;

        case 'd':
            egress->resolver = optarg;
            break;

        case 'a':
            if (egress->nallowed == EGRESS_MAX_ALLOWED
                || egress_range_read(optarg,
                                     &egress->allowed[egress->nallowed++])
                   == -1)
            {
                return -1;
            }

            break;

        case 'p':
            if (egress->nports == EGRESS_MAX_PORTS
                || egress_main_number(optarg, 1, 65535, &n) == -1)
            {
                return -1;
            }

            egress->ports[egress->nports++] = n;
            break;

        default:
            return -1;
        }
    }

    return optind == argc && egress->root != NULL && egress->uid
           && egress->gid ? 0 : -1;
}


static int
egress_main_number(const char *text, uint64_t min, uint64_t max,
    uint64_t *value)
{
    return runner_number(text, max, value) == -1 || *value < min ? -1 : 0;
}
