/*
 * UTF-8: where a text may be cut, and what in it is not text.
 * Knows nothing but bytes.
 */

#ifndef SANDBOX_UTF8_H
#define SANDBOX_UTF8_H

#include <stddef.h>
#include <stdint.h>


/*
 * Bytes of the valid sequence at p (1-4, no surrogates, no overlong forms,
 * at most U+10FFFF), 0 if there is none within `size` bytes.
 */
size_t sandbox_utf8_sequence(const uint8_t *p, size_t size);

/*
 * The most bytes, at most `size`, after which p can be cut without splitting
 * a sequence; up to 3 less than `size`.  Invalid bytes are cut anywhere.
 */
size_t sandbox_utf8_head(const uint8_t *p, size_t size);

/*
 * Bytes to skip at p, 0-3, so that what follows does not begin inside a
 * sequence that started before p.  At most `size`.
 */
size_t sandbox_utf8_tail(const uint8_t *p, size_t size);

/*
 * The character at p, of which there is at least one byte, and its bytes in
 * *n; UINT32_MAX, of one byte, where none begins.
 */
uint32_t sandbox_utf8_next(const uint8_t *p, size_t size, size_t *n);

/* 1: it does harm where people read: in a line of a log, on a terminal. */
int sandbox_utf8_hidden(uint32_t c);

/* Blanks for all of those. */
void sandbox_utf8_blank(uint8_t *p, size_t size);

/* 1: all of it is valid UTF-8 and has no NUL. */
int sandbox_utf8_text(const uint8_t *p, size_t size);


#endif /* SANDBOX_UTF8_H */
