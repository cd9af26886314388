/*
 * Options of the egress proxy, checked here so that a mistake is told at
 * start, and not when the first sandbox needs it.
 */

#define _GNU_SOURCE
#include <limits.h>
#include <pwd.h>
#include <string.h>

#include "egress_address.h"
#include "file.h"
#include "options.h"


int
runner_option_egress(runner_options_t *options, const char *name,
    const char *value, runner_error_t *err)
{
    uint64_t        port;
    egress_range_t  range;

    if (strcmp(name, "egress") == 0) {
        if (value[0] != '/' || strlen(value) >= sizeof(options->egress)) {
            return runner_error(err, "bad_option", 0, "--egress \"%s\" must "
                                "be an absolute path", value);
        }

        strcpy(options->egress, value);
        return 0;
    }

    if (strcmp(name, "egress-user") == 0) {
        if (getpwnam(value) == NULL || getpwnam(value)->pw_uid == 0) {
            return runner_error(err, "bad_option", 0, "--egress-user \"%s\": "
                                "there is no such user, or it is root", value);
        }

        options->egress_user = value;
        return 0;
    }

    if (strcmp(name, "egress-resolver") == 0) {
        if (value[0] == '\0'
            || value[strspn(value, "0123456789abcdefABCDEF.:,[]")] != '\0')
        {
            return runner_error(err, "bad_option", 0, "--egress-resolver "
                                "\"%s\" is no list of addresses, such as "
                                "192.0.2.1:53,[2001:db8::1]:53", value);
        }

        options->egress_resolver = value;
        return 0;
    }

    if (strcmp(name, "egress-listen") == 0) {
        if (options->negress_listen == DAGGER_MAX_GATES) {
            return runner_error(err, "bad_option", 0, "--egress-listen stands "
                                "there more than %d times", DAGGER_MAX_GATES);
        }

        options->egress_listen[options->negress_listen++] = value;
        return 0;
    }

    if (strcmp(name, "egress-allow-address") == 0) {
        if (options->negress_allow == RUNNER_EGRESS_MAX_ALLOW
            || egress_range_read(value, &range) == -1)
        {
            return runner_error(err, "bad_option", 0, "--egress-allow-address "
                                "\"%s\" must be an address, or one with the "
                                "bits of its prefix, /%d (IPv6: /%d) at "
                                "least and no bit set beyond; at most %d of "
                                "them", value, EGRESS_MIN_PREFIX,
                                EGRESS_MIN_PREFIX6, RUNNER_EGRESS_MAX_ALLOW);
        }

        options->egress_allow[options->negress_allow++] = value;
        return 0;
    }

    if (options->negress_ports == RUNNER_EGRESS_MAX_PORTS
        || runner_number(value, 65535, &port) == -1 || port == 0)
    {
        return runner_error(err, "bad_option", 0, "--egress-allow-port \"%s\" "
                            "must be a number from 1 to 65535; at most %d of "
                            "them", value, RUNNER_EGRESS_MAX_PORTS);
    }

    options->egress_ports[options->negress_ports++] = value;

    return 0;
}
