/* Memory moves when a program needs more than all before it. The old block is freed when the posted work is done, and
 * n_blocks changes. Each program compares this number before a pass and sets its pointers again if it is another one,
 * so a program that no longer runs costs nothing. A plan of cuDNN has its pointers in a pack, which must then be made
 * again.
 *
 * Gradients alternate between two arenas when they are accumulated. A plan that writes them has a pack for each arena,
 * and the two are exchanged, so that packs are not made in every step. Pointers to parameters never change: they are
 * set when a program is compiled. */
#include <string.h>

#include "base/clock.h"
#include "nn/cuda/program/program.h"

static struct cuda_net *net_of(const struct cuda_program *p)
{
	return p->base.net->impl;
}

void *ct__cuda_at(const struct cuda_program *p, int buffer)
{
	return net_of(p)->memory[p->base.context].at + p->buffers[buffer].offset;
}

static void set_pointer(struct cuda_task *t, size_t field, const void *address)
{
	memcpy((char *)t + field, &address, sizeof(address));
}

/* The pack of a plan is made when its pointers are known, and again when they change. */
static enum ct_status make_pack(struct cuda_program *p, struct cuda_task *t)
{
	ct__cudnn_pack_destroy(t->plan.pack);
	t->plan.pack = NULL;
	return ct__cudnn_pack_create(t->plan.choice->graph, t->plan.pointers, net_of(p)->workspace.at, &t->plan.pack);
}

static bool uses_gradient(const struct cuda_program *p, int task)
{
	for (size_t i = 0; i < p->n_references; i++) {
		if (p->references[i].task == task && p->references[i].buffer == CUDA_NONE)
			return true;
	}
	return false;
}

/* Tasks that write gradients of parameters are completed by ct__cuda_bind_grads. */
static enum ct_status bind_tasks(struct cuda_program *p)
{
	p->bound_grads = p->other_grads = NULL;
	for (size_t i = 0; i < p->n_references; i++) {
		const struct cuda_reference *r = &p->references[i];

		if (r->buffer != CUDA_NONE)
			set_pointer(&p->tasks[r->task], r->field, ct__cuda_at(p, r->buffer));
	}
	for (size_t i = 0; i < p->n_tasks; i++) {
		if (p->tasks[i].kind == CUDA_PLAN && !uses_gradient(p, (int)i))
			CT_TRY(make_pack(p, &p->tasks[i]));
	}
	p->bound_blocks = net_of(p)->n_blocks;
	return CT_OK;
}

/* The old block is freed first, because both together would raise the peak of memory. */
static enum ct_status grow(ct_net *net, struct cuda_block *b, const char *purpose, size_t bytes)
{
	struct cuda_net *cn = net->impl;
	ct_device *d = net->engine->device;
	void *at;

	if (bytes <= b->bytes)
		return CT_OK;
	CT_TRY(ct_stream_sync(net->engine->stream, CT_FOREVER)); /* posted work uses the old block */
	ct_device_mem_free(d, b->at);
	*b = (struct cuda_block){0};
	cn->n_blocks++;
	ct_device_purpose(d, purpose);
	CT_TRY(ct_device_mem_alloc(d, bytes, false, &at));
	ct_device_purpose(d, NULL);
	*b = (struct cuda_block){.at = at, .bytes = bytes};
	return CT_OK;
}

/* Makes the blocks large enough for all programs in the list. */
static enum ct_status need_memory(ct_net *net)
{
	struct cuda_net *cn = net->impl;
	size_t workspace = 0;

	for (const struct cuda_program *p = cn->programs; p; p = p->next) {
		CT_TRY(grow(net, &cn->memory[p->base.context], "activations", p->plan.bytes));
		workspace = p->workspace_bytes > workspace ? p->workspace_bytes : workspace;
	}
	return grow(net, &cn->workspace, "the workspace", workspace);
}

