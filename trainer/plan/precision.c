#include "trainer/plan/precision.h"

#include <string.h>

#include "base/cpu/features.h"
#include "trainer/plan/devices.h"

static const char *const reasons[] = {
	"auto: the Tensor Cores of GPUs compute in bf16",
	"auto: this processor has AMX, which computes in bf16",
	"auto: this processor has no AMX, or train.isa excludes it",
	"auto: this engine computes in fp32 only",
};

static enum ct_precision choose(const struct ct_config *c, const char **why)
{
	const bool may_use_amx = c->train.isa == CT_ISA_AUTO || c->train.isa == CT_ISA_AMX;

	*why = reasons[0];
	if (!ct_plan_on_cpu(c))
		return CT_PRECISION_BF16;
	*why = reasons[3];
	if (strcmp(c->train.engine, "ref") == 0)
		return CT_PRECISION_FP32;
	*why = reasons[1];
	if (may_use_amx && ct_cpu_has(CT_CPU_AMX_BF16))
		return CT_PRECISION_BF16;
	*why = reasons[2];
	return CT_PRECISION_FP32;
}

enum ct_precision ct_plan_precision(const struct ct_config *c)
{
	const char *why;

	return c->precision == CT_PRECISION_AUTO ? choose(c, &why) : c->precision;
}

enum ct_status ct_plan_settle_precision(struct ct_config *c, const char *stored)
{
	const char *why = "auto: the run began with it";

	if (c->precision != CT_PRECISION_AUTO)
		return CT_OK;
	if (!stored)
		stored = ct_precision_name(choose(c, &why));
	return ct_config_settle(c, "precision", stored, why);
}

const char *ct_plan_precision_note(const struct ct_config *c)
{
	if (ct_config_origin_kind(c, "precision") == CT_ORIGIN_DERIVED)
		return ct_config_origin(c, "precision");
	if (c->precision == CT_PRECISION_FP32 && !ct_plan_on_cpu(c))
		return "without Tensor Cores; precision=auto is faster";
	return NULL;
}
