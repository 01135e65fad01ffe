#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

enum { N_BUCKETS = 1024 };
static struct {
	pthread_mutex_t lock;
	struct soft__descriptor *buckets[N_BUCKETS];
	int n;
	uintptr_t n_created;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What the program gets is a number, never used again, and no address: a descriptor that was destroyed is always
 * recognized. */
static const uintptr_t first_handle = 0x5dd << 20;

static struct soft__descriptor **bucket(const void *handle)
{
	return &live.buckets[(uintptr_t)handle % N_BUCKETS];
}

struct soft__descriptor *soft__live(cudnnBackendDescriptor_t d, const char *function)
{
	struct soft__descriptor *found;

	pthread_mutex_lock(&live.lock);
	for (found = *bucket(d); found && found->handle != d; found = found->next)
		;
	pthread_mutex_unlock(&live.lock);
	if (!found)
		soft_gpu_fail("%s: %p is not a descriptor, or it was destroyed", function, d);
	return found;
}

struct soft__descriptor *soft__descriptor_create(cudnnBackendDescriptorType_t kind)
{
	struct soft__descriptor *d = calloc(1, sizeof(*d));

	if (!d)
		soft_gpu_fail("cudnn: out of memory");
	d->kind = kind;
	d->refs = 1;
	pthread_mutex_lock(&live.lock);
	d->handle = (void *)(first_handle + live.n_created++);
	d->next = *bucket(d->handle);
	*bucket(d->handle) = d;
	live.n++;
	pthread_mutex_unlock(&live.lock);
	return d;
}

void soft__descriptor_destroy(struct soft__descriptor *d)
{
	struct soft__descriptor **at;

	pthread_mutex_lock(&live.lock);
	for (at = bucket(d->handle); *at != d; at = &(*at)->next)
		;
	*at = d->next;
	live.n--;
	pthread_mutex_unlock(&live.lock);
	soft__consult_destroy(d);
	soft__descriptor_drop(d);
}

void soft__descriptor_drop(struct soft__descriptor *d)
{
	if (atomic_fetch_sub(&d->refs, 1) != 1)
		return;
	for (int i = 0; i < SOFT__MAX_VALUES; i++) {
		struct soft__value *v = &d->values[i];

		for (int64_t k = 0; v->data && v->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < v->n; k++)
			soft__descriptor_drop(((struct soft__descriptor **)v->data)[k]);
		free(v->data);
	}
	soft__graph_drop(d->graph);
	free(d);
}

int soft__descriptors(void)
{
	pthread_mutex_lock(&live.lock);
	int n = live.n;
	pthread_mutex_unlock(&live.lock);
	return n;
}

void soft__graph_keep(struct soft__descriptor *d, struct soft__graph *g)
{
	atomic_fetch_add(&g->refs, 1);
	soft__graph_drop(d->graph);
	d->graph = g;
}

void soft__graph_drop(struct soft__graph *g)
{
	if (g && atomic_fetch_sub(&g->refs, 1) == 1)
		free(g);
}
