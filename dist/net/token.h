/* Random numbers that no one can guess: tokens, which are shared secrets, and nonces. */
#ifndef CT_DIST_NET_TOKEN_H
#define CT_DIST_NET_TOKEN_H

#include "base/status.h"

#define CT_TOKEN_HEX 65

/* Fills n bytes from getrandom(2). */
enum ct_status ct_random_bytes(void *p, size_t n) CT_MUST_CHECK;
/* Writes n bytes as 2 * n lower-case hexadecimal digits and a terminating NUL. */
void ct_hex(const void *bytes, size_t n, char *out);
/* Makes a random 256-bit token in hexadecimal, with a terminating NUL. */
enum ct_status ct_token_make(char token[CT_TOKEN_HEX]) CT_MUST_CHECK;

#endif
