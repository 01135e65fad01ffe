/* The list of communicator back ends, and the choice of "auto": self for one rank, shm on one host, hier on several
 * hosts if one of them has several ranks, and otherwise gloo. With a GPU, it is nccl if all ranks can use it (auto.c),
 * and otherwise one of these, with copies through host memory. All ranks must make the same choice, or they would wait
 * for each other until the timeout. The choice therefore depends only on what all ranks know: the world, and the result
 * that rank 0 publishes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CT_LOG_COMPONENT "dist"
#include "base/device/device.h"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "dist/comm/kind.h"
#include "dist/net/net.h"

struct implementation {
	const struct ct_comm_ops *ops; /* NULL: not built, or in a module */
	const char *option;            /* the CMake option that builds it; NULL: always built */
	/* Checks whether it can be used, and writes what is known about its library; NULL: always. */
	enum ct_status (*available)(char *note, size_t len);
	enum ct_status (*version)(int *out); /* gets the version of its library as a number; NULL: unknown */
	enum ct_status (*load)(const struct ct_comm_ops **out); /* gets the table from a module; NULL: none */
	const char *why, *hint; /* why this build does not have it, and what to do; NULL or "": because of the option */
	const char *
		alone; /* environment variable that opens it in a world of one, too; NULL: a world of one gets "self" */
};

static const struct implementation backend_self = {.ops = &ct__comm_ops_self};
static const struct implementation backend_shm = {.ops = &ct__comm_ops_shm};
static const struct implementation backend_gloo = {
#ifdef CT_WITH_GLOO
	.ops = &ct__comm_ops_gloo,
	.available = ct__gloo_available,
#endif
	.option = "CTRAIN_GLOO"};
static const struct implementation backend_hier = {
#ifdef CT_WITH_GLOO
	.ops = &ct__comm_ops_hier,
	.available = ct__gloo_available,
#endif
	.option = "CTRAIN_GLOO"};
static const struct implementation backend_mpi = {
#ifdef CT_WITH_MPI
	.ops = &ct__comm_ops_mpi,
	.available = ct__mpi_available,
#endif
	.option = "CTRAIN_MPI"};
static const struct implementation backend_nccl = {
#ifdef CT_WITH_NCCL
	.available = ct__nccl_available,
	.version = ct__nccl_version,
	.load = ct__nccl_load,
#endif
	.option = "CTRAIN_CUDA",
	.why = CT_NCCL_WHY,
	.hint = CT_NCCL_HINT,
	.alone = "CTRAIN_NCCL_ALONE"};

static const struct backend {
	const char *name;
	const struct implementation *is;
} backends[] = {
#define ROW(name, traits) {#name, &backend_##name},
	CT_COMMS(ROW)};

static bool is_built(const struct backend *b)
{
	return b->is->ops || b->is->load;
}

static void why_not_built(const struct backend *b, char *why, size_t len)
{
	if (b->is->why && b->is->why[0])
		snprintf(why, len, "not in this build: %s", b->is->why);
	else
		snprintf(why, len, "built with %s=OFF", b->is->option);
}

bool ct_comm_backend_at(size_t i, const char **name, bool *available, char *why, size_t why_len)
{
	if (i >= CT_ARRAY_LEN(backends))
		return false;
	*name = backends[i].name;
	*available = is_built(&backends[i]);
	if (*available)
		snprintf(why, why_len, "%s", "");
	else
		why_not_built(&backends[i], why, why_len);
	if (backends[i].is->available && backends[i].is->available(why, why_len) < 0) {
		*available = false;
		snprintf(why, why_len, "%s", ct_error_message());
		ct_error_clear();
	}
	return true;
}

static const struct backend *find(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(backends); i++) {
		if (strcmp(backends[i].name, name) == 0)
			return &backends[i];
	}
	return NULL;
}

enum ct_status ct_comm_library_version(const char *name, int *out)
{
	const struct backend *b = find(name);

	if (b && b->is->version)
		return b->is->version(out);
	return CT_FAIL(CT_UNSUPPORTED, "no version is known for the communicator \"%s\"", name);
}

static const char *host_backend(const struct ct_world *w)
{
	if (w->n_hosts <= 1)
		return "shm";
	for (int i = 1; i < w->id.world; i++) {
		for (int j = 0; j < i; j++) {
			if (w->peers[i].node == w->peers[j].node)
				return "hier";
		}
	}
	return "gloo";
}

