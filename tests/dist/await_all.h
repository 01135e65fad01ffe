/* A barrier of processes that share a store. */
#ifndef CT_TESTS_DIST_AWAIT_ALL_H
#define CT_TESTS_DIST_AWAIT_ALL_H

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/store/store.h"

/* Waits until n processes have called this function with the same name. */
static inline enum ct_status await_all(ct_store *s, const char *name, int n)
{
	char key[64], *value;
	int64_t came;
	size_t len;

	snprintf(key, sizeof(key), "%s/count", name);
	CT_TRY(ct_store_add(s, key, 1, &came));
	if (came == n)
		CT_TRY(ct_store_set(s, name, "", 0));
	CT_TRY(ct_store_get(s, name, ct_deadline_in(60 * CT_SEC), &value, &len));
	ct_free(value);
	return CT_OK;
}

#endif
