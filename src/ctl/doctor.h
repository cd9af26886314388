/*
 * What the files of sandboxctl doctor share.
 */

#ifndef SANDBOX_CTL_DOCTOR_H
#define SANDBOX_CTL_DOCTOR_H

#include "host.h"


#define CTL_ENGINE_VARIABLE  "ARCHESTRA_CODE_RUNTIME_DAGGER_RUNNER_HOST"
#define CTL_OWNER_SOCKET     "/run/sandbox/dagger.sock"
#define CTL_IMAGE            "127.0.0.1:5000/sandbox"
#define CTL_IMAGE_DIGEST     "/var/cache/sandbox/registry/digest"


/* options of the backend "dagger" */

typedef struct {
    ctl_values_t        engines;
    ctl_host_options_t  owner;
    ctl_values_t        image;
    ctl_values_t        digest;
    ctl_values_t        resolver;
} ctl_doctor_dagger_t;


/* Prints a line; 0 where all is good, else 1. */
int ctl_doctor_line(int good, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Engines, who owns their sessions, the image.  0, or 1 after a line that
 * says FAIL.  `state` is a directory of `make run`, or NULL.
 */
int ctl_doctor_dagger(ctl_doctor_dagger_t *dagger, const char *state);

/* By which route nginx would use an engine, and why. */
int ctl_doctor_route(const ctl_doctor_dagger_t *dagger, const char *engine);

/* Whether engines are named here, or by the environment, which is taken. */
int ctl_doctor_dagger_wanted(ctl_doctor_dagger_t *dagger);


#endif /* SANDBOX_CTL_DOCTOR_H */
