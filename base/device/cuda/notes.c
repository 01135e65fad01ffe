/* The names of the kernels that were posted and may still run. CUDA returns an error of posted work from some later
 * call, without the name of the kernel, so a message can only list what may have failed. Work that was posted before a
 * wait that succeeded has not. Copies and fills, whose arguments CUDA checks when they are posted, are not noted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"

enum { LISTED = 8 }; /* more names than these are summarized */

void ct__cuda_note(ct_stream *base, const char *what)
{
	struct cuda_notes *n = &((struct cuda_stream *)base)->notes;
	char *to;

	if (((struct cuda_device *)base->device)->recording) /* it does not run now */
		return;
	to = n->names[n->posted++ % CT__CUDA_NOTES];
	if (base->posted && what)
		snprintf(to, CT__CUDA_NOTE_BYTES, "%s: %s", base->posted, what);
	else
		snprintf(to, CT__CUDA_NOTE_BYTES, "%s", base->posted ? base->posted : what);
}

void ct__cuda_note_done(struct cuda_device *d, const struct cuda_stream *stream, uint64_t posted)
{
	for (struct cuda_stream *s = d->streams; s; s = s->next) {
		if (s == stream && posted > s->notes.done)
			s->notes.done = posted;
	}
}

static const char *name_at(const struct cuda_notes *n, uint64_t i)
{
	return n->names[i % CT__CUDA_NOTES];
}

static void list(const struct cuda_notes *n, struct ct_str *out)
{
	for (uint64_t i = n->done; i < n->posted; i++)
		ct_str_addf(out, "%s\"%s\"", out->len > 0 ? ", " : "", name_at(n, i));
}

/* 231 from "conv1: cuDNN" to "fc: bias" */
static void summarize(const struct cuda_notes *n, struct ct_str *out)
{
	const uint64_t count = n->posted - n->done;

	ct_str_addf(out, "%s%llu kernel%s", out->len > 0 ? ", " : "", (unsigned long long)count, ct_plural((int)count));
	if (count > 1 && count <= CT__CUDA_NOTES)
		ct_str_addf(out, " from \"%s\"", name_at(n, n->done));
	ct_str_addf(out, count > 1 ? " to \"%s\"" : " \"%s\"", name_at(n, n->posted - 1));
}

void ct__cuda_suspects(const struct cuda_device *d, struct ct_str *out)
{
	struct ct_str names = {0};
	uint64_t count = 0;

	for (const struct cuda_stream *s = d->streams; s; s = s->next)
		count += s->notes.posted - s->notes.done;
	for (const struct cuda_stream *s = d->streams; s; s = s->next) {
		if (count <= LISTED)
			list(&s->notes, &names);
		else if (s->notes.posted > s->notes.done)
			summarize(&s->notes, &names);
	}
	if (count > 0)
		ct_str_addf(out, " reports that work has failed, probably %s%s", count > 1 ? "one of " : "",
			    ct_str_text(&names));
	ct_str_release(&names);
}

/* Whether each launch waits, so that errors are returned by the launch of the kernel that has failed. */
static bool is_blocking(void)
{
	const char *value = getenv("CUDA_LAUNCH_BLOCKING");

	return value && *value && strcmp(value, "0") != 0;
}

enum ct_status ct__cuda_posted(const ct_stream *s, cudaError_t e, const char *function)
{
	if (e == cudaSuccess)
		return CT_OK;
	return ct__cuda_is_permanent(e) && !is_blocking()
		       ? ct__cuda_work_failed((struct cuda_device *)s->device, e, function)
		       : ct_cuda_check((int)e, function);
}

enum ct_status ct_cuda_library_posted(ct_stream *base, enum ct_status st, const char *function)
{
	cudaStream_t s = ((struct cuda_stream *)base)->stream;
	enum cudaStreamCaptureStatus unused;
	cudaError_t e;

	if (st >= 0)
		return st;
	/* The last error of CUDA is not sufficient: the library may have cleared it. Captures do not allow queries. */
	e = ((struct cuda_device *)base->device)->recording ? cudaStreamIsCapturing(s, &unused) : cudaStreamQuery(s);
	return ct__cuda_is_permanent(e) ? ct__cuda_posted(base, e, function) : st;
}

enum ct_status ct_cuda_launched(ct_stream *s, int error, const char *kernel)
{
	char call[96];

	if (error == cudaSuccess) {
		ct__cuda_note(s, kernel);
		return CT_OK;
	}
	snprintf(call, sizeof(call), "cudaLaunchKernel (%s)", kernel);
	return ct__cuda_posted(s, (cudaError_t)error, call);
}
