/*
 * Names of files, and other texts from elsewhere, as a terminal may have
 * them: nothing in them moves the cursor, hides or turns round what is beside
 * it.
 */

#ifndef SANDBOX_CTL_NAME_H
#define SANDBOX_CTL_NAME_H

#include <stddef.h>


/*
 * As a shell takes it: bare where that is the same, else in quotes; what may
 * not be shown is $'\x..' or $'\u....'.  The caller's; NULL: no memory.
 */
char *ctl_name_shell(const char *name, size_t size);

/* The same on one line of a text: what may not be shown becomes a blank. */
void ctl_name_blank(char *text);

/* Columns of a text that ctl_name_shell() has made. */
unsigned ctl_name_columns(const char *text);

/* Bytes of what of it fits into so many columns. */
size_t ctl_name_fit(const char *text, unsigned columns);


#endif /* SANDBOX_CTL_NAME_H */
