/* The implementations of MPI have different ABIs, so the module must be that of the launcher that has started this
 * process. The variables that launchers set show which one it is; the first implementation in the table that has such a
 * variable is used. For `ctrain info`, all modules that exist are loaded, which does not initialize MPI. */
#include "dist/comm/mpi/mpi_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dist/comm/comm_impl.h"

struct implementation {
	const char *name, *module;
	const char *signs[2]; /* variables that its launcher sets */
};

static const struct implementation implementations[] = {
	{"openmpi", "ctrain_mpi_openmpi.so", {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}},
	{"mpich", "ctrain_mpi_mpich.so", {"PMI_RANK", "PMI_SIZE"}},
};

static enum ct_status choose(const struct implementation **out)
{
	const char *own = getenv("CTRAIN_MPI");

	*out = NULL;
	for (size_t i = 0; i < CT_ARRAY_LEN(implementations) && !*out; i++) {
		const struct implementation *m = &implementations[i];

		if (own && own[0] ? strcmp(own, m->name) == 0 : getenv(m->signs[0]) || getenv(m->signs[1]))
			*out = m;
	}
	if (*out)
		return CT_OK;
	if (own && own[0]) {
		CT_FAIL(CT_UNSUPPORTED, "CTRAIN_MPI is \"%.60s\", which is not a supported implementation of MPI", own);
		return ct_error_hint("set it to openmpi or mpich, or unset it");
	}
	CT_FAIL(CT_UNSUPPORTED, "communicator \"mpi\" needs ranks that were started by mpirun or by srun --mpi");
	return ct_error_hint(
		"start the ranks with mpirun -n N ctrain CONFIG dist.backend=mpi, or use another dist.backend");
}

static enum ct_status load(const struct implementation *m, const struct ct_mpi_module **out)
{
	const void *module;

	CT_TRY(ct_module_open(m->module, "ct_mpi_module", &module));
	*out = module;
	return CT_OK;
}

enum ct_status ct__mpi_load(const struct ct_mpi_module **out)
{
	const struct implementation *m;

	CT_TRY(choose(&m));
	if (load(m, out) < 0) {
		ct_error_wrap("communicator \"mpi\" with %s", m->name);
		ct_error_hint(
			"build ctrain where the development files of this MPI are installed (scripts/setup.sh --mpi), "
			"or use the mpirun of another MPI");
		return CT_UNSUPPORTED;
	}
	return CT_OK;
}

enum ct_status ct__mpi_available(char *note, size_t len)
{
	static const char *const cuda[] = {"", ", not CUDA-aware", ", CUDA-aware"};
	struct ct_error first = {.status = CT_OK};
	size_t used = 0;

	snprintf(note, len, "%s", "");
	for (size_t i = 0; i < CT_ARRAY_LEN(implementations); i++) {
		const struct ct_mpi_module *module;
		struct ct_mpi_facts facts;

		if (load(&implementations[i], &module) < 0) {
			if (first.status == CT_OK)
				ct_error_save(&first);
			ct_error_clear();
			continue;
		}
		module->describe(&facts);
		used += (size_t)snprintf(note + used, used < len ? len - used : 0, "%s%s%s", used ? "; " : "",
					 facts.library, cuda[facts.cuda + 1]);
	}
	return used > 0 ? CT_OK : ct_error_restore(&first);
}

enum ct_status ct__mpi_supports(const struct ct_world *w)
{
	const struct ct_mpi_module *module;

	if (w->id.by == CT_LAUNCHER_CTRAIN) {
		CT_FAIL(CT_UNSUPPORTED,
			"communicator \"mpi\" needs ranks that were started by mpirun or srun, but ctrain's launcher "
			"started them");
		return ct_error_hint(
			"start the ranks with mpirun -n N ctrain CONFIG dist.backend=mpi, without --procs");
	}
	return ct__mpi_load(&module);
}
