/*
 * The devices of a sandbox.
 */

#ifndef RUNNER_DEVICES_H
#define RUNNER_DEVICES_H


/*
 * Puts a /dev with null, zero, full, random, urandom and tty, the usual links,
 * and places for pts and shm over the one of this mount namespace, which is
 * the caller's alone.  Runtimes bind it into the container, where nobody can
 * change anything in it.  System calls only.  0, or -1 and errno.
 */
int runner_devices_mount(void);


#endif /* RUNNER_DEVICES_H */
