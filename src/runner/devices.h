/*
 * The devices of a sandbox.
 */

#ifndef RUNNER_DEVICES_H
#define RUNNER_DEVICES_H


/*
 * Puts a /dev with null, zero, full, random, urandom and tty over the one of
 * this mount namespace, which is the caller's alone.  Runtimes bind what they
 * find there into the container.  System calls only.  0, or -1 and errno.
 */
int runner_devices_mount(void);


#endif /* RUNNER_DEVICES_H */
