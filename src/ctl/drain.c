/*
 * sandboxctl drain: before work on this host all its sandboxes stop, with
 * their files kept; and after it, --resume.
 */

#include "ctl.h"
#include "host.h"

#include <stdio.h>


#define CTL_DRAIN_WAIT     10                    /* seconds */
#define CTL_DRAIN_MAX      86400
#define CTL_DRAIN_SILENCE  15                    /* seconds without a PING */


typedef struct {
    ctl_host_options_t  host;
    ctl_values_t        state;
    ctl_values_t        wait;
    ctl_values_t        resume;
} ctl_drain_t;


int
ctl_drain(int argc, char **argv)
{
    int                  rc;
    long                 wait;
    uint8_t              b[64];
    ctl_host_t           host;
    sandbox_writer_t     head;

    static ctl_drain_t   drain;

    static const ctl_option_t  options[] = {
        { "wait", "TIME", "for what runs to come to its end (10s)", 1,
          &drain.wait, 0 },
        { "resume", NULL, "sandboxes may start again", 1, &drain.resume, 0 },
        CTL_HOST(&drain.host),
        { "state", "DIR", "of 'make run', has both of them (run)", 1,
          &drain.state, 0 },
        { NULL, NULL, NULL, 0, NULL, 0 }
    };

    static ctl_command_t  command = {
        .usage = "drain [options]",
        .about = "Root: stops all sandboxes of this host, their files stay. "
                 "None starts any more\nuntil --resume or a restart of "
                 "sandbox-runner: commands are refused with 503\n"
                 "runner_stopping. What still runs after the wait is "
                 "ended (runner_lost).\n",
        .options = options,
        .min = 0,
        .max = 0
    };

    rc = ctl_options_read(&command, argc, argv);

    if (rc != CTL_READ_OK) {
        return rc == CTL_READ_HELP ? CTL_OK : CTL_USAGE;
    }

    wait = CTL_DRAIN_WAIT;

    if (drain.wait.n) {
        wait = ctl_duration(ctl_value(&drain.wait, ""), CTL_DRAIN_MAX);

        if (wait == -1) {
            ctl_fault("\"%s\" is no time, such as 30s, 5m or 1h (at most "
                      "1d)", ctl_value(&drain.wait, ""));
            return CTL_USAGE;
        }
    }

    sandbox_writer_init(&head, b, sizeof(b));
    sandbox_write_number(&head, SANDBOX_TAG_WALL_MS, (uint64_t) wait * 1000);
    sandbox_write_number(&head, SANDBOX_TAG_DRAINING, drain.resume.n == 0);

    if (ctl_host_call(&drain.host, ctl_value(&drain.state, NULL),
                      SANDBOX_OPERATION_DRAIN, &head, CTL_DRAIN_SILENCE, 0,
                      &host)
        == -1)
    {
        return CTL_FAULT;
    }

    if (drain.resume.n) {
        printf("sandboxes start again\n");

    } else {
        printf("all has stopped; the files of %llu sandboxes are kept\n",
               (unsigned long long) host.number[SANDBOX_TAG_SANDBOXES]);
    }

    return CTL_OK;
}
