/* Measures the links from this node to the others. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_LINKS_IMPL_H
#define CT_TRAINER_TOOLS_DOCTOR_LINKS_IMPL_H

#include "trainer/tools/doctor/probe.h"

/* Tries the addresses of node `to` until one is reached. */
void ct__link_probe(const struct ct_cluster *c, int to, int port, const char nonce[CT_PROBE_NONCE], double seconds,
		    struct ct_link_facts *out);

#endif
