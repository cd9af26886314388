/*
 * sandboxctl: the HTTP interface and this host from a shell.  The table of
 * verbs and nothing else.
 */

#include "ctl.h"
#include "options.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <curl/curl.h>


static const ctl_verb_t  ctl_verbs[] = {
    { "run", "run a command in a conversation's sandbox", ctl_run },
    { "logs", "what a command has written, and writes", ctl_logs },
    { "ps", "the commands of a conversation", ctl_ps },
    { "wait", "wait for a command's end, exit with its status", ctl_wait },
    { "cancel", "end a command and all its processes", ctl_cancel },
    { "put", "attach files, or put them into the container", ctl_put },
    { "get", "bring files here", ctl_get },
    { "ls", "list files, attachments, or a folder of the container",
      ctl_list },
    { "save", "keep a file of the container in the Files panel", ctl_save },
    { "link", "a URL of a file that needs no token", ctl_link },
    { "reset", "give a conversation a fresh sandbox", ctl_reset },
    { "rm", "end a conversation and all that is in it, or remove a file",
      ctl_remove },
    { "skills", "skills: pack one, put or add it, list, remove", ctl_skills },
    { "status", "the gateway's state and limits, or a conversation's",
      ctl_status },
    { "drain", "stop all sandboxes of this host, files kept", ctl_drain },
    { "doctor", "what this host lacks, and the remedy", ctl_doctor },
    { "token", "a token to try things with", ctl_token },
    { NULL, NULL, NULL }
};


static void
ctl_help(FILE *out)
{
    const ctl_verb_t  *verb;

    fprintf(out, "usage: sandboxctl VERB [options]\n\n");

    for (verb = ctl_verbs; verb->name != NULL; verb++) {
        fprintf(out, "  %-10s %s\n", verb->name, verb->summary);
    }

    fprintf(out, "\n'sandboxctl VERB --help' says more. It exits with 0, 1 "
            "for what failed, 2 for a\ncommand line that can't be; run and "
            "wait exit with the command's status, or 125.\n");
}


static int
ctl_unknown(const char *word)
{
    unsigned     n;
    const char  *near;
    const char  *names[sizeof(ctl_verbs) / sizeof(ctl_verbs[0])];

    for (n = 0; ctl_verbs[n].name != NULL; n++) {
        names[n] = ctl_verbs[n].name;
    }

    names[n] = NULL;
    near = ctl_nearest(word, names);

    if (near != NULL) {
        ctl_fault("there is no verb \"%s\", did you mean \"%s\"?", word, near);

    } else {
        ctl_fault("there is no verb \"%s\" (see --help)", word);
    }

    return CTL_USAGE;
}


int
main(int argc, char **argv)
{
    const ctl_verb_t  *verb;

    /* a reader that goes away is an error of write(), not our end */

    signal(SIGPIPE, SIG_IGN);

    if (argc < 2) {
        ctl_help(stderr);
        return CTL_USAGE;
    }

    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0
        || strcmp(argv[1], "help") == 0)
    {
        ctl_help(stdout);
        return CTL_OK;
    }

    if (strcmp(argv[1], "--version") == 0) {
        printf("sandboxctl %s\n", CTL_VERSION);
        return CTL_OK;
    }

    for (verb = ctl_verbs; verb->name != NULL; verb++) {
        if (strcmp(argv[1], verb->name) == 0) {
            ctl_set_verb(verb->name);
            curl_global_init(CURL_GLOBAL_DEFAULT);

            return verb->run(argc - 1, argv + 1);
        }
    }

    return ctl_unknown(argv[1]);
}
