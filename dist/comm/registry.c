/* The list of communicator back ends, and the choice of "auto". */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "dist/store/net.h"

struct backend {
	const char *name;
	const struct ct_comm_ops *ops;     /* NULL if not built */
	const char *option; /* the CMake option that builds it; NULL: always built */
	/* Checks whether it can be used, and writes what is known about its library; NULL: always. */
	enum ct_status (*available)(char *note, size_t len);
};

static const struct backend backends[] = {
	{"self", &ct__comm_ops_self, NULL, NULL},
	{"shm", &ct__comm_ops_shm, NULL, NULL},
#ifdef CT_WITH_GLOO
	{"gloo", &ct__comm_ops_gloo, "CTRAIN_GLOO", ct__gloo_available},
	{"hier", &ct__comm_ops_hier, "CTRAIN_GLOO", ct__gloo_available},
#else
	{"gloo", NULL, "CTRAIN_GLOO", NULL},
	{"hier", NULL, "CTRAIN_GLOO", NULL},
#endif
#ifdef CT_WITH_MPI
	{"mpi", &ct__comm_ops_mpi, "CTRAIN_MPI", ct__mpi_available},
#else
	{"mpi", NULL, "CTRAIN_MPI", NULL},
#endif
};

bool ct_comm_backend_at(size_t i, const char **name, bool *available, char *why, size_t why_len)
{
	if (i >= CT_ARRAY_LEN(backends))
		return false;
	*name = backends[i].name;
	*available = backends[i].ops != NULL;
	if (*available)
		snprintf(why, why_len, "%s", "");
	else
		snprintf(why, why_len, "built with %s=OFF", backends[i].option);
	if (backends[i].available && backends[i].available(why, why_len) < 0) {
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

static const char *auto_backend(const struct ct_world *w)
{
	if (w->id.world <= 1)
		return "self";
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
	(void)CT_FAIL(CT_CONFIG, "there is no communicator \"%s\"", name);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	else
		ct_error_hint("dist.backend must be one of auto%s", ct_str_text(&list));
	ct_str_release(&list);
	return CT_CONFIG;
}

enum ct_status ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	const char *name = strcmp(backend, "auto") == 0 ? auto_backend(world) : backend;
	const struct backend *b = find(name);

	*out = NULL;
	if (!b)
		return unknown_backend(name);
	if (!b->ops) {
		(void)CT_FAIL(CT_UNSUPPORTED, "communicator \"%s\" is not available: this build has %s=OFF", name,
			      b->option);
		ct_error_hint("rebuild with -D%s=ON, or use a communicator that `ctrain info` lists as available",
			      b->option);
		return CT_UNSUPPORTED;
	}
	/* Check the name even if the back end needs no interface, so that a wrong name is found before the first run on
	 * two hosts. */
	if (world->id.world > 1 && opts->iface)
		CT_TRY(ct_net_check_iface(opts->iface));
	CT_TRY(ct__comm_open_with(world->id.world > 1 ? b->ops : &ct__comm_ops_self, world, opts, out));
	return CT_OK;
}
