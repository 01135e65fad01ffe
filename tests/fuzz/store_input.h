/* The store server's parser and requests without sockets, for the fuzzer and for tests. */
#ifndef CT_TESTS_FUZZ_STORE_INPUT_H
#define CT_TESTS_FUZZ_STORE_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Runs only the frame parser and the requests on `data` (fuzz_store.c describes its first byte). Never blocks. Fails
 * with CT_COMM if the server closes the connection. */
enum ct_status store_input(const uint8_t *data, size_t len) CT_MUST_CHECK;

#endif
