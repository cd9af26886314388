/*
 * A command's result as the exit status of ours: what is not its own doing is
 * said in a sentence.
 */

#include "ctl.h"
#include "live.h"

#include <string.h>


int
ctl_live_status(const json_t *result)
{
    size_t         i;
    json_int_t     code;
    const char    *outcome, *name, *detail;
    const json_t  *status, *notices, *notice;

    notices = json_object_get(result, "stagingNotices");

    for (i = 0; i < json_array_size(notices); i++) {
        notice = json_array_get(notices, i);
        name = json_string_value(json_object_get(notice, "name"));
        detail = json_string_value(json_object_get(notice, "detail"));

        ctl_fault("attachment %s: %s", name != NULL ? name : "?",
                  detail != NULL ? detail : "was not staged");
    }

    outcome = json_string_value(json_object_get(result, "outcome"));
    status = json_object_get(result, "exitCode");
    code = json_is_integer(status) ? json_integer_value(status) : -1;

    if (outcome == NULL) {
        ctl_fault("the result has no outcome");
        return CTL_SERVICE;
    }

    if (strcmp(outcome, "runner_lost") == 0
        || strcmp(outcome, "sandbox_deleted") == 0)
    {
        ctl_fault("the sandbox was gone before the command had ended (%s)",
                  outcome);
        return CTL_SERVICE;
    }

    if (code < 0 || code > 255) {
        ctl_fault("the command has no exit status (%s)", outcome);
        return CTL_SERVICE;
    }

    if (strcmp(outcome, "exit") != 0 && strcmp(outcome, "signal") != 0
        && ctl_live_signal() == 0)
    {
        ctl_fault("the command was ended early (%s)", outcome);
    }

    return (int) code;
}
