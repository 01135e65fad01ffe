/* Facts as JSON, for the exchange between nodes and for `ctrain doctor --json`. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_FACTS_JSON_H
#define CT_TRAINER_TOOLS_DOCTOR_FACTS_JSON_H

#include "base/json.h"
#include "trainer/tools/doctor/facts.h"

ct_json *ct_facts_json(const struct ct_facts *f);
/* Fails with CT_DATA if a member is missing or has another type. */
enum ct_status ct_facts_parse(const ct_json *j, struct ct_facts *out) CT_MUST_CHECK;
ct_json *ct_link_json(const struct ct_link_facts *l);
enum ct_status ct_link_parse(const ct_json *j, struct ct_link_facts *out) CT_MUST_CHECK;

#endif