static size_t activation_bytes(const ct_net *net)
{
	const struct cuda_net *cn = net->impl;
	size_t bytes = 0;

	for (int i = 0; i < net->opts.contexts; i++)
		bytes += cn->memory[i].bytes;
	return bytes;
}

/* Adds to a CT_NOMEM error how many rows would fit, if memory grows with the number of rows and the workspace stays. */
static enum ct_status hint_rows(const struct cuda_program *p)
{
	const struct cuda_net *cn = net_of(p);
	struct ct_device_info info;
	struct ct_error failure;

	ct_error_save(&failure);
	if (ct_device_info(p->base.net->engine->device, &info) == CT_OK && p->plan.bytes > 0) {
		const double available =
			(double)(info.free_bytes + activation_bytes(p->base.net) + cn->workspace.bytes) -
			(double)p->workspace_bytes;
		const double rows = 0.98 * available / ((double)p->plan.bytes / p->base.n) / p->base.net->opts.contexts;
		const int most = rows < 1 ? 0 : rows < p->base.n ? (int)rows : p->base.n - 1;

		(void)ct_error_restore(&failure);
		if (most > 0)
			ct_error_hint("about %d of these %d rows would fit", most, p->base.n);
		else
			ct_error_hint("not even one row would fit");
		return CT_NOMEM;
	}
	return ct_error_restore(&failure);
}

enum ct_status ct__cuda_bind(struct cuda_program *p)
{
	ct_net *net = p->base.net;
	struct cuda_net *cn = net->impl;

	p->next = cn->programs;
	cn->programs = p;
	enum ct_status st = need_memory(net);
	if (st < 0)
		return st == CT_NOMEM ? hint_rows(p) : st;
	CT_TRY(bind_tasks(p));
	const size_t bytes = activation_bytes(net);
	net->memory.activations = bytes > net->memory.activations ? bytes : net->memory.activations;
	net->memory.workspace =
		cn->workspace.bytes > net->memory.workspace ? cn->workspace.bytes : net->memory.workspace;
	p->base.memory.activations_unplanned = p->plan.unplanned_bytes;
	return CT_OK;
}

void ct__cuda_unbind(struct cuda_program *p)
{
	ct_device *d = p->base.net->engine->device;
	struct cuda_net *cn = net_of(p);
	struct cuda_program **at = &cn->programs;

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	if (cn->programs)
		return;
	ct_device_mem_free(d, cn->workspace.at);
	cn->workspace = (struct cuda_block){0};
	for (int i = 0; i < p->base.net->opts.contexts; i++) {
		ct_device_mem_free(d, cn->memory[i].at);
		cn->memory[i] = (struct cuda_block){0};
	}
}

enum ct_status ct__cuda_take_memory(struct cuda_program *p)
{
	CT_TRY(need_memory(p->base.net)); /* it is too small if an allocation failed when a program was created */
	return p->bound_blocks == net_of(p)->n_blocks ? CT_OK : bind_tasks(p);
}

enum ct_status ct__cuda_bind_grads(struct cuda_program *p, const ct_arena *grads)
{
	const ct_arena *before = p->bound_grads;
	const bool known = p->other_grads == grads;
	const ct_net *net = p->base.net;

	if (before == grads)
		return CT_OK;
	p->bound_grads = p->other_grads = NULL; /* in case of an error */
	for (size_t i = 0; i < p->n_references; i++) {
		const struct cuda_reference *r = &p->references[i];
		struct cuda_task *t = &p->tasks[r->task];

		if (r->buffer != CUDA_NONE)
			continue;
		set_pointer(t, r->field, ct_arena_at(grads, net->slices[net->slice_of[r->param]].offset));
		if (t->kind != CUDA_PLAN)
			continue;
		ct__cudnn_pack *pack = t->plan.pack;
		t->plan.pack = t->plan.other;
		t->plan.other = pack;
		if (!known)
			CT_TRY(make_pack(p, t));
	}
	p->bound_grads = grads;
	p->other_grads = before;
	return CT_OK;
}
