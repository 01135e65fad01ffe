/* JSON from other nodes and from earlier versions: the report after a failure, and the facts that nodes send to doctor.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "trainer/job/postmortem/postmortem.h"
#include "trainer/tools/doctor/doctor.h"
#include "trainer/tools/doctor/facts_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void dump(const struct ct_facts *f, struct ct_str *out)
{
	ct_json *j = ct_facts_json(f);

	if (ct_json_dump(j, false, out) < 0)
		ct_error_clear(); /* a number that is not finite */
	ct_json_destroy(j);
}

/* Facts that were read are written and read again. Doctor must be able to judge them. */
static void judge(struct ct_facts *f)
{
	struct ct_link_facts links[4] = {{.tried = false}};
	struct ct_facts *nodes = CT_NEW_ARRAY(struct ct_facts, 2);
	struct ct_doctor d = {.cluster = {.nodes = nodes, .links = links, .n = 2}};
	struct ct_str first = {0}, second = {0}, text = {0};
	ct_json *j = NULL;

	dump(f, &first);
	if (!nodes || first.len == 0 || ct_json_parse(first.s, first.len, "again", &j) < 0 ||
	    ct_facts_parse(j, &nodes[1]) < 0) {
		ct_error_clear();
	} else {
		dump(&nodes[1], &second);
		if (strcmp(ct_str_text(&first), ct_str_text(&second)) != 0)
			__builtin_trap();
		nodes[0] = *f;
		if (ct_checks_run(&d.cluster, &d.findings) < 0)
			ct_error_clear();
		ct_doctor_text(&d, &text);
		ct_findings_release(&d.findings);
	}
	ct_json_destroy(j);
	ct_str_release(&text);
	ct_str_release(&second);
	ct_str_release(&first);
	ct_free(nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ct_facts *f = CT_NEW(struct ct_facts);
	struct ct_link_facts link;
	struct ct_str text = {0};
	ct_json *j = NULL;

	if (f && ct_json_parse((const char *)data, size, "fuzz", &j) == CT_OK) {
		ct_postmortem_text(j, &text);
		for (const char *p = ct_str_text(&text); *p; p++) {
			if ((unsigned char)*p < ' ' && *p != '\n')
				__builtin_trap();
		}
		if (ct_facts_parse(j, f) == CT_OK)
			judge(f);
		if (ct_link_parse(j, &link) < 0)
			ct_error_clear();
	}
	ct_error_clear();
	ct_json_destroy(j);
	ct_str_release(&text);
	ct_free(f);
	return 0;
}
