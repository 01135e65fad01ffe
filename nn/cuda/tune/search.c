/* Threads take the choices in order and store what they find at the same index; the thread that measures takes the
 * results in order. While it measures, the threads are paused: it waits until those that are busy have finished their
 * choice, and they wait before the next one. They go on only when the next result is missing. A result is written
 * before its status is set under the lock, and read after the status has been seen there. An error is saved with the
 * result, because error chains belong to threads. */
#include "nn/cuda/tune/search.h"

#include <cuda_runtime_api.h>

#include "base/device/cuda_check.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_THREADS = 8, MAX_PLANS = 96 };

struct result {
	struct ct__cudnn_candidates found;
	enum ct_status status; /* CT_INPROGRESS: not known yet */
	struct ct_error error;
};

struct ct__plan_search {
	struct ct__cudnn_choice *const *choices;
	struct result *results;
	size_t n, next; /* next: the first choice that no thread has taken */
	int device, n_threads;
	int n_busy; /* threads that have taken a choice and not finished it */
	bool paused, stopped;
	struct ct_thread threads[MAX_THREADS];
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

/* Returns the next choice, or n at the end. */
static size_t next_choice(ct__plan_search *s)
{
	size_t i = s->n;

	pthread_mutex_lock(&s->lock);
	while (s->paused && !s->stopped)
		pthread_cond_wait(&s->changed, &s->lock);
	if (!s->stopped && s->next < s->n) {
		i = s->next++;
		s->n_busy++;
	}
	pthread_mutex_unlock(&s->lock);
	return i;
}

static void finish(ct__plan_search *s, size_t i, enum ct_status st)
{
	struct result *r = &s->results[i];

	if (st < 0) {
		ct_error_wrap("%s", s->choices[i]->name);
		ct_error_save(&r->error);
		ct_error_clear();
	}
	pthread_mutex_lock(&s->lock);
	r->status = st;
	s->n_busy--;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Each thread has a target of its own. */
static enum ct_status open_target(const ct__plan_search *s, ct__cudnn_target **out)
{
	CT_TRY(ct_cuda_check((int)cudaSetDevice(s->device), "cudaSetDevice"));
	return ct__cudnn_target_create(s->device, out);
}

static void *work(void *arg)
{
	ct__plan_search *s = arg;
	ct__cudnn_target *t = NULL;

	for (size_t i = next_choice(s); i < s->n; i = next_choice(s)) {
		const struct ct__cudnn_choice *one = s->choices[i];

		enum ct_status st = t ? CT_OK : open_target(s, &t);

		if (st == CT_OK)
			st = ct__cudnn_plan_find(one->graph, t, &one->filter, MAX_PLANS, &s->results[i].found);
		finish(s, i, st);
	}
	ct__cudnn_target_destroy(t);
	return NULL;
}

static enum ct_status start_threads(ct__plan_search *s)
{
	const size_t most = (size_t)ct_cpu_count() < MAX_THREADS ? (size_t)ct_cpu_count() : MAX_THREADS;

	while (s->n_threads < (int)(s->n < most ? s->n : most)) {
		CT_TRY(ct_thread_start(&s->threads[s->n_threads], "ct-plans", work, s));
		s->n_threads++;
	}
	return CT_OK;
}

enum ct_status ct__plan_search_start(struct ct__cudnn_choice *const *choices, size_t n, ct_device *device,
				     ct__plan_search **out)
{
	struct ct_device_info info;
	ct__plan_search *s;
	enum ct_status st;

	CT_TRY(ct_device_info(device, &info));
	CT_TRY_ALLOC(s = CT_NEW(ct__plan_search));
	s->choices = choices;
	s->n = n;
	s->device = info.index;
	pthread_mutex_init(&s->lock, NULL);
	ct_cond_init(&s->changed);
	s->results = CT_NEW_ARRAY(struct result, n);
	st = s->results ? CT_OK : CT_NOMEM;
	for (size_t i = 0; st == CT_OK && i < n; i++)
		s->results[i].status = CT_INPROGRESS;
	if (st == CT_OK)
		st = start_threads(s);
	if (st < 0) {
		ct__plan_search_stop(s);
		return st;
	}
	*out = s;
	return CT_OK;
}

enum ct_status ct__plan_search_take(ct__plan_search *s, size_t i, struct ct__cudnn_candidates *out)
{
	struct result *r = &s->results[i];

	pthread_mutex_lock(&s->lock);
	if (r->status == CT_INPROGRESS) {
		s->paused = false;
		pthread_cond_broadcast(&s->changed);
	}
	while (r->status == CT_INPROGRESS)
		pthread_cond_wait(&s->changed, &s->lock);
	s->paused = true;
	while (s->n_busy > 0)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	if (r->status < 0)
		return ct_error_restore(&r->error);
	*out = r->found;
	r->found = (struct ct__cudnn_candidates){0};
	return CT_OK;
}

void ct__plan_search_stop(ct__plan_search *s)
{
	pthread_mutex_lock(&s->lock);
	s->stopped = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < s->n_threads; i++)
		ct_thread_join(&s->threads[i]);
	for (size_t i = 0; s->results && i < s->n; i++)
		ct__cudnn_candidates_release(&s->results[i].found);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	ct_free(s->results);
	ct_free(s);
}
