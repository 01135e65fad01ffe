/* Program, libraries and configuration. All must be equal on all nodes, and NCCL must have no known defect. Node 0 is
 * the reference, so n nodes give at most n - 1 findings of a kind. Different versions and configurations are errors,
 * different builds of one version and different libraries are warnings, and a build is not compared where the version
 * differs already. */
#include <string.h>

#include "trainer/tools/doctor/checks_impl.h"

void ct__check_version(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (strcmp(n->version, first->version) == 0)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_MISMATCH, n);

	ct_finding_what(f, "this node runs ctrain %s, node 0 (%s) ctrain %s", n->version, first->host, first->version);
	ct_finding_why(f, "ranks of different versions may exchange different messages and compute different results");
	ct_finding_fix(f, "install ctrain %s on %s; `which -a ctrain` shows which program is used", first->version,
		       n->host);
}

void ct__check_build(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (strcmp(n->version, first->version) != 0 || strcmp(n->build, first->build) == 0)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_MISMATCH, n);

	ct_finding_what(f, "this node runs the build %s, node 0 (%s) the build %s", n->build, first->host,
			first->build);
	ct_finding_why(f, "the builds come from different sources or options, so results may differ between ranks");
	ct_finding_fix(f, "copy the program and its modules from node 0 to %s, or use the same container image",
		       n->host);
}

void ct__check_libraries(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (strcmp(n->libraries, first->libraries) == 0)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_MISMATCH, n);

	ct_finding_what(f, "the libraries of this node are \"%s\", those of node 0 (%s) \"%s\"", n->libraries,
			first->host, first->libraries);
	ct_finding_why(f, "NCCL refuses to connect different versions, and oneDNN and cuDNN may round differently");
	ct_finding_fix(f, "install the same versions on %s, or use the same container image on all nodes", n->host);
}

void ct__check_nccl(const struct ct_facts *n, struct ct_findings *out)
{
	if (!n->nccl_defect[0])
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_UNSUPPORTED, n);

	ct_finding_what(f, "%s", n->nccl_defect);
	ct_finding_why(f, "ctrain refuses to train with this version and these options");
	ct_finding_fix(f, "%s", n->nccl_remedy);
}

void ct__check_config(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (strcmp(n->config, first->config) == 0)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_MISMATCH, n);

	ct_finding_what(f, "the configuration of this node is not the one of node 0 (%s)", first->host);
	ct_finding_why(f, "the ranks would compute different models or disagree about the order of collectives");
	ct_finding_fix(
		f,
		"pass the same file and the same options on all nodes; compare the output of `ctrain config dump CONFIG` on %s and %s",
		first->host, n->host);
}