static enum ct_status choose(struct ct_world *w, const struct ct_comm_opts *opts, const char **out)
{
	const struct backend *nccl = find("nccl");
	const char *own_why = NULL;
	char own[256], why[320], note[64];
	bool can_use;

	*out = w->id.world <= 1 ? "self" : host_backend(w);
	if (w->id.world <= 1)
		return CT_OK;
	if (!opts->device || strcmp(ct_device_kind(opts->device), "cuda") != 0)
		return ct__comm_decline_nccl(w, opts);
	if (!is_built(nccl)) {
		why_not_built(nccl, own, sizeof(own));
		own_why = own;
	} else if (nccl->is->available(note, sizeof(note)) < 0) {
		snprintf(own, sizeof(own), "%s", ct_error_message());
		own_why = own;
		ct_error_clear();
	}
	CT_TRY(ct__comm_agree_on_nccl(w, opts, own_why, &can_use, why, sizeof(why)));
	if (can_use)
		*out = "nccl";
	else
		CT_INFO("gradients are copied through host memory, because NCCL cannot be used: %s", why);
	return CT_OK;
}

static enum ct_status unknown_backend(const char *name)
{
	const char *names[CT_ARRAY_LEN(backends) + 1] = {"auto"};
	struct ct_str list = {0};
	const char *near;

	for (size_t i = 0; i < CT_ARRAY_LEN(backends); i++) {
		names[i + 1] = backends[i].name;
		ct_str_addf(&list, ", %s", backends[i].name);
	}
	near = ct_suggest(name, names, CT_ARRAY_LEN(names));
	CT_FAIL(CT_CONFIG, "there is no communicator \"%s\"", name);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	else
		ct_error_hint("dist.backend must be one of auto%s", ct_str_text(&list));
	ct_str_release(&list);
	return CT_CONFIG;
}

static enum ct_status not_built(const struct backend *b)
{
	char why[256], how[64];

	why_not_built(b, why, sizeof(why));
	CT_FAIL(CT_UNSUPPORTED, "communicator \"%s\" is not available: %s", b->name, why);
	if (b->is->hint)
		snprintf(how, sizeof(how), "%s", b->is->hint);
	else
		snprintf(how, sizeof(how), "rebuild with -D%s=ON", b->is->option);
	ct_error_hint("%s, or use a communicator that `ctrain info` lists as available", how);
	return CT_UNSUPPORTED;
}

static enum ct_status get_ops(const struct backend *b, const struct ct_comm_ops **out)
{
	*out = b->is->ops;
	if (b->is->load && b->is->load(out) < 0)
		return ct_error_wrap("communicator \"%s\" is not available", b->name);
	return CT_OK;
}

/* A world of one has nothing to sum. CTRAIN_NCCL_ALONE uses nccl nevertheless, to measure what it adds to a step. */
static bool is_alone(const struct ct_world *world, const struct backend *b)
{
	return world->id.world <= 1 && !(b->is->alone && getenv(b->is->alone));
}

static enum ct_status check_ports(const char *backend, const struct ct_world *world, const struct ct_port_range *r)
{
	if (r->first == 0 || world->n_hosts < 2 || !ct_comm_has(backend, CT_COMM_OWN_PORTS))
		return CT_OK;
	CT_FAIL(CT_CONFIG,
		"dist.port_range=%d-%d cannot be used with communicator \"%s\", whose library chooses its ports",
		r->first, r->last, backend);
	return ct_error_hint(
		"limit the ports of all programs on each host (sysctl -w net.ipv4.ip_local_port_range=\"%d %d\"), set --master-port, "
		"and remove dist.port_range",
		r->first, r->last);
}

enum ct_status ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	const struct ct_comm_ops *ops = &ct__comm_ops_self;
	const struct backend *b;

	*out = NULL;
	if (strcmp(backend, "auto") == 0)
		CT_TRY(choose(world, opts, &backend));
	b = find(backend);
	if (!b)
		return unknown_backend(backend);
	CT_TRY(check_ports(backend, world, &opts->ports));
	if (!is_built(b))
		return not_built(b);
	/* Check the name even if the back end needs no interface, so that a wrong name is found before the first run on
	 * two hosts. */
	if (world->id.world > 1 && opts->iface)
		CT_TRY(ct_net_check_iface("dist.iface", opts->iface));
	if (!is_alone(world, b))
		CT_TRY(get_ops(b, &ops));
	CT_TRY(ct__comm_open_with(ops, world, opts, out));
	return CT_OK;
}
